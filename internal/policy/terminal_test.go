package policy

import (
	"encoding/json"
	"testing"

	"github.com/drover-dev/drover/agent"
)

// A terminal is allowed with every command or not at all, however the wish for one
// is written, and never by the fact that the command only reads.
func TestTerminal(t *testing.T) {
	for _, c := range []struct {
		name  string
		rules Rules
		input string
		want  Outcome
	}{
		{"reads", Rules{ReadOnlyAuto: true}, `{"command":"git log"}`, Allow},
		{"reads on a terminal", Rules{ReadOnlyAuto: true}, `{"command":"git log","tty":true}`, Ask},
		{"one command", Rules{Allow: []string{"Bash(git log:*)"}}, `{"command":"git log","tty":true}`, Ask},
		{"another spelling", Rules{Allow: []string{"Bash(git log:*)"}}, `{"command":"git log","TTY":1}`, Ask},
		{"not wanted", Rules{Allow: []string{"Bash(git log:*)"}}, `{"command":"git log","tty":false}`, Allow},
		{"every command", Rules{Allow: []string{"Bash"}}, `{"command":"git log","tty":true}`, Allow},
		{"bypass", Rules{Mode: Bypass}, `{"command":"git log","tty":true}`, Allow},
		{"denied", Rules{Mode: Bypass, Deny: []string{"Bash(git:*)"}}, `{"command":"git log","tty":true}`, Deny},
		{"plan", Rules{Mode: Plan}, `{"command":"git log","tty":true}`, Deny},
	} {
		c.rules.Cwd = t.TempDir()
		gate, errs := New(c.rules)
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		call := agent.Call{Name: "Bash", Input: json.RawMessage(c.input)}
		if v := gate.Decide(call); v.Decision != c.want {
			t.Errorf("%s: %+v, want %s", c.name, v, c.want)
		}
		if v := gate.Grant(call); c.want == Ask && v.Decision != Ask {
			t.Errorf("%s: a hook lifts it: %+v", c.name, v)
		}
	}
}
