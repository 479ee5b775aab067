package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/drover-dev/drover/task"
)

// What a tree has used includes what has ended and is not shown, and earlier runs.
func TestTreeSpend(t *testing.T) {
	cents := func(n float64) *float64 { return new(n / 100) }
	agent := func(id, parent task.ID, s int, used *task.Usage) task.Record {
		r := task.Record{ID: id, Parent: parent, Kind: task.LocalAgent, Status: task.Running, Backgrounded: true, Description: "work", CreateTime: at(s), StartTime: when(s)}
		if r.Usage = used; used != nil {
			r.Status, r.EndTime, r.Cause = task.Completed, when(s+1), &task.Cause{}
		}
		return r
	}
	top := agent("a11111111", "", 10, nil)
	top.Progress, top.Earlier = &task.Progress{TokenCount: 100, CostUSD: cents(5)}, &task.Usage{TotalTokens: 1000, CostUSD: cents(100)}
	w := &world{mine: []*session{newSession("slive0000", true, top,
		agent("a22222222", "a11111111", 20, &task.Usage{TotalTokens: 2000, CostUSD: cents(200)}),
		agent("a33333333", "a22222222", 30, &task.Usage{TotalTokens: 400}))}}
	got := w.do(t, "ps", "--tree")
	if !strings.Contains(squeeze(got.out), "1.1k (tree 3.5k) $1.05 (tree $3.05)") || strings.Contains(got.out, "a22222222") {
		t.Errorf("code %d, %s\n%s", got.code, got.err, got.out)
	}
	got = w.do(t, "inspect", "a11111111")
	var o struct {
		ID      string     `json:"task_id"`
		Subtree task.Spend `json:"subtree"`
	}
	if err := json.Unmarshal([]byte(got.out), &o); err != nil || o.ID != "a11111111" || o.Subtree.Tasks != 3 || o.Subtree.Tokens != 3500 || *o.Subtree.CostUSD < 3.04 {
		t.Errorf("inspected: %v, %s", err, got.out)
	}
}
