package budget

import (
	"errors"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/model/usage"
	"github.com/drover-dev/drover/internal/options"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
)

// supervisor is one that knows no tasks.
type supervisor struct{}

func (supervisor) Get(task.ID) (task.Record, bool)           { return task.Record{}, false }
func (supervisor) Clock(task.ID) (used, limit time.Duration) { return 0, 0 }

// What is reserved for an agent that is not started is free again.
func TestRelease(t *testing.T) {
	p, err := usage.Open(usage.Config{Budget: usage.Budget{Tokens: 100_000}})
	if err != nil {
		t.Fatal(err)
	}
	b := New(supervisor{}, home.Session{}, p, options.Agents{})
	greedy := Agent{Depth: 1, Def: subagent.Definition{Name: "greedy", Budget: task.Budget{Tokens: 90_000}}}
	var spec task.Spec
	first, err := b.Reserve(&spec, greedy)
	if err != nil || spec.Budget.Tokens != 90_000 {
		t.Fatalf("%+v, %v", spec.Budget, err)
	}
	var spent *usage.BudgetError
	if _, err := b.Reserve(&spec, Agent{Depth: 1, Def: subagent.Definition{Name: "plan"}}); !errors.As(err, &spent) {
		t.Errorf("beside the first: %v", err)
	}
	first.Release()
	if _, err := b.Reserve(&spec, greedy); err != nil || spec.Budget.Tokens != 90_000 {
		t.Errorf("after it was released: %+v, %v", spec.Budget, err)
	}
	Reservation{}.Release() // of budgets that count nothing
}
