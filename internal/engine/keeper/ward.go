package keeper

import (
	"context"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/drover-dev/drover/internal/engine/process"
)

// grace is the time between TERM and KILL after the host's end.
const grace = time.Second

// ward holds a keeper's knowledge of its host.
type ward struct {
	table process.Table

	mu      sync.Mutex
	host    process.Identity // guarded by mu, as all below
	watched map[int]watch
	coming  map[string]watch // kept tasks whose group is not known yet, by task
	bye     bool
}

func newWard() *ward { return &ward{watched: map[int]watch{}, coming: map[string]watch{}} }

// hear handles one message of the host.
func (w *ward) hear(m message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch m.Op {
	case opHello:
		if m.Host != nil {
			w.host = *m.Host
		}
	case opExpect:
		if m.Watch != nil && m.Watch.Task != "" {
			w.coming[m.Watch.Task] = *m.Watch
		}
	case opWatch:
		if m.Watch != nil && m.Watch.Process.PID > 1 {
			w.watched[m.Watch.Process.PID] = *m.Watch
			delete(w.coming, m.Watch.Task)
		}
	case opForget:
		if x := w.watched[m.PID]; m.Start == 0 || m.Start == x.Process.Start {
			delete(w.watched, m.PID)
		}
		if m.Watch != nil {
			delete(w.coming, m.Watch.Task)
		}
	case opBye:
		w.bye = true
	}
}

// forget removes the group of a leader.
func (w *ward) forget(pid int, start uint64) (watch, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	x, ok := w.watched[pid]
	if !ok || x.Process.Start != start {
		return watch{}, false
	}
	delete(w.watched, pid)
	return x, true
}

// find looks for the groups of tasks that the host was about to start when it died. A leader
// that has ended by then cannot be identified, and its remaining processes are not kept.
func (w *ward) find() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.coming) == 0 {
		return
	}
	procs := w.table.Read()
	for task, x := range w.coming {
		if p, ok := process.Leader(procs, process.MarkTask, task); ok {
			x.Process = p.Identity()
			w.watched[p.PID] = x
		}
	}
	clear(w.coming)
}

// sweep ends the processes that the host left. It may be called again when fewer are to be kept.
func (w *ward) sweep(ctx context.Context) process.Report {
	return process.EndAll(ctx, w.choice(), process.Ending{Grace: grace, Table: &w.table})
}

// choice selects the host's processes without those to be kept.
//
// The mark of the session is not sufficient: another host of the session may live, such as one that
// held the session when this host tried to open it, or the next one; and a kept command of an
// earlier host carries it too. Processes that this host started carry its own mark, and those
// that it adopted were reported.
func (w *ward) choice() process.Choice {
	w.mu.Lock()
	defer w.mu.Unlock()
	self, mark := os.Getpid(), w.host.Mark()
	var lose, keep []watch
	for _, x := range w.watched {
		if x.Keep {
			keep = append(keep, x)
		} else {
			lose = append(lose, x)
		}
	}
	in := func(p process.Proc) func(watch) bool {
		return func(x watch) bool {
			return p.Group == x.Process.PID && p.Start >= x.Process.Start || p.Carries(process.MarkTask, x.Task)
		}
	}
	return process.Choice{
		Root: func(p process.Proc) bool {
			return p.PID == self ||
				p.Carries(process.MarkHost, mark) ||
				slices.ContainsFunc(lose, in(p))
		},
		Spare: func(p process.Proc) bool { return slices.ContainsFunc(keep, in(p)) },
	}
}
