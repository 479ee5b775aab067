package supervise

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/drover-dev/drover/internal/platform/failpoint"
	"github.com/drover-dev/drover/task"
)

// Post sends a message to an agent of the session and returns its sequence number when it is
// durable. The message stays undelivered until the agent's transcript has it, even if the
// agent's run ends. The receiver is a task, or the session for its main agent.
func (s *Supervisor) Post(ctx context.Context, m task.Message) (task.Seq, error) {
	if err := m.Check(); err != nil {
		return 0, fmt.Errorf("post message: %w", err)
	}
	if m.To != s.cfg.Session && s.entry(m.To) == nil {
		return 0, fmt.Errorf("post message: %w: %s", ErrUnknown, m.To)
	}
	if m.At.IsZero() {
		m.At = time.Now().UTC()
	}
	var err error
	if m.Seq, err = s.cfg.Log.Post(ctx, m); err != nil {
		return 0, err
	}
	_ = failpoint.Hit("message/posted")
	return m.Seq, nil
}

// ErrNotSteerable is returned for a message to a running task that accepts none.
var ErrNotSteerable = errors.New("it takes no messages")

// Steer passes a message to the driver of a running task (see [task.Steerer]) and returns when
// the driver has accepted it.
func (s *Supervisor) Steer(ctx context.Context, id task.ID, text string) error {
	e := s.entry(id)
	if e == nil {
		return fmt.Errorf("%w: %s", ErrUnknown, id)
	}
	e.mu.Lock()
	d, ok := e.driver.(task.Steerer)
	e.mu.Unlock()
	if r := e.rec.Load(); !ok || r.Status != task.Running {
		return fmt.Errorf("steer task %s, which is %s: %w", id, r.Status, ErrNotSteerable)
	}
	return d.Steer(ctx, id, text)
}
