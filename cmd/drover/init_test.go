package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// maxInit bounds what all packages together do before main. Every command pays
// for it, also one that only prints a line.
const maxInit = 6 * time.Millisecond

// The best of some starts is judged: a busy machine makes the others slower, and
// nothing makes one faster.
func TestInit(t *testing.T) {
	bin := filepath.Join(build(t), "drover")
	best, worst := time.Hour, ""
	for range 10 {
		cmd := exec.Command(bin, "version")
		cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
		var trace strings.Builder
		cmd.Stderr = &trace
		if err := cmd.Run(); err != nil {
			t.Fatal(err)
		}
		if sum, most := initCost(t, trace.String()); sum < best {
			best, worst = sum, most
		}
	}
	if best > maxInit {
		t.Errorf("the packages take %v before main, want at most %v; the dearest is %s", best, maxInit, worst)
	}
}

// initCost sums lines such as
//
//	init encoding/gob @1.2 ms, 0.20 ms clock, 26608 bytes, 371 allocs
func initCost(t *testing.T, trace string) (sum time.Duration, dearest string) {
	t.Helper()
	var most time.Duration
	for line := range strings.Lines(trace) {
		f := strings.Fields(line)
		if len(f) < 7 || f[0] != "init" || f[6] != "clock," {
			continue
		}
		ms, err := strconv.ParseFloat(f[4], 64)
		if err != nil {
			t.Fatalf("read %q: %v", line, err)
		}
		cost := time.Duration(ms * float64(time.Millisecond))
		if sum += cost; cost > most {
			most, dearest = cost, strings.TrimSpace(line)
		}
	}
	if sum == 0 {
		t.Fatalf("no package told what it took:\n%s", trace)
	}
	return sum, dearest
}
