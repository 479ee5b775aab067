package mcptask_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/driver/mcptask"
	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/internal/mcp/mcpclient"
	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/test/mcptest"
	"github.com/drover-dev/drover/test/tasktest"
)

// patience bounds every wait; none comes near it.
const patience = 30 * time.Second

// world is a server and how it is reached.
type world struct {
	t   *testing.T
	s   *mcptest.Server // nil: a process
	cfg mcpclient.Server
}

// overHTTP has the server in this process.
func overHTTP(t *testing.T, o mcptest.Options) *world {
	t.Helper()
	w := &world{t: t, s: mcptest.New(o)}
	srv := httptest.NewServer(w.s)
	t.Cleanup(srv.Close)
	t.Cleanup(w.s.Close)
	w.cfg.URL = srv.URL
	return w
}

// asProcess has the server as a process that is spoken with by its pipes.
func asProcess(t *testing.T) *world {
	t.Helper()
	return &world{t: t, cfg: mcpclient.Server{Command: os.Args[0], Env: map[string]string{asServer: "1"}, Cwd: t.TempDir()}}
}

// driver makes one of which each task has a connection of its own, as the tasks of
// several hosts have.
func (w *world) driver(more ...func(*mcptask.Config)) *mcptask.Driver {
	c := mcptask.Config{AskWait: time.Hour, Open: func(ctx context.Context, server, digest, kind string) (
		mcptask.Dialect, func(), error,
	) {
		if server != "shop" || digest != "d1" {
			return nil, nil, fmt.Errorf("%w: %s", mcptask.ErrNoServer, server)
		}
		pool := mcpclient.NewPool(mcpclient.Config{Env: os.Environ()})
		d, release, err := dial(ctx, pool, w.cfg, kind)
		return d, func() { release(); pool.Close() }, err
	}}
	for _, f := range more {
		f(&c)
	}
	return mcptask.New(c)
}

// sharing makes a driver whose tasks share a connection.
func (w *world) sharing() *mcptask.Driver {
	pool := mcpclient.NewPool(mcpclient.Config{Env: os.Environ()})
	w.t.Cleanup(pool.Close)
	return w.sharedBy(pool)
}

func (w *world) sharedBy(pool *mcpclient.Pool) *mcptask.Driver {
	return w.driver(func(c *mcptask.Config) {
		c.Open = func(ctx context.Context, _, _, kind string) (mcptask.Dialect, func(), error) {
			return dial(ctx, pool, w.cfg, kind)
		}
	})
}

func dial(ctx context.Context, pool *mcpclient.Pool, cfg mcpclient.Server, kind string) (
	mcptask.Dialect, func(), error,
) {
	l, err := pool.Use(ctx, "shop", cfg)
	if err != nil {
		return nil, func() {}, err
	}
	if kind == mcptask.Extension {
		return mcpclient.NewTasksV2(l.Conn), l.Release, nil
	}
	d := mcpclient.NewTasksV1(l.Conn)
	return d, func() { d.Close(); l.Release() }, nil
}

func input(work mcptest.Work) json.RawMessage {
	raw, err := json.Marshal(mcptask.Call{Server: "shop", Digest: "d1", Tool: mcptest.Tool, Args: work.JSON(), TTLMS: 60_000})
	if err != nil {
		panic(err)
	}
	return raw
}

// host hears what the driver tells, and lets a test answer what it asks.
type host struct {
	*tasktest.Host
	life  context.Context // of the run
	keep  bool
	owner task.ID
	told  chan string
	asked chan asked

	mu    sync.Mutex
	seen  []task.Progress // guarded by mu
	point []byte
}

type asked struct {
	task.Question
	reply chan task.Reply
}

func newHost(t *testing.T, in json.RawMessage) *host {
	return &host{Host: tasktest.NewHost(t, task.MCPTask, in), told: make(chan string, 10), asked: make(chan asked, 10)}
}

