package sim

import (
	"context"
	"encoding/json"
	"errors"
	"sync"

	"github.com/drover-dev/drover/task"
)

// actor is a driver whose work is what the history orders.
type actor struct{ w *world }

// order is one thing that a running task is to do. It ends the run if do says so.
type order struct {
	do   func(ctx context.Context, h task.Host) (ends bool, err error)
	done chan struct{}
}

func (actor) Kind() task.Kind             { return task.LocalBash }
func (actor) Check(json.RawMessage) error { return nil }
func (actor) Adopts(r task.Record) bool   { return r.Process != nil }

// Run implements task.Driver.
func (a actor) Run(ctx context.Context, h task.Host) (task.Result, error) {
	r := h.Record()
	if r.Keep && r.Process == nil {
		if err := h.Begun(task.Process{PID: 1, Start: 1, Boot: "b"}); err != nil {
			return task.Result{}, err
		}
	}
	s := a.w.stage(r.ID)
	asks, over := context.WithCancel(ctx)
	defer s.asking.Wait()
	defer over()
	for {
		select {
		case o := <-s.orders:
			ends, err := o.do(asks, h)
			close(o.done)
			if ends {
				return task.Result{Text: "the answer of " + string(r.Run)}, err
			}
		case <-ctx.Done():
			if cause := context.Cause(ctx); !r.Keep || !errors.Is(cause, task.ErrClosing) {
				return task.Result{}, cause
			}
			return task.Result{}, task.ErrDetached
		}
	}
}

// launcher is an actor with a process.
type launcher struct{ actor }

func (launcher) Launches() {}

// stage is where orders for one task come in.
type stage struct {
	orders chan order
	asking sync.WaitGroup // one for each question that waits
	told   chan task.Reply
}

func (w *world) stage(id task.ID) *stage {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stages[id] == nil {
		w.stages[id] = &stage{orders: make(chan order), told: make(chan task.Reply, 1)}
	}
	return w.stages[id]
}

// driver is that of a task: kept ones have a process.
func (w *world) driver(keep bool) task.Driver {
	if keep {
		return launcher{actor{w}}
	}
	return actor{w}
}

// errEnded is returned for an order to a task that has ended first.
var errEnded = errors.New("the task has ended")

// order has a task do something and waits until it is done.
func (w *world) order(id task.ID, do func(ctx context.Context, h task.Host) (bool, error)) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	o := order{do: do, done: make(chan struct{})}
	select {
	case w.stage(id).orders <- o:
	case <-w.s.Done(id):
		return errEnded
	case <-ctx.Done():
		return errors.New("the task " + string(id) + " takes no orders")
	}
	<-o.done
	return nil
}
