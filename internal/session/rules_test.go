package session

import (
	"encoding/json"
	"testing"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/policy"
	"github.com/drover-dev/drover/internal/session/environment"
	"github.com/drover-dev/drover/internal/tool/webtool"
)

// What is said of a call without a session is what a session decides.
func TestUsualTools(t *testing.T) {
	for _, mode := range []policy.Mode{policy.Default, policy.AcceptEdits, policy.Plan, policy.DontAsk, policy.Bypass} {
		rules := policy.Rules{Mode: mode, Allow: []string{"Bash(make:*)", "Agent", "TaskOutput"}, Ask: []string{"Bash(git push:*)"},
			Deny: []string{"Bash(rm:*)", "Read(./.env)", "FileEdit(./lock)"}, ReadOnlyAuto: true, Filtered: true, Path: "/usr/bin:/bin"}
		r := open(t, "\n  main:\n    - {text: ok}\n", func(c *Config) {
			c.Agents.Rules, c.Agents.Web = rules, webtool.NewFetcher(webtool.Config{})
		})
		m, err := r.OpenMain(r.ctx, MainConfig{})
		if err != nil {
			t.Fatal(err)
		}
		rules.Cwd, rules.Tools = r.folder, environment.UsualTools(r.folder)
		gate, notes, err := environment.NewGate(rules, nil)
		if err != nil || len(notes) > 0 {
			t.Fatal(err, notes)
		}
		for _, c := range []struct{ tool, input string }{
			{"Bash", `{"command":"make test"}`}, {"Bash", `{"command":"ls -la"}`}, {"bash", `{"command":"rm x"}`}, {"shell", `{"command":"git push"}`},
			{"Bash", `{"command":"$x y"}`}, {"Bash", `{"command":"touch .envrc"}`}, {"Bash", `{"command":"curl x","tty":true}`},
			{"Read", `{"file_path":".env"}`}, {"view", `{"file_path":".env"}`}, {"Read", `{"file_path":"a"}`}, {"Read", `{"file_path":"/etc/shadow"}`},
			{"Edit", `{"file_path":"lock"}`}, {"create", `{"file_path":"a"}`}, {"Write", `{"file_path":".git/hooks/x"}`},
			{"Glob", `{"pattern":"*"}`}, {"grep", `{"pattern":"x"}`}, {"Agent", `{"subagent_type":"explore"}`}, {"task", `{"subagent_type":"x"}`},
			{"ListTasks", `{}`}, {"list_agents", `{}`}, {"read_agent", `{}`}, {"TaskOutput", `{"task_id":"b1"}`}, {"TaskStop", `{"task_id":"b1"}`},
			{"WebFetch", `{"url":"https://example.org"}`}, {"fetch", `{"url":"https://example.org"}`}, {"report_intent", `{}`},
			{"mcp__a__b", `{}`}, {"Monitor", `{"command":"make"}`}, {"nothing", `{}`},
		} {
			call := agent.Call{Name: c.tool, Input: json.RawMessage(c.input)}
			real, said := m.environment().GateOf(call).Decide(call), gate.Decide(call)
			if real != said {
				t.Errorf("%s: %s %s: a session says %+v, the check %+v", mode, c.tool, c.input, real, said)
			}
		}
	}
}
