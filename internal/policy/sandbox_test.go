package policy

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/drover-dev/drover/agent"
)

// In a sandbox that bounds everything, without any rule, none of what developers do every day in
// a workspace is a question; what it does not bound by itself is.
func TestSandboxed(t *testing.T) {
	dir := t.TempDir()
	for _, f := range []string{"main.go", "README.md", "a.txt"} {
		if err := os.WriteFile(filepath.Join(dir, f), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	gate := func(mode Mode, deny ...string) *Gate {
		g, errs := New(Rules{Mode: mode, Cwd: dir, Home: "/home/user", Deny: deny, ReadOnlyAuto: true, Bounds: Bounds{Whole: true}})
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		return g
	}
	decide := func(g *Gate, line string, more ...string) Verdict {
		in := map[string]any{"command": line}
		for _, m := range more {
			in[m] = true
		}
		raw, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		return g.Decide(agent.Call{Name: "Bash", Input: raw})
	}
	g := gate(Default)
	count := func(list string) (n int) {
		data, err := os.ReadFile(filepath.Join("testdata", list))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(data)) {
			line = strings.TrimSpace(line)
			if v := decide(g, line); v.Decision != Allow {
				t.Errorf("%s: %s: %s", line, v.Decision, v.Reason)
			}
			n++
		}
		return n
	}
	if a, b := count("looks.txt"), count("works.txt"); a < 60 || b < 60 {
		t.Errorf("%d and %d commands are looked at, want 60 each", a, b)
	}
	for _, line := range []string{"git config user.name x", "echo x > .git/hooks/pre-commit", "echo 'export X=1' >> .envrc"} {
		if v := decide(g, line); v.Decision != Ask {
			t.Errorf("%s: %s: %s", line, v.Decision, v.Reason)
		}
	}
	for _, c := range []struct {
		g    *Gate
		line string
		more []string
		want Outcome
	}{
		{g, "make", []string{"outside"}, Ask},
		{g, "ls", []string{"outside"}, Ask},
		{g, "make", []string{"tty"}, Allow},
		{gate(Default, "Bash(make:*)"), "make", nil, Deny},
		{gate(Default, "Bash(make:*)"), "m=make; $m", nil, Ask},
		{gate(Plan), "make", nil, Deny},
		{gate(DontAsk), "make", nil, Deny},
		{gate(Bypass), "make", []string{"outside"}, Allow},
		{gate(Bypass, "Bash(make:*)"), "make", []string{"outside"}, Deny},
	} {
		if v := decide(c.g, c.line, c.more...); v.Decision != c.want {
			t.Errorf("%s %v in %s: %s, want %s: %s", c.line, c.more, c.g.rules.Mode, v.Decision, c.want, v.Reason)
		}
	}
}
