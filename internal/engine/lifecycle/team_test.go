package lifecycle_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/drover-dev/drover/internal/engine/lifecycle"
)

func TestTeam(t *testing.T) {
	team, err := lifecycle.NewTeam("researcher", "my-team", 1)
	if err != nil || team.AgentID != "researcher@my-team" || team.Color != lifecycle.TeamColors()[1] {
		t.Errorf("%+v, %v", team, err)
	}
	raw, err := json.Marshal(team)
	if want := `{"agent_id":"researcher@my-team","agent_name":"researcher","team_name":"my-team","color":"green"}`; err != nil || string(raw) != want {
		t.Errorf("%s, %v", raw, err)
	}
	if many, err := lifecycle.NewTeam("a", "b", 1000); err != nil || many.Color == "" {
		t.Errorf("the thousandth: %+v, %v", many, err)
	}
	for _, bad := range [][2]string{{"", "x"}, {"x", ""}, {"a@b", "x"}, {"a/b", "x"}, {"a", "b c"}, {"-a", "x"}, {"a..b", "x"}, {strings.Repeat("a", 41), "x"}, {"ä", "x"}} {
		if got, err := lifecycle.NewTeam(bad[0], bad[1], 0); err == nil {
			t.Errorf("%q is %+v", bad, got)
		}
	}
	if name, team, ok := lifecycle.SplitTeam("a.b@c-d"); name != "a.b" || team != "c-d" || !ok {
		t.Errorf("%q, %q, %v", name, team, ok)
	}
	for _, bad := range []string{"", "a", "@", "a@", "@b", "a@b@c", "a b@c"} {
		if _, _, ok := lifecycle.SplitTeam(bad); ok {
			t.Errorf("%q is a teammate", bad)
		}
	}
}
