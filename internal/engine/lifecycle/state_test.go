package lifecycle_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/task"
)

// The state table as we want it, in the order of task.Statuses. An empty place
// is a refused move.
var moves = map[task.Verb][5]task.Status{
	//                 pending       running         completed     failed        killed
	task.Begin:       {task.Running, "", "", "", ""},
	task.Report:      {task.Pending, task.Running, "", "", ""},
	task.Save:        {"", task.Running, "", "", ""},
	task.Rest:        {"", task.Running, "", "", ""},
	task.Wake:        {"", task.Running, "", "", ""},
	task.Ask:         {"", task.Running, "", "", ""},
	task.Answer:      {"", task.Running, "", "", ""},
	task.Pause:       {task.Pending, task.Running, "", "", ""},
	task.Thaw:        {task.Pending, task.Running, "", "", ""},
	task.Park:        {"", task.Running, "", "", ""},
	task.Unpark:      {"", task.Running, "", "", ""},
	task.Retry:       {"", task.Pending, "", "", ""},
	task.Background:  {task.Pending, task.Running, "", "", ""},
	task.Reparent:    {task.Pending, task.Running, "", "", ""},
	task.RequestStop: {task.Pending, task.Running, "", "", ""},
	task.Complete:    {"", task.Completed, "", "", ""},
	task.Fail:        {task.Failed, task.Failed, "", "", ""},
	task.Stop:        {task.Killed, task.Killed, "", "", ""},
	task.Resume:      {"", "", task.Pending, task.Pending, task.Pending},
	task.MarkSeen:    {"", "", task.Completed, task.Failed, task.Killed},
}

var (
	created = time.Date(2026, 5, 4, 10, 0, 0, 0, time.UTC)
	begun   = created.Add(time.Second)
	ended   = created.Add(time.Minute)
)

// record is a task in the status, as Apply itself brings it there.
func record(t testing.TB, s task.Status) task.Record {
	t.Helper()
	r := task.Record{
		ID: "b00000001", Run: "run_1", Kind: task.LocalBash, Status: task.Pending,
		Name: "build", Description: "build it", Session: "s00000001", Parent: "a00000001",
		Command: "make", Cwd: "/src", OutputFile: "/out", CreateTime: created,
	}
	if s == task.Pending {
		return r
	}
	verbs := map[task.Status]task.Verb{task.Completed: task.Complete, task.Failed: task.Fail, task.Killed: task.Stop}
	r = apply(t, r, lifecycle.Change{Verb: task.Begin, At: begun})
	if v, ok := verbs[s]; ok {
		r = apply(t, r, lifecycle.Change{Verb: v, At: ended})
	}
	if r.Status != s {
		t.Fatalf("record is %s, want %s", r.Status, s)
	}
	return r
}

func apply(t testing.TB, r task.Record, c lifecycle.Change) task.Record {
	t.Helper()
	next, err := lifecycle.Apply(r, c)
	if err != nil {
		t.Fatalf("%s: %v", c.Verb, err)
	}
	return next
}

// full is a change of the verb with everything that the verb needs.
func full(v task.Verb) lifecycle.Change {
	c := lifecycle.Change{Verb: v, At: ended}
	switch v {
	case task.Begin:
		c.Process = &task.Process{PID: 7, Start: 99, Boot: "boot"}
	case task.Report:
		c.Progress = &task.Progress{ToolUseCount: 1}
	case task.Save:
		c.Checkpoint = []byte(`{"v":1}`)
	case task.Park:
		c.Parked = &task.Parked{Until: ended.Add(time.Hour), Provider: "anthropic"}
	case task.Retry:
		c.Attempt = &task.Attempt{EndTime: ended, Signal: "SIGKILL"}
	case task.Ask:
		c.Question = &task.Question{ID: "q1", Tool: "Bash"}
	case task.Answer:
		c.Answered = &task.Answered{ID: "q1", Tool: "Bash"}
	case task.Resume:
		c.Run = "run_2"
	case task.Reparent:
		c.Parent, c.Owner, c.Depth = "a00000009", "a00000009", 1
	}
	return c
}

