package mcpserver_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/frontend/mcpserver"
	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/test/waittest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// desk is a client at work with a server, and the sessions behind it.
type desk struct {
	t        *testing.T
	client   *mcp.ClientSession
	wire     net.Conn // the client's end
	progress chan *mcp.ProgressNotificationParams
	served   chan error
	released chan struct{} // one for each connection that is given up

	mu       sync.Mutex
	sessions []*session // the next to connect to comes first; the last stays
	connects int
}

func open(t *testing.T, sessions ...*session) *desk {
	t.Helper()
	d := &desk{
		t: t, sessions: sessions, served: make(chan error, 1), released: make(chan struct{}, 10),
		progress: make(chan *mcp.ProgressNotificationParams, 100),
	}
	here, there := net.Pipe()
	d.wire = here
	ctx := d.within()
	d.serve(there)
	c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "v0"}, &mcp.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) { d.progress <- r.Params },
	})
	var err error
	if d.client, err = c.Connect(ctx, &mcp.IOTransport{Reader: here, Writer: here}, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.leave() })
	return d
}

// serve serves the other end of the wire.
func (d *desk) serve(there net.Conn) {
	go func() {
		// Not the context of the test, which ends before its cleanup.
		d.served <- mcpserver.Server{Connect: d.connect, Cwd: "/work", Env: []string{"A=b"}, Version: "v0"}.Serve(context.Background(),
			&mcp.IOTransport{Reader: there, Writer: there})
	}()
}

func (d *desk) connect(context.Context) (control.API, func(), error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.connects++
	if len(d.sessions) == 0 {
		return nil, nil, errors.New("no session can be started")
	}
	s := d.sessions[0]
	if len(d.sessions) > 1 {
		d.sessions = d.sessions[1:]
	}
	return s, func() { d.released <- struct{}{} }, nil
}

// leave closes the client and waits for the server to have ended.
func (d *desk) leave() {
	d.t.Helper()
	if d.client == nil {
		return
	}
	if err := d.client.Close(); err != nil {
		d.t.Errorf("close client: %v", err)
	}
	d.client = nil
	if err := <-d.served; err != nil {
		d.t.Errorf("Serve = %v", err)
	}
}

func (d *desk) within() context.Context { return waittest.Context(d.t, 20*time.Second) }

type args = map[string]any

// call calls a tool and decodes what it gives into out, if that is not nil.
func (d *desk) call(tool string, in args, out any) (text string, isError bool) {
	d.t.Helper()
	res, err := d.client.CallTool(d.within(), &mcp.CallToolParams{Name: tool, Arguments: in})
	if err != nil {
		d.t.Fatalf("%s: %v", tool, err)
	}
	return read(d.t, res, out), res.IsError
}

func read(t *testing.T, res *mcp.CallToolResult, out any) string {
	t.Helper()
	if out != nil && !res.IsError {
		raw, err := json.Marshal(res.StructuredContent)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(raw, out); err != nil {
			t.Fatal(err)
		}
	}
	var text []string
	for _, c := range res.Content {
		text = append(text, c.(*mcp.TextContent).Text)
	}
	return strings.Join(text, "\n")
}

type started struct {
	Task struct {
		ID     task.ID     `json:"task_id"`
		Status task.Status `json:"status"`
		Exit   *int        `json:"exit_code"`
	}
	TimedOut bool `json:"timed_out"`
	Output   string
}

func TestTools(t *testing.T) {
	d := open(t, newSession())
	got, err := d.client.ListTools(d.within(), nil)
	if err != nil {
		t.Fatal(err)
	}
	readOnly := map[string]bool{"task_run": false, "agent_run": false, "task_list": true, "task_output": true, "task_wait": true, "task_stop": false}
	for _, tool := range got.Tools {
		want, ok := readOnly[tool.Name]
		if !ok || tool.Annotations.ReadOnlyHint != want || tool.Description == "" || tool.OutputSchema == nil {
			t.Errorf("tool %+v", tool)
		}
		delete(readOnly, tool.Name)
	}
	if len(readOnly) > 0 {
		t.Errorf("missing: %v", readOnly)
	}
	if d.connects != 0 {
		t.Error("a session was reached for nothing")
	}
}

