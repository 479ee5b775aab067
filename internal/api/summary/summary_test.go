package summary

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/task"
)

// What ended in the time is counted by how; what runs is counted now; a price that is not known is
// not 0.
func TestOf(t *testing.T) {
	now := time.Date(2026, 11, 20, 8, 0, 0, 0, time.UTC)
	at := func(h int) *time.Time { v := now.Add(time.Duration(h) * time.Hour); return &v }
	usd := 0.5
	agent := func(cost *float64) task.Record {
		return task.Record{ID: "a1", Kind: task.LocalAgent, AgentType: "explore", Status: task.Completed, EndTime: at(-2),
			Usage: &task.Usage{InputTokens: 90, OutputTokens: 10, CostUSD: cost}}
	}
	tasks := []task.Record{
		agent(&usd), agent(&usd), agent(nil),
		{ID: "b1", Kind: task.LocalBash, Status: task.Completed, EndTime: at(-3), Schedule: "sch_1", Attempts: make([]task.Attempt, 2)},
		{ID: "b2", Kind: task.LocalBash, Status: task.Failed, EndTime: at(-4), Schedule: "sch_1", Name: "nightly", Error: "exit code 2"},
		{ID: "b3", Kind: task.LocalBash, Status: task.Killed, EndTime: at(-4)},
		{ID: "b4", Kind: task.LocalBash, Status: task.Failed, EndTime: at(-30)},
		{ID: "b5", Kind: task.LocalBash, Status: task.Running},
		{ID: "a2", Kind: task.LocalAgent, AgentType: "explore", Status: task.Running, Parked: &task.Parked{Until: *at(3)}},
	}
	s := Of(tasks, *at(-24), now)
	text := s.Text(func(v float64) string { return fmt.Sprintf("$%.2f", v) })
	for _, want := range []string{"4 completed, 1 failed, 1 stopped, 2 by schedules, 1 after retries", "2 running, 1 of them parked",
		"300 tokens, at least $1.00 (the price of 1 is not known)", "failed: b2 nightly: exit code 2"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if s := Of(tasks[2:3], *at(-24), now); s.CostUSD != nil || s.Unpriced != 1 {
		t.Errorf("%+v", s)
	}
	for range 30 {
		tasks = append(tasks, tasks[4])
	}
	if s := Of(tasks, *at(-24), now); len(s.Failures) != maxFailures || s.More != 11 || s.Failed != 31 {
		t.Errorf("%d failures listed, %d more, of %d", len(s.Failures), s.More, s.Failed)
	}
}
