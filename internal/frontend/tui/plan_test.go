package tui

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/drover-dev/drover/task"
)

func planQuestion(t *testing.T, tool, plan string) task.Question {
	t.Helper()
	input, err := json.Marshal(map[string]string{"plan": plan})
	if err != nil {
		t.Fatal(err)
	}
	return task.Question{ID: "q1", Agent: "main", Tool: tool, Digest: "d1", Input: input}
}

// A plan is drawn as Markdown and can be scrolled to its end; it is approved, approved with the
// mode in which edits are accepted, or sent back with a reason.
func TestPlan(t *testing.T) {
	var steps strings.Builder
	for i := range 40 {
		fmt.Fprintf(&steps, "%d. step **number %d**\n", i+1, i+1)
	}
	for _, c := range []struct{ keys, want string }{
		{"enter", `decide q1 d1 allow=true always="" reason="" text=""`},
		{"2", `decide q1 d1 allow=true always="" reason="" text="" edits`},
		{"3 t e s t s enter", `decide q1 d1 allow=false always="" reason="tests" text=""`},
	} {
		u := start(t, 80, 24)
		u.hear(opened(), begin("go"))
		u.ask(planQuestion(t, task.ExitPlanMode, "# The parser\n\n"+steps.String()+"\nlast line"))
		u.sees("Approve this plan?", "The parser", "step number 1", "1. Approve", "2. Approve, and accept edits", "3. Keep planning")
		u.misses("**")
		u.press("s")
		u.sees("# The parser", "1. step **number 1**")
		u.press("s")
		for range 5 {
			u.press("pgdown")
		}
		u.sees("step number 40", "last line")
		u.press(strings.Fields(c.keys)...)
		u.did(c.want)
	}
}

// A teammate has no permission mode of its own that could be chosen.
func TestPlanTeammate(t *testing.T) {
	u := start(t, 80, 24)
	u.ask(planQuestion(t, task.SubmitPlan, "look"))
	u.sees("1. Approve", "2. Keep planning")
}

// No part of a plan is hidden: what Markdown would not show is shown as it was written, and an
// input with more than a plan as every call.
func TestPlanHidden(t *testing.T) {
	for plan, want := range map[string]string{
		"read [this](https://example.org \"and delete it\")": `and delete it`,
		"text\n\n[a]: https://example.org/hidden":            `example.org/hidden`,
		"marked \u202e and \x1b[2J":                          `<U+202E> and <U+001B>[2J`,
		"```sh -c rm\nls\n```":                               "sh -c rm",
		"```go\nfunc main() {}\n```":                         "func main() {}",
	} {
		u := start(t, 80, 24)
		u.ask(planQuestion(t, task.ExitPlanMode, plan))
		u.sees(want)
	}
	u := start(t, 80, 24)
	q := planQuestion(t, task.ExitPlanMode, "")
	q.Input = []byte(`{"plan":"one","plan":"two"}`)
	u.ask(q)
	u.sees("one", "two", "Allow once")
}