func TestRun(t *testing.T) {
	s := newSession()
	d := open(t, s)
	var got started
	text, isError := d.call("task_run", args{"command": "sleep 1", "name": "nap", "cwd": "sub", "timeout_seconds": 2.5}, &got)
	if isError || got.Task.Status != task.Running || !strings.Contains(text, string(got.Task.ID)) {
		t.Fatalf("task_run: %s %+v", text, got)
	}
	lease := <-s.held
	r := s.starts[0]
	if r.Shell.Line != "sleep 1" || r.Name != "nap" || r.Cwd != "/work/sub" || r.Timeout != 2500*time.Millisecond || r.Env[0] != "A=b" {
		t.Errorf("start %+v", r)
	}
	if r.Lease != lease || lease == "" || r.Keep {
		t.Errorf("lease %q, held %q", r.Lease, lease)
	}

	d.call("task_run", args{"args": []string{"a", "b"}, "cwd": "/x/../y", "keep": true}, nil)
	if r := s.starts[1]; r.Lease != "" || !r.Keep || r.Cwd != "/y" || len(r.Shell.Args) != 2 {
		t.Errorf("start to be kept: %+v", r)
	}
	for name, in := range map[string]args{
		"both": {"command": "a", "args": []string{"b"}}, "neither": {}, "unknown": {"command": "a", "colour": "red"}, "type": {"command": 5},
	} {
		if text, isError := d.call("task_run", in, nil); !isError || strings.Contains(text, "\n") {
			t.Errorf("%s: %v %q, want an error of one line", name, isError, text)
		}
	}
	if len(s.starts) != 2 {
		t.Errorf("%d starts, want 2", len(s.starts))
	}
	s.do(func() {
		s.refuse = &control.Error{Code: control.Invalid, Message: "name is taken", Fix: "see `drover ps`"}
	})
	if text, isError := d.call("task_run", args{"command": "a"}, nil); !isError || text != "name is taken" {
		t.Errorf("refused start: %v %q", isError, text)
	}
}

// begin makes a call in the background and waits until the session has its task.
func (d *desk) begin(ctx context.Context, s *session, params *mcp.CallToolParams) (id task.ID, done chan *mcp.CallToolResult) {
	d.t.Helper()
	before := len(s.tasks)
	done = make(chan *mcp.CallToolResult, 1)
	go func() {
		res, err := d.client.CallTool(ctx, params)
		if err != nil && ctx.Err() == nil {
			d.t.Errorf("%s: %v", params.Name, err)
		}
		done <- res
	}()
	if err := s.until(d.within(), func() bool { return len(s.tasks) > before }); err != nil {
		d.t.Fatal(err)
	}
	return s.tasks[before].ID, done
}

func TestForeground(t *testing.T) {
	s := newSession()
	s.output = "one\n\x1b[31mtwo\x1b[0m\n"
	d := open(t, s)
	id, done := d.begin(d.within(), s, &mcp.CallToolParams{Name: "task_run", Arguments: args{"command": "x", "background": false}})
	s.finish(id, task.Failed, 3)
	var got started
	text := read(t, <-done, &got)
	if got.Task.Status != task.Failed || *got.Task.Exit != 3 || got.Output != "one\ntwo\n" || !strings.Contains(text, "exit code 3") {
		t.Errorf("%q %+v", text, got)
	}

	// Output beyond what fits keeps its end and says where the rest is.
	s.do(func() { s.output = strings.Repeat("ä\n", 40_000) + "the end" })
	id, done = d.begin(d.within(), s, &mcp.CallToolParams{Name: "task_run", Arguments: args{"command": "x", "background": false}})
	s.finish(id, task.Completed, 0)
	read(t, <-done, &got)
	if n := utf8.RuneCountInString(got.Output); n > 32_000 || !strings.HasSuffix(got.Output, "the end") || !strings.Contains(got.Output, "/o/file") {
		t.Errorf("%d characters: %.100q", n, got.Output)
	}
}

