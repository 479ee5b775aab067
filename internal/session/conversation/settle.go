package conversation

import (
	"context"
	"errors"
	"time"

	"github.com/drover-dev/drover/task"
)

// Settle waits until nothing is left to answer or to wait for: no prompt, no turn, no
// mail, no agent, no command. Commands are waited for until the ceiling after the last
// answer; then they are stopped, and the receipt and [ErrCeiling] are returned. 0 means
// that nothing is waited for. Behind a turn in which the model failed, see
// [ModelFailed], work is waited for too; its notifications then wait for the next
// prompt. It is not behind a turn that failed otherwise, or that the user interrupted.
func (c *Conversation) Settle(ctx context.Context, ceiling time.Duration) (task.Receipt, error) {
	seen := -1
	for {
		// Work goes from a task by the mailbox to a turn, and is looked for in
		// this order, so that it cannot slip through between two looks.
		ends := c.session.Changed()
		commands, others := c.session.Background()
		mail, err := c.Mail(ctx)
		if err != nil && ctx.Err() == nil {
			return task.Receipt{}, err
		}
		s, changed := c.State()
		if s.Turns != seen { // a turn that ended meanwhile may have started anything
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
				return c.stop(ctx, commands)
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

// stop stops commands at the ceiling. Their notifications are for the next prompt: a
// turn that began now would be cut off, and would take the place of the answer.
func (c *Conversation) stop(ctx context.Context, commands []task.ID) (task.Receipt, error) {
	c.must(Ceiling)
	cause := task.Cause{Actor: task.ByRuntime, Reason: task.ReasonClosing, Detail: "the wait ceiling was reached"}
	receipt, err := c.session.Stop(ctx, commands, cause)
	return receipt, errors.Join(err, ErrCeiling)
}
