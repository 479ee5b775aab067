package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/drover-dev/drover/task"
)

func crew() *world {
	mate := func(id task.ID, s int, name, color string, change func(*task.Record)) task.Record {
		r := task.Record{ID: id, Kind: task.InProcessTeammate, Status: task.Running, Backgrounded: true, Name: name + "@crew", Description: "look at the diff",
			CreateTime: at(s), StartTime: when(s), Team: &task.Team{AgentID: name + "@crew", Name: name, Team: "crew", Color: color}}
		change(&r)
		return r
	}
	return &world{mine: []*session{newSession("slive0000", true,
		mate("t11111111", 50, "ada", "blue", func(r *task.Record) { r.Idle, r.Progress = true, &task.Progress{Message: "Reading"} }),
		mate("t22222222", 40, "bob", "red", func(r *task.Record) { r.Progress = &task.Progress{Message: "Reading\nthe tests"} }),
		mate("t33333333", 30, "eve", "mauve", func(*task.Record) {}),
		mate("t44444444", 20, "dan", "cyan", func(r *task.Record) { r.Status, r.EndTime = task.Completed, when(30) }),
	)}}
}

// A row of a teammate says who it is and what it is about.
func TestPsTeammates(t *testing.T) {
	want := strings.TrimPrefix(`
ID         NAME      KIND      STATUS          AGE      TIME  TOKENS  EXIT  COMMAND
t11111111  ada@crew  teammate  running (idle)  10s ago  10s   -       -     look at the diff: … idle
t22222222  bob@crew  teammate  running         20s ago  20s   -       -     look at the diff: ▶ Reading the tests
t33333333  eve@crew  teammate  running         30s ago  30s   -       -     look at the diff: ▶ working
t44444444  dan@crew  teammate  completed       40s ago  10s   -       -     look at the diff
`, "\n")
	if got := crew().do(t, "ps", "-a"); got.out != want {
		t.Errorf("got\n%swant\n%s", got.out, want)
	}
}

// Names are colored on a terminal only, unless the user wants no colors, and the
// columns stand as they do without.
func TestPsColors(t *testing.T) {
	plain := crew().do(t, "ps", "-a").out
	for name, tt := range map[string]struct {
		env  []string
		want bool
	}{"colors": {nil, true}, "empty": {[]string{"NO_COLOR="}, true}, "none": {[]string{"NO_COLOR=1"}, false}, "dumb": {[]string{"TERM=dumb"}, false}} {
		w := crew()
		w.terminal = true
		var out, errw bytes.Buffer
		deps := w.deps(&out, &errw)
		deps.Env = tt.env
		cmd := New(deps)
		cmd.SetArgs([]string{"ps", "-a"})
		if code := Execute(t.Context(), cmd, &errw); code != 0 {
			t.Fatalf("exit code %d: %s", code, errw.String())
		}
		got := out.String()
		if strings.Contains(got, "\x1b[34mada@crew\x1b[0m") != tt.want || strings.Contains(got, "\x1b[31mbob@crew\x1b[0m") != tt.want {
			t.Errorf("%s: %q", name, got)
		}
		bare := got
		for _, code := range []string{"\x1b[1m", "\x1b[2m", "\x1b[32m", "\x1b[34m", "\x1b[31m", "\x1b[36m", "\x1b[0m"} {
			bare = strings.ReplaceAll(bare, code, "")
		}
		if bare != plain {
			t.Errorf("%s: the columns are\n%sand without colors\n%s", name, bare, plain)
		}
	}
}