func TestBriefWait(t *testing.T) {
	s := newSession()
	d := open(t, s)
	var got started
	if text, _ := d.call("task_run", args{"command": "x", "wait_seconds": 0.01}, &got); !got.TimedOut || got.Task.Status != task.Running || !strings.Contains(text, "task_wait") {
		t.Errorf("%q %+v", text, got)
	}
	if len(s.stops) != 0 {
		t.Error("the task was stopped")
	}
}

func TestAgent(t *testing.T) {
	s := newSession()
	s.answer = "forty-two"
	d := open(t, s)
	id, done := d.begin(d.within(), s, &mcp.CallToolParams{Name: "agent_run", Arguments: args{
		"prompt": "think", "model": "haiku", "max_turns": 4, "background": false, "name": "thinker",
	}})
	s.finish(id, task.Completed, 0)
	var got started
	read(t, <-done, &got)
	if got.Output != "forty-two" {
		t.Errorf("answer %+v", got)
	}
	a := s.starts[0].Agent
	if a.Type != "general-purpose" || a.Prompt != "think" || a.Model != "haiku" || a.MaxTurns != 4 || s.starts[0].Lease == "" {
		t.Errorf("start %+v %+v", s.starts[0], a)
	}
	if _, isError := d.call("agent_run", args{"prompt": " "}, nil); !isError {
		t.Error("an empty prompt was taken")
	}
}

func TestList(t *testing.T) {
	s := newSession()
	d := open(t, s)
	if text, _ := d.call("task_list", args{}, nil); text != "No tasks." {
		t.Errorf("empty list %q", text)
	}
	var one started
	d.call("task_run", args{"command": "printf '\x1b[2J'\nsecond line"}, &one)
	d.call("task_run", args{"command": "b"}, nil)
	s.finish(one.Task.ID, task.Completed, 0)
	var got struct {
		Tasks []struct {
			ID      task.ID `json:"task_id"`
			Command string
		}
		More bool
	}
	if d.call("task_list", args{}, &got); len(got.Tasks) != 1 || got.Tasks[0].Command != "b" {
		t.Errorf("live tasks %+v", got)
	}
	text, _ := d.call("task_list", args{"all": true}, &got)
	if len(got.Tasks) != 2 || got.Tasks[1].ID != one.Task.ID || strings.ContainsAny(got.Tasks[1].Command+text, "\x1b") || strings.Count(text, "\n") != 1 {
		t.Errorf("all tasks %+v %q", got, text)
	}
	s.do(func() {
		s.tasks = append(s.tasks, task.Record{ID: task.NewID(task.LocalBash), Status: task.Running, Worker: "gpu-1"})
	})
	if text, _ := d.call("task_list", args{}, nil); strings.Count(text, "running (at gpu-1)") != 1 {
		t.Errorf("no word of the worker: %q", text)
	}
	s.do(func() {
		for range 299 {
			s.tasks = append(s.tasks, task.Record{ID: task.NewID(task.LocalBash), Status: task.Running})
		}
	})
	if d.call("task_list", args{}, &got); len(got.Tasks) != 200 || !got.More {
		t.Errorf("%d tasks, more %v", len(got.Tasks), got.More)
	}
}

