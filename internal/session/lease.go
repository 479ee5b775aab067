package session

import (
	"context"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/engine/supervise"
	"github.com/drover-dev/drover/task"
)

const (
	clientGone = "its client has gone"

	// leaseWait is how long a lease may have tasks before anybody holds it: a
	// client's two requests may overtake each other.
	leaseWait = 10 * time.Second
)

// lease is a set of tasks that end with a client. All of it is guarded by the
// session's mu.
type lease struct {
	s     *Session
	tasks []task.ID
	held  bool
	ended bool
	late  *time.Timer // ends a lease that nobody came to hold; Close stops it
}

// add puts a task under the lease; false says that the lease has ended.
func (l *lease) add(id task.ID) bool {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	l.tasks = append(l.tasks, id)
	return !l.ended
}

// lease returns the lease of a name, nil for the empty one.
func (s *Session) lease(name string) (*lease, error) {
	if name == "" {
		return nil, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leaseNamed(name)
}

// leaseNamed finds or makes a lease. The caller holds mu.
func (s *Session) leaseNamed(name string) (*lease, error) {
	l := s.leases[name]
	if l == nil {
		l = &lease{s: s}
		l.late = time.AfterFunc(leaseWait, func() {
			s.mu.Lock()
			idle := !l.held && !l.ended
			l.ended = l.ended || idle // in the same step: nobody may come to hold it now
			s.mu.Unlock()
			if idle {
				_ = s.release(context.Background(), l) // its tasks are gone, or ended by Close
			}
		})
		s.leases[name] = l
	}
	if l.ended {
		return nil, &control.Error{Code: control.Conflict, Message: "nobody holds the lease of this request any more"}
	}
	return l, nil
}

// Hold keeps a lease while ctx lives, then stops what was started under it.
func (s *Session) Hold(ctx context.Context, name string) error {
	if name == "" {
		return &control.Error{Code: control.Invalid, Message: "a lease needs a name"}
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil // everything ends anyway
	}
	l, err := s.leaseNamed(name)
	if err == nil && l.held {
		err = &control.Error{Code: control.Conflict, Message: "the lease is held already"}
	}
	if err != nil {
		s.mu.Unlock()
		return err
	}
	l.held = true
	l.late.Stop()
	s.mu.Unlock()
	select {
	case <-ctx.Done():
	case <-s.sup.Closing():
		return nil
	}
	last, done := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer done()
	return s.release(last, l)
}

// release ends a lease and what was started under it. Its name stays used up.
func (s *Session) release(ctx context.Context, l *lease) error {
	s.mu.Lock()
	l.ended = true
	tasks := l.tasks
	l.tasks = nil
	s.mu.Unlock()
	if len(tasks) == 0 {
		return nil
	}
	_, err := s.sup.Stop(
		ctx,
		tasks,
		supervise.StopRequest{Cause: task.Cause{Actor: task.ByClient, Reason: task.ReasonStopped, Detail: clientGone}},
	)
	return err
}
