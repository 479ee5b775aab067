//go:build linux

package bench

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"time"

	"github.com/drover-dev/drover/agents"
	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/test/modeltest"
)

// liveVariable makes this program hold so many agents that wait for their model.
const liveVariable = "BENCH_LIVE"

// live starts the agents, waits for all of them, and returns the exit code.
func live() int {
	var n int
	_, _ = fmt.Sscan(os.Getenv(liveVariable), &n)
	ctx := context.Background()
	rt, err := agents.Open(ctx, agents.Config{ModelName: "claude-sonnet-4-6", Limits: agents.Limits{Live: n, PerRoot: n, PerSession: n, SpawnRate: n}})
	if err == nil {
		err = liveAgents(ctx, rt, n)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func liveAgents(ctx context.Context, rt *agents.Runtime, n int) error {
	defer rt.Close()
	ids := make([]task.ID, n)
	for i := range ids {
		r, err := rt.Agent(ctx, agents.Agent{Type: "explore", Prompt: "wait"})
		if err != nil {
			return err
		}
		ids[i] = r.ID
	}
	for _, id := range ids {
		if r, err := rt.Wait(ctx, id); err != nil || r.Status != task.Completed {
			return fmt.Errorf("%s is %s: %s, %w", id, r.Status, r.Error, err)
		}
	}
	return nil
}

// liveRows is what agents cost that all wait for a slow model.
func (t *bench) liveRows() {
	n := t.size(1000, 200)
	var asked atomic.Int64
	all, answer := make(chan struct{}), make(chan struct{})
	web, err := modeltest.New(func(context.Context, *modeltest.Request) modeltest.Answer {
		if asked.Add(1) == int64(n) {
			close(all)
		}
		a := modeltest.Text("done")
		a.Wait = answer
		return a
	})
	t.must(err)
	defer web.Close()
	dir := t.temp()
	exe, err := os.Executable()
	t.must(err)
	cmd := exec.Command(exe)
	var errs strings.Builder
	cmd.Dir, cmd.Stderr = dir, &errs
	cmd.Env = t.env(dir, fmt.Sprintf("%s=%d", liveVariable, n), "ANTHROPIC_BASE_URL="+web.URL, "ANTHROPIC_API_KEY=k")
	begin := time.Now()
	t.must(cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }() // read below
	select {
	case <-all:
	case err := <-ended:
		t.Fatalf("it ended: %v, %s", err, errs.String())
	}
	took := time.Since(begin)
	const watch = 2 * time.Second
	before := cpuTime(t, cmd.Process.Pid)
	time.Sleep(watch) // what is measured is that nothing happens
	busy := cpuTime(t, cmd.Process.Pid) - before
	memory := memoryOf(t, cmd.Process.Pid)
	close(answer)
	if err := <-ended; err != nil {
		t.Fatalf("%v: %s", err, errs.String())
	}
	name := fmt.Sprintf("%d agents that wait for a slow model", n)
	t.add(row{name: name + ", memory", unit: "MiB", ours: memory["VmHWM"], target: 350, note: fmt.Sprintf("%.1f KiB each; now %.0f MiB", memory["VmRSS"]*1024/float64(n), memory["VmRSS"])},
		row{name: name + ", CPU meanwhile", unit: "%", ours: 100 * busy.Seconds() / watch.Seconds(), target: 1},
		row{name: "starting them", unit: "ms", ours: ms(took)})
}

// cpuTime is what a process has used.
func cpuTime(t *bench, pid int) time.Duration {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	t.must(err)
	_, rest, _ := strings.Cut(string(data), ") ")
	var user, system int64
	fields := strings.Fields(rest)
	_, err = fmt.Sscan(fields[11]+" "+fields[12], &user, &system)
	t.must(err)
	return time.Duration(user+system) * 10 * time.Millisecond // 100 ticks a second on every Linux
}

// memoryOf is what /proc says of the memory of a process, in MiB.
func memoryOf(t *bench, pid int) map[string]float64 {
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	t.must(err)
	defer f.Close()
	out := map[string]float64{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var name string
		var kib float64
		if n, _ := fmt.Sscanf(lines.Text(), "%s %f kB", &name, &kib); n == 2 {
			out[strings.TrimSuffix(name, ":")] = kib / 1024
		}
	}
	return out
}