func (h *host) Record() task.Record {
	r := h.Host.Record()
	r.Keep, r.Owner = h.keep, h.owner
	if h.point != nil {
		r.Checkpoint = h.point
	}
	return r
}

func (h *host) Progress(p task.Progress) {
	h.mu.Lock()
	h.seen = append(h.seen, p)
	h.mu.Unlock()
	h.Host.Progress(p)
}

func (h *host) Tell(_ context.Context, _ task.MessageKind, text string, _ task.Priority) error {
	h.told <- text
	return nil
}

func (h *host) Ask(ctx context.Context, q task.Question) (task.Reply, error) {
	a := asked{lifecycle.Shown(q), make(chan task.Reply, 1)}
	h.asked <- a
	select {
	case r := <-a.reply:
		return r, nil
	case <-ctx.Done():
		return task.Reply{}, context.Cause(ctx)
	case <-h.life.Done(): // a moment before the run hears of it, or after
		return task.Reply{}, context.Cause(h.life)
	}
}

// state is what was told of the task last.
func (h *host) state() task.MCPState {
	p := h.Host.Record().Progress
	if p == nil || p.MCPTask == nil {
		return task.MCPState{}
	}
	return *p.MCPTask
}

// running is a run at work.
type running struct {
	t    *testing.T
	h    *host
	end  context.CancelCauseFunc
	done chan struct{}
	res  task.Result
	err  error
}

func start(t *testing.T, d task.Driver, h *host) *running {
	t.Helper()
	ctx, end := context.WithCancelCause(context.Background())
	h.life = ctx
	r := &running{t: t, h: h, end: end, done: make(chan struct{})}
	go func() { // wait waits for it
		defer close(r.done)
		r.res, r.err = d.Run(ctx, h)
	}()
	t.Cleanup(func() {
		end(task.ErrStopRequested)
		<-r.done
	})
	return r
}

func (r *running) wait() (task.Result, error) {
	r.t.Helper()
	select {
	case <-r.done:
	case <-time.After(patience):
		r.t.Fatalf("Run does not return; printed: %s", r.h.Printed())
	}
	return r.res, r.err
}

func (r *running) question() asked {
	r.t.Helper()
	select {
	case q := <-r.h.asked:
		return q
	case <-r.done:
		r.t.Fatalf("Run returned before it asked: %+v, %v\n%s", r.res, r.err, r.h.Printed())
	case <-time.After(patience):
		r.t.Fatalf("nothing is asked\n%s", r.h.Printed())
	}
	panic("unreachable")
}

// until waits for something to become true of what is told.
func (r *running) until(what string, is func() bool) {
	r.t.Helper()
	for late := time.Now().Add(patience); !is(); {
		select {
		case <-r.done:
			if is() {
				return
			}
			r.t.Fatalf("Run returned, and never %s: %v\n%s", what, r.err, r.h.Printed())
		case <-time.After(time.Millisecond):
		}
		if time.Now().After(late) {
			r.t.Fatalf("never %s\n%s", what, r.h.Printed())
		}
	}
}

func change(t *testing.T, cause error, res task.Result, err error) lifecycle.Change {
	t.Helper()
	c, ends := lifecycle.Ending(cause, res, err)
	if !ends {
		t.Fatalf("nothing is recorded of %v", err)
	}
	return c
}

func TestContract(t *testing.T) {
	for name, place := range map[string]func(*testing.T) *world{
		"http":  func(t *testing.T) *world { return overHTTP(t, mcptest.Options{}) },
		"stdio": asProcess,
	} {
		t.Run(name, func(t *testing.T) {
			w := place(t)
			work := func(m mcptest.Work) func(*testing.T) (task.Driver, json.RawMessage) {
				return func(*testing.T) (task.Driver, json.RawMessage) { return w.driver(), input(m) }
			}
			tasktest.Run(t, tasktest.Config{Long: work(mcptest.Work{Hold: true}), Short: work(mcptest.Work{Text: "the last word"}), Prints: "the last word",
				Checkpoint: work(mcptest.Work{Hold: true})})
			tasktest.Run(t, tasktest.Config{Long: work(mcptest.Work{Hold: true}), Short: work(mcptest.Work{Ask: 0, Text: "answered"}), Prints: "answered",
				Asks: func(_ *testing.T, n int) (task.Driver, json.RawMessage) {
					return w.driver(), input(mcptest.Work{Ask: n, Together: true})
				}})
		})
	}
}