func TestOutput(t *testing.T) {
	s := newSession()
	s.output = "aä世\x1b[1mz"
	d := open(t, s)
	var run started
	d.call("task_run", args{"command": "x"}, &run)
	type chunk struct {
		Text   string
		Offset int64
		Next   int64 `json:"next_offset"`
		Size   int64 `json:"size_bytes"`
		Ended  bool
	}
	// Reading on from next_offset gives every character once, whole.
	var text string
	for at := int64(0); at < int64(len(s.output)); {
		var c chunk
		if _, isError := d.call("task_output", args{"task_id": run.Task.ID, "offset": at, "max_bytes": 5}, &c); isError || c.Next <= at || c.Offset != at {
			t.Fatalf("at %d: %+v", at, c)
		}
		if strings.ContainsRune(c.Text, utf8.RuneError) {
			t.Errorf("at %d a character came in pieces: %q", at, c.Text)
		}
		text += c.Text
		at = c.Next
	}
	if !strings.HasPrefix(text, "aä世") {
		t.Errorf("read %q", text)
	}
	var c chunk
	if d.call("task_output", args{"task_id": run.Task.ID}, &c); c.Text != "aä世z" || c.Ended || c.Size != int64(len(s.output)) {
		t.Errorf("the end: %+v", c)
	}
	if r := s.outputs[len(s.outputs)-1]; r.Tail != 200 || r.Max != 32_000 {
		t.Errorf("request %+v", r)
	}
	if _, isError := d.call("task_output", args{"task_id": run.Task.ID, "offset": 0, "tail_lines": 3}, nil); !isError {
		t.Error("offset and tail_lines were taken together")
	}
	if text, isError := d.call("task_output", args{"task_id": "bnone"}, nil); !isError || text != "unknown task_id: bnone" {
		t.Errorf("unknown: %v %q", isError, text)
	}
}

func TestStop(t *testing.T) {
	s := newSession()
	d := open(t, s)
	var run started
	d.call("task_run", args{"command": "x"}, &run)
	var got struct {
		Stopped []struct {
			ID      task.ID `json:"task_id"`
			Status  task.Status
			Signals []task.SignalSent
		}
		Survivors []task.Survivor
	}
	text, isError := d.call("task_stop", args{"task_ids": []task.ID{run.Task.ID}, "grace_seconds": 0}, &got)
	if isError || len(got.Stopped) != 1 || got.Stopped[0].Status != task.Killed || got.Stopped[0].Signals[0].Signal != "SIGTERM" ||
		len(got.Survivors) != 1 || strings.ContainsAny(got.Survivors[0].Command+text, "\x1b") {
		t.Errorf("receipt %q %+v", text, got)
	}
	if r := s.stops[0]; r.Actor != task.ByClient || r.Grace == nil || *r.Grace != 0 {
		t.Errorf("stop %+v", r)
	}
	d.call("task_stop", args{"task_ids": []task.ID{run.Task.ID}}, nil)
	if s.stops[1].Grace != nil {
		t.Errorf("grace %v, want the usual", *s.stops[1].Grace)
	}
	if _, isError := d.call("task_stop", args{"task_ids": []string{}}, nil); !isError {
		t.Error("a stop of nothing was taken")
	}
}

