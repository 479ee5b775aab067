package policy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// ourRow is one of our own lines beside the corpus: harmless (A), so that it must not be
// asked about; harmless too, but a question without a sandbox (Q); or one that must not be
// allowed.
type ourRow struct {
	number   int
	kind     string
	harmless bool
	rules    string
	line     string
}

// ourRows reads them. \n is a line feed, \t a tab and \\ a backslash.
func ourRows(t testing.TB) []ourRow {
	t.Helper()
	data, err := os.ReadFile("testdata/ours.tsv")
	if err != nil {
		t.Fatal(err)
	}
	var rows []ourRow
	for i, text := range strings.Split(strings.TrimSpace(string(data)), "\n") {
		f := strings.SplitN(text, "\t", 3)
		rows = append(rows, ourRow{i + 1, f[0], f[0] == "A", f[1], strings.NewReplacer(`\\`, `\`, `\n`, "\n", `\t`, "\t").Replace(f[2])})
	}
	return rows
}

func TestOurs(t *testing.T) {
	ws := workspace(t, "")
	gates := map[string]*Gate{}
	for _, row := range ourRows(t) {
		if gates[row.rules] == nil {
			r := Rules{Cwd: ws, Home: filepath.Join(filepath.Dir(ws), "home")}
			for _, part := range strings.Split(row.rules, ";") {
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
			gates[row.rules] = gate(t, r)
		}
		got := gates[row.rules].Decide(bash(row.line))
		if row.harmless != (got.Decision == Allow) {
			t.Errorf("line %d: %q under %s: %s (%s)", row.number, row.line, row.rules, got.Decision, got.Reason)
		}
		if row.kind == "Q" && row.rules == "ro" {
			boxed := gate(t, Rules{Cwd: ws, ReadOnlyAuto: true, Bounds: Bounds{Whole: true}})
			if v := boxed.Decide(bash(row.line)); v.Decision != Allow {
				t.Errorf("line %d: %q in a sandbox: %s (%s)", row.number, row.line, v.Decision, v.Reason)
			}
		}
	}
}
