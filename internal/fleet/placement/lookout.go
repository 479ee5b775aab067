package placement

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/drover-dev/drover/internal/fleet/fleetwire"
	"github.com/drover-dev/drover/internal/fleet/link"
)

// How soon and how often tasks that wait learn which workers there are. Most tasks wait for less than the first.
const (
	lookFirst = 500 * time.Millisecond
	lookAgain = 5 * time.Second
)

// lookout lists the workers while tasks wait for one: once for all of these tasks. It ends within [lookAgain] after the
// last one.
type lookout struct {
	mu      sync.Mutex
	waiting map[*work]bool     // guarded by mu
	stop    context.CancelFunc // ends the goroutine; nil: it does not run; guarded by mu
	running sync.WaitGroup
}

// add begins to inform a task.
func (o *lookout) add(w *work, l *link.Link) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.waiting == nil {
		o.waiting = map[*work]bool{}
	}
	o.waiting[w] = true
	if o.stop == nil {
		ctx, cancel := context.WithCancel(context.Background())
		o.stop = cancel
		o.running.Go(func() { o.look(ctx, l.JS) })
	}
}

func (o *lookout) remove(w *work) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.waiting, w)
}

// close ends the goroutine. No task waits any more.
func (o *lookout) close() {
	o.mu.Lock()
	if o.stop != nil {
		o.stop()
	}
	o.mu.Unlock()
	o.running.Wait()
}

// over reports whether no task waits, and ends the lookout then.
func (o *lookout) over() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.waiting) > 0 {
		return false
	}
	o.stop()
	o.stop = nil
	return true
}

func (o *lookout) look(ctx context.Context, js jetstream.JetStream) {
	timer := time.NewTimer(lookFirst)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		if o.over() {
			return
		}
		one, cancel := context.WithTimeout(ctx, lookAgain)
		if workers, err := List(one, js); err == nil { // else the hub is out of reach
			o.tell(workers)
		}
		cancel()
		timer.Reset(lookAgain)
	}
}

// tell tells each task that waits which of the workers may take it.
func (o *lookout) tell(workers []fleetwire.Worker) {
	there := map[string]candidates{}
	for _, one := range workers {
		for _, name := range append(slices.Clone(one.Labels), one.Name, Auto) {
			there[name] = there[name].with(one)
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for w := range o.waiting {
		select {
		case w.known <- there[w.rec.On]:
		default: // it has not heard the last one yet
		}
	}
}

// candidates are the workers that a task may run on, as far as it wants to know of them.
type candidates struct {
	some    bool   // one is there
	ready   bool   // and has a place
	foreign string // why one of another protocol cannot have it; empty: none is
	fit     bool   // one of those that are there takes tasks, sooner or later
	problem string // why one of them takes nothing; empty: all do
}

func (c candidates) with(one fleetwire.Worker) candidates {
	if _, err := fleetwire.Speaks("worker "+one.Name, one.Oldest, one.Newest); err != nil {
		c.foreign = err.Error()
		return c
	}
	c.some, c.ready = true, c.ready || one.State() == fleetwire.StateReady
	if one.State() == fleetwire.StateUnfit {
		c.problem = fmt.Sprintf("worker %s takes nothing: %s", one.Name, one.Problem)
	} else {
		c.fit = true
	}
	return c
}

// text describes the wait of a task.
func (c candidates) text(on string) string {
	whom := "worker " + on
	if on == Auto {
		whom = "a worker"
	}
	switch {
	case c.some && !c.fit:
		return fmt.Sprintf("waits for %s: %s", whom, c.problem)
	case c.some:
		return "waits for " + whom
	case c.foreign != "":
		return fmt.Sprintf("waits for %s: %s", whom, c.foreign)
	case on == Auto:
		return "waits for a worker: none is there"
	}
	return fmt.Sprintf("waits for worker %s: none of that name or label is there", on)
}
