package watch

import (
	"context"
	"fmt"
	"slices"

	"github.com/drover-dev/drover/internal/frontend/cli/console"
	"github.com/drover-dev/drover/task"
)

// inspected is the record of a task, and what it and all below it have used.
type inspected struct {
	console.Listed
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

// spendColumns puts what whole trees have used behind what each task has.
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

// dollars is what something has cost, in cents where they say enough.
func dollars(usd *float64) string {
	switch {
	case usd == nil:
		return "-"
	case *usd > 0 && *usd < 0.1:
		return fmt.Sprintf("$%.4f", *usd)
	}
	return fmt.Sprintf("$%.2f", *usd)
}
