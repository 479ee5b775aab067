package watch

import (
	"context"
	"fmt"
	"slices"

	ledger "github.com/drover-dev/drover/internal/model/usage"

	"github.com/drover-dev/drover/internal/frontend/cli/console"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/task"
)

// inspected is the record of a task with the use of its whole subtree.
type inspected struct {
	listed
	Subtree task.Spend `json:"subtree"`
}

// whole lists as list does, and says what each task and all below it have used:
// also what is not on the page since it has ended.
func (a *app) whole(used map[task.ID]task.Spend) func(context.Context, bool, bool, int) ([]task.Record, bool, error) {
	return func(ctx context.Context, ended, all bool, limit int) ([]task.Record, bool, error) {
		records, _, err := a.List(ctx, true, all, 0)
		if err != nil {
			return nil, false, err
		}
		addUp(records, used)
		if !ended {
			records = slices.DeleteFunc(records, func(r task.Record) bool { return r.Status.Terminal() })
		}
		if limit > 0 && len(records) > limit {
			return records[:limit], true, nil
		}
		return records, false, nil
	}
}

// addUp is what each task and all below it have used.
func addUp(records []task.Record, used map[task.ID]task.Spend) {
	parents := make(map[task.ID]task.ID, len(records))
	for _, r := range records {
		parents[r.ID] = r.Parent
	}
	for _, r := range records {
		own, seen := r.Spent(), map[task.ID]bool{}
		for id := r.ID; id != "" && !seen[id]; id = parents[id] { // a damaged record may be its own ancestor
			seen[id] = true
			used[id] = used[id].Add(own)
		}
	}
}

// spendColumns adds the use of whole subtrees to the use of each task.
func spendColumns(rows [][]string, records []task.Record, used map[task.ID]task.Spend) {
	at := slices.Index(rows[0], "TOKENS")
	rows[0] = slices.Insert(rows[0], at+1, "COST")
	for i, r := range records {
		own, tree := r.Spent(), used[r.ID]
		rows[i+1][at] = sum(own)
		cost := dollars(own.CostUSD)
		if tree.Tasks > 1 {
			rows[i+1][at] += fmt.Sprintf(" (tree %s)", sum(tree))
			cost += fmt.Sprintf(" (tree %s)", dollars(tree.CostUSD))
		}
		rows[i+1] = slices.Insert(rows[i+1], at+1, cost)
	}
}

func sum(s task.Spend) string {
	return console.Tokens(task.Record{Usage: &task.Usage{TotalTokens: s.Tokens}})
}

// dollars is a cost, or a dash.
func dollars(usd *float64) string {
	if usd == nil {
		return "-"
	}
	return ledger.Dollars(*usd)
}

// listed is a record whose questions are displayed.
type listed struct {
	task.Record
	Questions []console.Displayed `json:"questions,omitempty"`
}

func withDisplay(r task.Record) listed {
	l := listed{Record: r}
	for _, q := range r.Questions {
		l.Questions = append(l.Questions, console.Displayed{Question: q, Display: excerpt.Call(q.Input, q.Hidden)})
	}
	return l
}
