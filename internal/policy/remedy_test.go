package policy

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/drover-dev/drover/agent"
)

// TestRemedies: whatever is not allowed says what would allow it, over all lines of the corpora in all modes, and
// what it says is true.
func TestRemedies(t *testing.T) {
	ways := regexp.MustCompile(`^(.*[^ ]) \((?:allow with (.+)|only (.+) allows it|no rule and no mode allows it: correct the call)\)$` +
		`|^denied by the rule .+; only removing that rule allows it$` +
		`|^plan mode: only reading is allowed \(.+; ExitPlanMode or another permission mode ends it\)$`)
	var calls []agent.Call
	for _, file := range []string{"bash.tsv", "everyday.tsv", "protected.tsv", "doubt.tsv", "readonly.tsv"} {
		for i, r := range rowsOf(t, file) {
			if i%5 == 0 {
				calls = append(calls, bash(r.command))
			}
		}
	}
	for i, r := range ourRows(t) {
		if i%3 == 0 {
			calls = append(calls, bash(r.line))
		}
	}
	for _, c := range []struct{ tool, input string }{
		{"Bash", `{}`},
		{"Bash", `[]`},
		{"Bash", `{"command":1}`},
		{"Bash", `{"command":"ls\u0000"}`},
		{"Bash", `{"command":"echo $("}`},
		{"Bash", `{"command":"echo \u202e"}`},
		{"Bash", `{"command":"ls","outside":true,"why":"x"}`},
		{"Bash", `{"command":"python3","tty":true}`},
		{"Bash", `{"command":"rm a.txt","outside":true,"tty":true}`},
		{"Bash", `{"command":"f=$1\nrm $f\nrm $f"}`},
		{"Read", `{}`},
		{"Read", `{"file_path":"/etc/shadow"}`},
		{"Read", `{"file_path":"~nobody/x"}`},
		{"Read", `{"file_path":"$HOME/x"}`},
		{"Read", `{"file_path":"/proc/self/root/etc/passwd"}`},
		{"Read", `{"file_path":"a\u202e"}`},
		{"Write", `{"file_path":"new.txt"}`},
		{"Write", `{"file_path":"/dev/null"}`},
		{"Write", `{"file_path":".git/config"}`},
		{"Write", `{"file_path":".github/[x]*.yml"}`},
		{"Edit", `{"file_path":"a.txt/b"}`},
		{"Glob", `{"pattern":"../*"}`},
		{"Grep", `{"pattern":"x","path":"/etc"}`},
		{"Grep", `{"pattern":"x"}`},
		{"WebFetch", `{"url":"https://example.org/"}`},
		{"WebFetch", `{"url":":"}`},
		{"WebSearch", `{"query":"x"}`},
		{"Agent", `{"subagent_type":"explore"}`},
		{"Agent", `{"subagent_type":"a)b"}`},
		{"Skill", `{"skill":"x"}`},
		{"TaskStop", `{"task_id":"../x"}`},
		{"TaskStop", `{"task_id":"b1"}`},
		{"Monitor", `{"command":"rm x"}`},
		{"Monitor", `{}`},
		{"mcp__server__tool", `{}`},
	} {
		calls = append(calls, agent.Call{Name: c.tool, Input: json.RawMessage(c.input)})
	}
	ws := workspace(t, "")
	memory, kinds := NewMemory(), map[string]int{}
	for _, base := range []Rules{
		{},
		{Mode: AcceptEdits},
		{Mode: Plan},
		{Mode: DontAsk},
		{Mode: Bypass, Deny: []string{"Bash(rm:*)", "Read(./.env)", "Monitor"}},
		{Deny: []string{"Bash(curl:*)", "Read(./.env)"}, Ask: []string{"Bash(git push:*)", "Agent", "Monitor", "Edit(src/**)"}},
		{Allow: []string{"Bash(git:*)", "Read(/etc/**)", "Edit"}},
	} {
		base.Cwd, base.Home, base.ReadOnlyAuto, base.Memory = ws, filepath.Join(filepath.Dir(ws), "home"), true, memory
		g := gate(t, base)
		for _, c := range calls {
			v := g.Decide(c)
			if v.Decision == Allow {
				continue
			}
			m := ways.FindStringSubmatch(v.Reason)
			if m == nil {
				t.Errorf("%s %s in mode %q: %s does not say what would allow it: %s", c.Name, c.Input, base.Mode, v.Decision, v.Reason)
				continue
			}
			kinds[m[3]]++
			if m[2] != v.Suggest {
				t.Errorf("%s %s: the reason names %q, and the rule is %q", c.Name, c.Input, m[2], v.Suggest)
			}
			wider := base
			switch {
			case strings.HasSuffix(m[3], "the mode bypassPermissions"):
				wider.Mode = Bypass
			case strings.Contains(m[3], "the rule Bash"):
				wider.Allow = append(slices.Clip(wider.Allow), "Bash")
			default:
				continue
			}
			if wider.Mode == DontAsk {
				wider.Mode = Default
			}
			if v := gate(t, wider).Decide(c); v.Decision != Allow {
				t.Errorf("%s %s: %q does not allow it: %s", c.Name, c.Input, m[3], v.Reason)
			}
		}
	}
	for _, kind := range []string{"", "an answer", "an answer or removing that rule", "an answer or the mode bypassPermissions",
		"an answer, the rule Bash for every command or the mode bypassPermissions", "the mode bypassPermissions"} {
		if kinds[kind] == 0 {
			t.Errorf("nothing says %q: %v", kind, kinds)
		}
	}
}
