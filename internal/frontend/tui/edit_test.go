package tui

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/task"
)

// A call can be changed before it is allowed: the whole changed call is shown, and that is what
// the answer gives. A change that is taken back is none, and no rule is kept with one.
func TestEditCall(t *testing.T) {
	q := task.Question{ID: "q1", Agent: "main", Tool: "Bash", ToolUseID: "t1", Suggest: "Bash(rm:*)", Digest: "d1",
		Input: json.RawMessage(`{"timeout":5e1,"description":"clean","command":"rm x"}`)}
	for _, c := range []struct {
		name, keys string
		sees       []string
		input      string
	}{
		{"command", "tab backspace y enter", []string{"changed by you", "command: rm y", "timeout: 5e1", "1. Allow once · with your change"},
			`{"command":"rm y","description":"clean","timeout":5e1}`},
		{"other field", "tab tab ! enter", []string{"description: clean!"},
			`{"command":"rm x","description":"clean!","timeout":5e1}`},
		{"both", "tab 1 tab 2 enter", []string{"command: rm x1", "description: clean2"},
			`{"command":"rm x1","description":"clean2","timeout":5e1}`},
		{"line", "tab ctrl+j l s up delete enter", []string{"| rmx", "| ls"}, `{"command":"rmx\nls","description":"clean","timeout":5e1}`},
		{"again", "tab 1 enter tab 2 enter", []string{"command: rm x12"}, `{"command":"rm x12","description":"clean","timeout":5e1}`},
		{"taken back", "tab 1 enter tab backspace enter", []string{"command: rm x", "Allow always"}, ""},
		{"given up", "tab 1 esc", []string{"command: rm x", "Allow always"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			u := start(t, 100, 30)
			u.hear(opened(), begin("go"))
			u.ask(q)
			u.pass(time.Second)
			u.sees("tab edits")
			u.press(strings.Fields(c.keys)...)
			u.sees(c.sees...)
			if c.input != "" {
				u.misses("Allow always")
			}
			u.did("")
			u.press("enter")
			want := `decide q1 d1 allow=true always="" reason="" text=""`
			if c.input != "" {
				want += " input=" + c.input
			}
			u.did(want)
		})
	}
}

// The plan of an agent can be changed before it is approved.
func TestEditPlan(t *testing.T) {
	q := planQuestion(t, task.ExitPlanMode, "# One")
	q.ToolUseID = "t1"
	u := start(t, 100, 30)
	u.ask(q)
	u.press("tab")
	u.types(" or two")
	u.press("enter")
	u.sees("Approve this plan? (changed by you)", "One or two")
	u.press("1")
	u.did(`decide q1 d1 allow=true always="" reason="" text="" input={"plan":"# One or two"}`)
}

// What the editor could not give back as it is, is not edited; questions that are no calls take
// no other input.
func TestEditRefused(t *testing.T) {
	for input, want := range map[string]string{
		`{"command":"ls \u202e"}`:         "no text that can be changed here",
		`{"command":"ls","Command":"rm"}`: "no text that can be changed here",
		`{"a":1}`:                         "no text that can be changed here",
		`{"command":"` + strings.Repeat("x", 20_000) + `"}`:    "no text that can be changed here",
		`{"command":"` + strings.Repeat(`x\n`, 50) + `last"}`:  "edit command:",
		`{"command":"ls \u202e","description":"it is listed"}`: "edit description:",
	} {
		u := start(t, 100, 30)
		u.ask(task.Question{ID: "q1", Tool: "Bash", ToolUseID: "t1", Digest: "d", Input: json.RawMessage(input)})
		u.press("tab")
		u.sees(want)
	}
	u := start(t, 100, 30)
	u.ask(task.Question{ID: "q1", Tool: "Bash", Digest: "d", Input: json.RawMessage(`{"command":"ls"}`)})
	u.pass(time.Second)
	u.misses("tab edits")
	u.press("tab")
	u.misses("edit command")
}
