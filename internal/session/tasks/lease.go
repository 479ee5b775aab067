package tasks

import (
	"context"
	"sync"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/engine/supervise"
	"github.com/drover-dev/drover/task"
)

const (
	// ClientGone is the detail of the cause of such a stop.
	ClientGone = "its client has gone"

	// LeaseWait is how long a lease may have tasks before a client holds it, since two requests of a
	// client may arrive in either order.
	LeaseWait = 10 * time.Second

	leaseStop = time.Minute // limits the stop of a lease's tasks
)

// leases are the leases of a session. A client names a lease when it starts tasks, and holds it while it
// wants them.
type leases struct {
	tasks *supervise.Supervisor

	mu     sync.Mutex // guards the fields below, and every lease
	named  map[string]*lease
	closed bool
}

// lease is a set of tasks that end with a client. A nil one has no tasks.
type lease struct {
	of    *leases
	tasks []task.ID
	held  bool
	ended bool
	late  *time.Timer // ends a lease that no client has held; Close stops it
}

// add adds a task to the lease, and stops the task if the lease has ended.
func (l *lease) add(ctx context.Context, id task.ID) {
	if l == nil {
		return
	}
	l.of.mu.Lock()
	l.tasks = append(l.tasks, id)
	ended := l.ended
	l.of.mu.Unlock()
	if ended {
		_ = l.of.stop(context.WithoutCancel(ctx), []task.ID{id}) // its record has the outcome
	}
}

// open returns the lease of a name, nil for the empty one.
func (l *leases) open(name string) (*lease, error) {
	if name == "" {
		return nil, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.find(name)
}

// find finds or creates a lease. The caller holds mu.
func (l *leases) find(name string) (*lease, error) {
	one := l.named[name]
	if one == nil && !l.closed {
		one = &lease{of: l}
		one.late = time.AfterFunc(LeaseWait, func() {
			l.mu.Lock()
			idle := !one.held && !one.ended
			one.ended = one.ended || idle // in the same step, so that no client can hold it now
			l.mu.Unlock()
			if idle {
				_ = l.release(context.Background(), one) // its tasks have ended, or Close ends them
			}
		})
		l.named[name] = one
	}
	if one == nil || one.ended {
		return nil, control.Refuse(control.Conflict, "nobody holds the lease of this request any more", "")
	}
	return one, nil
}

// HoldLease holds a lease while ctx lives, then stops the tasks that were started under it.
func (s *Session) HoldLease(ctx context.Context, name string) error {
	l := &s.leases
	if name == "" {
		return control.Refuse(control.Invalid, "a lease needs a name", "")
	}
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil // everything ends anyway
	}
	one, err := l.find(name)
	if err == nil && one.held {
		err = control.Refuse(control.Conflict, "the lease is held already", "")
	}
	if err != nil {
		l.mu.Unlock()
		return err
	}
	one.held = true
	one.late.Stop()
	l.mu.Unlock()
	select {
	case <-ctx.Done():
	case <-l.tasks.Closing():
		return nil
	}
	last, done := context.WithTimeout(context.WithoutCancel(ctx), leaseStop)
	defer done()
	return l.release(last, one)
}

// release ends a lease and its tasks. Its name cannot be used again.
func (l *leases) release(ctx context.Context, one *lease) error {
	l.mu.Lock()
	one.ended = true
	tasks := one.tasks
	one.tasks = nil
	l.mu.Unlock()
	return l.stop(ctx, tasks)
}

func (l *leases) stop(ctx context.Context, tasks []task.ID) error {
	if len(tasks) == 0 {
		return nil
	}
	_, err := l.tasks.Stop(ctx, tasks,
		supervise.StopRequest{Cause: task.Cause{Actor: task.ByClient, Reason: task.ReasonStopped, Detail: ClientGone}})
	return err
}

// close ends all leases, whose tasks are left to the supervisor.
func (l *leases) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for _, one := range l.named {
		one.ended = true
		one.late.Stop()
	}
}
