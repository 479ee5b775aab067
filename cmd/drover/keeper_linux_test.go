package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/drover-dev/drover/test/harness"
)

// The small keeper of the same build does the work of `drover keeper`; drover does it in place of one of another build,
// and where there is none.
func TestSmallKeeper(t *testing.T) {
	drover := filepath.Join(build(t), "drover")
	for _, c := range []struct{ name, build, doctor, program string }{
		{"same", "tests", "/drover-keeper", "drover-keeper"},
		{"other", "others", `is of build "others", drover of "tests"`, "drover"},
		{"none", "", "drover-keeper is not installed", "drover"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			data, err := os.ReadFile(drover)
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, "drover"), data, 0o700)
			}
			if err == nil && c.build != "" {
				err = harness.BuildKeeper(filepath.Join(dir, "drover"), harness.Stamp(c.build))
			}
			if err != nil {
				t.Fatal(err)
			}
			p := newPlace(t, dir)
			holds(t, "the doctor", p.good("doctor").stdout(), c.doctor)
			id := p.good("run", "-d", "--", "sleep", "625").stdout()
			var keepers []string
			for _, x := range marked(p.work) {
				if words := strings.Fields(x.line); len(words) > 1 && words[1] == "keeper" {
					keepers = append(keepers, filepath.Base(words[0]))
				}
			}
			if len(keepers) == 0 || slices.ContainsFunc(keepers, func(k string) bool { return k != c.program }) {
				t.Errorf("the keepers are %q, want %s", keepers, c.program)
			}
			holds(t, "the receipt", p.good("stop", id).stdout(), "killed")
		})
	}
}
