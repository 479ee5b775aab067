//go:build linux

package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/task"
)

// idle is what this process does in a time in which nothing happens: processor
// time and wake-ups, each for a second. A wake-up is a voluntary switch of a thread.
func idle(pause time.Duration) (cpu, wakes float64) {
	<-time.After(pause / 2) // the start is over
	before, switched := processor(), switches()
	<-time.After(pause) // nothing is to happen meanwhile
	return ms(processor()-before) / pause.Seconds(), float64(switches()-switched) / pause.Seconds()
}

func switches() int64 {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return u.Nvcsw
}

// waiting is a workflow of 100 steps in which ten are at work, and nothing happens.
func (t *bench) waiting() {
	const steps, wide = 100, 10
	dir := t.temp()
	file := filepath.Join(dir, "w.yaml")
	var b strings.Builder
	fmt.Fprintf(&b, "parallel: %d\nsteps:\n", wide)
	for i := range steps {
		fmt.Fprintf(&b, "  - {id: s%d, shell: exec sleep 600}\n", i)
	}
	t.must(os.WriteFile(file, []byte(b.String()), 0o600))
	s := t.openMonitors(dir)
	t.command(s, dir, "true") // the keeper starts with the first
	memory, newest := held(), s.Newest()
	started, err := s.Start(context.Background(), []control.StartRequest{{Workflow: &control.WorkflowRequest{File: file}, Env: t.env(dir), Cwd: dir}})
	t.must(err)
	if started[0].Error != nil {
		t.Fatal(started[0].Error)
	}
	t.until(s, newest, wide, func(r task.Record) bool { return r.Kind == task.LocalBash && r.Process != nil })
	more := held() - memory
	cpu, wakes := idle(5 * time.Second)
	t.add(row{name: fmt.Sprintf("a workflow of %d steps, %d running: memory of the host", steps, wide), unit: "MiB", ours: more, target: 16},
		row{name: "the same, CPU while nothing happens", unit: "ms/s", ours: cpu, target: 1, note: fmt.Sprintf("%.1f wake-ups/s", wakes)})
	t.must(s.Close())
}