// The ways a task ends, and what is recorded of each.
func TestEndings(t *testing.T) {
	for name, tt := range map[string]struct {
		work   mcptest.Work
		verb   task.Verb
		reason task.Reason
		text   string // in the answer
		error  string // in the error, or in the detail of the cause
		prints string
	}{
		"completed":   {mcptest.Work{Say: []string{"cuts", "glues"}, Text: "a boat"}, task.Complete, task.ReasonDone, "a boat", "", "a boat"},
		"tool-error":  {mcptest.Work{Fail: "tool"}, task.Fail, mcptask.ReasonTool, "and wet", "the paper is torn", "and wet"},
		"protocol":    {mcptest.Work{Fail: "protocol"}, task.Fail, mcptask.ReasonServer, "", "the machine is on fire", ""},
		"cancelled":   {mcptest.Work{Fail: "cancelled"}, task.Stop, task.ReasonStopped, "", "has cancelled it: the server is out of paper", ""},
		"refused":     {mcptest.Work{Refuse: true}, task.Fail, mcptask.ReasonServer, "", "such work is not done here", ""},
		"plain":       {mcptest.Work{Plain: true, Text: "at once"}, task.Complete, task.ReasonDone, "at once", "", "at once"},
		"plain-error": {mcptest.Work{Plain: true, Text: "no paper", Fail: "tool"}, task.Fail, mcptask.ReasonTool, "no paper", "no paper", ""},
		"early":       {mcptest.Work{Early: true, Text: "a boat"}, task.Complete, task.ReasonDone, "a boat", "", ""},
		"twice":       {mcptest.Work{Twice: true, Say: []string{"cuts"}, Text: "a boat"}, task.Complete, task.ReasonDone, "a boat", "", ""},
		"quiet":       {mcptest.Work{Quiet: true, Text: "a boat"}, task.Complete, task.ReasonDone, "a boat", "", ""},
		"other-ttl":   {mcptest.Work{TTL: 300_000, Text: "a boat"}, task.Complete, task.ReasonDone, "a boat", "", ""},
		"new-word":    {mcptest.Work{Word: "pondering", Text: "a boat"}, task.Complete, task.ReasonDone, "a boat", "", ""},
		"broken":      {mcptest.Work{Break: 2, Text: "a boat"}, task.Complete, task.ReasonDone, "a boat", "", "warning: the stream of the result broke off"},
		"broken-ever": {mcptest.Work{Break: 1000}, task.Fail, mcptask.ReasonNoResult, "", "its result cannot be read", ""},
		"unreadable":  {mcptest.Work{Unreadable: true}, task.Fail, mcptask.ReasonServer, "", "there is no result", ""},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, input(tt.work))
			res, err := start(t, overHTTP(t, mcptest.Options{}).driver(), h).wait()
			c := change(t, nil, res, err)
			if c.Verb != tt.verb || c.Cause.Reason != tt.reason || !strings.Contains(res.Text, tt.text) || !strings.Contains(c.Error+c.Cause.Detail, tt.error) {
				t.Errorf("recorded %+v, %+v, answer %q: Run returned %v", c, c.Cause, res.Text, err)
			}
			if got := h.Printed(); !strings.Contains(got, tt.prints) {
				t.Errorf("printed %q", got)
			}
		})
	}
}

