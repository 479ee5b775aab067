//go:build linux

package bench

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/drover-dev/drover/test/modeltest"
)

// spent is what one program has used.
type spent struct {
	begin, end time.Time
	cpu        time.Duration
	peak       float64 // MiB
}

func (s spent) wall() time.Duration { return s.end.Sub(s.begin) }

// run runs a program to its end.
func (t *bench) run(dir string, env []string, argv ...string) spent {
	result := filepath.Join(dir, ".spent")
	cmd := exec.Command(t.cfl, append([]string{"run", result}, argv...)...)
	cmd.Dir, cmd.Env = dir, env
	var errs strings.Builder
	cmd.Stderr = &errs
	t.must(cmd.Run())
	data, err := os.ReadFile(result)
	t.must(err)
	var begin, end, cpu, peak, status int64
	_, err = fmt.Sscan(string(data), &begin, &end, &cpu, &peak, &status)
	t.must(err)
	if status != 0 {
		t.Fatalf("%v ended with %d: %s", argv, status, errs.String())
	}
	return spent{time.Unix(0, begin), time.Unix(0, end), time.Duration(cpu) * time.Microsecond, float64(peak) / 1024}
}

func (t *bench) version() {
	dir := t.temp()
	env := t.env(dir)
	var peak []float64
	ours, floor := turns(t.runs(21),
		func() float64 {
			s := t.run(dir, env, t.bin, "version")
			peak = append(peak, s.peak)
			return ms(s.wall())
		},
		func() float64 { return ms(t.run(dir, env, "/bin/true").wall()) })
	t.add(row{name: "`version`", unit: "ms", ours: ours, floor: floor, of: "true", target: 8},
		row{name: "`version`, peak memory", unit: "MiB", ours: median(peak), target: 32})
}

// served is a model server with what its requests told.
type served struct {
	*modeltest.Server
	mu    sync.Mutex
	first time.Time
	asked map[string]int // requests, by agent
}

// serve answers with what an agent's n-th request gets; the main agent is "".
func (t *bench) serve(answer func(id string, n int, r *modeltest.Request) modeltest.Answer) *served {
	s := &served{asked: map[string]int{}}
	var err error
	s.Server, err = modeltest.New(func(_ context.Context, r *modeltest.Request) modeltest.Answer {
		at := time.Now()
		s.mu.Lock()
		if s.first.IsZero() {
			s.first = at
		}
		id := r.AgentID()
		n := s.asked[id]
		s.asked[id]++
		s.mu.Unlock()
		return answer(id, n, r)
	})
	t.must(err)
	s.Keep(0)
	return s
}

func (s *served) reset() (requests int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.asked {
		requests += n
	}
	s.first, s.asked = time.Time{}, map[string]int{}
	return requests
}

func (t *bench) provider(s *served) []string {
	return []string{"ANTHROPIC_BASE_URL=" + s.URL, "ANTHROPIC_API_KEY=k"}
}

// promptArgs are the words of the command line that all whole-process rows share.
func (t *bench) promptArgs() []string {
	return []string{t.bin, "-p", "go", "--output-format", "stream-json", "--model", "m", "--allowed-tools", "Bash(true:*),Bash(sleep:*),Bash(date:*)"}
}

func bash(n int) modeltest.Answer {
	return modeltest.Call("Bash", map[string]any{"command": "true " + strconv.Itoa(n)})
}

// rawTurns is the floor of a prompt: as many requests, and commands between
// them, from a loop that does nothing else.
func (t *bench) rawTurns(s *served, requests, commands int) float64 {
	begin := time.Now()
	for i := range requests {
		res, err := http.Post(s.URL+"/v1/messages", "application/json", strings.NewReader(`{"model":"m","stream":true,"messages":[]}`))
		t.must(err)
		_, err = bufio.NewReader(res.Body).WriteTo(discard{})
		t.must(err)
		res.Body.Close()
		if i < commands {
			cmd := exec.Command("bash", "-c", "true")
			cmd.Env = t.env(t.dir) // as ours has it
			t.must(cmd.Run())
		}
	}
	s.reset()
	return ms(time.Since(begin))
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

func (t *bench) prompt() {
	one := t.serve(func(string, int, *modeltest.Request) modeltest.Answer { return modeltest.Text("done") })
	defer one.Close()
	home := t.temp()
	env := t.env(home, t.provider(one)...)
	var first, peak []float64
	wall, floor := turns(t.runs(15),
		func() float64 {
			s := t.run(home, env, t.promptArgs()...)
			first = append(first, ms(one.first.Sub(s.begin)))
			peak = append(peak, s.peak)
			one.reset()
			return ms(s.wall())
		},
		func() float64 { return ms(t.run(home, env, t.bin, "version").wall()) })
	t.add(row{name: "start to first model request", unit: "ms", ours: median(first), floor: floor, of: "`version`", target: 15},
		row{name: "one turn, whole process", unit: "ms", ours: wall, floor: floor, of: "`version`", target: 40},
		row{name: "one turn, peak memory", unit: "MiB", ours: median(peak), target: 48})

	const calls = 20
	var keeper float64
	many := t.serve(func(_ string, n int, _ *modeltest.Request) modeltest.Answer {
		if n == calls {
			keeper = max(keeper, keeperPeak(t.bin))
			return modeltest.Text("done")
		}
		return bash(n)
	})
	defer many.Close()
	env = t.env(home, t.provider(many)...)
	peak = nil
	wall, floor = turns(t.runs(9),
		func() float64 {
			s := t.run(home, env, t.promptArgs()...)
			peak = append(peak, s.peak)
			if n := many.reset(); n != calls+1 {
				t.Fatalf("%d requests, want %d", n, calls+1)
			}
			return ms(s.wall())
		},
		func() float64 { return t.rawTurns(many, calls+1, calls) })
	t.add(row{name: "20 Bash calls in 21 turns", unit: "ms", ours: wall, floor: floor, of: "bare loop", target: 100},
		row{name: "20 Bash calls, peak memory", unit: "MiB", ours: median(peak), target: 55, note: fmt.Sprintf("keeper: %.1f MiB, not included", keeper)})
}

// keeperPeak is the peak memory in MiB of the helper keepers of a program.
func keeperPeak(bin string) (peak float64) {
	dirs, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range dirs {
		line, _ := os.ReadFile(path)
		if !strings.HasPrefix(string(line), bin+"\x00keeper") {
			continue
		}
		status, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "status"))
		if _, rest, ok := strings.Cut(string(status), "VmHWM:"); ok {
			kib, _ := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			peak = max(peak, kib/1024)
		}
	}
	return peak
}

