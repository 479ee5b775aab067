//go:build linux

package bench

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/assemble"
	"github.com/drover-dev/drover/internal/assemble/bare"
	"github.com/drover-dev/drover/internal/options"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/project/settings"
	"github.com/drover-dev/drover/internal/session"
	"github.com/drover-dev/drover/task"
)

// monitors is what many cost to which nothing happens, and a flood.
func (t *bench) monitors() {
	dir := t.temp()
	env := t.env(dir)
	s := t.openMonitors(dir)
	t.command(s, dir, "true") // the keeper starts with the first
	n := t.size(200, 60)
	reqs := make([]control.StartRequest, n)
	for i := range reqs {
		m := &control.MonitorRequest{File: filepath.Join(dir, fmt.Sprintf("log%d", i))}
		if i%2 == 0 {
			m = &control.MonitorRequest{Shell: &control.ShellRequest{Args: []string{"sleep", "600"}}}
		}
		reqs[i] = control.StartRequest{Monitor: m, Env: env, Cwd: dir}
	}
	threads, memory, newest := threadCount(), held(), s.Newest()
	started, err := s.Start(context.Background(), reqs)
	t.must(err)
	for _, one := range started {
		if one.Error != nil {
			t.Fatal(one.Error)
		}
	}
	t.until(s, newest, n, func(r task.Record) bool { return r.Process != nil || r.Progress != nil })
	more := held() - memory
	t.add(row{name: fmt.Sprintf("%d monitors, half commands, half files, memory of the host", n), unit: "MiB", ours: more, target: 16,
		note: fmt.Sprintf("they cost %d threads", threadCount()-threads)})
	cpu, wakes := idle(5 * time.Second)
	t.add(row{name: "the same, CPU of the host while nothing happens", unit: "ms/s", ours: cpu, target: 1, note: fmt.Sprintf("%.1f wake-ups/s", wakes)})
	t.must(s.Close())

	lines := t.size(1_000_000, 200_000)
	s = t.openMonitors(t.temp())
	flood := func(r control.StartRequest) float64 {
		begin := time.Now()
		r.Env, r.Cwd = env, dir
		started, err := s.Start(context.Background(), []control.StartRequest{r})
		t.must(err)
		if started[0].Error != nil {
			t.Fatal(started[0].Error)
		}
		reply, err := s.Wait(context.Background(), control.WaitRequest{Refs: []string{string(started[0].Task.ID)}})
		t.must(err)
		if got := reply.Tasks[0]; got.Status != task.Completed {
			t.Fatalf("the flood %s: %s", got.Status, got.Error)
		}
		return ms(time.Since(begin))
	}
	sh := &control.ShellRequest{Line: fmt.Sprintf("yes | head -n %d", lines)}
	ours, floor := turns(t.runs(5), func() float64 {
		return flood(control.StartRequest{Monitor: &control.MonitorRequest{Shell: sh, Match: "never"}})
	},
		func() float64 { return flood(control.StartRequest{Shell: sh}) })
	t.add(row{name: fmt.Sprintf("a monitor of %d lines, each matched", lines), unit: "ms", ours: ours, floor: floor, of: "the command alone"})
	t.must(s.Close())
}

// openMonitors opens a session in which there are monitors.
func (t *bench) openMonitors(dir string) *assemble.Session {
	s, err := assemble.Open(context.Background(), assemble.Config{Config: bare.Config{Root: home.At(filepath.Join(dir, "state")), Folder: dir, Role: session.RoleBackground,
		Version: "bench", Env: t.env(dir), Keeper: []string{t.bin, "keeper", "--helper"}, Settings: settings.Settings{Options: options.Default()}}})
	t.must(err)
	s.Serve()
	return s
}

// held is the memory that this process needs, in MiB.
func held() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc+m.StackInuse) / (1 << 20)
}

// processor is the time that this process has used.
func processor() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
