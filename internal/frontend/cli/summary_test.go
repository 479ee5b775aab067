package cli

import (
	"testing"

	"github.com/drover-dev/drover/task"
)

func TestLiveTeams(t *testing.T) {
	of := func(team string, s task.Status) task.Record {
		return task.Record{Status: s, Team: &task.Team{Team: team}}
	}
	records := []task.Record{of("a", task.Running), of("a", task.Running), of("b", task.Pending), of("c", task.Killed), {Status: task.Running}}
	if n := liveTeams(records); n != 2 {
		t.Errorf("%d teams", n)
	}
	if n := liveTeams(nil); n != 0 {
		t.Errorf("%d teams of nobody", n)
	}
}