// agents are background agents that make calls.
func (t *bench) agents() {
	const calls = 20
	for _, n := range []int{10, 50} {
		s := t.serve(func(id string, turn int, _ *modeltest.Request) modeltest.Answer {
			switch {
			case id == "" && turn == 0:
				a := modeltest.Answer{}
				for i := range n {
					a.Blocks = append(a.Blocks, modeltest.ToolUse("", "Agent", map[string]any{"description": "work", "prompt": "work " + strconv.Itoa(i), "run_in_background": true}))
				}
				return a
			case id == "" || turn == calls:
				return modeltest.Text("done")
			}
			return bash(turn)
		})
		home := t.temp()
		env := t.env(home, t.provider(s)...)
		var peak, cpu, requests []float64
		runs := t.runs(5)
		if t.short && n == 50 {
			runs = 1
		}
		wall, floor := turns(runs,
			func() float64 {
				u := t.run(home, env, t.promptArgs()...)
				peak, cpu = append(peak, u.peak), append(cpu, u.cpu.Seconds())
				s.mu.Lock()
				done := 0
				for id, asked := range s.asked {
					if id != "" && asked == calls+1 {
						done++
					}
				}
				s.mu.Unlock()
				if done != n {
					t.Fatalf("%d of %d agents came to their end", done, n)
				}
				requests = append(requests, float64(s.reset()))
				return ms(u.wall())
			},
			func() float64 { return t.rawTurns(s, n*(calls+1), n*calls) })
		s.Close()
		name := fmt.Sprintf("%d background agents × %d calls", n, calls)
		target := row{name: name, unit: "ms", ours: wall, floor: floor, of: "bare loop, one at a time", target: 450, note: fmt.Sprintf("%.0f requests, all complete", median(requests))}
		if n == 50 {
			target.target = 2000
		}
		t.add(target)
		if n == 10 {
			t.add(row{name: name + ", peak memory", unit: "MiB", ours: median(peak), target: 70}, row{name: name + ", CPU", unit: "s", ours: median(cpu), target: 0.8, note: "with the commands"})
		}
	}
}

var outputFile = regexp.MustCompile(`/[^\s<>"]+\.output`) //rules:constant never written

// stamp reads when a command has ended, which it printed as its last act.
func stamp(path string) (time.Time, bool) {
	data, err := os.ReadFile(path)
	ns, perr := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
	return time.Unix(0, ns), err == nil && perr == nil
}

// notification is the way from the end of a command to the model, and to the stream.
func (t *bench) notification() {
	n := t.size(150, 30)
	var toModel, toStream []float64
	var mu sync.Mutex
	told := 0
	s := t.serve(func(_ string, _ int, r *modeltest.Request) modeltest.Answer {
		at := time.Now()
		text := r.LastText()
		mu.Lock()
		defer mu.Unlock()
		if told > 0 && !strings.Contains(text, "task-notification") {
			return modeltest.Text("idle")
		}
		if end, ok := stamp(outputFile.FindString(text)); ok {
			toModel = append(toModel, ms(at.Sub(end)))
		}
		if told++; told > n {
			return modeltest.Text("done")
		}
		return modeltest.Call("Bash", map[string]any{"command": "sleep 0.03; date +%s%N", "run_in_background": true})
	})
	defer s.Close()
	home := t.temp()
	cmd := exec.Command(t.bin, t.promptArgs()[1:]...)
	cmd.Dir, cmd.Env, cmd.Stderr = home, t.env(home, t.provider(s)...), os.Stderr
	out, err := cmd.StdoutPipe()
	t.must(err)
	t.must(cmd.Start())
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		at := time.Now()
		if line := lines.Text(); strings.Contains(line, `"subtype":"task_notification"`) {
			if end, ok := stamp(outputFile.FindString(line)); ok {
				toStream = append(toStream, ms(at.Sub(end)))
			}
		}
	}
	t.must(cmd.Wait())
	floor := []float64{}
	for range n {
		c := exec.Command("date", "+%s%N")
		printed, err := c.Output()
		at := time.Now()
		t.must(err)
		ns, err := strconv.ParseInt(strings.TrimSpace(string(printed)), 10, 64)
		t.must(err)
		floor = append(floor, ms(at.Sub(time.Unix(0, ns))))
	}
	note := fmt.Sprintf("%d of %d", len(toModel), n)
	t.add(row{name: "process exit → model request with the notification, p50", unit: "ms", ours: median(toModel), floor: median(floor), of: "os/exec returns", target: 5, note: note},
		row{name: "the same, p99", unit: "ms", ours: quantile(toModel, 0.99), floor: quantile(floor, 0.99), of: "os/exec returns", target: 15},
		row{name: "process exit → event on the stream, p50", unit: "ms", ours: median(toStream), floor: median(floor), of: "os/exec returns", target: 2, note: fmt.Sprintf("%d of %d", len(toStream), n)})
}
