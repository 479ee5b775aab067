package placement

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/drover-dev/drover/internal/fleet/link"
	"github.com/drover-dev/drover/internal/fleet/wire"
)

// How soon and how often it is looked which workers are there, while tasks wait for one. Most tasks
// wait for less than the first.
const (
	lookFirst = 500 * time.Millisecond
	lookAgain = 5 * time.Second
)

// lookout tells tasks that wait for a worker whether one is there that may take them. It looks once
// for all of them, and only while one waits.
type lookout struct {
	mu      sync.Mutex
	waiting map[*work]bool     // guarded by mu
	stop    context.CancelFunc // ends the goroutine; nil: nobody waits; guarded by mu
	running sync.WaitGroup
}

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
	if delete(o.waiting, w); len(o.waiting) == 0 && o.stop != nil {
		o.stop()
		o.stop = nil
	}
}

// close waits for the goroutine. No task waits any more.
func (o *lookout) close() { o.running.Wait() }

func (o *lookout) look(ctx context.Context, js jetstream.JetStream) {
	timer := time.NewTimer(lookFirst)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		short, cancel := context.WithTimeout(ctx, lookAgain)
		workers, err := List(short, js)
		cancel()
		if err == nil {
			o.tell(workers)
		}
		timer.Reset(lookAgain)
	}
}

// tell tells each task that waits which of the workers may take it.
func (o *lookout) tell(workers []wire.Worker) {
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
	foreign string // why one that is there cannot have it; empty: there is none
}

func (c candidates) with(one wire.Worker) candidates {
	if _, err := wire.Speaks("worker "+one.Name, one.Oldest, one.Newest); err != nil {
		c.foreign = err.Error()
		return c
	}
	c.some, c.ready = true, c.ready || one.State() == wire.StateReady
	return c
}

// text says what a task waits for.
func (c candidates) text(on string) string {
	whom := "worker " + on
	if on == Auto {
		whom = "a worker"
	}
	switch {
	case c.some:
		return "waits for " + whom
	case c.foreign != "":
		return fmt.Sprintf("waits for %s: %s", whom, c.foreign)
	case on == Auto:
		return "waits for a worker: none is there"
	}
	return fmt.Sprintf("waits for worker %s: none of that name or label is there", on)
}
