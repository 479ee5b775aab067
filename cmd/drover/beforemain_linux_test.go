package main

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var updateBefore = flag.Bool("update-init", false, "write testdata/init.txt")

// work is what the initialisation of a package allocates.
type work struct {
	name         string
	bytes, calls int
}

// Every command pays for the initialisation of all packages that are linked: it may allocate 5 % more than
// testdata/init.txt allows.
func TestBeforeMain(t *testing.T) {
	cmd := exec.Command(filepath.Join(build(t), "drover"), "version")
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1", "DROVER_HOME="+t.TempDir())
	text, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	now := []work{{name: "all"}}
	for line := range strings.Lines(string(text)) {
		var w work
		var at, took float64
		if n, _ := fmt.Sscanf(line, "init %s @%f ms, %f ms clock, %d bytes, %d allocs", &w.name, &at, &took, &w.bytes, &w.calls); n == 5 {
			now[0].bytes += w.bytes
			now[0].calls += w.calls
			now = append(now, w)
		}
	}
	if len(now) < 50 {
		t.Fatalf("the trace names %d packages:\n%s", len(now)-1, text)
	}
	file := filepath.Join("testdata", "init.txt")
	if *updateBefore {
		slices.SortFunc(now, func(a, b work) int { return cmp.Or(b.bytes-a.bytes, strings.Compare(a.name, b.name)) })
		var b strings.Builder
		for _, w := range now {
			if w.bytes >= 1000 {
				fmt.Fprintf(&b, "%d bytes %d allocs %s\n", w.bytes, w.calls, w.name)
			}
		}
		if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	text, err = os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	allowed := map[string]work{}
	for line := range strings.Lines(string(text)) {
		var w work
		if _, err := fmt.Sscanf(line, "%d bytes %d allocs %s", &w.bytes, &w.calls, &w.name); err != nil {
			t.Fatalf("%s: %q: %v", file, line, err)
		}
		allowed[w.name] = w
	}
	more := func(w work) bool {
		return w.bytes*100 > allowed[w.name].bytes*105 || w.calls*100 > allowed[w.name].calls*105
	}
	if !more(now[0]) {
		return
	}
	t.Errorf("the packages allocate %d bytes in %d calls before main, and %d in %d are allowed: do it on first use, or write %s by -update-init",
		now[0].bytes, now[0].calls, allowed["all"].bytes, allowed["all"].calls, file)
	for _, w := range now[1:] {
		if w.bytes >= 1000 && more(w) {
			t.Logf("%s: %d bytes in %d calls, was %d in %d", w.name, w.bytes, w.calls, allowed[w.name].bytes, allowed[w.name].calls)
		}
	}
}