func TestWait(t *testing.T) {
	s := newSession()
	d := open(t, s)
	var a, b started
	d.call("task_run", args{"command": "a", "name": "first"}, &a)
	d.call("task_run", args{"command": "b"}, &b)

	params := &mcp.CallToolParams{Name: "task_wait", Arguments: args{"task_ids": []task.ID{a.Task.ID, b.Task.ID}}}
	params.SetProgressToken("tok")
	done := make(chan *mcp.CallToolResult, 1)
	go func() {
		res, err := d.client.CallTool(d.within(), params)
		if err != nil {
			t.Error(err)
		}
		done <- res
	}()
	if p := <-d.progress; p.ProgressToken != "tok" || p.Progress != 1 || !strings.Contains(p.Message, "waiting for") {
		t.Errorf("first progress %+v", p)
	}
	s.change(a.Task.ID, func(r *task.Record) { r.Progress = &task.Progress{Message: "half\x1b[0mway"} })
	if p := <-d.progress; p.Progress != 2 || !strings.Contains(p.Message, "first") || !strings.Contains(p.Message, "halfway") {
		t.Errorf("progress %+v", p)
	}
	s.finish(a.Task.ID, task.Completed, 0)
	if p := <-d.progress; !strings.Contains(p.Message, "completed") {
		t.Errorf("progress of an end %+v", p)
	}
	s.finish(b.Task.ID, task.Failed, 2)
	var got struct {
		Tasks    []struct{ Status task.Status }
		TimedOut bool `json:"timed_out"`
	}
	text := read(t, <-done, &got)
	if len(got.Tasks) != 2 || got.Tasks[1].Status != task.Failed || got.TimedOut || strings.Count(text, "\n") != 1 {
		t.Errorf("%q %+v", text, got)
	}
	if text, isError := d.call("task_wait", args{"task_ids": []string{"bnone"}}, nil); !isError || text != "unknown task_id: bnone" {
		t.Errorf("unknown: %v %q", isError, text)
	}
	if text, isError := d.call("task_wait", args{"task_ids": []string{"x"}, "timeout_seconds": 601}, nil); !isError {
		t.Errorf("a wait of 601 s was taken: %q", text)
	}
	var c started
	d.call("task_run", args{"command": "c"}, &c)
	if d.call("task_wait", args{"task_ids": []task.ID{c.Task.ID}, "timeout_seconds": 0.01}, &got); !got.TimedOut || got.Tasks[0].Status != task.Running {
		t.Errorf("wait that is too short: %+v", got)
	}
}

// A call that is taken back ends; a task ends with it only if the call was its
// foreground.
func TestCancel(t *testing.T) {
	for _, c := range []struct {
		name  string
		in    args
		stops int
	}{
		{"foreground", args{"command": "x", "background": false}, 1},
		{"foreground-keep", args{"command": "x", "background": false, "keep": true}, 1},
		{"brief", args{"command": "x", "wait_seconds": 600}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSession()
			d := open(t, s)
			ctx, cancel := context.WithCancel(d.within())
			id, done := d.begin(ctx, s, &mcp.CallToolParams{Name: "task_run", Arguments: c.in})
			cancel()
			<-done
			if c.stops > 0 {
				if err := s.until(d.within(), func() bool { return len(s.stops) > 0 }); err != nil {
					t.Fatal(err)
				}
				if r := s.stops[0]; r.Refs[0] != string(id) || r.Actor != task.ByClient || r.Detail == "" {
					t.Errorf("stop %+v", r)
				}
			}
			d.leave() // which waits for the call
			if len(s.stops) != c.stops {
				t.Errorf("%d stops, want %d", len(s.stops), c.stops)
			}
		})
	}
	t.Run("wait", func(t *testing.T) {
		s := newSession()
		d := open(t, s)
		var run started
		d.call("task_run", args{"command": "x"}, &run)
		ctx, cancel := context.WithCancel(d.within())
		params := &mcp.CallToolParams{Name: "task_wait", Arguments: args{"task_ids": []task.ID{run.Task.ID}}}
		params.SetProgressToken(1)
		done := make(chan error, 1)
		go func() {
			_, err := d.client.CallTool(ctx, params)
			done <- err
		}()
		<-d.progress
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled call: %v", err)
		}
		d.leave()
		if len(s.stops) != 0 {
			t.Error("the task was stopped")
		}
	})
}

// When the client goes, calls under way end, the lease is given up and the
// connection released. What is to be kept is not stopped.
func TestGone(t *testing.T) {
	for name, keep := range map[string]bool{"leased": false, "kept": true} {
		t.Run(name, func(t *testing.T) {
			s := newSession()
			d := open(t, s)
			params := &mcp.CallToolParams{Name: "task_run", Arguments: args{"command": "x", "background": false, "keep": keep}}
			failed := make(chan error, 1)
			go func() {
				_, err := d.client.CallTool(d.within(), params)
				failed <- err
			}()
			lease := <-s.held
			if err := s.until(d.within(), func() bool { return len(s.tasks) > 0 }); err != nil {
				t.Fatal(err)
			}
			d.hangUp()
			if err := <-failed; err == nil {
				t.Error("the call was answered")
			}
			if got := <-s.letGo; got != lease {
				t.Errorf("gave up %q, held %q", got, lease)
			}
			<-d.released
			if keep && len(s.stops) != 0 {
				t.Error("a task to be kept was stopped")
			}
		})
	}
}

