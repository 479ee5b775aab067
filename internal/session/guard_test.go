package session

import (
	"testing"

	"github.com/drover-dev/drover/internal/control"
)

// What a model of another program asks for is bound by the user's bans, in any
// spelling; what the user types is not.
func TestGuarded(t *testing.T) {
	r := open(t, "", func(c *Config) { c.Agents.Rules.Deny = []string{"Bash(touch:*)"} })
	guarded := func(q *control.StartRequest) { q.Guarded = true }
	for _, line := range []string{"touch x", "true && touch x", `t"ouch" x`, "timeout 5 touch x"} {
		if got := r.ask(line, guarded); got.Error == nil || got.Error.Code != control.Invalid {
			t.Errorf("%s: %+v", line, got)
		}
	}
	byArgs := r.ask("", guarded, func(q *control.StartRequest) { q.Shell = &control.ShellRequest{Args: []string{"touch", "x"}} })
	if byArgs.Error == nil {
		t.Error("arguments are bound too")
	}
	for _, got := range []control.Started{r.ask("true", guarded), r.ask("touch x")} {
		if got.Error != nil {
			t.Error(got.Error)
			continue
		}
		r.wait(string(got.Task.ID))
	}
}
