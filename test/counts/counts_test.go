//go:build linux

// Package counts holds how many system calls a Bash call costs against counts.txt. Counts depend less on the load
// of a machine than times do.
package counts

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/test/harness"
)

// The calls of a run with few and one with many Bash calls are compared, so that those of a start are not counted.
const few, many = 5, 45

// random are calls whose number is up to the scheduler and the heap of Go.
const random = " futex nanosleep clock_nanosleep sched_yield epoll_wait epoll_pwait epoll_ctl tgkill rt_sigreturn getpid " +
	"madvise mmap munmap mprotect clone3 rseq set_robust_list sigaltstack gettid sched_getaffinity rt_sigprocmask "

// steady makes Go's scheduler, heap and clock cause as few calls as they can, whatever else the machine does.
//
//rules:constant never changed after this line
var steady = []string{"GOMAXPROCS=1", "GOGC=off", "GODEBUG=asyncpreemptoff=1,updatemaxprocs=0"}

type place struct{ *harness.Place }

func TestBashCall(t *testing.T) {
	if _, err := exec.LookPath("strace"); err != nil {
		t.Skip("SKIPPED: strace is not installed: system calls are NOT counted")
	}
	bin := filepath.Join(t.TempDir(), "drover")
	if err := harness.Build(bin); err != nil {
		t.Fatal(err)
	}
	p := &place{harness.New(t, bin)}
	defer p.End(time.Minute)
	if out, err := exec.Command("git", "init", "-q", p.Dir).CombinedOutput(); err != nil {
		t.Fatalf("git init: %v\n%s", err, out)
	}
	own := p.count(t, "bash", "-c", "echo 1")
	for mode, most := range bounds(t) {
		t.Run(mode, func(t *testing.T) {
			p.Settings(`{"sandbox":{"mode":"` + mode + `"}}`)
			if c := p.Run(p.turns(1)...); c.Code() != 0 {
				t.Skipf("SKIPPED: system calls are NOT counted, since a command does not start: %s", c)
			}
			took := p.least(t, p.turns(many)) - p.least(t, p.turns(few))
			got := float64(took)/(many-few) - float64(own)
			t.Logf("%.1f system calls of Drover for a Bash call, of bash itself %d", got, own)
			if got > float64(most)*1.05 {
				t.Errorf("a Bash call costs %.1f system calls; counts.txt says %d", got, most)
			}
		})
	}
}

// bounds reads counts.txt.
func bounds(t *testing.T) map[string]int {
	data, err := os.ReadFile("counts.txt")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]int{}
	for line := range strings.Lines(string(data)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		var mode string
		var most int
		if _, err := fmt.Sscan(line, &mode, &most); err != nil {
			t.Fatalf("counts.txt: %q: %v", line, err)
		}
		out[mode] = most
	}
	return out
}

// turns are the words of a prompt whose script makes so many Bash calls.
func (p *place) turns(n int) []string {
	var s strings.Builder
	for i := range n {
		fmt.Fprintf(&s, `{"tools":[{"name":"Bash","input":{"command":"echo %d","description":"x"}}]},`, i)
	}
	path := filepath.Join(p.Work, fmt.Sprintf("script%d.json", n))
	p.Must(os.WriteFile(path, []byte(`{"version":1,"agents":{"main":[`+s.String()+`{"text":"done","repeat":-1}]}}`), 0o600))
	return []string{"-p", "hi", "--model", "script:" + path, "--allowed-tools", "Bash"}
}

// least is the smallest count of a few runs: a slow one has more ticks of timers in it.
func (p *place) least(t *testing.T, words []string) (n int) {
	for i := range 4 {
		if c := p.count(t, append([]string{p.Bin}, words...)...); i == 0 || c < n {
			n = c
		}
	}
	return n
}

// count runs a program and returns the number of system calls of it and of all that it starts.
func (p *place) count(t *testing.T, args ...string) (sum int) {
	t.Helper()
	table := filepath.Join(p.Work, "calls")
	cmd := exec.Command("strace", append([]string{"-f", "-qq", "-c", "-U", "calls,name", "-o", table}, args...)...)
	cmd.Dir, cmd.Env = p.Dir, append(p.Env[:len(p.Env):len(p.Env)], steady...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	data, err := os.ReadFile(table)
	if err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
		f := strings.Fields(lines.Text())
		if len(f) != 2 || f[1] == "total" || strings.Contains(random, " "+f[1]+" ") {
			continue
		}
		if n, err := strconv.Atoi(f[0]); err == nil {
			sum += n
		}
	}
	return sum
}