// raised is r with the fact set that the verb takes away, so that the verb has
// something to do.
func raised(r task.Record, v task.Verb) task.Record {
	switch v {
	case task.Wake:
		r.Idle = true
	case task.Answer:
		r.AwaitingApproval, r.Questions = true, []task.Question{{ID: "q1", Tool: "Bash"}}
	case task.Thaw:
		r.Paused = true
	case task.Unpark:
		r.Parked = &task.Parked{Provider: "anthropic"}
	}
	return r
}

func TestApplyTable(t *testing.T) {
	if len(moves) != len(task.Verbs()) {
		t.Errorf("the table has %d verbs, task.Verbs has %d", len(moves), len(task.Verbs()))
	}
	for _, v := range task.Verbs() {
		row, ok := moves[v]
		if !ok {
			t.Errorf("no row for %s", v)
			continue
		}
		for i, from := range task.Statuses() {
			t.Run(string(v)+"-"+string(from), func(t *testing.T) {
				r := raised(record(t, from), v)
				got, err := lifecycle.Apply(r, full(v))
				if row[i] == "" {
					wantRefused(t, r, got, err, v)
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if got.Status != row[i] {
					t.Errorf("leads to %s, want %s", got.Status, row[i])
				}
			})
		}
	}
}

func wantRefused(t *testing.T, r, got task.Record, err error, v task.Verb) {
	t.Helper()
	var move *task.MoveError
	if !errors.As(err, &move) {
		t.Fatalf("got %v, want a *MoveError", err)
	}
	if want := (task.MoveError{ID: r.ID, From: r.Status, Verb: v}); *move != want {
		t.Errorf("got %+v, want %+v", *move, want)
	}
	if !reflect.DeepEqual(got, r) {
		t.Errorf("a refused move changed the record:\n got %+v\nwant %+v", got, r)
	}
}

func TestApplyUnknownVerb(t *testing.T) {
	for _, v := range []task.Verb{task.Create, "", "explode"} {
		for _, from := range task.Statuses() {
			r := record(t, from)
			got, err := lifecycle.Apply(r, lifecycle.Change{Verb: v})
			wantRefused(t, r, got, err, v)
		}
	}
}

func TestMoveErrorText(t *testing.T) {
	_, err := lifecycle.Apply(record(t, task.Killed), lifecycle.Change{Verb: task.Complete})
	if got, want := err.Error(), "task b00000001: cannot complete while killed"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A fact that stands already is no change, so that no event is written and no
// reader woken.
func TestApplyFacts(t *testing.T) {
	facts := []struct {
		set, clear task.Verb
		get        func(task.Record) bool
	}{
		{task.Rest, task.Wake, func(r task.Record) bool { return r.Idle }},
		{task.Pause, task.Thaw, func(r task.Record) bool { return r.Paused }},
		{task.Background, "", func(r task.Record) bool { return r.Backgrounded }},
		{task.RequestStop, "", func(r task.Record) bool { return r.Stopping }},
	}
	for _, f := range facts {
		t.Run(string(f.set), func(t *testing.T) {
			r := record(t, task.Running)
			on := apply(t, r, lifecycle.Change{Verb: f.set, At: ended})
			if !f.get(on) || f.get(r) {
				t.Fatalf("%s: before %v, after %v", f.set, f.get(r), f.get(on))
			}
			wantNoChange(t, on, f.set)
			if f.clear == "" {
				return
			}
			off := apply(t, on, lifecycle.Change{Verb: f.clear, At: ended})
			if !reflect.DeepEqual(off, r) {
				t.Errorf("%s after %s is not where it began: %+v", f.clear, f.set, off)
			}
			wantNoChange(t, off, f.clear)
		})
	}
}

func wantNoChange(t *testing.T, r task.Record, v task.Verb) {
	t.Helper()
	got, err := lifecycle.Apply(r, lifecycle.Change{Verb: v, At: ended})
	if !errors.Is(err, lifecycle.ErrNoChange) {
		t.Errorf("second %s: got %v, want ErrNoChange", v, err)
	}
	if !reflect.DeepEqual(got, r) {
		t.Errorf("second %s changed the record", v)
	}
}

// The fact falls with the last question, and an answer closes its own only.
func TestApplyQuestions(t *testing.T) {
	r := record(t, task.Running)
	ask := func(id string) lifecycle.Change {
		return lifecycle.Change{Verb: task.Ask, Question: &task.Question{ID: id}}
	}
	answer := func(id string) lifecycle.Change {
		return lifecycle.Change{Verb: task.Answer, At: ended, Answered: &task.Answered{ID: id, Allow: true, Cause: task.Cause{Actor: task.ByUser}}}
	}
	two := apply(t, apply(t, r, ask("q1")), ask("q2"))
	if !two.AwaitingApproval || len(two.Questions) != 2 || len(r.Questions) != 0 {
		t.Fatalf("after two questions: %+v", two)
	}
	for _, again := range []lifecycle.Change{ask("q1"), ask(""), {Verb: task.Ask}} {
		if got, err := lifecycle.Apply(two, again); !errors.Is(err, lifecycle.ErrNoChange) || !reflect.DeepEqual(got, two) {
			t.Errorf("asked again: %v", err)
		}
	}
	one := apply(t, two, answer("q1"))
	if !one.AwaitingApproval || len(one.Questions) != 1 || one.Questions[0].ID != "q2" || len(two.Questions) != 2 || two.Questions[0].ID != "q1" {
		t.Fatalf("after the first answer: %+v, and before it: %+v", one.Questions, two.Questions)
	}
	for _, stale := range []lifecycle.Change{answer("q1"), answer(""), {Verb: task.Answer}} {
		if got, err := lifecycle.Apply(one, stale); !errors.Is(err, lifecycle.ErrNotAsked) || !reflect.DeepEqual(got, one) {
			t.Errorf("stale answer: %v", err)
		}
	}
	none := apply(t, one, answer("q2"))
	if none.AwaitingApproval || none.Questions != nil || none.LastAnswer.ID != "q2" || !none.LastAnswer.Allow {
		t.Errorf("after both: %+v", none)
	}
	for _, c := range []lifecycle.Change{{Verb: task.RequestStop}, {Verb: task.Complete}, {Verb: task.Fail}, {Verb: task.Stop}} {
		if got := apply(t, two, c); got.AwaitingApproval || got.Questions != nil {
			t.Errorf("%s leaves %+v open", c.Verb, got.Questions)
		} else if _, err := lifecycle.Apply(got, answer("q1")); err == nil {
			t.Errorf("an answer after %s is taken", c.Verb)
		}
	}
}

// An end is marked as seen once, and the mark is that of one run.
func TestApplyMarkSeen(t *testing.T) {
	r := record(t, task.Failed)
	seen := apply(t, r, lifecycle.Change{Verb: task.MarkSeen, At: ended})
	if !seen.Seen || r.Seen || seen.Status != task.Failed || seen.Cause != r.Cause {
		t.Fatalf("marked as seen: %+v", seen)
	}
	wantNoChange(t, seen, task.MarkSeen)
	if again := apply(t, seen, lifecycle.Change{Verb: task.Resume, At: ended, Run: "run_2"}); again.Seen {
		t.Error("a further run begins as seen")
	}
}

func TestApplyBegin(t *testing.T) {
	r := record(t, task.Pending)
	got := apply(t, r, lifecycle.Change{Verb: task.Begin, At: begun})
	if got.StartTime == nil || !got.StartTime.Equal(begun) {
		t.Errorf("start time is %v, want %v", got.StartTime, begun)
	}
	if r.StartTime != nil {
		t.Error("the record that was given was altered")
	}
}

func TestApplyKeepsSummary(t *testing.T) {
	r := record(t, task.Running)
	r.Progress = &task.Progress{Summary: "half way", TokenCount: 1}
	r.OutputBytes = 100
	got := apply(t, r, lifecycle.Change{Verb: task.Report, OutputBytes: 50,
		Progress: &task.Progress{Summary: "forged", TokenCount: 9}})
	if got.Progress.Summary != "half way" || got.Progress.TokenCount != 9 {
		t.Errorf("progress is %+v, want new counts and the old summary", got.Progress)
	}
	if got := apply(t, r, lifecycle.Change{Verb: task.Report, OutputBytes: 300}); got.OutputBytes != 300 || got.Progress.TokenCount != 1 {
		t.Errorf("output alone was reported, and the progress is %+v", got.Progress)
	}
	if got.OutputBytes != 100 {
		t.Errorf("output bytes fell to %d", got.OutputBytes)
	}
	if r.Progress.TokenCount != 1 {
		t.Error("the record that was given was altered")
	}
}

// Every end has a cause and an end time, owes its notification in the same step, and
// leaves no fact of life behind.
func TestApplyEnd(t *testing.T) {
	for _, v := range []task.Verb{task.Complete, task.Fail, task.Stop} {
		t.Run(string(v), func(t *testing.T) {
			r := record(t, task.Running)
			r.Idle, r.AwaitingApproval, r.Paused, r.Stopping, r.Backgrounded = true, true, true, true, true
			r.OutputBytes = 100
			code := 3
			got := apply(t, r, lifecycle.Change{Verb: v, At: ended, ExitCode: &code, Error: "why", OutputBytes: 120,
				Usage: &task.Usage{Turns: 2}, Progress: &task.Progress{ToolUseCount: 8}, Survivors: []task.Survivor{{PID: 7}}})
			if got.EndTime == nil || !got.EndTime.Equal(ended) {
				t.Errorf("end time is %v, want %v", got.EndTime, ended)
			}
			if got.Cause == nil || *got.Cause != (task.Cause{Actor: task.ByItself, Reason: task.ReasonDone}) {
				t.Errorf("cause is %+v", got.Cause)
			}
			if !got.Notified {
				t.Error("the end owes no notification")
			}
			if got.Idle || got.AwaitingApproval || got.Paused || got.Stopping {
				t.Errorf("facts of life are left: %+v", got)
			}
			if !got.Backgrounded || *got.ExitCode != 3 || got.Error != "why" || got.OutputBytes != 120 || got.Usage.Turns != 2 ||
				got.Progress.ToolUseCount != 8 || len(got.Survivors) != 1 {
				t.Errorf("what came with the end is lost: %+v", got)
			}
			again := apply(t, got, lifecycle.Change{Verb: task.Resume, At: ended})
			if len(again.Survivors) > 0 {
				t.Errorf("a new run has survivors: %+v", again.Survivors)
			}
		})
	}
}

func TestApplyResume(t *testing.T) {
	r := record(t, task.Killed)
	code := -1
	r.ExitCode, r.Error, r.Checkpoint = &code, "gone", []byte(`{"v":1}`)
	r.Process = &task.Process{PID: 7}
	got := apply(t, r, lifecycle.Change{Verb: task.Resume, At: ended, Run: "run_2"})
	if got.ID != r.ID || got.Name != r.Name || got.Parent != r.Parent || got.Run != "run_2" {
		t.Errorf("resume changed who the task is: %+v", got)
	}
	if string(got.Checkpoint) != `{"v":1}` {
		t.Error("the checkpoint that the new run goes on from is lost")
	}
	if got.StartTime != nil || got.EndTime != nil || got.Cause != nil || got.ExitCode != nil || got.Error != "" ||
		got.Process != nil || got.Progress != nil || got.Usage != nil || got.Notified {
		t.Errorf("the new run carries facts of the old one: %+v", got)
	}
}

// FuzzApply plays random lives. Every byte is one verb; some bytes are verbs
// that nobody knows.
func FuzzApply(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 12})
	f.Add([]byte{0, 13, 15, 0, 14, 15})
	f.Add([]byte{11, 14, 0, 1, 2})
	f.Add([]byte{0, 4, 6, 8, 12, 12, 200})
	f.Add([]byte{0, 12, 13, 14, 0, 1}) // what comes behind an end
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) > 64 {
			script = script[:64]
		}
		first := play(t, script)
		if again := play(t, script); !reflect.DeepEqual(first, again) {
			t.Fatalf("played again, the same life ends otherwise:\n%+v\n%+v", first, again)
		}
	})
}

