package monitor_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/drover-dev/drover/internal/driver/monitor"
	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/internal/engine/process"
	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/test/tasktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait; none comes near it.
const patience = 30 * time.Second

// owned is a host whose task has an owner, who is told.
type owned struct {
	*tasktest.Host
	told chan string
	fail func() error // of Tell; nil: none
	mu   sync.Mutex
	all  []task.Progress
}

func (h *owned) Record() task.Record {
	r := h.Host.Record()
	r.Owner = "s00000000"
	return r
}

func (h *owned) Progress(p task.Progress) {
	h.mu.Lock()
	h.all = append(h.all, p)
	h.mu.Unlock()
	h.Host.Progress(p)
}

func (h *owned) Tell(ctx context.Context, kind task.MessageKind, text string, p task.Priority) error {
	if err := (task.Message{To: "s00000000", From: string(h.Record().ID), Kind: kind, Text: text, Priority: p}).Check(); err != nil {
		panic(err)
	}
	if kind != task.MonitorEvent || p != task.Next {
		panic(fmt.Sprintf("told as %s, %s", kind, p))
	}
	if h.fail != nil {
		if err := h.fail(); err != nil {
			return err
		}
	}
	select {
	case h.told <- text:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (h *owned) count() task.MonitorCount {
	if p := h.Host.Record().Progress; p != nil && p.Monitor != nil {
		return *p.Monitor
	}
	return task.MonitorCount{}
}

// watching is a monitor at work.
type watching struct {
	*owned
	t    *testing.T
	end  context.CancelCauseFunc
	done chan outcome
}

type outcome struct {
	res task.Result
	err error
}

func watch(t *testing.T, c monitor.Client, w monitor.Watch) *watching {
	t.Helper()
	return watchWith(t, c, w, nil)
}

func watchWith(t *testing.T, c monitor.Client, w monitor.Watch, fail func() error) *watching {
	t.Helper()
	if c.Env == nil {
		c.Env = os.Environ()
	}
	d := monitor.New(nil).For(c, w)
	input, err := json.Marshal(w)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Check(input); err != nil {
		t.Fatal(err)
	}
	x := &watching{owned: &owned{Host: tasktest.NewHost(t, d.Kind(), input), told: make(chan string, 1000), fail: fail}, t: t, done: make(chan outcome, 1)}
	var ctx context.Context
	ctx, x.end = context.WithCancelCause(context.Background())
	go func() { // joined below
		res, err := d.Run(ctx, x)
		x.done <- outcome{res, err}
		close(x.done)
	}()
	t.Cleanup(func() {
		x.end(task.ErrClosing)
		for range x.done {
		}
	})
	return x
}

func (x *watching) wait() outcome {
	x.t.Helper()
	select {
	case o := <-x.done:
		return o
	case <-time.After(patience):
		x.t.Fatal("it does not end")
	}
	panic("unreachable")
}

// hears waits until everything was told, in this order, in however many notifications.
func (x *watching) hears(lines ...string) {
	x.t.Helper()
	for len(lines) > 0 {
		select {
		case text := <-x.told:
			for _, got := range strings.Split(text, "\n") {
				if len(lines) == 0 || got != lines[0] {
					x.t.Fatalf("told %q, want %q", got, lines)
				}
				lines = lines[1:]
			}
		case <-time.After(patience):
			x.t.Fatalf("not told of %q", lines)
		}
	}
}

func TestContract(t *testing.T) {
	command := func(line string) func(*testing.T) (task.Driver, json.RawMessage) {
		return func(t *testing.T) (task.Driver, json.RawMessage) {
			w := monitor.Watch{Line: line}
			input, err := json.Marshal(w)
			if err != nil {
				t.Fatal(err)
			}
			return monitor.New(nil).For(monitor.Client{Env: os.Environ()}, w), input
		}
	}
	tasktest.Run(t, tasktest.Config{Long: command("sleep 631"), Short: command("printf 'the last '; sleep 0.05; printf word"), Prints: "the last word"})
}

func TestCheck(t *testing.T) {
	d := monitor.New(nil)
	for input, ok := range map[string]bool{
		`{"line":"true"}`: true, `{"args":["true"],"cwd":"/","match":"a+"}`: true, `{"file":"/a/b"}`: true, `{"server":"s","uri":"u:x"}`: true,
		`{}`: false, `{"match":"a"}`: false, `{"line":"true","file":"/a"}`: false, `{"line":"true","args":["true"]}`: false, `{"args":[""]}`: false,
		`{"file":"a"}`: false, `{"file":"/"}`: false, `{"file":"/a/../b"}`: false, `{"server":"s"}`: false, `{"uri":"u:x"}`: false, `{"line":"true","cwd":"here"}`: false,
		`{"line":"true","match":"("}`: false, `{"line":"true","match":"(?=x)"}`: false, `{"line":"a\u0000"}`: false, `{"line":"true","env":[]}`: false,
		`{"line":"true","match":"` + strings.Repeat("a", 5000) + `"}`: false,
	} {
		if err := d.Check(json.RawMessage(input)); (err == nil) != ok {
			t.Errorf("%.100s: %v", input, err)
		}
	}
}

// Lines that match are told, all are in the output, and stderr is only there.
func TestCommand(t *testing.T) {
	x := watch(t, monitor.Client{}, monitor.Watch{Match: "^ERR", Line: `echo ERR one; echo fine; echo ERR to stderr >&2; echo; printf '\033[31mERR\033[0m two\r\n'; printf 'ERR \342\200\256three \377'; exit 3`})
	o := x.wait()
	x.told <- "end"
	x.hears("ERR one", "ERR two", "ERR <U+202E>three \uFFFD", "end")
	var fail *task.FailError
	if !errors.As(o.err, &fail) || fail.Reason != task.ReasonExit || o.res.ExitCode == nil || *o.res.ExitCode != 3 {
		t.Errorf("ended with %+v, %v", o.res, o.err)
	}
	if want := "3 events in 5 lines."; o.res.Text != want {
		t.Errorf("it says %q, want %q", o.res.Text, want)
	}
	if got := (task.MonitorCount{Lines: 5, Events: 3, Notified: 3}); x.count() != got {
		t.Errorf("counted %+v, want %+v", x.count(), got)
	}
	if p := x.Printed(); !strings.Contains(p, "to stderr") || !strings.Contains(p, "fine") || !strings.Contains(p, "\x1b[31m") {
		t.Errorf("the output is %q", p)
	}
}

// What a helper of the command prints after its end is an event, and what lives on is named.
func TestHelper(t *testing.T) {
	x := watch(t, monitor.Client{}, monitor.Watch{Line: `exec > >(sleep 0.3; cat); sleep 632 & echo late`})
	o := x.wait()
	x.told <- "end"
	x.hears("late", "end")
	if o.err != nil || len(o.res.Notes) != 1 || !strings.Contains(o.res.Notes[0], "(sleep 632, pid ") {
		t.Errorf("ended with %+v, %v", o.res, o.err)
	}
}

// An event is told while the command goes on, and a stop ends the whole group.
func TestStop(t *testing.T) {
	x := watch(t, monitor.Client{}, monitor.Watch{Line: "trap '' TERM; setsid sleep 632 & sleep 632 & echo ready; while :; do wait; done"})
	x.hears("ready")
	grace := 50 * time.Millisecond
	cause := &task.StopError{Cause: task.Cause{Actor: task.ByModel, Reason: task.ReasonStopped}, Grace: &grace}
	x.end(cause)
	o := x.wait()
	if c, ends := lifecycle.Ending(cause, o.res, o.err); !ends || c.Verb != task.Stop || len(o.res.Signals) < 2 || len(o.res.Left) > 0 {
		t.Errorf("recorded as %+v, %+v", c, o.res)
	}
	if left := new(process.Table).Marked(process.MarkTask, string(x.Record().ID)); len(left) > 0 {
		t.Errorf("left: %+v", left)
	}
}

// The end of its time is a good end, in which nothing is lost that was printed.
func TestTimeUp(t *testing.T) {
	for name, w := range map[string]monitor.Watch{"command": {Line: "echo one; exec sleep 633"}, "file": {File: filepath.Join(t.TempDir(), "x")}} {
		t.Run(name, func(t *testing.T) {
			var x *watching
			if w.File != "" {
				x = follow(t, monitor.Client{}, w.File)
			} else {
				x = watch(t, monitor.Client{}, w)
				x.hears("one")
			}
			x.end(task.ErrTimeout)
			o := x.wait()
			if c, _ := lifecycle.Ending(task.ErrTimeout, o.res, o.err); c.Verb != task.Complete || c.ExitCode != nil || !strings.HasPrefix(o.res.Text, "Its time is up. ") {
				t.Errorf("recorded as %+v, %q, %v", c, o.res.Text, o.err)
			}
		})
	}
}

// A flood is counted whole and told in a few short notifications, in bounded memory.
func TestFlood(t *testing.T) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	begin := time.Now()
	x := watch(t, monitor.Client{}, monitor.Watch{Line: "yes | head -n 1000000"})
	if o := x.wait(); o.err != nil {
		t.Fatal(o.err)
	}
	most := 6 + int(time.Since(begin)/time.Second) // the burst, the last, and one a second
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 8<<20 {
		t.Errorf("it holds %d bytes", grown)
	}
	c := x.count()
	if c.Lines != 1_000_000 || c.Events != c.Lines || c.Notified+c.Dropped != c.Events || c.Notified == 0 || c.Dropped == 0 {
		t.Errorf("counted %+v", c)
	}
	if n := len(x.told); n > most {
		t.Errorf("%d notifications, want at most %d", n, most)
	}
	for range len(x.told) {
		if text := <-x.told; len(text) > 4<<10+100 {
			t.Errorf("a notification of %d bytes", len(text))
		}
	}
	if n := len(x.all); n > 2*most+2 {
		t.Errorf("progress was told %d times", n)
	}
}

// While the mailbox of the owner is full, events are held and merged.
func TestFull(t *testing.T) {
	refused := make(chan struct{}, 10)
	full := true
	x := watchWith(t, monitor.Client{}, monitor.Watch{Line: "for i in 1 2 3; do echo $i; sleep 0.3; done; exec sleep 634"}, func() error {
		if full { // used by the one goroutine that tells
			full = false
			refused <- struct{}{}
			return fmt.Errorf("post: %w", task.ErrMailFull)
		}
		return nil
	})
	<-refused
	x.hears("1", "2", "3")
}

// What an ended monitor could not tell is counted.
func TestUntold(t *testing.T) {
	x := watchWith(t, monitor.Client{}, monitor.Watch{Line: "echo one; echo two"}, func() error { return task.ErrMailFull })
	if o := x.wait(); o.err != nil || o.res.Text != "2 events in 2 lines, 2 of them not shown." {
		t.Errorf("%q, %v", o.res.Text, o.err)
	}
	if got, want := x.count(), (task.MonitorCount{Lines: 2, Events: 2, Dropped: 2}); got != want {
		t.Errorf("counted %+v, want %+v", got, want)
	}
}

// Without an owner nobody is told, and the counts are right all the same.
func TestAlone(t *testing.T) {
	w := monitor.Watch{Line: "echo one; echo two", Match: "o$"}
	input, err := json.Marshal(w)
	if err != nil {
		t.Fatal(err)
	}
	h := tasktest.NewHost(t, task.MonitorMCP, input)
	res, err := monitor.New(nil).For(monitor.Client{Env: os.Environ()}, w).Run(t.Context(), h)
	if err != nil || res.Text != "1 event in 2 lines." {
		t.Errorf("%q, %v", res.Text, err)
	}
	if got, want := *h.Record().Progress.Monitor, (task.MonitorCount{Lines: 2, Events: 1}); got != want {
		t.Errorf("counted %+v, want %+v", got, want)
	}
}

// What cannot be started says so, and has no process.
func TestRefused(t *testing.T) {
	for name, w := range map[string]monitor.Watch{
		"program": {Args: []string{"no-such-program-here"}}, "folder": {Line: "true", Cwd: "/no/such/folder"},
		"file": {File: "/no/such/folder/x"}, "server": {Server: "s", URI: "u:x"},
	} {
		t.Run(name, func(t *testing.T) {
			x := watch(t, monitor.Client{}, w)
			o := x.wait()
			var fail *task.FailError
			if !errors.As(o.err, &fail) || fail.Reason != task.ReasonStart || x.Record().Process != nil {
				t.Errorf("%+v, %v", o.res, o.err)
			}
		})
	}
}

// unrecorded is a host whose disk is full.
type unrecorded struct{ *tasktest.Host }

func (h unrecorded) Begun(task.Process) error { return errors.New("disk full") }

// A command whose start cannot be recorded is ended at once.
func TestUnrecorded(t *testing.T) {
	w := monitor.Watch{Line: "sleep 635"}
	input, _ := json.Marshal(w)
	h := unrecorded{tasktest.NewHost(t, task.MonitorMCP, input)}
	if _, err := monitor.New(nil).For(monitor.Client{Env: os.Environ()}, w).Run(t.Context(), h); err == nil || !strings.Contains(err.Error(), "disk full") {
		t.Errorf("err = %v", err)
	}
	if left := new(process.Table).Marked(process.MarkTask, string(h.Record().ID)); len(left) > 0 {
		t.Errorf("left: %+v", left)
	}
}

// A monitor of a dead host is lost, and what it has left is ended.
func TestLost(t *testing.T) {
	h := tasktest.NewHost(t, task.MonitorMCP, nil)
	g, err := process.StartGroup(process.Command{Args: []string{"sleep", "636"}, Env: []string{process.MarkTask + "=" + string(h.Record().ID)}})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	id := g.Identity()
	if err := h.Begun(task.Process{PID: id.PID, Start: id.Start, Boot: id.Boot}); err != nil {
		t.Fatal(err)
	}
	d := monitor.New(nil)
	if !d.Adopts(h.Record()) || d.Adopts(task.Record{}) {
		t.Error("what has a process is to be adopted, and nothing else")
	}
	res, err := d.Run(t.Context(), h)
	if c, ok := lifecycle.Ending(nil, res, err); !ok || c.Verb != task.Stop || c.Cause.Reason != task.ReasonHostLost {
		t.Errorf("recorded as %+v, %v", c, err)
	}
	g.Reap()
	if process.Alive(id) {
		t.Error("it lives on")
	}
}

// A command can be stopped and let go on, and that it has ended is no error.
func TestFreeze(t *testing.T) {
	d := monitor.New(nil)
	x := watch(t, monitor.Client{}, monitor.Watch{Line: "echo ready; exec sleep 637"})
	x.hears("ready")
	p := *x.Record().Process
	for range 2 {
		for _, do := range []func(task.Process) error{d.Freeze, d.Thaw} {
			if err := do(p); err != nil {
				t.Fatal(err)
			}
		}
	}
	x.end(task.ErrStopRequested)
	x.wait()
	if err := d.Thaw(p); err != nil {
		t.Errorf("after the end: %v", err)
	}
}