// hangUp ends the client as a crash would: nothing is said, the wire is closed.
func (d *desk) hangUp() {
	d.t.Helper()
	if err := d.wire.Close(); err != nil {
		d.t.Error(err)
	}
	select {
	case err := <-d.served:
		if err != nil {
			d.t.Errorf("Serve = %v", err)
		}
	case <-d.within().Done():
		d.t.Fatal("the server did not end")
	}
	_ = d.client.Close() // says that the wire is closed
	d.client = nil
}

// A host that has ended is found out, and the next call goes to a new one.
func TestReconnect(t *testing.T) {
	first, second, third := newSession(), newSession(), newSession()
	d := open(t, first, second, third)
	d.call("task_run", args{"command": "x"}, nil)
	lease := <-first.held
	first.shut()
	<-first.letGo
	<-d.released
	if text, isError := d.call("task_list", args{}, nil); isError || text != "No tasks." {
		t.Errorf("list after the end of the host: %v %q", isError, text)
	}
	if got := <-second.held; got != lease {
		t.Errorf("the new host holds %q, the old one held %q", got, lease)
	}
	// One that ended without the hold noticing: the call finds out.
	second.do(func() { second.closed = true })
	if text, isError := d.call("task_run", args{"command": "y"}, nil); isError {
		t.Errorf("run after the end of the host: %q", text)
	}
	if len(third.starts) != 1 || len(second.starts) != 0 {
		t.Errorf("starts %d %d", len(second.starts), len(third.starts))
	}
	if d.connects != 3 {
		t.Errorf("%d connections", d.connects)
	}
}

// A session that cannot do one thing is not a session that has ended.
func TestUnavailable(t *testing.T) {
	s := newSession()
	d := open(t, s)
	d.call("task_run", args{"command": "x"}, nil)
	s.do(func() { s.refuse = &control.Error{Code: control.Unavailable, Message: "no model is set"} })
	if text, isError := d.call("agent_run", args{"prompt": "x"}, nil); !isError || text != "no model is set" {
		t.Errorf("%v %q", isError, text)
	}
	select {
	case <-s.letGo:
		t.Error("the lease was given up")
	default:
	}
	if d.connects != 1 {
		t.Errorf("%d connections", d.connects)
	}
}

func TestNoSession(t *testing.T) {
	d := open(t)
	if text, isError := d.call("task_run", args{"command": "x"}, nil); !isError || text != "no session can be started" {
		t.Errorf("%v %q", isError, text)
	}
}

// Serve ends with its context although a call is waiting.
func TestEnd(t *testing.T) {
	s := newSession()
	here, there := mcp.NewInMemoryTransports()
	ctx, end := context.WithCancelCause(t.Context())
	served := make(chan error, 1)
	go func() {
		served <- mcpserver.Server{Cwd: "/", Connect: func(context.Context) (control.API, func(), error) { return s, nil, nil }}.Serve(ctx, there)
	}()
	client, err := mcp.NewClient(&mcp.Implementation{Name: "test"}, nil).Connect(t.Context(), here, nil)
	if err != nil {
		t.Fatal(err)
	}
	called := make(chan struct{})
	go func() {
		defer close(called)
		_, _ = client.CallTool(t.Context(), &mcp.CallToolParams{Name: "task_run", Arguments: args{"command": "x", "background": false}})
	}()
	<-s.held
	why := errors.New("told to end")
	end(why)
	if err := <-served; !errors.Is(err, why) {
		t.Errorf("Serve = %v", err)
	}
	<-s.letGo
	_ = client.Close()
	<-called
	if err := (mcpserver.Server{}).Serve(t.Context(), nil); err == nil {
		t.Error("an empty configuration was taken")
	}
}
