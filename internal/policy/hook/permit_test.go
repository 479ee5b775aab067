package hook

import (
	"context"
	"os"
	"testing"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/policy"
)

// permits puts the real rules behind a gate; nobody is there to be asked.
type permits struct{ *policy.Gate }

func (p permits) Judge(c agent.Call, word Word) Ruling {
	v := p.Decide(c)
	if word == Allow {
		v = p.Grant(c)
	}
	if word == Ask && v.Decision == policy.Allow {
		return Ruling{Word: Ask, Reason: "a hook wants this to be asked"}
	}
	return Ruling{Word: Word(v.Decision), Reason: v.Reason, Suggest: v.Suggest}
}

func (p permits) Question(_ context.Context, _ agent.Call, r Ruling) (agent.Decision, error) {
	return agent.Decision{Reason: "asked: " + r.Reason}, nil
}

// TestH7Rules has hooks allow everything that they can.
func TestH7Rules(t *testing.T) {
	dir := t.TempDir()
	rules, bad := policy.New(policy.Rules{Cwd: dir, Path: os.Getenv("PATH"), Allow: []string{"Bash(true)"}, Ask: []string{"Bash(touch:*)"}, Deny: []string{"Bash(rm:*)"},
		Tools: []agent.Tool{tool{"Bash", nil}}})
	if len(bad) > 0 {
		t.Fatal(bad)
	}
	for command, want := range map[string]struct{ silent, granted bool }{
		"true":               {true, true},
		"mkdir x":            {false, true}, // only not known
		"touch x":            {false, false},
		"rm x":               {false, false},
		"mkdir x; rm y":      {false, false},
		`$(echo mkdir) x`:    {false, false},
		"mkdir x > /dev/sda": {false, false},
	} {
		for answer, allow := range map[string]bool{``: want.silent, `{"permissionDecision":"allow"}`: want.granted, `{"permissionDecision":"ask"}`: false} {
			s := playSet(t, with(t, new(ears).on("PreToolUse", answer)))
			d, err := NewGate(s.Runner, permits{rules}).Check(t.Context(), call("Bash", encode(map[string]string{"command": command})))
			if err != nil || d.Allow != allow {
				t.Errorf("%s with %q: %+v, %v", command, answer, d, err)
			}
		}
	}
}
