package conversation

import (
	"context"
	"errors"
	"time"

	"github.com/drover-dev/drover/task"
)

// Settle waits until nothing is left to answer or to wait for: no prompt, no turn, no mail, no
// agent, no command. It waits for commands until the ceiling after the last answer; then it
// stops them and returns the receipt and [ErrCeiling], or waits anew if a prompt came while they
// were stopped. 0 means no wait for commands. After a turn in which the model failed, see
// [ModelFailed], it waits for tasks too; their notifications then wait for the next prompt. After
// a turn that failed otherwise, or that the user interrupted, it does not.
func (c *Conversation) Settle(ctx context.Context, ceiling time.Duration) (task.Receipt, error) {
	seen := -1
	for {
		// Work passes from a task through the mailbox to a turn. It is checked in this order,
		// so that it cannot be missed between two checks.
		ends := c.session.Changed()
		commands, others := c.session.Background()
		mail, err := c.Mail(ctx)
		if err != nil && ctx.Err() == nil {
			return task.Receipt{}, err
		}
		s, changed := c.State()
		if s.Turns != seen { // a turn that ended meanwhile may have started a task
			seen = s.Turns
			continue
		}
		var late *time.Timer
		switch {
		case s.Working() || mail && s.Hold == NoHold:
		case s.Leaves() || ceiling == 0 || len(commands) == 0 && others == 0:
			if s.Unfinished {
				return task.Receipt{}, &UnfinishedError{s.Reminders}
			}
			return task.Receipt{}, nil
		case others == 0:
			left := ceiling - time.Since(s.Rested)
			if left <= 0 {
				receipt, err := c.stop(ctx, commands)
				if now, _ := c.State(); err == nil && (now.Working() || now.Turns != seen) {
					continue
				}
				return receipt, errors.Join(err, ErrCeiling)
			}
			late = time.NewTimer(left)
		}
		if err := oneOf(ctx, changed, ends, late); err != nil {
			return task.Receipt{}, err
		}
	}
}

// oneOf waits for any of its channels, or for the timer if there is one.
func oneOf(ctx context.Context, a, b <-chan struct{}, late *time.Timer) error {
	var c <-chan time.Time
	if late != nil {
		defer late.Stop()
		c = late.C
	}
	select {
	case <-a:
	case <-b:
	case <-c:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// stop stops commands at the ceiling. Their notifications wait for the next prompt: a turn that
// began now would be cancelled, and would replace the answer.
func (c *Conversation) stop(ctx context.Context, commands []task.ID) (task.Receipt, error) {
	c.must(Ceiling)
	cause := task.Cause{Actor: task.ByRuntime, Reason: task.ReasonClosing, Detail: "the wait ceiling was reached"}
	return c.session.Stop(ctx, commands, cause)
}
