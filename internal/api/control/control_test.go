package control

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/drover-dev/drover/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 10 * time.Second

// recv waits for a value with a deadline.
func recv[T any](t *testing.T, ch <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(patience):
		t.Fatalf("no %s", what)
		panic("unreachable")
	}
}

type wire struct {
	socket string
	client *Client
	stop   context.CancelFunc
	served chan error
}

func serve(t *testing.T, s *Server) *wire {
	t.Helper()
	w := &wire{socket: filepath.Join(t.TempDir(), "s"), served: make(chan error, 1)}
	l, err := net.Listen("unix", w.socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	w.stop = stop
	go func() { w.served <- s.Serve(ctx, l); close(w.served) }()
	w.client = Dial(w.socket)
	t.Cleanup(func() {
		stop()
		_ = recv(t, w.served, "end of the server")
		_ = w.client.Close()
	})
	return w
}

// raw speaks HTTP by hand.
func (w *wire) raw(t *testing.T, request string) net.Conn {
	t.Helper()
	c, err := net.Dial("unix", w.socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	return c
}

func (w *wire) get(t *testing.T, path string, header ...string) (*http.Response, string) {
	t.Helper()
	c := w.raw(t, "GET "+path+" HTTP/1.1\r\nHost: drover\r\nConnection: close\r\n"+strings.Join(header, "\r\n")+strings.Repeat("\r\n", min(len(header), 1)+1))
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

// TestSame runs one list of calls in process and over the socket: a face
// cannot tell them apart.
func TestSame(t *testing.T) {
	ended := at(5)
	odd := "dir/../x ?#%20\n✓"
	seed := func() *fake {
		f := newFake()
		f.add(task.Record{ID: "baaaaaaaa", Name: "one", Status: task.Running, CreateTime: at(1), Checkpoint: []byte{0, 255}})
		f.add(task.Record{ID: "baaaabbbb", Name: "two", Status: task.Completed, CreateTime: at(2), EndTime: &ended, Cause: &task.Cause{Actor: task.ByItself, Reason: task.ReasonDone}})
		f.add(task.Record{ID: "bcccccccc", Name: odd, Status: task.Pending, CreateTime: at(3), Parent: "baaaaaaaa", Description: "<b>&\u2028"})
		f.add(task.Record{ID: "bdddddddd", Name: "..", Status: task.Running, CreateTime: at(4)})
		f.open = []task.Question{
			{ID: "q1", Kind: task.Permission, Task: "baaaaaaaa", Agent: "a<b>", Tool: "Bash", Input: json.RawMessage(`{"command":"<&\u2028"}`), Digest: "d1", At: at(1), Until: at(9)},
			{ID: "q2", Kind: task.Choice, Task: "baaaaaaaa", Tool: "AskUser", Hidden: 7, Digest: "d2", At: at(2)},
		}
		f.state = State{Idle: true, IdleCount: 2, Completed: &Completion{N: 1, Summary: "a<b>&\u2028", Success: true}, Version: 3, Seq: 4}
		return f
	}
	grace := time.Duration(0)
	type answer struct {
		v   any
		err error
	}
	calls := []struct {
		name string
		do   func(context.Context, API) (any, error)
	}{
		{"info", func(ctx context.Context, a API) (any, error) { return a.Info(ctx) }},
		{"start", func(ctx context.Context, a API) (any, error) {
			return a.Start(ctx, []StartRequest{{Name: "n1", Cwd: "/", Shell: &ShellRequest{Args: []string{"a", "<"}}, Timeout: time.Second}, {Name: "bad"}})
		}},
		{"start-none", func(ctx context.Context, a API) (any, error) { return a.Start(ctx, nil) }},
		{"list", func(ctx context.Context, a API) (any, error) { return a.List(ctx, ListRequest{}) }},
		{"list-all", func(ctx context.Context, a API) (any, error) { return a.List(ctx, ListRequest{All: true}) }},
		{"list-page", func(ctx context.Context, a API) (any, error) { return a.List(ctx, ListRequest{All: true, Limit: 2}) }},
		{"list-next", func(ctx context.Context, a API) (any, error) {
			return a.List(ctx, ListRequest{All: true, Limit: 2, Before: 3})
		}},
		{"list-under", func(ctx context.Context, a API) (any, error) { return a.List(ctx, ListRequest{Under: "baaaaaaaa"}) }},
		{"list-empty", func(ctx context.Context, a API) (any, error) { return a.List(ctx, ListRequest{Under: "bnone"}) }},
		{"get", func(ctx context.Context, a API) (any, error) { return a.Get(ctx, "one") }},
		{"get-odd", func(ctx context.Context, a API) (any, error) { return a.Get(ctx, odd) }},
		{"get-dots", func(ctx context.Context, a API) (any, error) { return a.Get(ctx, "..") }},
		{"get-unknown", func(ctx context.Context, a API) (any, error) { return a.Get(ctx, "nobody") }},
		{"get-empty", func(ctx context.Context, a API) (any, error) { return a.Get(ctx, "") }},
		{"get-ambiguous", func(ctx context.Context, a API) (any, error) { return a.Get(ctx, "baaaa") }},
		{"wait", func(ctx context.Context, a API) (any, error) { return a.Wait(ctx, WaitRequest{Refs: []string{"two"}}) }},
		{"wait-any", func(ctx context.Context, a API) (any, error) {
			return a.Wait(ctx, WaitRequest{Refs: []string{"one", "two"}, Any: true})
		}},
		{"wait-timeout", func(ctx context.Context, a API) (any, error) {
			return a.Wait(ctx, WaitRequest{Refs: []string{"one"}, Timeout: time.Millisecond})
		}},
		{"wait-unknown", func(ctx context.Context, a API) (any, error) { return a.Wait(ctx, WaitRequest{Refs: []string{"x"}}) }},
		{"stop", func(ctx context.Context, a API) (any, error) {
			return a.Stop(ctx, StopRequest{Refs: []string{"one"}, Grace: &grace, Actor: task.ByClient, Detail: "d"})
		}},
		{"promote", func(ctx context.Context, a API) (any, error) { return a.Promote(ctx, "one") }},
		{"promote-ended", func(ctx context.Context, a API) (any, error) { return a.Promote(ctx, "two") }},
		{"send", func(ctx context.Context, a API) (any, error) {
			return a.Send(ctx, SendRequest{Ref: "one", Text: "<a> & b", From: "me"})
		}},
		{"send-unknown", func(ctx context.Context, a API) (any, error) { return a.Send(ctx, SendRequest{Ref: "x", Text: "y"}) }},
		{"pause", func(ctx context.Context, a API) (any, error) { return a.Pause(ctx, []string{"one", odd}) }},
		{"pause-ended", func(ctx context.Context, a API) (any, error) { return a.Pause(ctx, []string{"two"}) }},
		{"resume", func(ctx context.Context, a API) (any, error) {
			return a.Resume(ctx, ResumeRequest{Ref: "two", Prompt: "go on"})
		}},
		{"interrupt", func(ctx context.Context, a API) (any, error) { return a.Interrupt(ctx, odd) }},
		{"interrupt-unknown", func(ctx context.Context, a API) (any, error) { return a.Interrupt(ctx, "x") }},
		{"resume-unknown", func(ctx context.Context, a API) (any, error) { return a.Resume(ctx, ResumeRequest{Ref: "x"}) }},
		{"approvals", func(ctx context.Context, a API) (any, error) { return a.Approvals(ctx, ApprovalsRequest{}) }},
		{"attention", func(ctx context.Context, a API) (any, error) { return a.Attention(ctx, AttentionRequest{}) }},
		{"attention-wait", func(ctx context.Context, a API) (any, error) {
			return a.Attention(ctx, AttentionRequest{After: "another", Wait: time.Minute})
		}},
		{"schedules", func(ctx context.Context, a API) (any, error) { return a.Schedules(ctx, ScheduleRequest{}) }},
		{"schedule-add", func(ctx context.Context, a API) (any, error) {
			return a.Schedules(ctx, ScheduleRequest{Add: &Schedule{Cron: "@daily", Cwd: "/src", Shell: &ShellRequest{Line: "<x>"}}})
		}},
		{"schedule-unknown", func(ctx context.Context, a API) (any, error) { return a.Schedules(ctx, ScheduleRequest{Remove: "x"}) }},
		{"forwards", func(ctx context.Context, a API) (any, error) { return a.Forward(ctx, ForwardRequest{}) }},
		{"forward", func(ctx context.Context, a API) (any, error) {
			return a.Forward(ctx, ForwardRequest{Port: 3000, HostPort: 80})
		}},
		{"forward-unknown", func(ctx context.Context, a API) (any, error) {
			return a.Forward(ctx, ForwardRequest{Port: 1, End: true})
		}},
		{"seen-unknown", func(ctx context.Context, a API) (any, error) { return a.MarkSeen(ctx, []string{"nobody"}) }},
		{"approvals-wait", func(ctx context.Context, a API) (any, error) {
			return a.Approvals(ctx, ApprovalsRequest{After: 7, Wait: time.Millisecond})
		}},
		{"decide", func(ctx context.Context, a API) (any, error) {
			err := a.Decide(ctx, DecideRequest{ID: "q2", Digest: "d2", Actor: task.ByClient, Detail: "<x>",
				Reply: task.Reply{Allow: true, Input: json.RawMessage(`{"command":"<&"}`)}})
			if err != nil {
				return nil, err
			}
			return a.Approvals(ctx, ApprovalsRequest{After: 7, Wait: time.Minute}) // answers at once
		}},
		{"decide-stale", func(ctx context.Context, a API) (any, error) {
			return nil, a.Decide(ctx, DecideRequest{ID: "q1", Digest: "d2", Reply: task.Reply{Reason: "no"}})
		}},
		{"decide-unknown", func(ctx context.Context, a API) (any, error) {
			return nil, a.Decide(ctx, DecideRequest{ID: "q9", Digest: "d9"})
		}},
		{"output", func(ctx context.Context, a API) (any, error) {
			return a.Output(ctx, OutputRequest{Ref: odd, Offset: 4, Tail: 3, Max: 9, Wait: time.Second})
		}},
		{"output-unknown", func(ctx context.Context, a API) (any, error) { return a.Output(ctx, OutputRequest{Ref: "x"}) }},
		{"messages", func(ctx context.Context, a API) (any, error) {
			return a.Messages(ctx, MessagesRequest{Ref: odd, Limit: 7})
		}},
		{"messages-unknown", func(ctx context.Context, a API) (any, error) { return a.Messages(ctx, MessagesRequest{Ref: "x"}) }},
		{"result", func(ctx context.Context, a API) (any, error) { return a.Result(ctx, ResultRequest{Ref: "two"}) }},
		{"result-early", func(ctx context.Context, a API) (any, error) { return a.Result(ctx, ResultRequest{Ref: "one"}) }},
		{"state", func(ctx context.Context, a API) (any, error) { return a.State(ctx, StateRequest{}) }},
		{"state-same", func(ctx context.Context, a API) (any, error) {
			return a.State(ctx, StateRequest{After: 3, Wait: time.Millisecond})
		}},
		{"state-other", func(ctx context.Context, a API) (any, error) {
			return a.State(ctx, StateRequest{After: 2, Wait: time.Minute}) // answers at once
		}},
		{"configure", func(ctx context.Context, a API) (any, error) {
			model, mode := "opus", "plan"
			return a.Configure(ctx, ConfigureRequest{Model: &model, Mode: &mode, Thinking: &Thinking{Effort: "high", Tokens: -1}})
		}},
		{"configure-nothing", func(ctx context.Context, a API) (any, error) { return a.Configure(ctx, ConfigureRequest{}) }},
		{"configure-refused", func(ctx context.Context, a API) (any, error) {
			none := "none"
			return a.Configure(ctx, ConfigureRequest{Model: &none})
		}},
		{"prompt", func(ctx context.Context, a API) (any, error) { return nil, a.Prompt(ctx, PromptRequest{Text: "hi"}) }},
		{"prompt-refused", func(ctx context.Context, a API) (any, error) { return nil, a.Prompt(ctx, PromptRequest{}) }},
		{"events", func(ctx context.Context, a API) (any, error) {
			var got []task.Event
			for e, err := range a.Events(ctx, 1) {
				if err != nil {
					return got, err
				}
				if got = append(got, e); len(got) == 3 {
					break
				}
			}
			return got, nil
		}},
		{"environment", func(ctx context.Context, a API) (any, error) { return a.Environment(ctx) }},
		{"events-broken", func(ctx context.Context, a API) (any, error) {
			for _, err := range a.Events(ctx, 666) {
				return nil, err
			}
			return "silent", nil
		}},
		{"cancelled", func(ctx context.Context, a API) (any, error) {
			ctx, cancel := context.WithCancelCause(ctx)
			time.AfterFunc(time.Millisecond, func() { cancel(io.ErrNoProgress) })
			return a.Wait(ctx, WaitRequest{Refs: []string{"one"}})
		}},
	}
	for _, c := range calls {
		t.Run(c.name, func(t *testing.T) {
			here, there := seed(), seed()
			w := serve(t, NewServer(there))
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			var a, b answer
			a.v, a.err = c.do(ctx, here)
			b.v, b.err = c.do(ctx, w.client)
			a.err = bare(a.err)
			if !reflect.DeepEqual(a, b) {
				t.Errorf("in process: %+v\nover the socket: %+v", a, b)
			}
			if !reflect.DeepEqual(here.stops, there.stops) || !reflect.DeepEqual(here.prompts, there.prompts) || !reflect.DeepEqual(here.asked, there.asked) ||
				!reflect.DeepEqual(here.decided, there.decided) {
				t.Errorf("asked in process: %+v\nover the socket: %+v", here, there)
			}
		})
	}
}

// bare is an error without what only its own process knows of it.
func bare(err error) error {
	if e, ok := err.(*Error); ok {
		return &Error{Code: e.Code, Message: e.Message, Fix: e.Fix, Matches: e.Matches}
	}
	return err
}

// In its own process an error can still be asked what it was made of.
func TestUnwrap(t *testing.T) {
	move := &task.MoveError{ID: "b1", From: task.Killed, Verb: task.Complete}
	for _, err := range []error{move, io.ErrUnexpectedEOF} {
		if !errors.Is(AsError(fmt.Errorf("stop: %w", err)), err) {
			t.Errorf("%v is forgotten", err)
		}
	}
}

// An answer is bound to what was looked at: without a digest the server decides
// nothing, whatever is behind it.
func TestDecideUnseen(t *testing.T) {
	f := newFake()
	f.open = []task.Question{{ID: "q1", Digest: ""}}
	w := serve(t, NewServer(f))
	for _, req := range []DecideRequest{{ID: "q1", Reply: task.Reply{Allow: true}}, {Digest: "d", Reply: task.Reply{Allow: true}}} {
		var e *Error
		if err := w.client.Decide(t.Context(), req); !errors.As(err, &e) || e.Code != Invalid {
			t.Errorf("%+v: %v", req, err)
		}
	}
	if len(f.decided) != 0 {
		t.Errorf("decided: %+v", f.decided)
	}
}

// TestBatch sends one environment for many tasks and gives it to each.
func TestBatch(t *testing.T) {
	f := newFake()
	w := serve(t, NewServer(f))
	env := []string{"A=1", "B=" + strings.Repeat("x", 20_000)}
	reqs := make([]StartRequest, 5000) // 100 MB, were the environment repeated
	for i := range reqs {
		reqs[i] = StartRequest{Name: fmt.Sprint(i), Env: env, Shell: &ShellRequest{Line: "true"}}
	}
	got, err := w.client.Start(t.Context(), reqs)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != len(reqs) || got[4999].Task.Name != "4999" {
		t.Fatalf("%d answers", len(got))
	}
	if !slices.Equal(f.asked["4999"].Env, env) || reqs[7].Env == nil {
		t.Error("the environment got lost")
	}
	own := []StartRequest{{Name: "p", Env: []string{"P=1"}, Shell: &ShellRequest{}}, {Name: "q", Env: []string{"Q=1"}, Shell: &ShellRequest{}}}
	if _, err := w.client.Start(t.Context(), own); err != nil {
		t.Fatal(err)
	}
	if f.asked["p"].Env[0] != "P=1" || f.asked["q"].Env[0] != "Q=1" {
		t.Error("environments were mixed up")
	}
}

func TestLimits(t *testing.T) {
	s := NewServer(newFake())
	s.largest = 1000
	w := serve(t, s)
	_, start := w.client.Start(t.Context(), []StartRequest{{Name: strings.Repeat("x", 1500)}})
	for limit, err := range map[string]error{
		"1000": start,
		"2000": w.client.Prompt(t.Context(), PromptRequest{Text: strings.Repeat("x", 3000)}), // it may hold images
	} {
		var e *Error
		if !errors.As(err, &e) || e.Code != TooLarge || !strings.Contains(e.Message, limit) {
			t.Errorf("limit %s: got %v", limit, err)
		}
	}
}

func TestRefusals(t *testing.T) {
	w := serve(t, NewServer(newFake()))
	for name, c := range map[string]struct{ path, header, want string }{
		"path":     {"/v2/tasks", "", "no such request"},
		"method":   {"/v1/stop", "", "no such request"},
		"number":   {"/v1/tasks?limit=ten", "", "limit"},
		"negative": {"/v1/tasks/x/output?offset=-1", "", "offset"},
		"boolean":  {"/v1/tasks?all=perhaps", "", "all"},
		"after":    {"/v1/events?after=x", "", "sequence number"},
		"protocol": {"/v1/info", "Drover-Protocol: 2", "protocol"},
	} {
		t.Run(name, func(t *testing.T) {
			resp, body := w.get(t, c.path, slices.DeleteFunc([]string{c.header}, func(h string) bool { return h == "" })...)
			var e errorBody
			if err := json.Unmarshal([]byte(body), &e); err != nil || e.Error == nil || !strings.Contains(e.Error.Message, c.want) {
				t.Errorf("%s: %s", resp.Status, body)
			}
			if resp.StatusCode < 400 || resp.Header.Get("Drover-Protocol") != "1" {
				t.Errorf("%s %v", resp.Status, resp.Header)
			}
		})
	}
	for name, body := range map[string]string{"unknown": `{"text":"a","x":1}`, "two": `{"text":"a"}{}`, "broken": `{"text`, "empty": ``} {
		t.Run("body-"+name, func(t *testing.T) {
			c := w.raw(t, fmt.Sprintf("POST /v1/prompt HTTP/1.1\r\nHost: d\r\nContent-Length: %d\r\n\r\n%s", len(body), body))
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil || resp.StatusCode != http.StatusBadRequest {
				t.Errorf("%v %v", resp, err)
			}
		})
	}
}

// TestOther is a server that is none of ours, and one of another protocol.
func TestOther(t *testing.T) {
	for name, header := range map[string]string{"stranger": "", "newer": "2"} {
		t.Run(name, func(t *testing.T) {
			socket := filepath.Join(t.TempDir(), "s")
			l, err := net.Listen("unix", socket)
			if err != nil {
				t.Fatal(err)
			}
			srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if header != "" {
					w.Header().Set("Drover-Protocol", header)
				}
				_, _ = io.WriteString(w, "{}")
			})}
			done := make(chan struct{})
			go func() { defer close(done); _ = srv.Serve(l) }()
			defer func() { _ = srv.Close(); <-done }()
			c := Dial(socket)
			defer c.Close()
			_, err = c.Info(t.Context())
			var e *Error
			if !errors.As(err, &e) || e.Code != Unavailable || e.Fix == "" {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestNobody(t *testing.T) {
	c := Dial(filepath.Join(t.TempDir(), "none"))
	_, err := c.Info(t.Context())
	var e *Error
	if !errors.As(err, &e) || e.Code != Unavailable {
		t.Errorf("got %v", err)
	}
}

func TestPanic(t *testing.T) {
	w := serve(t, NewServer(newFake()))
	err := w.client.Prompt(t.Context(), PromptRequest{Text: "panic"})
	var e *Error
	if !errors.As(err, &e) || e.Code != Internal || !strings.Contains(e.Message, "broken") {
		t.Errorf("got %v", err)
	}
	if _, err := w.client.Info(t.Context()); err != nil {
		t.Errorf("the session did not survive: %v", err)
	}
}

// TestHold ends the lease with the context, and with the connection.
func TestHold(t *testing.T) {
	f := newFake()
	w := serve(t, NewServer(f))
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.client.HoldLease(ctx, "L1") }()
	if got := recv(t, f.held, "lease"); got != "L1" {
		t.Errorf("lease %q", got)
	}
	cancel(io.ErrNoProgress)
	if err := recv(t, ended, "end of HoldLease"); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("got %v", err)
	}
	recv(t, f.released, "release")

	c := w.raw(t, "POST /v1/lease HTTP/1.1\r\nHost: d\r\nContent-Length: 14\r\n\r\n{\"lease\":\"L2\"}")
	recv(t, f.held, "second lease")
	_ = c.Close()
	if got := recv(t, f.released, "release by a broken connection"); got != "L2" {
		t.Errorf("released %q", got)
	}
}

// TestWaitEnds is a long request that is answered by an event, and one whose
// client went away.
func TestWaitEnds(t *testing.T) {
	f := newFake()
	f.add(task.Record{ID: "b1", Name: "x", Status: task.Running})
	w := serve(t, NewServer(f))
	got := make(chan WaitReply, 1)
	go func() {
		r, err := w.client.Wait(t.Context(), WaitRequest{Refs: []string{"x"}})
		if err != nil {
			t.Error(err)
		}
		got <- r
	}()
	f.end("x", task.Complete)
	if r := recv(t, got, "answer"); r.Tasks[0].Status != task.Completed {
		t.Errorf("got %+v", r)
	}
}

func TestEvents(t *testing.T) {
	f := newFake()
	f.add(task.Record{ID: "b1", Name: "x", Status: task.Running, Prompt: strings.Repeat("y", 100_000)})
	f.add(task.Record{ID: "b2", Name: "z", Status: task.Running})
	w := serve(t, NewServer(f))
	seen := make(chan task.Event, 10)
	ended := make(chan error, 1)
	go func() {
		for e, err := range w.client.Events(t.Context(), 0) {
			if err != nil {
				ended <- err
				return
			}
			seen <- e
		}
		ended <- nil
	}()
	for i := range 2 {
		if e := recv(t, seen, "old event"); e.Seq != task.Seq(i+1) || i == 0 && len(e.Task.Prompt) != 100_000 {
			t.Errorf("event %d is %+v", i, e.Seq)
		}
	}
	f.end("x", task.Complete)
	if e := recv(t, seen, "new event"); e.Seq != 3 || e.Verb != task.Complete || e.Task.Name != "x" {
		t.Errorf("got %+v", e)
	}
	f.end("z", task.Fail) // ends the fake session
	recv(t, seen, "last event")
	if err := recv(t, ended, "end"); err != nil {
		t.Errorf("a session that ends in order gave %v", err)
	}
}

// TestStream is what curl and a browser see.
func TestStream(t *testing.T) {
	f := newFake()
	for i := range 3 {
		f.add(task.Record{ID: task.ID(fmt.Sprint("b", i)), Name: fmt.Sprint(i), Status: task.Running, Description: "a<b\nc"})
	}
	f.end("2", task.Fail)
	s := NewServer(f)
	w := serve(t, s)
	resp, body := w.get(t, "/v1/events?after=0", "Last-Event-ID: 2")
	if ct := resp.Header.Get("Content-Type"); ct != "text/event-stream" {
		t.Errorf("content type %q", ct)
	}
	if !strings.HasPrefix(body, "id: 3\nevent: create\ndata: {\"seq\":3,") || strings.Count(body, "\n\n") != 2 || !strings.Contains(body, `"description":"a<b\nc"`) {
		t.Errorf("stream:\n%s", body)
	}
}

func TestHeartbeat(t *testing.T) {
	s := NewServer(newFake())
	s.heartbeat = time.Millisecond
	w := serve(t, s)
	c := w.raw(t, "GET /v1/events HTTP/1.1\r\nHost: d\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(resp.Body).ReadString('\n'); line != ": alive\n" {
		t.Errorf("%q %v", line, err)
	}
}

// TestSlow has a subscriber that reads nothing: the others get everything,
// and the slow one loses its connection, not the session.
func TestSlow(t *testing.T) {
	f := newFake()
	s := NewServer(f)
	s.write = time.Second
	w := serve(t, s)
	slow := w.raw(t, "GET /v1/events?after=1 HTTP/1.1\r\nHost: d\r\n\r\n")

	last := make(chan task.Seq, 1)
	go func() {
		for e, err := range w.client.Events(t.Context(), 0) {
			if err != nil {
				t.Error(err)
				break
			}
			if e.Seq == 200 {
				last <- e.Seq
				break
			}
		}
	}()
	for i := range 200 {
		f.add(task.Record{ID: task.ID(fmt.Sprint("b", i)), Prompt: strings.Repeat("x", 20_000)})
	}
	recv(t, last, "last event beside a slow reader")

	// The server gives the still reader up: its connection ends torn.
	for recv(t, f.left, "end of the slow reader") != 1 {
	}
	n, err := io.Copy(io.Discard, slow)
	if err != nil && !errors.Is(err, syscall.ECONNRESET) || n >= 199*20_000 {
		t.Errorf("%d bytes, %v", n, err)
	}
}

// TestClose ends the server with every sort of request under way.
func TestClose(t *testing.T) {
	f := newFake()
	f.add(task.Record{ID: "b1", Name: "x", Status: task.Running})
	w := serve(t, NewServer(f))
	ended := make(chan error, 3)
	first := make(chan struct{})
	go func() {
		var last error
		for _, err := range w.client.Events(context.Background(), 0) {
			if last = err; err == nil {
				close(first)
			}
		}
		ended <- last
	}()
	recv(t, first, "event")
	go func() { ended <- w.client.HoldLease(context.Background(), "L") }()
	recv(t, f.held, "lease")
	w.stop()
	if err := recv(t, w.served, "end of Serve"); err != nil {
		t.Errorf("Serve: %v", err)
	}
	recv(t, f.released, "release")
	silent := 0
	for range 2 {
		var e *Error
		switch err := recv(t, ended, "end of a call"); {
		case err == nil:
			silent++
		case !errors.As(err, &e) || e.Code != Unavailable:
			t.Errorf("got %v", err)
		}
	}
	if silent != 1 {
		t.Errorf("%d calls ended silently, want the events alone", silent)
	}
	if _, err := w.client.Info(t.Context()); err == nil {
		t.Error("answered after the end")
	}
}

// TestJoin: Serve waits for a handler that does not end at once.
func TestJoin(t *testing.T) {
	f := newFake()
	s := NewServer(f)
	s.drain = time.Millisecond
	w := serve(t, s)
	ended := make(chan error, 1)
	go func() { ended <- w.client.Prompt(context.Background(), PromptRequest{Text: "block"}) }()
	recv(t, f.blocked, "call")
	w.stop()
	if err := recv(t, ended, "torn call"); err == nil {
		t.Error("a torn call succeeded")
	}
	select {
	case <-w.served:
		t.Error("Serve returned before its handler")
	default:
	}
	close(f.block)
	_ = recv(t, w.served, "end of Serve")
}

func FuzzFrames(f *testing.F) {
	f.Add("id: 1\nevent: create\ndata: {\"seq\":1}\n\n: c\n\ndata: x\ndata:y\r\n\r\ndata: torn")
	f.Add("data\n\n\n\nid\n\n")
	f.Fuzz(func(t *testing.T, text string) {
		for fr, err := range frames(strings.NewReader(text)) {
			if err != nil {
				t.Fatalf("a stream in memory ends well: %v", err)
			}
			if fr.data == nil || strings.ContainsAny(fr.event+fr.id, "\n") {
				t.Fatalf("frame %+v", fr)
			}
			_, _ = decodeEvent(fr)
		}
	})
}

func BenchmarkList(b *testing.B) {
	f := newFake()
	for i := range 10_000 {
		f.tasks = append(f.tasks, task.Record{ID: task.ID(fmt.Sprintf("b%08d", i)), Status: task.Completed, Kind: task.LocalBash, CreateTime: at(1), Command: "make test", Cwd: "/home/me/project", Cause: &task.Cause{Actor: task.ByItself, Reason: task.ReasonDone}})
	}
	socket := filepath.Join(b.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(b.Context())
	served := make(chan error, 1)
	go func() { served <- NewServer(f).Serve(ctx, l) }()
	c := Dial(socket)
	defer func() { _ = c.Close(); stop(); <-served }()
	for b.Loop() {
		p, err := c.List(b.Context(), ListRequest{All: true})
		if err != nil || len(p.Tasks) != 10_000 {
			b.Fatal(err)
		}
	}
}

// TestDocs runs the examples of the document.
func TestDocs(t *testing.T) {
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Skip("no curl")
	}
	doc, err := os.ReadFile("../../../docs/control-api.md")
	if err != nil {
		t.Fatal(err)
	}
	f := newFake()
	f.open = []task.Question{{ID: "q3k9x0a1b", Tool: "Bash", Digest: "9f86d0818"}}
	w := serve(t, NewServer(f))
	ran := 0
	for line := range strings.Lines(string(doc)) {
		if !strings.HasPrefix(line, "curl ") {
			continue
		}
		ran++
		command := strings.Replace(strings.TrimSuffix(strings.TrimSpace(line), "&"), "curl ", `"$CURL" --fail-with-body -D "$HEADERS" -m 1 `, 1)
		headers := filepath.Join(t.TempDir(), "h")
		cmd := exec.CommandContext(t.Context(), "bash", "-c", command)
		cmd.Env = append(os.Environ(), "CURL="+curl, "SOCKET="+w.socket, "HEADERS="+headers)
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		long := strings.Contains(line, "/events") || strings.Contains(line, "/watch") || strings.Contains(line, "/lease")
		if late := errors.As(err, &exit) && exit.ExitCode() == 28; long != late || err != nil && !late {
			t.Errorf("%s: %v\n%s", line, err, out)
		}
		if head, _ := os.ReadFile(headers); !strings.Contains(line, "/lease") && !strings.Contains(string(head), "Drover-Protocol: 1") {
			t.Errorf("%s: headers %s", line, head)
		}
	}
	if ran < 10 {
		t.Errorf("%d examples", ran)
	}
}
