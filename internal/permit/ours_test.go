package permit

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Our own lines beside the corpus: A is harmless and must not be asked about, D
// must not be allowed. \n is a line feed, \t a tab and \\ a backslash.
func TestOurs(t *testing.T) {
	ws := workspace(t, "")
	data, err := os.ReadFile("testdata/ours.tsv")
	if err != nil {
		t.Fatal(err)
	}
	gates := map[string]*Gate{}
	for i, text := range strings.Split(strings.TrimSpace(string(data)), "\n") {
		f := strings.SplitN(text, "\t", 3)
		if gates[f[1]] == nil {
			r := Rules{Cwd: ws, Home: filepath.Join(filepath.Dir(ws), "home")}
			for _, part := range strings.Split(f[1], ";") {
				switch name, value, _ := strings.Cut(part, "="); name {
				case "allow":
					r.Allow = splitRules(value)
				case "deny":
					r.Deny = splitRules(value)
				case "mode":
					r.Mode = Mode(value)
				default:
					r.ReadOnlyAuto = true
				}
			}
			gates[f[1]] = gate(t, r)
		}
		line := strings.NewReplacer(`\\`, `\`, `\n`, "\n", `\t`, "\t").Replace(f[2])
		got := gates[f[1]].Decide(bash(line))
		if f[0] == "A" && got.Decision != Allow || f[0] == "D" && got.Decision == Allow {
			t.Errorf("line %d: %q under %s: %s (%s)", i+1, line, f[1], got.Decision, got.Reason)
		}
	}
}
