//go:build linux

// Package crash ends Drover by kill -9 at each step of a task's life.
//
// The program is built with the tag failpoint, and stops where the harness wants
// it to. There one victim is killed: the face that asked, the host, the keeper or
// the child. All else goes on; a next host takes up what is left; and then the
// promises are looked at from outside. docs/reliability.md has the whole of it.
// `make crash` runs every cell; `go test ./test/crash` some of them.
package crash

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/drover-dev/drover/test/harness"
)

// What a run is asked for. CRASH=all: every cell; CELL: those that the pattern
// fits; SEEDS: so many runs of each, all but the first with delays; SEED: the one.
const (
	allVariable   = "CRASH"
	cellVariable  = "CELL"
	seedsVariable = "SEEDS"
	seedVariable  = "SEED"
)

// build builds the program.
func build(t testing.TB, tags string) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "drover")
	flags := []string{harness.Stamp("crash"), "-tags", tags}
	if err := errors.Join(harness.Build(bin, flags...), harness.BuildKeeper(bin, flags...)); err != nil {
		t.Fatal(err)
	}
	return bin
}

// chosen are the cells of the short form: each step once, and each victim and
// moment with and without --keep.
const chosen = `^(L0/host/once|L0/face/once|L1/host/twice|L2/host/once|L3/host/recovery|L4/host/once|L5/host/once|L5/child/once|L6/host/twice/keep|` +
	`L7/keeper/once|L7/child/recovery/keep|L8/host/once/keep|L8/face/twice|L10/host/once|L11/host/recovery/keep|L12/host/once/keep|` +
	`L13/host/once/keep|L13/host/once/front|L14/host/twice/keep|L15/host/once|L7/keeper/once/front|` +
	`L16/host/once|L17/host/once|L18/face/once|A1/host/once|A2/host/once|A3/host/once|A4/host/once|A6/host/once)$`

func asked(t *testing.T) (pick *regexp.Regexp, seeds []int64) {
	t.Helper()
	pattern := chosen
	switch {
	case os.Getenv(cellVariable) != "":
		pattern = "^(" + os.Getenv(cellVariable) + ")$"
	case os.Getenv(allVariable) == "all":
		pattern = ""
	}
	pick, err := regexp.Compile(pattern)
	if err != nil {
		t.Fatalf("%s: %v", cellVariable, err)
	}
	number := func(name string, usual int64) int64 {
		text := os.Getenv(name)
		if text == "" {
			return usual
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 0 {
			t.Fatalf("%s=%s: not a number from 0 on", name, text)
		}
		return n
	}
	if os.Getenv(seedVariable) != "" {
		return pick, []int64{number(seedVariable, 0)}
	}
	for i := range number(seedsVariable, 1) {
		seeds = append(seeds, i)
	}
	return pick, seeds
}

// TestMatrix kills each victim at each step, and looks what is left of the
// promises. The first seed is 0 and has no delays.
func TestMatrix(t *testing.T) {
	pick, seeds := asked(t)
	bin := build(t, "failpoint")
	table := &table{loud: os.Getenv(allVariable) != "" || os.Getenv(cellVariable) != "", reached: map[string]bool{}}
	t.Run("cells", func(t *testing.T) {
		for _, seed := range seeds {
			for _, x := range cells() {
				if !pick.MatchString(x.name()) {
					continue
				}
				if why := x.cannot(); why != "" {
					if seed == seeds[0] {
						table.line(x, seed, "–", "–", "cannot be: "+why)
					}
					continue
				}
				t.Run(fmt.Sprintf("%s/%d", x.name(), seed), func(t *testing.T) {
					t.Parallel()
					table.run(t, bin, x, seed)
				})
			}
		}
	})
	table.summary()
	if table.ran == 0 {
		t.Error("no cell was asked for that can be")
	}
}

// table gathers what became of the cells.
type table struct {
	loud bool

	mu      sync.Mutex
	ran     int // guarded by mu, like the rest
	broken  []string
	empty   int
	slow    time.Duration
	reached map[string]bool
}

func (tb *table) run(t *testing.T, bin string, x cell, seed int64) {
	began := time.Now()
	points := []string{"session/opened", "adopt/task", "session/shown", "command/watched", "wait/read"}
	if x.step.point != "" {
		points = append(points, x.step.point)
	}
	c := &trial{cell: x}
	t.Cleanup(func() { // after the end of the place
		result := "ok"
		if t.Failed() {
			result = fmt.Sprintf("BROKEN: make crash CELL=%s SEED=%d", x.name(), seed)
		}
		tb.add(c, t.Failed(), seed)
		tb.line(x, seed, c.hit, c.before, fmt.Sprintf("%s (%.1f s)", result, time.Since(began).Seconds()))
	})
	c.place = newPlace(t, bin, seed, points...)
	c.run()
}

// add counts a cell that was run.
func (tb *table) add(c *trial, failed bool, seed int64) {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	tb.ran++
	tb.slow = max(tb.slow, c.slow)
	for name := range c.faults.reached() {
		tb.reached[name] = true
	}
	if failed {
		tb.broken = append(tb.broken, fmt.Sprintf("%s SEED=%d", c.cell.name(), seed))
	}
}

// line prints a cell: what was reached, what the logs said before the next host
// came, and the result.
func (tb *table) line(x cell, seed int64, hit, before, result string) {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	if strings.HasPrefix(result, "cannot") {
		tb.empty++
	}
	if tb.loud {
		fmt.Printf("%-26s %2d | %-46s | %-40s | %s\n", x.name(), seed, hit, before, result)
	}
}

func (tb *table) summary() {
	if !tb.loud {
		return
	}
	fmt.Printf("\n%d cells run, %d cannot be, %d broken; a dead host left something for %.1f s at most\n",
		tb.ran, tb.empty, len(tb.broken), tb.slow.Seconds())
	fmt.Printf("%d fail points were come to\n", len(tb.reached))
	slices.Sort(tb.broken)
	for _, name := range tb.broken {
		fmt.Printf("  make crash CELL=%s\n", name)
	}
}
