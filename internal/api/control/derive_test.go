package control

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/task"
)

func TestDerive(t *testing.T) {
	begun, ended := at(1), at(5)
	base := task.Record{ID: "a11111111", Run: "run_1", Kind: task.LocalAgent, Session: "s00000000", AgentType: "explore", Name: "scout", ToolUseID: "toolu_1", StartTime: &begun}
	with := func(change func(*task.Record)) task.Record {
		r := base
		change(&r)
		return r
	}
	over := func(s task.Status, reason task.Reason) func(*task.Record) {
		return func(r *task.Record) {
			r.Status, r.EndTime, r.Cause = s, &ended, &task.Cause{Reason: reason}
			r.Usage = &task.Usage{TotalTokens: 7, ToolUses: 2, DurationMS: 4000}
		}
	}
	who := `"agentId":"a11111111","agentType":"explore","name":"scout","runId":"run_1","sessionId":"s00000000","toolCallId":"toolu_1"`
	now := `"timestamp":"2030-01-01T00:00:09Z"`
	used := `"usage":{"totalTokens":7,"toolCalls":2,"durationMs":4000}`
	for _, c := range []struct {
		name string
		verb task.Verb
		task task.Record
		want []string
	}{
		{"begin", task.Begin, with(func(r *task.Record) { r.Status = task.Running }), []string{`subagent_session_boundary {"type":"start",` + who + `,` + now + `}`}},
		{"rest", task.Rest, with(func(r *task.Record) { r.Status, r.Idle = task.Running, true }), []string{`agent_idle {"status":"idle",` + who + `,` + now + `}`}},
		{"completed", task.Complete, with(over(task.Completed, task.ReasonDone)), []string{
			`subagent_session_boundary {"type":"end",` + who + `,"reason":"done",` + now + `}`,
			`agent_completed {"status":"completed",` + who + `,"reason":"done",` + used + `,` + now + `}`}},
		{"failed", task.Fail, with(func(r *task.Record) { over(task.Failed, task.ReasonError)(r); r.Error = "no" }), []string{
			`subagent_session_boundary {"type":"failure",` + who + `,"error":"no","reason":"error",` + now + `}`,
			`agent_completed {"status":"failed",` + who + `,"error":"no","reason":"error",` + used + `,` + now + `}`}},
		{"killed", task.Stop, with(over(task.Killed, task.ReasonStopped)), []string{
			`subagent_session_boundary {"type":"failure",` + who + `,"reason":"stopped",` + now + `}`,
			`agent_completed {"status":"cancelled",` + who + `,"reason":"stopped",` + used + `,` + now + `}`}},
		{"queued", task.Stop, with(func(r *task.Record) { over(task.Killed, task.ReasonStopped)(r); r.StartTime = nil }), []string{
			`agent_completed {"status":"cancelled",` + who + `,"reason":"stopped",` + used + `,` + now + `}`}},
		{"mcp-task", task.Complete, with(func(r *task.Record) {
			over(task.Completed, task.ReasonDone)(r)
			r.Kind, r.AgentType = task.MCPTask, "mcp-task"
		}), []string{
			`subagent_session_boundary {"type":"end",` + strings.ReplaceAll(who, "explore", "mcp-task") + `,"reason":"done",` + now + `}`,
			`agent_completed {"status":"completed",` + strings.ReplaceAll(who, "explore", "mcp-task") + `,"reason":"done",` + used + `,` + now + `}`}},
		{"report", task.Report, with(func(r *task.Record) { r.Status = task.Running }), nil},
		{"shell", task.Complete, with(func(r *task.Record) { over(task.Completed, task.ReasonDone)(r); r.Kind = task.LocalBash }), nil},
		{"main", task.Complete, with(func(r *task.Record) { over(task.Completed, task.ReasonDone)(r); r.AgentType = task.MainSession }), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			for _, d := range derive(task.Event{Seq: 3, Verb: c.verb, At: at(9), Task: c.task}) {
				data, err := json.Marshal(d.data)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, d.name+" "+string(data))
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

// TestBoundaries drives an agent through lives of every sort: as many ends and
// failures as starts, always in turn, and one agent_completed for every run.
func TestBoundaries(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := task.Record{ID: "a11111111", Run: "run_1", Kind: task.LocalAgent, Status: task.Pending}
		open, runs, completed := false, 1, 0
		for _, v := range rapid.SliceOfN(rapid.SampledFrom(task.Verbs()), 0, 60).Draw(t, "verbs") {
			change := lifecycle.Change{Verb: v, At: at(1), Run: task.RunID(fmt.Sprint("run_", runs+1)), Question: &task.Question{ID: "q"}, Answered: &task.Answered{}, Attempt: &task.Attempt{}}
			next, err := lifecycle.Apply(r, change)
			if err != nil {
				continue
			}
			if r = next; v == task.Resume {
				runs++
			}
			for _, d := range derive(task.Event{Verb: v, At: at(1), Task: r}) {
				data := d.data.(agentData)
				switch {
				case d.name == agentCompletedEvent:
					completed++
				case d.name != boundaryEvent:
				case (data.Type == "start") == open:
					t.Fatalf("%s while open is %v", data.Type, open)
				default:
					open = !open
				}
			}
			if begun := !r.Status.Terminal() && r.StartTime != nil; open != begun {
				t.Fatalf("%s, and the boundary is open: %v", r.Status, open)
			}
		}
		if want := runs; r.Status.Terminal() && completed != want || !r.Status.Terminal() && completed != want-1 {
			t.Fatalf("%d runs, %s, %d agent_completed", runs, r.Status, completed)
		}
	})
}

// agentLife is a session in which an agent has lived, and a command.
func agentLife() *fake {
	f := newFake()
	f.mu.Lock()
	defer f.mu.Unlock()
	begun := at(1)
	r := task.Record{ID: "a1", Name: "scout", Kind: task.LocalAgent, Status: task.Pending}
	f.emit(task.Create, r)
	r.Status, r.StartTime = task.Running, &begun
	f.emit(task.Begin, r)
	f.emit(task.Create, task.Record{ID: "b1", Kind: task.LocalBash, Status: task.Pending})
	r.Status = task.Completed
	f.emit(task.Complete, r)
	return f
}

// sse reads a stream by hand.
func (w *wire) sse(t *testing.T, path string) (next func() frame) {
	t.Helper()
	c := w.raw(t, "GET "+path+" HTTP/1.1\r\nHost: d\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%v, %v", resp, err)
	}
	got := make(chan frame, 100)
	go func() { // ends with the connection
		defer close(got)
		for f, err := range frames(resp.Body) {
			if err != nil {
				return
			}
			f.data = bytes.Clone(f.data)
			got <- f
		}
	}()
	t.Cleanup(func() {
		_ = c.Close()
		for range got {
		}
	})
	return func() frame { t.Helper(); return recv(t, got, "frame") }
}

