package policy

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/drover-dev/drover/agent"
)

// A restriction holds above every mode, rule and hook, allows nothing by itself, and is
// asked for anew at each call.
func TestOnly(t *testing.T) {
	ws := workspace(t, "")
	report := filepath.Join(t.TempDir(), "report.md")
	var only []string
	rules := Rules{Cwd: ws, Mode: Bypass, Only: func() []string { return only }}
	open, asks := gate(t, rules), rules
	asks.Mode = Default
	strict := gate(t, asks)
	call := func(tool, key, value string) agent.Call {
		input, _ := json.Marshal(map[string]string{key: value})
		return agent.Call{Name: tool, Input: input}
	}
	for _, c := range []struct {
		call    agent.Call
		covered bool
	}{
		{call("Agent", "subagent_type", "research"), true},
		{call("Agent", "subagent_type", "explore"), false},
		{call("Write", "file_path", report), true},
		{call("Write", "file_path", filepath.Join(ws, "x.go")), false},
		{call("Write", "file_path", filepath.Join(filepath.Dir(report), "sub", "..", "other.md")), false},
		{call("Read", "file_path", filepath.Join(ws, "x.go")), false},
		{call("Grep", "pattern", "x"), false},
		{call("Bash", "command", "ls"), false},
		{call("Monitor", "command", "ls"), false},
		{call("WebFetch", "url", "https://example.org"), false},
		{call("mcp__s__t", "a", "b"), false},
		{call("report_intent", "intent", "x"), true},
	} {
		only = []string{"Agent(research)", "Write(" + report + ")", "report_intent"}
		v := open.Decide(c.call)
		if (v.Decision == Allow) != c.covered {
			t.Errorf("%s %s: %s: %s", c.call.Name, c.call.Input, v.Decision, v.Reason)
		}
		if g := open.Grant(c.call); (g.Decision == Allow) != c.covered {
			t.Errorf("%s %s with a hook: %s: %s", c.call.Name, c.call.Input, g.Decision, g.Reason)
		}
		only = nil
		if v := open.Decide(c.call); v.Decision != Allow {
			t.Errorf("%s %s without a restriction: %s: %s", c.call.Name, c.call.Input, v.Decision, v.Reason)
		}
	}
	only = []string{"Write(" + report + ")"}
	if v := strict.Decide(call("Write", "file_path", report)); v.Decision == Allow {
		t.Errorf("a restriction has allowed a call: %s", v.Reason)
	}
	only = []string{}
	if v := open.Decide(call("Read", "file_path", filepath.Join(ws, "x.go"))); v.Decision != Deny {
		t.Errorf("an empty restriction: %s", v.Decision)
	}
}
