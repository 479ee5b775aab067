package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// maxInit bounds the allocations of all packages together before main. Every command pays for them, also one that only
// prints a line. They are counted, because the clock of a busy machine says little.
const maxInit = 14_000

func TestInit(t *testing.T) {
	cmd := exec.Command(filepath.Join(build(t), "drover"), "version")
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	var trace strings.Builder
	cmd.Stderr = &trace
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	if sum, most := initCost(t, trace.String()); sum > maxInit {
		t.Errorf("the packages make %d allocations before main, want at most %d; most are of %s", sum, maxInit, most)
	}
}

// initCost sums lines such as
//
//	init encoding/gob @1.2 ms, 0.20 ms clock, 26608 bytes, 371 allocs
func initCost(t *testing.T, trace string) (sum int, dearest string) {
	t.Helper()
	most := 0
	for line := range strings.Lines(trace) {
		f := strings.Fields(line)
		if len(f) < 11 || f[0] != "init" || f[10] != "allocs" {
			continue
		}
		n, err := strconv.Atoi(f[9])
		if err != nil {
			t.Fatalf("read %q: %v", line, err)
		}
		if sum += n; n > most {
			most, dearest = n, strings.TrimSpace(line)
		}
	}
	if sum == 0 {
		t.Fatalf("no package told what it took:\n%s", trace)
	}
	return sum, dearest
}
