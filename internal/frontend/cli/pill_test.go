package cli

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
		if got := Pill(records); got != want {
			t.Errorf("%+v: %q, want %q", records, got, want)
		}
	}
}

func TestLiveTeams(t *testing.T) {
	mate := func(team string, s task.Status) task.Record {
		return task.Record{Status: s, Team: &task.Team{Team: team}}
	}
	records := []task.Record{mate("a", task.Running), mate("a", task.Running), mate("b", task.Pending), mate("a", task.Running), mate("b", task.Running),
		mate("c", task.Killed), {Status: task.Running}}
	if n := liveTeams(records); n != 2 {
		t.Errorf("%d teams", n)
	}
	if n := liveTeams(nil); n != 0 {
		t.Errorf("%d teams of nobody", n)
	}
}
