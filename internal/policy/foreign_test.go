package policy

import (
	"testing"

	"github.com/drover-dev/drover/agent"
)

// A call of another program whose input has a form that is not known here is a question, unless a
// rule denies the tool or the mode allows reading only.
func TestDecideForeign(t *testing.T) {
	ws, odd := workspace(t, ""), call("Bash", "title", "make it")
	for _, test := range []struct {
		rules Rules
		call  agent.Call
		want  Outcome
	}{
		{Rules{}, odd, Ask},
		{Rules{Mode: Bypass}, odd, Ask},
		{Rules{Mode: Plan}, odd, Deny},
		{Rules{Deny: []string{"Bash"}}, odd, Deny},
		{Rules{Deny: []string{"Bash(rm:*)"}}, odd, Ask},
		{Rules{Deny: []string{"Bash(rm:*)"}}, bash("rm x"), Deny},
		{Rules{}, call("Edit", "odd", "x"), Ask},
		{Rules{Deny: []string{"Edit"}}, call("Edit", "odd", "x"), Deny},
	} {
		test.rules.Cwd = ws
		if v := gate(t, test.rules).DecideForeign(test.call); v.Decision != test.want {
			t.Errorf("%+v: %s of %s is %s (%s), want %s", test.rules, test.call.Input, test.call.Name, v.Decision, v.Reason,
				test.want)
		}
	}
}