// What is shown of a task, and what a later host needs, is what the server says.
func TestRecord(t *testing.T) {
	w := overHTTP(t, mcptest.Options{})
	h := newHost(t, input(mcptest.Work{Say: []string{"cuts", "glues"}, Steps: 3, TTL: 300_000, Poll: 20, Hold: true, Word: "pondering", Immediate: "have a tea"}))
	made := make(chan string, 1)
	r := start(t, w.driver().For(func(text string) { made <- text }), h)
	if text := <-made; text != "have a tea" {
		t.Errorf("the model is told %q", text)
	}
	r.until("glues", func() bool { s := h.state(); return s.Message == "glues" && s.Progress == 3 })
	s := h.state()
	if s.Server != "shop" || s.Tool != mcptest.Tool || s.Status != "working" || s.Total != 3 || s.TaskID == "" || s.Created.IsZero() || s.Updated.Before(s.Created) {
		t.Errorf("state %+v", s)
	}
	var p map[string]any
	if err := json.Unmarshal(h.Host.Record().Checkpoint, &p); err != nil || p["v"] != 1.0 || p["server"] != "shop" || p["digest"] != "d1" ||
		p["task"] != s.TaskID || p["ttl_ms"] != 300_000.0 || p["poll_ms"] != 20.0 {
		t.Errorf("checkpoint %v, %v", p, err)
	}
	for _, text := range []string{"working: glues", "3 of 3"} {
		if !strings.Contains(h.Printed(), text) {
			t.Errorf("printed without %q: %q", text, h.Printed())
		}
	}
	call := w.s.Requests("tools/call")[0]
	var params struct {
		Task struct {
			TTL int64 `json:"ttl"`
		} `json:"task"`
	}
	if err := json.Unmarshal(call.Params, &params); err != nil || params.Task.TTL != 60_000 {
		t.Errorf("called with %s", call.Params)
	}
	w.s.Free()
	if _, err := r.wait(); err != nil {
		t.Error(err)
	}
	if got := h.state(); got.Status != "completed" {
		t.Errorf("at the end %+v", got)
	}
}

// An unknown word is shown, and the task stays as it was.
func TestUnknownWord(t *testing.T) {
	w := overHTTP(t, mcptest.Options{})
	h := newHost(t, input(mcptest.Work{Word: "completed_maybe", Hold: true}))
	r := start(t, w.driver(), h)
	r.until("a warning", func() bool { return len(h.state().Warnings) > 0 })
	if s := h.state(); s.Status != "completed_maybe" || !strings.Contains(s.Warnings[0], "completed_maybe") {
		t.Errorf("state %+v", s)
	}
	if n := len(w.s.Requests("tasks/result")); n != 0 {
		t.Errorf("%d readings of a result that is not there", n)
	}
	w.s.Free()
	if _, err := r.wait(); err != nil {
		t.Error(err)
	}
}

func TestStop(t *testing.T) {
	for name, tt := range map[string]struct {
		work mcptest.Work
		left bool
	}{
		"confirmed": {mcptest.Work{Hold: true}, false},
		"ignored":   {mcptest.Work{Hold: true, IgnoreCancel: true}, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := overHTTP(t, mcptest.Options{})
			h := newHost(t, input(tt.work))
			r := start(t, w.driver(), h)
			r.until("working", func() bool { return h.state().Status == "working" })
			grace := 300 * time.Millisecond
			cause := &task.StopError{Cause: task.Cause{Actor: task.ByModel, Reason: task.ReasonStopped}, Grace: &grace}
			r.end(cause)
			res, err := r.wait()
			if c := change(t, cause, res, err); c.Verb != task.Stop || c.Cause.Actor != task.ByModel {
				t.Errorf("recorded %+v", c)
			}
			if len(w.s.Requests("tasks/cancel")) == 0 || (len(res.Left) > 0) != tt.left {
				t.Errorf("cancels %v, left %+v", w.s.Requests("tasks/cancel"), res.Left)
			}
		})
	}
}

