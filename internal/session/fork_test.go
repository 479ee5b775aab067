package session

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/test/modeltest"
)

// A session that goes on from the conversation of another is told of its own tasks,
// whose notifications have the numbers of the old session's again.
func TestForkIsTold(t *testing.T) {
	background := blocks(modeltest.ToolUse("", "Bash", map[string]any{"command": "read x < gate", "run_in_background": true}))
	turns := []modeltest.Answer{background, modeltest.Text("begun"), modeltest.Text("told")}
	r, server := served(t, modeltest.Turns(map[string][]modeltest.Answer{"main": append(turns, turns...)}))
	gate := filepath.Join(r.folder, "gate")
	if err := syscall.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	talk := func() {
		t.Helper()
		c := converse(r)
		c.say("go")
		first := c.next()
		write(t, gate, "end\n")
		if second := c.next(); first.Err != nil || second.Err != nil {
			t.Fatal(first.Err, second.Err)
		}
		c.stop()
	}
	talk()
	r.close()
	old := r.cfg.Place
	id := task.NewSessionID()
	r.cfg.Place, r.cfg.Info.Session = old.Project().Session(id), id
	if err := r.cfg.Place.Ensure(); err != nil {
		t.Fatal(err)
	}
	if err := agent.ForkTranscript(old.Transcript(), r.cfg.Place.Transcript(), agent.Meta{SessionID: string(id), AgentName: "main"}); err != nil {
		t.Fatal(err)
	}
	r.reopen()
	talk()
	asked := of(server, "main")
	if len(asked) != 6 {
		t.Fatalf("%d requests", len(asked))
	}
	if text := asked[5].LastText(); !strings.Contains(text, "<task-notification>") {
		t.Errorf("it was told %s", text)
	}
}
