//go:build linux

// Package museum shows failures that have hit users of tools of this kind, each
// reproduced with real processes on the built program, and what becomes of them
// here.
//
// An exhibit is a short scenario with a promise: it fails when the promise is
// broken. What is tried in depth elsewhere is only shown. `make museum` prints the
// table; `go test ./museum` checks the same exhibits. docs/reliability.md has a
// section on it.
package museum

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"testing"
)

// What a visit is asked for. MUSEUM=1: the table is printed; EXHIBIT: those whose
// name the pattern fits.
const (
	tableVariable   = "MUSEUM"
	exhibitVariable = "EXHIBIT"
)

// exhibit is one failure.
type exhibit struct {
	row     int // of the pains; 0: a pain beside them
	name    string
	pain    string
	promise string
	try     string // what is attempted
	run     func(r *room) (result string)
	reason  string // why it cannot be had here; then there is no run
}

func exhibits() []exhibit {
	all := slices.Concat(ofProcesses(), ofAgents(), ofCrowds(), ofMoney())
	slices.SortStableFunc(all, func(a, b exhibit) int {
		const last = 1000
		return cmp.Compare(cmp.Or(a.row, last), cmp.Or(b.row, last))
	})
	return all
}

func TestMain(m *testing.M) {
	if os.Getenv(serverVariable) != "" {
		os.Exit(serveTools())
	}
	os.Exit(m.Run())
}

// TestMuseum runs every exhibit.
func TestMuseum(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "drover")
	cmd := exec.Command("go", "build", "-o", bin, "../../cmd/drover")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the program: %v\n%s", err, out)
	}
	pick := regexp.MustCompile("^(" + cmp.Or(os.Getenv(exhibitVariable), ".*") + ")$")
	var mu sync.Mutex
	results := map[string]string{} // by name; guarded by mu
	t.Run("exhibits", func(t *testing.T) {
		for _, e := range exhibits() {
			if e.run == nil || !pick.MatchString(e.name) {
				continue
			}
			t.Run(e.name, func(t *testing.T) {
				t.Parallel()
				result := "BROKEN: make museum EXHIBIT=" + e.name
				defer func() {
					mu.Lock()
					defer mu.Unlock()
					results[e.name] = result
				}()
				got := e.run(newRoom(t, bin))
				if !t.Failed() {
					result = got
				}
			})
		}
	})
	if len(results) == 0 {
		t.Error("no exhibit was asked for that there is")
	}
	if os.Getenv(tableVariable) != "" {
		table(results)
	}
}

// table prints what became of the exhibits.
func table(results map[string]string) {
	fmt.Println("| row | exhibit | pain | promise | what is tried | result |\n|---|---|---|---|---|---|")
	for _, e := range exhibits() {
		result, ran := results[e.name]
		if e.reason != "" {
			result, ran = "not here: "+e.reason, true
		}
		if !ran {
			continue
		}
		row := "–"
		if e.row != 0 {
			row = fmt.Sprint(e.row)
		}
		fmt.Printf("| %s | %s | %s | %s | %s | %s |\n", row, e.name, e.pain, e.promise, e.try, result)
	}
}

// TestRows looks whether each row of the pains has an exhibit, or a reason.
func TestRows(t *testing.T) {
	seen := map[int]bool{}
	names := map[string]bool{}
	for _, e := range exhibits() {
		seen[e.row] = true
		if names[e.name] || (e.run == nil) == (e.reason == "") || e.pain == "" || e.promise == "" {
			t.Errorf("exhibit %q: twice, without words, or with neither a run nor a reason", e.name)
		}
		names[e.name] = true
	}
	for row := 1; row <= 24; row++ {
		if beside := row == 19 || row == 20; !seen[row] && !beside { // these two are of other products
			t.Errorf("row %d has no exhibit", row)
		}
	}
}
