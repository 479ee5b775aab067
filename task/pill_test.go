package task_test

import (
	"testing"

	"github.com/drover-dev/drover/task"
)

// What is in the background is counted by kinds, monitors never as shells.
func TestPill(t *testing.T) {
	some := func(of ...any) (all []task.Record) {
		for i := 0; i < len(of); i += 2 {
			for range of[i].(int) {
				all = append(all, task.Record{Kind: of[i+1].(task.Kind), Status: task.Running, Backgrounded: true})
			}
		}
		return all
	}
	foreground := some(2, task.LocalBash)
	foreground[0].Backgrounded = false
	ended := some(2, task.MonitorMCP)
	ended[0].Status = task.Completed
	main := some(1, task.LocalAgent, 1, task.MonitorMCP)
	main[0].AgentType = task.MainSession
	mates := some(5, task.InProcessTeammate)
	for i := range mates {
		mates[i].Team = &task.Team{Team: []string{"a", "b"}[i%2]}
	}
	for want, records := range map[string][]task.Record{
		"": nil, "1 shell": foreground, "1 monitor": ended, "2 monitors": some(2, task.MonitorMCP), "3 shells, 2 monitors": some(3, task.LocalBash, 2, task.MonitorMCP),
		"1 shell, 1 monitor": append(some(1, task.LocalBash), main...), "2 teams": mates, "dreaming": some(1, task.Dream), "◇ 2 cloud sessions": some(2, task.RemoteAgent),
		"2 local agents": some(2, task.LocalAgent), "1 background workflow": some(1, task.LocalWorkflow), "4 background tasks": some(1, task.LocalBash, 1, task.MonitorMCP, 2, task.LocalAgent),
		"3 background tasks": some(3, task.MCPTask),
	} {
		if got := task.PillLabel(records); got != want {
			t.Errorf("%+v: %q, want %q", records, got, want)
		}
	}
}

// A remote plan that is the only background task says that it waits, and asks to be
// looked at.
func TestPillPlan(t *testing.T) {
	plan := func(phase string) task.Record {
		return task.Record{Kind: task.RemoteAgent, Status: task.Running, Backgrounded: true,
			Progress: &task.Progress{Phase: phase, Remote: &task.RemoteSession{Type: "ultraplan"}}}
	}
	other := task.Record{Kind: task.LocalBash, Status: task.Running, Backgrounded: true}
	for _, c := range []struct {
		records []task.Record
		label   string
		view    bool
	}{
		{[]task.Record{plan("needs_input")}, "◇ ultraplan needs your input", true},
		{[]task.Record{plan("plan_ready")}, "◆ ultraplan ready", true},
		{[]task.Record{plan("")}, "◇ 1 cloud session", false},
		{[]task.Record{plan("plan_ready"), other}, "2 background tasks", false},
	} {
		if label, view := task.PillLabel(c.records), task.PillNeedsView(c.records); label != c.label || view != c.view {
			t.Errorf("%q, %t; want %q, %t", label, view, c.label, c.view)
		}
	}
}
