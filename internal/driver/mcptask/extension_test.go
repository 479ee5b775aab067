package mcptask_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/driver/mcptask"
	"github.com/drover-dev/drover/internal/mcp/mcpclient"
	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/test/mcptest"
)

func extendedHTTP(t *testing.T) *world {
	t.Helper()
	return overHTTP(t, mcptest.Options{Extension: true})
}

func extendedProcess(t *testing.T) *world {
	t.Helper()
	w := asProcess(t)
	w.cfg.Env[asServer] = extended
	return w
}

// made is the input of a call that the server has made a task of, and a driver whose tasks
// share the connection with that call.
func (w *world) made(work mcptest.Work) (*mcptask.Driver, json.RawMessage) {
	w.t.Helper()
	pool := mcpclient.NewPool(mcpclient.Config{Env: os.Environ()})
	w.t.Cleanup(pool.Close)
	l, err := pool.Use(w.t.Context(), "shop", w.cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(l.Release)
	c, err := l.Conn(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	raw, err := c.CallOpt(w.t.Context(), "tools/call", map[string]any{"name": mcptest.Tool, "arguments": work},
		mcpclient.CallOptions{Tasks: true})
	if err != nil {
		w.t.Fatal(err)
	}
	s, made, err := mcpclient.MadeTask(raw)
	if !made || err != nil {
		w.t.Fatalf("no task was made: %s, %v", raw, err)
	}
	in, err := json.Marshal(mcptask.Call{Server: "shop", Digest: "d1", Tool: mcptest.Tool, Args: work.JSON(),
		Made: mcptask.MadeOf(s)})
	if err != nil {
		w.t.Fatal(err)
	}
	return w.sharedBy(pool), in
}

// The extension over both transports: what a task gives, and that it is one that the
// server has made by itself.
func TestExtension(t *testing.T) {
	for name, place := range map[string]func(*testing.T) *world{"http": extendedHTTP, "stdio": extendedProcess} {
		t.Run(name, func(t *testing.T) {
			d, in := place(t).made(mcptest.Work{Say: []string{"cuts", "glues"}, Ask: 2, Together: true, Text: "a boat for"})
			h := newHost(t, in)
			r := start(t, d, h)
			for range 2 { // each is answered by itself
				q := r.question()
				name := "Ahab"
				if strings.Contains(string(q.Input), "name 2") {
					name = "Ishmael"
				}
				q.reply <- task.Reply{Allow: true, Input: json.RawMessage(`{"name":"` + name + `"}`)}
			}
			res, err := r.wait()
			if err != nil || !strings.Contains(res.Text, "accept Ahab") || !strings.Contains(res.Text, "accept Ishmael") {
				t.Errorf("%q, %v\n%s", res.Text, err, h.Printed())
			}
			if s := h.state(); s.Status != "completed" || s.TaskID == "" || s.Tool != mcptest.Tool {
				t.Errorf("state %+v", s)
			}
		})
	}
}

// The ways a task ends that a server has made, also one that does not keep to the rules.
func TestExtensionEndings(t *testing.T) {
	for name, tt := range map[string]struct {
		work   mcptest.Work
		verb   task.Verb
		reason task.Reason
		text   string // in the answer
		error  string // in the error, or in the detail of the cause
	}{
		"completed":  {mcptest.Work{Text: "a boat"}, task.Complete, task.ReasonDone, "a boat", ""},
		"tool-error": {mcptest.Work{Fail: "tool"}, task.Fail, mcptask.ReasonTool, "and wet", "the paper is torn"},
		"protocol":   {mcptest.Work{Fail: "protocol"}, task.Fail, mcptask.ReasonServer, "", "the machine is on fire"},
		"cancelled": {mcptest.Work{Fail: "cancelled"}, task.Stop, task.ReasonStopped, "",
			"has cancelled it: the server is out of paper"},
		"new-word":  {mcptest.Work{Word: "pondering", Text: "a boat"}, task.Complete, task.ReasonDone, "a boat", ""},
		"no-result": {mcptest.Work{Unreadable: true}, task.Fail, mcptask.ReasonServer, "", "the server gives no result"},
		"odd-question": {mcptest.Work{Ask: 1, AskOther: "sampling/createMessage"}, task.Fail, mcptask.ReasonServer, "",
			"cannot go on"},
	} {
		t.Run(name, func(t *testing.T) {
			w := extendedHTTP(t)
			d, in := w.made(tt.work)
			h := newHost(t, in)
			res, err := start(t, d, h).wait()
			c := change(t, nil, res, err)
			if c.Verb != tt.verb || c.Cause.Reason != tt.reason || !strings.Contains(res.Text, tt.text) ||
				!strings.Contains(c.Error+c.Cause.Detail, tt.error) {
				t.Errorf("recorded %+v, %+v, answer %q: Run returned %v", c, c.Cause, res.Text, err)
			}
			if name == "odd-question" && len(w.s.Requests("tasks/cancel")) == 0 {
				t.Error("the task that cannot go on was not cancelled")
			}
		})
	}
}

// An answer that the server does not take is given again, and nobody is asked twice.
func TestExtensionAnswerAgain(t *testing.T) {
	w := extendedHTTP(t)
	d, in := w.made(mcptest.Work{Ask: 1, RefuseUpdate: 2, Text: "a boat for"})
	h := newHost(t, in)
	r := start(t, d, h)
	r.question().reply <- task.Reply{Allow: true, Input: json.RawMessage(`{"name":"Ahab"}`)}
	res, err := r.wait()
	if err != nil || !strings.Contains(res.Text, "accept Ahab") || len(h.asked) != 0 {
		t.Errorf("%q, %v, %d further questions", res.Text, err, len(h.asked))
	}
	if n := len(w.s.Requests("tasks/update")); n != 3 {
		t.Errorf("%d answers were sent, want 3", n)
	}
}

// A question that the server does not ask any more is taken back.
func TestExtensionWithdrawn(t *testing.T) {
	w := extendedHTTP(t)
	d, in := w.made(mcptest.Work{Ask: 1, Text: "a boat for"})
	h := newHost(t, in)
	r := start(t, d, h)
	r.question() // nobody answers it here
	w.s.Answer("Starbuck")
	if res, err := r.wait(); err != nil || !strings.Contains(res.Text, "accept Starbuck") {
		t.Errorf("Run returned %q, %v", res.Text, err)
	}
	if n := len(w.s.Requests("tasks/update")); n != 0 {
		t.Errorf("%d answers to a question that is not asked any more", n)
	}
}

func TestExtensionStop(t *testing.T) {
	for name, tt := range map[string]struct {
		work mcptest.Work
		left string
	}{
		"confirmed": {mcptest.Work{Hold: true}, ""},
		"ignored":   {mcptest.Work{Hold: true, IgnoreCancel: true}, "working"},
		"refused":   {mcptest.Work{Hold: true, RefuseCancel: true}, "it cannot be stopped now"},
	} {
		t.Run(name, func(t *testing.T) {
			d, in := extendedHTTP(t).made(tt.work)
			h := newHost(t, in)
			r := start(t, d, h)
			r.until("working", func() bool { return h.state().Status == "working" })
			grace := 2 * time.Second
			cause := &task.StopError{Cause: task.Cause{Actor: task.ByModel, Reason: task.ReasonStopped}, Grace: &grace}
			r.end(cause)
			res, err := r.wait()
			if c := change(t, cause, res, err); c.Verb != task.Stop || c.Cause.Actor != task.ByModel {
				t.Errorf("recorded %+v", c)
			}
			if (len(res.Left) > 0) != (tt.left != "") || len(res.Left) > 0 && !strings.Contains(res.Left[0].Why, tt.left) {
				t.Errorf("left %+v", res.Left)
			}
		})
	}
}

// silent is a server that says once where a task is that is to end, and then nothing.
type silent struct {
	mcptask.Dialect
	cancelled bool
	looks     int
}

func (s *silent) Cancel(ctx context.Context, id string) (mcpclient.TaskState, error) {
	s.cancelled = true
	return s.Dialect.Cancel(ctx, id)
}

func (s *silent) Get(ctx context.Context, id string) (mcpclient.TaskState, error) {
	if s.cancelled {
		s.looks++
	}
	if s.looks > 1 {
		<-ctx.Done()
		return mcpclient.TaskState{}, context.Cause(ctx)
	}
	return s.Dialect.Get(ctx, id)
}

// A server that falls silent after a cancel leaves the task where it was seen last.
func TestExtensionStopSilent(t *testing.T) {
	w := extendedHTTP(t)
	_, in := w.made(mcptest.Work{Hold: true, IgnoreCancel: true})
	h := newHost(t, in)
	r := start(t, w.driver(func(c *mcptask.Config) {
		open := c.Open
		c.Open = func(ctx context.Context, server, digest, kind string) (mcptask.Dialect, func(), error) {
			to, release, err := open(ctx, server, digest, kind)
			return &silent{Dialect: to}, release, err
		}
	}), h)
	r.until("working", func() bool { return h.state().Status == "working" })
	grace := 2 * time.Second
	r.end(&task.StopError{Cause: task.Cause{Actor: task.ByModel, Reason: task.ReasonStopped}, Grace: &grace})
	if res, _ := r.wait(); len(res.Left) != 1 || !strings.Contains(res.Left[0].Why, "it is working 2s after the cancel") {
		t.Errorf("left %+v", res.Left)
	}
}

// A task is followed by the next host, with its question; without the server's memory of it
// it is lost, or has expired as announced.
func TestExtensionNextHost(t *testing.T) {
	w := extendedHTTP(t)
	detached := func(work mcptest.Work) []byte {
		d, in := w.made(work)
		h := newHost(t, in)
		h.keep = true
		r := start(t, d, h)
		r.until("known", func() bool { return h.state().Status != "" })
		if work.Ask > 0 {
			r.question()
		}
		r.end(task.ErrClosing)
		if _, err := r.wait(); !errors.Is(err, task.ErrDetached) || !d.Adopts(h.Record()) {
			t.Fatalf("Run returned %v", err)
		}
		return h.Host.Record().Checkpoint
	}
	follow := func(point []byte) *running {
		h := newHost(t, nil)
		h.keep, h.point = true, point
		return start(t, w.driver(), h)
	}
	r := follow(detached(mcptest.Work{Ask: 1, Text: "a boat for"}))
	r.question().reply <- task.Reply{Allow: true, Input: json.RawMessage(`{"name":"Ahab"}`)}
	if res, err := r.wait(); err != nil || !strings.Contains(res.Text, "accept Ahab") {
		t.Errorf("the next host got %+v, %v", res, err)
	}
	if n := len(w.s.Requests("tasks/cancel")); n != 0 {
		t.Errorf("the task was cancelled %d times", n)
	}
	unknown, expired := detached(mcptest.Work{Hold: true}), detached(mcptest.Work{Hold: true, TTL: 1})
	w.s.Forget()
	if _, err := follow(unknown).wait(); !errors.Is(err, task.ErrLost) {
		t.Errorf("an unknown task: %v", err)
	}
	res, err := follow(expired).wait()
	if c := change(t, nil, res, err); c.Verb != task.Fail || c.Cause.Reason != mcptask.ReasonExpired {
		t.Errorf("a task whose time is over: %+v, %v", c, err)
	}
}
