package agents_test

import (
	"os/exec"
	"slices"
	"testing"

	"github.com/drover-dev/drover"
	"github.com/drover-dev/drover/agents"
	"github.com/drover-dev/drover/task"
)

// A program that is its own keeper has the sandbox for the commands of its agents: as much of it as
// the machine has.
func TestSandbox(t *testing.T) {
	keeper, err := drover.Keeper()
	if err != nil {
		t.Fatal(err)
	}
	call := calls{"Bash", `{"command":"touch made","description":"make a file"}`}
	rt := withSettings(t, `{}`, agents.Config{Model: call, Config: drover.Config{Keeper: keeper}})
	r, _ := answerOf(t, rt, agents.Agent{Prompt: "go"})
	all, err := rt.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(all, func(c task.Record) bool { return c.Kind == task.LocalBash && c.Parent == r.ID })
	if i < 0 {
		if exec.Command("unshare", "-rm", "true").Run() != nil {
			t.Skip("SKIPPED: no namespaces on this machine, so the command needs a rule")
		}
		t.Fatal("the command did not run unasked")
	}
	if box := all[i].Sandbox; box == nil || len(box.Missing()) > 0 {
		t.Errorf("it ran in %+v", box)
	}
}
