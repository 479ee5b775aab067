package permit

import (
	"path/filepath"
	"testing"
)

// What a bare Bash rule and the mode bypassPermissions allow, and what stands
// above them: protected files, and what a ban may speak of. Here an allow that is
// missing is an error too.
func TestAbove(t *testing.T) {
	ws := workspace(t, "")
	for _, file := range []string{"everyday.tsv", "protected.tsv", "doubt.tsv"} {
		t.Run(file, func(t *testing.T) {
			gates := map[string]*Gate{}
			for _, r := range rowsOf(t, file) {
				key := string(r.rules.Mode) + r.rules.text()
				if gates[key] == nil {
					r.rules.Cwd, r.rules.Home = ws, filepath.Join(filepath.Dir(ws), "home")
					gates[key] = gate(t, r.rules)
				}
				got := gates[key].Decide(bash(r.command))
				switch {
				case r.want == "allow" && got.Decision != Allow:
					t.Errorf("line %d: %s under %s: %q: %s", r.line, got.Decision, key, r.command, got.Reason)
				case r.want == "ask" && got.Decision == Allow:
					t.Errorf("line %d: APPROVED under %s: %q: %s", r.line, key, r.command, got.Reason)
				case got.Decision == Ask && !got.Firm:
					t.Errorf("line %d: a hook could allow %q under %s: %s", r.line, r.command, key, got.Reason)
				}
			}
		})
	}
}

// What only reads needs no rule, and what may use a network or run a program of
// the project needs one.
func TestReadOnly(t *testing.T) {
	ws := workspace(t, "")
	g := gate(t, Rules{Cwd: ws, Home: filepath.Join(filepath.Dir(ws), "home"), ReadOnlyAuto: true})
	for _, r := range rowsOf(t, "readonly.tsv") {
		if got := g.Decide(bash(r.command)); string(got.Decision) != r.want {
			t.Errorf("line %d: %q: %s, want %s: %s", r.line, r.command, got.Decision, r.want, got.Reason)
		}
	}
}
