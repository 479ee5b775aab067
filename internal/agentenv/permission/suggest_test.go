package permission

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/drover-dev/drover/agent"
)

// A question names the narrowest rule that would allow the call, the reason ends
// with it, and the call is allowed once the rule stands in the settings.
func TestSuggest(t *testing.T) {
	ws := workspace(t, "")
	for _, c := range []struct {
		rules Rules
		call  agent.Call
		want  string
	}{
		{Rules{}, bash("curl -s https://x.invalid"), "Bash(curl:*)"},
		{Rules{ReadOnlyAuto: true}, bash("go generate ./..."), "Bash(go generate:*)"},
		{Rules{}, bash("npm run test -- -u"), "Bash(npm run test:*)"},
		{Rules{}, bash("timeout 60 make test"), "Bash(make:*)"},
		{Rules{ReadOnlyAuto: true}, bash("cat ../outside"), "Bash(cat ../outside)"},
		{Rules{ReadOnlyAuto: true}, bash("cd src && gh pr view 1"), "Bash(gh pr view:*)"},
		{Rules{}, call("Read", "file_path", "/etc/fstab"), "Read(/etc/fstab)"},
		{Rules{}, call("Edit", "file_path", "src/a.go"), "Edit(./src/a.go)"},
		{Rules{Mode: AcceptEdits}, call("Write", "file_path", ".envrc"), "Edit(./.envrc)"},
		{Rules{}, call("WebFetch", "url", "https://Docs.example.org/x"), "WebFetch(domain:docs.example.org)"},
		{Rules{}, call("Agent", "subagent_type", "explore"), "Agent(explore)"},
		{Rules{}, call("mcp__git__log", "x", ""), "mcp__git__log"},
		{Rules{}, call("Monitor", "command", "tail -f x.log"), "Bash(tail:*)"},
		{Rules{Deny: []string{"Bash(curl:*)"}}, bash("curl x"), ""},
		{Rules{Ask: []string{"Bash(curl:*)"}}, bash("curl x"), ""},
		{Rules{Mode: Plan}, bash("make"), ""},
		{Rules{}, bash("ma\u200bke"), ""},
	} {
		c.rules.Cwd, c.rules.Home = ws, filepath.Join(filepath.Dir(ws), "home")
		v := gate(t, c.rules).Decide(c.call)
		if v.Suggest != c.want || (c.want != "") != strings.HasSuffix(v.Reason, "(allow with "+c.want+")") {
			t.Errorf("%s: suggests %q, want %q: %s", c.call.Input, v.Suggest, c.want, v.Reason)
		}
		if c.want == "" {
			continue
		}
		c.rules.Allow = append(c.rules.Allow, v.Suggest)
		if v := gate(t, c.rules).Decide(c.call); v.Decision != Allow {
			t.Errorf("%s with %s: %s (%s)", c.call.Input, c.want, v.Decision, v.Reason)
		}
	}
}
