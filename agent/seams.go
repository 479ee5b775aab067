package agent

import (
	"context"
	"time"
)

// Hooks let somebody outside take part in a turn. They bound their own time,
// and their methods are called by one goroutine at a time except Called.
type Hooks interface {
	// Called is told of a call that has run, before its result is recorded, and
	// returns what the model reads instead. Calls that run side by side are told
	// of side by side.
	Called(ctx context.Context, c Call, out Output, took time.Duration) Output
	// Batch is told of all calls of one reply with their final inputs, in order.
	// What it returns is told to the model with the results.
	Batch(ctx context.Context, done []Done) string
	// Stop is asked when the model has nothing more to do. A reason that is not
	// empty is given to the model, and the turn goes on; blocked is how often in
	// a row that has happened. It is not asked for a turn that was interrupted,
	// failed, or ran into a limit.
	Stop(ctx context.Context, res TurnResult, blocked int) (reason string)
}

// Done is a call with what came of it.
type Done struct {
	Call   Call
	Output Output
}

// Meter holds the purse. Its methods may be called by several goroutines, and
// one Meter may serve many loops.
type Meter interface {
	// Reserve is asked before every call of a model. An error ends the turn: it
	// is a [*LimitError] where a budget is used up. free gives back what was
	// reserved beyond what was spent, and is called once.
	Reserve(ctx context.Context, model string, maxTokens int) (free func(), err error)
	// Spent is told what a call has cost, also one that was cut.
	Spent(model string, u Usage)
}

// Compaction is how a conversation is made shorter when it fills the window of
// its model: the model sums it up, and goes on from the summary.
type Compaction struct {
	Window int64   // tokens that the model can read; 0: never by itself
	Share  float64 // of the window at which it is done, 0 to 1; 0: 0.8

	// Restore gives what the model must not lose with the conversation, such as
	// the tasks that run. It is put behind the summary. nil: nothing.
	Restore func(ctx context.Context) string
	// Before is told that a compaction begins; trigger is manual, auto or
	// overflow. It may add instructions, and an error prevents one that is not
	// due to an overflow. After is told how it ended. nil: nobody is told.
	Before func(ctx context.Context, trigger, instructions string) (string, error)
	After  func(ctx context.Context, trigger, summary string)
}

// Reminders are what the model is told beside the conversation.
type Reminders interface {
	// Due returns texts that the model has not been told yet. It is asked when
	// something is put into the conversation anyway: at the start of a turn
	// with start set, and behind the results of calls. A text that was taken is
	// not returned again, except after a compaction.
	Due(ctx context.Context, start bool) []string
	// Forgotten says that a compaction has taken away what was told so far.
	Forgotten()
}
