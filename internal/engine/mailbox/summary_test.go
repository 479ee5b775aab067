package mailbox

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/drover-dev/drover/task"
)

func TestSummary(t *testing.T) {
	agent := func(s task.Status, text string) task.Record {
		return task.Record{ID: "a00000001", Kind: task.LocalAgent, Description: "find it", Status: s, Error: text}
	}
	for _, c := range []struct {
		name string
		rec  task.Record
		want string
	}{
		{"completed", agent(task.Completed, ""), `Agent "find it" completed`},
		{"failed", agent(task.Failed, "no\nkey"), `Agent "find it" failed: no key`},
		{"unknown", agent(task.Failed, ""), `Agent "find it" failed: Unknown error`},
		{"stopped", agent(task.Killed, ""), `Agent "find it" was stopped`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := Summary(c.rec); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// However much a task has to say, its notification is bounded, and names the place of
// the rest.
func TestBounded(t *testing.T) {
	huge := strings.Repeat("€ line\n", 100_000)
	got := Render(Delivery{Task: task.Record{ID: "a00000001", Kind: task.LocalAgent, Status: task.Failed, OutputFile: "/o/a.output", Description: huge, Error: huge,
		Cause: &task.Cause{Detail: huge}}, Answer: huge, Tail: huge, Limit: 1000})
	if n := utf8.RuneCountInString(got); n > 2*1000+800 {
		t.Errorf("%d characters", n)
	}
	if strings.Count(got, "[Truncated. Full output: /o/a.output]") != 2 {
		t.Errorf("it does not say where the rest is:\n%s", got)
	}
}
