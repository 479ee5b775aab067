//go:build linux

// Package knownfailures shows failures that have hit users of tools of this kind, each
// reproduced with real processes on the built program, and what becomes of them
// here.
//
// A failure is a short scenario with a promise: it fails when the promise is
// broken. What is tried in depth elsewhere is only shown. `make known-failures` prints the
// table; `go test ./test/knownfailures` checks the same failures. docs/reliability.md has a
// section on it.
package knownfailures

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"testing"

	"github.com/drover-dev/drover/test/harness"
)

// What a run is asked for. KNOWN_FAILURES=1: the table is printed; FAILURE: those whose
// name the pattern fits.
const (
	tableVariable   = "KNOWN_FAILURES"
	failureVariable = "FAILURE"
)

// failure is one failure.
type failure struct {
	row     int // of the pains; 0: a pain beside them
	name    string
	pain    string
	promise string
	try     string // what is attempted
	run     func(r *place) (result string)
	reason  string // why it cannot be had here; then there is no run
}

func failures() []failure {
	all := slices.Concat(ofProcesses(), ofAgents(), ofCrowds(), ofMoney())
	slices.SortStableFunc(all, func(a, b failure) int {
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

// TestKnownFailures runs every failure.
func TestKnownFailures(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "drover")
	if err := harness.Build(bin); err != nil {
		t.Fatal(err)
	}
	pick := regexp.MustCompile("^(" + cmp.Or(os.Getenv(failureVariable), ".*") + ")$")
	var mu sync.Mutex
	results := map[string]string{} // by name; guarded by mu
	t.Run("failures", func(t *testing.T) {
		for _, e := range failures() {
			if e.run == nil || !pick.MatchString(e.name) {
				continue
			}
			t.Run(e.name, func(t *testing.T) {
				t.Parallel()
				result := "BROKEN: make known-failures FAILURE=" + e.name
				defer func() {
					mu.Lock()
					defer mu.Unlock()
					results[e.name] = result
				}()
				got := e.run(newPlace(t, bin))
				if !t.Failed() {
					result = got
				}
			})
		}
	})
	if len(results) == 0 {
		t.Error("no failure was asked for that there is")
	}
	if os.Getenv(tableVariable) != "" {
		table(results)
	}
}

// table prints what became of the failures.
func table(results map[string]string) {
	fmt.Println("| row | failure | pain | promise | what is tried | result |\n|---|---|---|---|---|---|")
	for _, e := range failures() {
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

// TestRows looks whether each row of the pains has a failure, or a reason.
func TestRows(t *testing.T) {
	seen := map[int]bool{}
	names := map[string]bool{}
	for _, e := range failures() {
		seen[e.row] = true
		if names[e.name] || (e.run == nil) == (e.reason == "") || e.pain == "" || e.promise == "" {
			t.Errorf("failure %q: twice, without words, or with neither a run nor a reason", e.name)
		}
		names[e.name] = true
	}
	for row := 1; row <= 24; row++ {
		if beside := row == 19 || row == 20; !seen[row] && !beside { // these two are of other products
			t.Errorf("row %d has no failure", row)
		}
	}
}
