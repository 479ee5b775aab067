package keeper

import (
	"context"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/drover-dev/drover/internal/process"
)

// grace between TERM and KILL once the host is gone.
const grace = time.Second

// ward is what a keeper knows of its host.
type ward struct {
	table process.Table

	mu      sync.Mutex
	session string // guarded by mu, as all below
	host    process.Identity
	watched map[int]watch
	bye     bool
	left    bool   // the host is gone
	cut     uint64 // start time of the first process that is surely not the host's
}

func newWard() *ward { return &ward{watched: map[int]watch{}} }

// hear takes one message of the host.
func (w *ward) hear(m message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch m.Op {
	case opHello:
		w.session = m.Session
		if m.Host != nil {
			w.host = *m.Host
		}
	case opWatch:
		if m.Watch != nil && m.Watch.Process.PID > 1 {
			w.watched[m.Watch.Process.PID] = *m.Watch
		}
	case opForget:
		delete(w.watched, m.PID)
	case opBye:
		w.bye = true
	}
}

// hostLeft marks the time at which the host was seen to be gone.
func (w *ward) hostLeft() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.left = true
	w.cut = now()
}

// forget takes a watched group off the list.
func (w *ward) forget(pid int) (watch, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	x, ok := w.watched[pid]
	delete(w.watched, pid)
	return x, ok
}

// sweep ends what the host left behind. It may be called again when less is to
// be kept.
func (w *ward) sweep(ctx context.Context) process.Report {
	return process.EndAll(ctx, w.choice(), process.Ending{Grace: grace, Table: &w.table})
}

// choice says what is the host's and what of it is to be kept.
//
// The next host of the same session may be at work already. Its children carry
// the same session but another host, and are younger than this host's end.
func (w *ward) choice() process.Choice {
	w.mu.Lock()
	defer w.mu.Unlock()
	self, mark, session, cut := os.Getpid(), w.host.Mark(), w.session, w.cut
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
				p.Carries(process.MarkSession, session) && p.Start < cut ||
				slices.ContainsFunc(lose, in(p))
		},
		Spare: func(p process.Proc) bool { return slices.ContainsFunc(keep, in(p)) },
	}
}
