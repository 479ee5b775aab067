package process

import (
	"fmt"
	"os"
	"testing"
)

func FuzzStat(f *testing.F) {
	f.Add("sleep", 12, 1, uint64(99))
	f.Add("a) R 1 2 3 (b", 4, 3, uint64(1)<<63)
	f.Add(") ( \n", 1, 0, uint64(0))
	f.Fuzz(func(t *testing.T, name string, pid, parent int, start uint64) {
		if pid < 0 || parent < 0 {
			t.Skip()
		}
		line := fmt.Sprintf("%d (%s) S %d 7 8 0 -1 0 1 2 3 4 5 6 7 8 20 0 1 0 %d 22 23\n", pid, name, parent, start)
		p, err := parseStat([]byte(line))
		if err != nil || p.PID != pid || p.Parent != parent || p.Group != 7 || p.Session != 8 || p.Start != start || p.State != 'S' {
			t.Fatalf("parseStat(%q) = %+v, %v", line, p, err)
		}
		_, _ = parseStat([]byte(name)) // whatever it is, no panic
	})
}

func TestStatSelf(t *testing.T) {
	p, err := readProc(os.Getpid())
	if err != nil || p.PID != os.Getpid() || p.Parent != os.Getppid() || p.Start == 0 {
		t.Fatalf("readProc = %+v, %v", p, err)
	}
	for _, bad := range []string{"", "1", "1 (x", "1 (x) S 1 2", ") 1 (x"} {
		if _, err := parseStat([]byte(bad)); err == nil {
			t.Errorf("parseStat(%q) gave no error", bad)
		}
	}
}