func play(t *testing.T, script []byte) task.Record {
	verbs := append(task.Verbs(), task.Create, "explode")
	r := record(t, task.Pending)
	for i, b := range script {
		c := full(verbs[int(b)%len(verbs)])
		c.At = created.Add(time.Duration(i+1) * time.Second)
		c.OutputBytes = int64(b) * 3
		before := encode(t, r)
		next, err := lifecycle.Apply(r, c)
		if after := encode(t, r); after != before {
			t.Fatalf("%s altered the record that was given:\n%s\n%s", c.Verb, before, after)
		}
		checkStep(t, r, next, c, err)
		r = next
	}
	return r
}

func checkStep(t *testing.T, r, next task.Record, c lifecycle.Change, err error) {
	t.Helper()
	if err != nil {
		var move *task.MoveError
		if !errors.As(err, &move) && !errors.Is(err, lifecycle.ErrNoChange) && !errors.Is(err, lifecycle.ErrNotAsked) {
			t.Fatalf("%s: error of an unknown kind: %v", c.Verb, err)
		}
		if !reflect.DeepEqual(r, next) {
			t.Fatalf("%s was refused and changed the record", c.Verb)
		}
		return
	}
	if r.Status.Terminal() && c.Verb != task.Resume {
		t.Fatalf("%s moved a run that was %s", c.Verb, r.Status)
	}
	if next.Status.Terminal() != (next.EndTime != nil) || next.Status.Terminal() != (next.Cause != nil) ||
		next.Status.Terminal() != next.Notified {
		t.Fatalf("%s: status, end time, cause and notification do not agree: %+v", c.Verb, next)
	}
	if next.Status == task.Running && next.StartTime == nil {
		t.Fatalf("%s: running without a start time", c.Verb)
	}
	if next.AwaitingApproval != (len(next.Questions) > 0) {
		t.Fatalf("%s: awaiting approval %v with %d questions", c.Verb, next.AwaitingApproval, len(next.Questions))
	}
	if next.Status.Terminal() && (next.Idle || next.AwaitingApproval || next.Paused || next.Stopping) {
		t.Fatalf("%s: an ended run has facts of life: %+v", c.Verb, next)
	}
	if next.OutputBytes < r.OutputBytes {
		t.Fatalf("%s: output shrank", c.Verb)
	}
	if next.ID != r.ID || next.Kind != r.Kind || next.Session != r.Session || next.Parent != r.Parent && c.Verb != task.Reparent || next.Name != r.Name {
		t.Fatalf("%s changed who the task is: %+v", c.Verb, next)
	}
	if (next.Run != r.Run) != (c.Verb == task.Resume && c.Run != r.Run) {
		t.Fatalf("%s: run went from %s to %s", c.Verb, r.Run, next.Run)
	}
}

func encode(t testing.TB, r task.Record) string {
	t.Helper()
	data, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// A run whose command is started again has begun once, has one process at a time, and says which
// attempts have failed; the next run begins without them.
func TestRetry(t *testing.T) {
	r := record(t, task.Running)
	r.Process = &task.Process{PID: 7}
	failed := apply(t, r, lifecycle.Change{Verb: task.Retry, At: ended, Attempt: &task.Attempt{EndTime: ended, Signal: "SIGKILL"}})
	if failed.Process != nil || failed.Status != task.Pending || len(failed.Attempts) != 1 || len(r.Attempts) != 0 {
		t.Fatalf("after an attempt: %+v", failed)
	}
	again := apply(t, failed, lifecycle.Change{Verb: task.Begin, At: ended, Process: &task.Process{PID: 8}})
	if again.Process.PID != 8 || !again.StartTime.Equal(begun) || len(again.Attempts) != 1 {
		t.Errorf("the next attempt: %+v", again)
	}
	next := apply(t, apply(t, again, lifecycle.Change{Verb: task.Fail, At: ended}), lifecycle.Change{Verb: task.Resume, Run: "run_2"})
	if next.Attempts != nil {
		t.Errorf("the next run has attempts: %+v", next.Attempts)
	}
}
