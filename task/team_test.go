package task_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/drover-dev/drover/task"
)

func TestTeam(t *testing.T) {
	team, err := task.NewTeam("researcher", "my-team", 1)
	if err != nil || team.AgentID != "researcher@my-team" || team.Color != task.TeamColors()[1] {
		t.Errorf("%+v, %v", team, err)
	}
	raw, err := json.Marshal(team)
	if want := `{"agent_id":"researcher@my-team","agent_name":"researcher","team_name":"my-team","color":"green"}`; err != nil || string(raw) != want {
		t.Errorf("%s, %v", raw, err)
	}
	if many, err := task.NewTeam("a", "b", 1000); err != nil || many.Color == "" {
		t.Errorf("the thousandth: %+v, %v", many, err)
	}
	for _, bad := range [][2]string{{"", "x"}, {"x", ""}, {"a@b", "x"}, {"a/b", "x"}, {"a", "b c"}, {"-a", "x"}, {"a..b", "x"}, {strings.Repeat("a", 41), "x"}, {"ä", "x"}} {
		if got, err := task.NewTeam(bad[0], bad[1], 0); err == nil {
			t.Errorf("%q is %+v", bad, got)
		}
	}
	if name, team, ok := task.SplitTeam("a.b@c-d"); name != "a.b" || team != "c-d" || !ok {
		t.Errorf("%q, %q, %v", name, team, ok)
	}
	for _, bad := range []string{"", "a", "@", "a@", "@b", "a@b@c", "a b@c"} {
		if _, _, ok := task.SplitTeam(bad); ok {
			t.Errorf("%q is a teammate", bad)
		}
	}
}

func TestTeams(t *testing.T) {
	mate := func(team string, s task.Status) task.Record {
		return task.Record{Status: s, Team: &task.Team{Team: team}}
	}
	records := []task.Record{mate("a", task.Running), mate("a", task.Running), mate("b", task.Pending), mate("a", task.Running), mate("b", task.Running),
		mate("c", task.Killed), {Status: task.Running}}
	if n := task.Teams(records); n != 2 {
		t.Errorf("%d teams", n)
	}
	if n := task.Teams(nil); n != 0 {
		t.Errorf("%d teams of nobody", n)
	}
}

func TestActivity(t *testing.T) {
	at := func(p *task.Progress) task.Record { return task.Record{Progress: p} }
	for want, r := range map[string]task.Record{
		"idle":              {Idle: true, Progress: &task.Progress{Message: "x"}},
		"working":           at(nil),
		"Reading the tests": at(&task.Progress{Message: "Reading the tests", LastActivity: &task.Activity{ToolName: "Read"}}),
		"Read":              at(&task.Progress{LastActivity: &task.Activity{ToolName: "Read"}}),
	} {
		if got := r.Activity(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
