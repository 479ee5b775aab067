package panel

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/frontend/tui/theme"
	"github.com/drover-dev/drover/task"
)

func when(s int) time.Time {
	return time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC).Add(time.Duration(s) * time.Second)
}

func record(id, parent task.ID, at int, status task.Status) task.Record {
	began := when(at)
	r := task.Record{ID: id, Parent: parent, Kind: task.LocalBash, Status: status, CreateTime: began, StartTime: &began, Backgrounded: true}
	if status.Terminal() {
		r.EndTime = &began
	}
	return r
}

func ids(rows []Row) string {
	var list []string
	for _, r := range rows {
		list = append(list, fmt.Sprintf("%s%d", r.Record.ID, r.Depth))
	}
	return strings.Join(list, " ")
}

// Tasks stand below those that have started them, and an ended one stays where something
// that lives is below it.
func TestTree(t *testing.T) {
	s := New()
	s.Load([]task.Record{record("c", "b", 3, task.Running), record("b", "a", 2, task.Completed), record("a", "", 1, task.Running),
		record("d", "gone", 4, task.Running), {ID: "s", AgentType: task.MainSession}}, when(5))
	if got := ids(s.Rows(when(100))); got != "a0 b1 c2 d0" {
		t.Errorf("rows %s", got)
	}
}

// An ended task goes 30 s after its end, or after it was looked at last; not while it is.
func TestGrace(t *testing.T) {
	s := New()
	s.Load([]task.Record{record("a", "", 0, task.Running), record("b", "", 1, task.Running), record("c", "", 2, task.Running)}, when(2))
	for _, id := range []task.ID{"a", "b", "c"} {
		r := record(id, "", 0, task.Completed)
		end := when(10)
		r.EndTime = &end
		s.Event(task.Event{Verb: task.Complete, Task: r}, when(10))
	}
	s.Hold("b", when(11))
	if got := ids(s.Rows(when(39))); got != "a0 b0 c0" {
		t.Errorf("29 s after: %s", got)
	}
	if got := ids(s.Rows(when(40))); got != "b0" {
		t.Errorf("30 s after: %s", got)
	}
	s.Hold("", when(100))
	if got := ids(s.Rows(when(129))); got != "b0" {
		t.Errorf("29 s after it was closed: %s", got)
	}
	if got := ids(s.Rows(when(130))); got != "" {
		t.Errorf("30 s after it was closed: %s", got)
	}
	s.Key("a", when(130))
	if got := ids(s.Rows(when(130))); got != "a0 b0 c0" {
		t.Errorf("all: %s", got)
	}
	if s.Ticks(when(130)) {
		t.Error("it ticks though nothing moves")
	}
}

// The task under the cursor stays while others come and go.
func TestChosen(t *testing.T) {
	s := New()
	s.Load([]task.Record{record("a", "", 0, task.Running), record("b", "", 1, task.Running)}, when(2))
	if a := s.Key("down", when(2)); a.Do != Follow || a.Task.ID != "b" {
		t.Errorf("%+v", a)
	}
	s.Load([]task.Record{record("0", "", -1, task.Running)}, when(3))
	if r, _ := s.Chosen(when(3)); r.ID != "b" {
		t.Errorf("chosen %s", r.ID)
	}
}

// Stopping takes the key twice within 3 s, for the same task.
func TestStopTwice(t *testing.T) {
	s := New()
	s.Load([]task.Record{record("a", "", 0, task.Running), record("b", "", 1, task.Running)}, when(2))
	for _, c := range []struct {
		key  string
		at   int
		want Do
	}{{"x", 2, Nothing}, {"x", 6, Nothing}, {"down", 7, Follow}, {"x", 7, Nothing}, {"p", 7, Pause}, {"x", 8, Nothing}, {"x", 9, Stop}} {
		if a := s.Key(c.key, when(c.at)); a.Do != c.want {
			t.Errorf("%s at %d: %d, want %d", c.key, c.at, a.Do, c.want)
		}
	}
}

// The silence of an agent is known from listings, and events do not undo it.
func TestHeard(t *testing.T) {
	s := New()
	r := record("a", "", 0, task.Running)
	r.Kind = task.LocalAgent
	heard := when(1)
	with := r
	with.LastHeard = &heard
	s.Load([]task.Record{with}, when(2))
	s.Event(task.Event{Verb: task.Report, Task: r}, when(3))
	got, _ := s.Record("a")
	if quiet := quietFor(got, when(21)); quiet != 20*time.Second {
		t.Errorf("silent for %v", quiet)
	}
}

func TestTail(t *testing.T) {
	s := New()
	for _, text := range []string{"one\ntw", "o\nthree", "\n"} {
		s.Output("a", text, false, 0)
	}
	if got := strings.Join(s.tail.Lines, "|"); got != "one|two|three" {
		t.Errorf("%q", got)
	}
	s.Output("a", strings.Repeat("x\n", 1000), false, 0)
	if len(s.tail.Lines) != maxTail {
		t.Errorf("%d lines", len(s.tail.Lines))
	}
}

// A task at a worker says so, in its line and below it.
func TestWorker(t *testing.T) {
	r := record("a", "", 0, task.Running)
	r.Worker = "gpu-1"
	s := New()
	s.Load([]task.Record{r}, when(1))
	view := strings.Join(s.View(theme.New(), 100, 20, when(2)), "\n")
	if !strings.Contains(view, "at gpu-1") || !strings.Contains(view, "at worker gpu-1") {
		t.Errorf("no word of the worker:\n%s", view)
	}
}