func TestClosing(t *testing.T) {
	for _, keep := range []bool{false, true} {
		t.Run(fmt.Sprint("keep=", keep), func(t *testing.T) {
			w := overHTTP(t, mcptest.Options{})
			h := newHost(t, input(mcptest.Work{Hold: true, Text: "a boat"}))
			h.keep = keep
			r := start(t, w.driver(), h)
			r.until("working", func() bool { return h.state().Status == "working" })
			r.end(task.ErrClosing)
			_, err := r.wait()
			if errors.Is(err, task.ErrDetached) != keep || (len(w.s.Requests("tasks/cancel")) == 0) != keep {
				t.Fatalf("Run returned %v, cancels %v", err, w.s.Requests("tasks/cancel"))
			}
			d := w.driver()
			if got := d.Adopts(h.Record()); got != keep {
				t.Errorf("adopted: %v", got)
			}
			if !keep {
				return
			}
			next := newHost(t, nil)
			next.keep, next.point = true, h.Host.Record().Checkpoint
			r = start(t, d, next)
			r.until("followed", func() bool { return strings.Contains(next.Printed(), "a new host") })
			w.s.Free()
			res, err := r.wait()
			if err != nil || res.Text != "a boat" {
				t.Errorf("the next host got %+v, %v", res, err)
			}
		})
	}
}

// What a later host cannot find is lost, or was dropped as announced.
func TestForgotten(t *testing.T) {
	point := func(change func(map[string]any)) []byte {
		p := map[string]any{"v": 1, "server": "shop", "digest": "d1", "tool": "work", "task": "t1", "created": time.Now().UTC()}
		change(p)
		raw, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	for name, tt := range map[string]struct {
		point  []byte
		verb   task.Verb
		reason task.Reason
		says   string
	}{
		"unknown": {point(func(map[string]any) {}), task.Stop, task.ReasonLost, "does not know task t1 any more"},
		"expired": {point(func(p map[string]any) { p["ttl_ms"], p["created"] = 1000, time.Now().Add(-time.Hour) }), task.Fail, mcptask.ReasonExpired, "has dropped task t1"},
		"changed": {point(func(p map[string]any) { p["digest"] = "d2" }), task.Stop, task.ReasonLost, "no such MCP server"},
		"later":   {point(func(p map[string]any) { p["v"] = 7 }), task.Stop, task.ReasonLost, "version 7"},
		"broken":  {[]byte("{"), task.Stop, task.ReasonLost, "cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, nil)
			h.keep, h.point = true, tt.point
			res, err := start(t, overHTTP(t, mcptest.Options{}).driver(), h).wait()
			c := change(t, nil, res, err)
			if c.Verb != tt.verb || c.Cause.Reason != tt.reason || !strings.Contains(c.Error+c.Cause.Detail, tt.says) {
				t.Errorf("recorded %+v, %+v", c, c.Cause)
			}
		})
	}
	t.Run("while-followed", func(t *testing.T) {
		w := overHTTP(t, mcptest.Options{})
		h := newHost(t, input(mcptest.Work{Hold: true}))
		r := start(t, w.driver(), h)
		r.until("working", func() bool { return h.state().Status == "working" })
		w.s.Forget()
		if _, err := r.wait(); !errors.Is(err, task.ErrLost) {
			t.Errorf("Run returned %v", err)
		}
	})
}

// A server that cannot be reached for long is given up, and nobody waits for ever.
func TestUnreachable(t *testing.T) {
	w := overHTTP(t, mcptest.Options{})
	h := newHost(t, nil)
	h.keep, h.point = true, []byte(`{"v":1,"server":"shop","digest":"d1","tool":"work","task":"t1"}`)
	away := errors.New("the line is dead")
	d := w.driver(func(c *mcptask.Config) {
		c.Patience = time.Nanosecond
		c.Open = func(context.Context, string, string, string) (mcptask.Dialect, func(), error) { return nil, nil, away }
	})
	_, err := start(t, d, h).wait()
	if !errors.Is(err, task.ErrLost) || !errors.Is(err, away) {
		t.Errorf("Run returned %v", err)
	}
}