// TestNames is the order of a stream under both sorts of names, and what a
// reader gets that takes it up again.
func TestNames(t *testing.T) {
	f := agentLife()
	f.turn(State{Idle: true, IdleCount: 3, Seq: 4, Completed: &Completion{N: 2, Summary: "did it", Success: true}})
	w := serve(t, NewServer(f))
	all := []string{"1 create", "2 begin", " subagent_session_boundary", "3 create", "4 complete", " subagent_session_boundary", " agent_completed",
		" session.task_complete", " session.idle"}
	for from, skip := range map[int]int{0: 0, 1: 1, 2: 3, 3: 4} {
		next := w.sse(t, fmt.Sprintf("/v1/events?after=%d&names=all", from))
		for _, want := range all[skip:] {
			if got := next(); got.id+" "+got.event != want {
				t.Errorf("after %d: got %s %s, want %s", from, got.id, got.event, want)
			}
		}
	}
	next := w.sse(t, "/v1/events?names=own")
	for _, want := range []string{"1 create", "2 begin", "3 create", "4 complete"} {
		if got := next(); got.id+" "+got.event != want {
			t.Errorf("own: got %s %s, want %s", got.id, got.event, want)
		}
	}
	f.turn(State{Idle: true, IdleCount: 4, Seq: 4})
	f.add(task.Record{ID: "b2"})
	if got := next(); got.event != "create" {
		t.Errorf("own: got %s", got.event)
	}
	if resp, _ := w.get(t, "/v1/events?names=some"); resp.StatusCode != http.StatusBadRequest {
		t.Errorf("unknown names: %s", resp.Status)
	}
}

