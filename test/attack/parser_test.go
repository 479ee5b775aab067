//go:build linux && (amd64 || arm64)

package attack

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/drover-dev/drover/internal/policy"
)

// functions stand for the programs of the table: they say what they were called
// with, and do nothing.
const functions = `exec 9>&1
for name in cat touch echo true ls wc; do
  eval "$name() { local it; printf -v it '%s\037' $name \"\$@\"; printf '%s\036' \"\$it\" >&9; }"
done
unset name
PATH=/nowhere
`

// The table says where bash runs what our parser is known not to read in a line,
// and has lines close to those. There bash is right, and the line is not approved.
// A row changes with a new version of either.
func TestParserDifferences(t *testing.T) {
	data, err := os.ReadFile("testdata/differences.tsv")
	if err != nil {
		t.Fatal(err)
	}
	gate, errs := policy.New(policy.Rules{Cwd: t.TempDir(), ReadOnlyAuto: true, Path: "/usr/bin:/bin"})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	bypass, errs := policy.New(policy.Rules{Cwd: t.TempDir(), Mode: policy.Bypass, Deny: []string{"Bash(touch:*)"}, Path: "/usr/bin:/bin"})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	for i, row := range strings.Split(strings.TrimSpace(string(data)), "\n")[1:] {
		f := strings.SplitN(row, "\t", 3)
		if len(f) != 3 {
			t.Fatalf("row %d: %q", i+2, row)
		}
		line := strings.NewReplacer(`\\`, `\`, `\n`, "\n", `\t`, "\t", `\r`, "\r").Replace(f[2])
		ours, theirs := believed(line, &world{home: "/home"}), asked(t, line)
		got := "same"
		if slices.ContainsFunc(theirs, func(argv []string) bool {
			return !slices.ContainsFunc(ours, func(c []string) bool { return fits(c, argv) })
		}) {
			got = "differs"
		}
		if got != f[0] {
			t.Errorf("row %d: %q: %s; the table says %s\n  ours %q\n  bash %q", i+2, line, got, f[0], ours, theirs)
		}
		input, touches := call(line), slices.ContainsFunc(theirs, func(argv []string) bool { return argv[0] == "touch" })
		if v := gate.Decide(input); v.Decision == policy.Allow && (got == "differs" || touches) {
			t.Errorf("row %d: %q is approved: %s", i+2, line, v.Reason)
		}
		if v := bypass.Decide(input); v.Decision == policy.Allow && touches {
			t.Errorf("row %d: %q is approved past a ban: %s", i+2, line, v.Reason)
		}
	}
}

// asked are the commands that bash runs.
func asked(t *testing.T, line string) [][]string {
	cmd := exec.Command("bash", "--noprofile", "--norc", "-c", functions+line)
	cmd.Dir = t.TempDir()
	cmd.Env = []string{"HOME=/home", "LANG=C.UTF-8"}
	data, _ := cmd.Output() // how the line ends is its own business
	var out [][]string
	for call := range strings.SplitSeq(string(data), "\036") {
		if call, ok := strings.CutSuffix(call, "\037"); ok {
			out = append(out, strings.Split(call, "\037"))
		}
	}
	return out
}
