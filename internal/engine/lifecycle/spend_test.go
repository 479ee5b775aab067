package lifecycle_test

import (
	"testing"

	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/task"
)

// A further run does not lose what those before it have cost, also where one died
// before it could say.
func TestSpentOverRuns(t *testing.T) {
	cents := func(n float64) *float64 { return new(n / 100) }
	r := record(t, task.Running)
	r = apply(t, r, lifecycle.Change{Verb: task.Complete, At: ended, OutputBytes: 7, Usage: &task.Usage{TotalTokens: 10, Turns: 2, CostUSD: cents(25)}})
	r = apply(t, r, lifecycle.Change{Verb: task.Resume, At: ended, Run: "run_2", Budget: task.Budget{Tokens: 5}})
	if r.Resumes != 1 || r.Earlier.Turns != 2 || r.Budget.Tokens != 5 {
		t.Errorf("resumed as %+v", r)
	}
	r = apply(t, r, lifecycle.Change{Verb: task.Begin, At: ended})
	r = apply(t, r, lifecycle.Change{Verb: task.Report, Progress: &task.Progress{TokenCount: 5, CostUSD: cents(50)}})
	if s := r.Spent(); s.Tokens != 15 || *s.CostUSD != 0.75 || s.OutputBytes != 7 || s.Tasks != 1 {
		t.Errorf("while it runs: %+v", s)
	}
	r = apply(t, r, lifecycle.Change{Verb: task.Stop, At: ended}) // its host has died
	r = apply(t, r, lifecycle.Change{Verb: task.Resume, At: ended, Run: "run_3"})
	r = apply(t, r, lifecycle.Change{Verb: task.Begin, At: ended})
	r = apply(t, r, lifecycle.Change{Verb: task.Complete, At: ended, Usage: &task.Usage{TotalTokens: 100}}) // of no known price
	if s := r.Spent(); s.Tokens != 115 || *s.CostUSD != 0.75 || r.Resumes != 2 {
		t.Errorf("at the end: %+v", s)
	}
	if s := record(t, task.Pending).Spent(); s.CostUSD != nil || s.Tokens != 0 {
		t.Errorf("before it began: %+v", s)
	}
}

// The usage of a workflow is that of its steps, which count by themselves.
func TestSpentByWorkflow(t *testing.T) {
	r := record(t, task.Running)
	r.Kind = task.LocalWorkflow
	r = apply(t, r, lifecycle.Change{Verb: task.Complete, At: ended, OutputBytes: 7, Usage: &task.Usage{TotalTokens: 10}})
	if s := r.Spent(); s.Tokens != 0 || s.OutputBytes != 7 || s.Tasks != 1 {
		t.Errorf("beside its steps: %+v", s)
	}
}

// What a task is left to owns it, and hears of its end.
func TestApplyReparent(t *testing.T) {
	r := record(t, task.Running)
	r.Depth, r.Owner = 3, r.Parent
	got := apply(t, r, lifecycle.Change{Verb: task.Reparent, Parent: "a00000009", Owner: "s00000001", Depth: 2})
	if got.Parent != "a00000009" || got.Owner != "s00000001" || got.Depth != 2 || !got.Backgrounded || got.Status != task.Running {
		t.Errorf("left to another: %+v", got)
	}
	below := apply(t, r, lifecycle.Change{Verb: task.Reparent, Parent: r.Parent, Depth: 2})
	if below.Parent != r.Parent || below.Owner != r.Owner || below.Backgrounded || below.Depth != 2 {
		t.Errorf("below one that was left: %+v", below)
	}
}
