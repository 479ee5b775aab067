package agentsdk

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/task"
)

// failer is a *testing.T or a *rapid.T.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// runKey is one run of one task.
type runKey struct {
	id  task.ID
	run task.RunID
}

// fact is what the log says of a run.
type fact struct {
	told       bool // it has to be told of
	ended      bool
	begin, end time.Time
}

func (w *world) facts() map[runKey]*fact {
	out := map[runKey]*fact{}
	for _, e := range w.events {
		k := runKey{e.Task.ID, e.Task.Run}
		f := out[k]
		if f == nil {
			f = &fact{}
			out[k] = f
		}
		r := e.Task
		f.told = f.told || r.Kind != task.LocalBash || r.Backgrounded
		f.ended = r.Status.Terminal()
		f.begin, f.end = r.CreateTime, w.over
		if f.ended {
			f.end = e.At
		}
	}
	for _, f := range out {
		f.told = f.told || f.end.Sub(f.begin) >= patience
	}
	return out
}

// lists are the sets of live background tasks that the log went through.
func (w *world) lists() []string {
	live := map[task.ID]bool{}
	var order []runKey
	var out []string
	last := ""
	for _, e := range w.events {
		k := runKey{e.Task.ID, e.Task.Run}
		live[k.id] = e.Task.Background()
		order = slices.DeleteFunc(order, func(o runKey) bool { return o.id == k.id && o.run != k.run })
		if !slices.Contains(order, k) {
			order = append(order, k)
		}
		var now []string
		for _, o := range order {
			if live[o.id] {
				now = append(now, string(o.id)+"/"+string(o.run))
			}
		}
		if text := strings.Join(now, " "); text != last {
			out, last = append(out, text), text
		}
	}
	return out
}

// check holds the printed lines against the log.
func check(t failer, w *world, tools map[runKey]int) {
	t.Helper()
	type seen struct{ started, progress, ended int }
	got := map[runKey]*seen{}
	var lists []string
	for i, l := range w.lines() {
		if l.Subtype == "background_tasks_changed" {
			var now []string
			for _, b := range l.Tasks {
				now = append(now, string(b.Task)+"/"+string(b.Run))
			}
			lists = append(lists, strings.Join(now, " "))
			continue
		}
		if l.Task == "" {
			continue
		}
		k := runKey{l.Task, l.Run}
		s := got[k]
		if s == nil {
			s = &seen{}
			got[k] = s
		}
		if l.Subtype == "task_started" {
			s.started++
		} else if s.started == 0 {
			t.Fatalf("line %d: %s of %v before its start", i, l.Subtype, k)
		}
		if s.ended > 0 {
			t.Fatalf("line %d: %s of %v after its end", i, l.Subtype, k)
		}
		switch l.Subtype {
		case "task_progress":
			s.progress++
		case "task_notification":
			s.ended++
		}
	}
	for k, f := range w.facts() {
		want := seen{}
		if f.told {
			want = seen{started: 1, progress: tools[k]}
			if f.ended {
				want.ended = 1
			}
		}
		s := got[k]
		if s == nil {
			s = &seen{}
		}
		if *s != want {
			t.Fatalf("%v: printed %+v, want %+v", k, *s, want)
		}
	}
	if want := w.lists(); !slices.Equal(lists, want) {
		t.Fatalf("lists of background tasks\n%s\nwant\n%s", strings.Join(lists, "\n"), strings.Join(want, "\n"))
	}
}

// step is something that happens, to one of a few tasks.
type step struct {
	what string
	who  int
	ms   int
}

// TestOrder lets random lives run against the stream, which follows the log by
// itself and is asked in between.
func TestOrder(t *testing.T) {
	words := []string{"shell", "agent", "behind", "begin", "begin", "tool", "tool", "promote", "pause", "thaw", "complete", "fail", "stop", "resume", "sleep", "poke"}
	rapid.Check(t, func(rt *rapid.T) {
		steps := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) step {
			return step{
				what: rapid.SampledFrom(words).Draw(rt, "what"),
				who:  rapid.IntRange(0, 5).Draw(rt, "who"),
				ms:   rapid.SampledFrom([]int{1, 700, 2000, 5000}).Draw(rt, "ms"),
			}
		}), 1, 60).Draw(rt, "steps")
		var w *world
		tools := map[runKey]int{}
		synctest.Test(t, func(t *testing.T) {
			w = newWorld(t, Options{Format: StreamJSON})
			w.run(func() {
				for _, s := range steps {
					w.play(s, tools)
				}
			})
		})
		check(rt, w, tools)
	})
}