// TestStateStream is how the state of the session comes among the events: not
// before what led to it, and once.
func TestStateStream(t *testing.T) {
	f := newFake()
	w := serve(t, NewServer(f))
	next := w.sse(t, "/v1/events")
	turn := func(s State) { // returns when the stream has taken it in
		f.turn(s)
		for recv(t, f.known, "look at the state") != f.state.Version {
		}
	}
	turn(State{Idle: true, IdleCount: 1, Seq: 2, Completed: &Completion{N: 1, Summary: "all done", Success: true}})
	f.add(task.Record{ID: "b1"})
	f.add(task.Record{ID: "b2"})
	for _, want := range []string{"create", "create", taskCompleteEvent, idleEvent} {
		got := next()
		if got.event != want {
			t.Fatalf("got %s, want %s", got.event, want)
		}
		if want == taskCompleteEvent && string(got.data) != `{"n":1,"summary":"all done","success":true}` || want == idleEvent && string(got.data) != `{"n":1}` {
			t.Errorf("%s: %s", want, got.data)
		}
	}
	turn(State{Idle: true, IdleCount: 1, Seq: 2, Completed: &Completion{N: 1}}) // nothing that is new
	turn(State{IdleCount: 1, Seq: 2})                                           // at work
	turn(State{Idle: true, IdleCount: 2, Seq: 2})
	if got := next(); got.event != idleEvent || string(got.data) != `{"n":2}` {
		t.Errorf("got %s %s", got.event, got.data)
	}
}

// TestForeign has a client meet names that are not ours: it passes over them.
func TestForeign(t *testing.T) {
	f := agentLife()
	f.turn(State{Idle: true, IdleCount: 1, Seq: 1})
	w := serve(t, NewServer(f))
	for e, err := range w.client.Events(t.Context(), 0) {
		if err != nil || e.Seq == 0 {
			t.Fatalf("%+v, %v", e, err)
		}
		if e.Seq == 4 {
			break
		}
	}
	// A server of another age sends them although nobody asked.
	stream := "id: 1\nevent: create\ndata: {\"seq\":1}\n\nevent: session.idle\ndata: {}\n\nevent: error\ndata: {\"code\":\"internal\"}\n\n"
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	other := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(protocolHeader, Protocol)
		_, _ = io.WriteString(w, stream)
	})}
	served := make(chan error, 1)
	go func() { served <- other.Serve(l) }()
	c := Dial(socket)
	t.Cleanup(func() {
		_ = c.Close()
		_ = other.Close()
		<-served
	})
	var known []string
	for e, err := range c.Events(t.Context(), 0) {
		if known = append(known, fmt.Sprint(e.Seq)); err != nil {
			known = append(known, string(AsError(err).Code))
		}
	}
	if !slices.Equal(known, []string{"1", "0", "internal"}) {
		t.Errorf("%q", known)
	}
}

// A session that cannot tell its state, or breaks over it, streams its events
// all the same.
func TestStateBroken(t *testing.T) {
	w := serve(t, NewServer(&dumb{agentLife()}))
	next := w.sse(t, "/v1/events?after=3")
	for _, want := range []string{"complete", boundaryEvent, agentCompletedEvent} {
		if got := next(); got.event != want {
			t.Errorf("got %s, want %s", got.event, want)
		}
	}
	if resp, body := w.get(t, "/v1/state?wait_ns=-1"); resp.StatusCode != http.StatusBadRequest || !strings.Contains(body, "wait_ns") {
		t.Errorf("%s %s", resp.Status, body)
	}
}

// dumb is a session whose state is broken.
type dumb struct{ *fake }

func (*dumb) State(context.Context, StateRequest) (State, error) { panic("broken") }