// play does the step, if the state of the task allows it.
func (w *world) play(s step, tools map[runKey]int) {
	var id task.ID
	for _, letter := range []string{"a", "b"} {
		if c := task.ID(fmt.Sprintf("%s%08d", letter, s.who)); w.record(c).ID != "" {
			id = c
		}
	}
	r := w.record(id)
	alive, running := id != "" && !r.Status.Terminal(), r.Status == task.Running
	switch {
	case s.what == "sleep":
		time.Sleep(time.Duration(s.ms) * time.Millisecond)
		if s.ms > 1 {
			synctest.Wait()
		}
	case s.what == "poke":
		w.start("go on")
	case id == "" && (s.what == "shell" || s.what == "behind"):
		w.create(task.Record{ID: task.ID(fmt.Sprintf("b%08d", s.who)), Kind: task.LocalBash, Command: "make", Backgrounded: s.what == "behind"})
	case id == "" && s.what == "agent":
		w.create(task.Record{ID: task.ID(fmt.Sprintf("a%08d", s.who)), Kind: task.LocalAgent, Description: "look", Depth: 1 + s.who%2, Backgrounded: s.ms > 1000})
	case s.what == "begin" && alive && !running:
		w.begin(id)
	case s.what == "tool" && running && r.Kind == task.LocalAgent:
		w.tool(id, "toolu_1", "Read", agent.Output{Text: "ok"})
		tools[runKey{id, r.Run}]++
	case s.what == "promote" && alive && !r.Backgrounded:
		w.do(id, lifecycle.Change{Verb: task.Background})
	case s.what == "pause" && alive && !r.Paused:
		w.do(id, lifecycle.Change{Verb: task.Pause})
	case s.what == "thaw" && alive && r.Paused:
		w.do(id, lifecycle.Change{Verb: task.Thaw})
	case s.what == "complete" && running:
		w.end(id, nil, task.Result{}, nil)
	case s.what == "fail" && alive:
		w.end(id, nil, task.Result{}, errExit)
	case s.what == "stop" && alive:
		w.end(id, stopped, task.Result{}, errExit)
	case s.what == "resume" && id != "" && !alive:
		w.do(id, lifecycle.Change{Verb: task.Resume, Run: r.Run + "x", Background: s.ms > 1000})
	}
}

// TestParallel has agents at work at the same time, each on its goroutine.
func TestParallel(t *testing.T) {
	const agents, calls = 8, 20
	w := newWorld(t, Options{Format: StreamJSON, Partial: true})
	tools := map[runKey]int{}
	w.run(func() {
		w.start("all of you")
		var group sync.WaitGroup
		for i := range agents {
			id := task.ID(fmt.Sprintf("a%08d", i))
			tools[runKey{id, "run_1_" + task.RunID(id)}] = calls
			group.Go(func() {
				w.create(task.Record{ID: id, Kind: task.LocalAgent, Description: "look", ToolUseID: "toolu_" + string(id), Backgrounded: i%2 == 0})
				if i%2 == 0 {
					w.tool(session, "toolu_"+string(id), "Agent", agent.Output{Text: "launched"})
				}
				w.begin(id)
				for range calls {
					w.s.Agent(id, agent.Event{Kind: agent.PartEvent, Part: agent.Part{Kind: agent.TextPart, Text: "x"}})
					w.reply(id, "msg", agent.TextBlock("x"))
					w.tool(id, "toolu_1", "Read", agent.Output{Text: "ok"})
				}
				w.end(id, nil, used(1, calls), nil)
				if i%2 == 1 {
					w.tool(session, "toolu_"+string(id), "Agent", agent.Output{Text: "done"})
				}
			})
		}
		group.Wait()
		w.done(result(1, "done"), nil)
	})
	check(t, w, tools)

	// The result of the call that started a task comes after the task's events.
	place := map[string]int{}
	for i, l := range w.lines() {
		text := w.out.writes[i]
		switch {
		case l.Subtype == "task_started" || l.Subtype == "task_notification":
			place[l.Subtype+string(l.Task)] = i
		case l.Type == "user":
			for a := range agents {
				id := fmt.Sprintf("a%08d", a)
				if strings.Contains(text, `"tool_use_id":"toolu_`+id) {
					place["result"+id] = i
				}
			}
		}
	}
	for a := range agents {
		id := fmt.Sprintf("a%08d", a)
		before := "task_started"
		if a%2 == 1 {
			before = "task_notification"
		}
		if place["result"+id] == 0 || place["result"+id] < place[before+id] {
			t.Errorf("%s: the tool result is line %d, %s is line %d", id, place["result"+id], before, place[before+id])
		}
	}
}

// A turn that delivers a notification comes after the notification, also when the
// log's wake-up is late: here nobody follows the log at all.
func TestLateWake(t *testing.T) {
	w := newWorld(t, Options{Format: StreamJSON})
	w.create(task.Record{ID: "b11111111", Kind: task.LocalBash, Command: "make", Backgrounded: true})
	w.begin("b11111111")
	w.end("b11111111", nil, exit(0), nil)
	w.start("", agent.MailMessage{Seq: 3, Text: "note"})
	got := w.kinds()
	want := []string{
		"background_tasks_changed", "task_started b11111111", "task_updated b11111111", "task_notification b11111111",
		"background_tasks_changed", "init", "user",
	}
	if !slices.Equal(got, want) {
		t.Errorf("printed %q\nwant    %q", got, want)
	}
}
