package agent

import (
	"context"
	"time"
)

// Hooks let somebody outside take part in a turn. They bound their own time,
// and their methods are called by one goroutine at a time except Called. One
// that panics has said nothing; the turn says so in its warnings.
type Hooks interface {
	// Called is told of a call that has run, also of one that was interrupted,
	// before its result is recorded, and returns what the model reads instead.
	// EndTurn in it ends the turn as if the tool had said so. Calls that run
	// side by side are told of side by side.
	Called(ctx context.Context, c Call, out Output, took time.Duration) Output
	// Batch is told of all calls of one reply with their final inputs, in order,
	// those that were refused included. What it returns is told to the model
	// with the results. It is not asked once ctx has ended or a tool has failed.
	Batch(ctx context.Context, done []Done) string
	// Stop is asked when the model has nothing more to do. A reason that is not
	// empty is given to the model, and the turn goes on; blocked is how often
	// that has happened in this turn. After 8 times a further reason is not
	// heeded, nor is one when the turn has no replies left; then the turn ends
	// with a warning. It is not asked for a turn that was interrupted, failed,
	// was ended by a tool or the gate, ran into a limit, or whose last reply was
	// a refusal or too long.
	Stop(ctx context.Context, res TurnResult, blocked int) (reason string)
}

// Done is a call with what came of it.
type Done struct {
	Call   Call
	Output Output
}

// Meter limits what a conversation may spend. Its methods may be called by several goroutines, and
// one Meter may serve many loops.
type Meter interface {
	// Reserve is asked before every call of a model, those for summaries and
	// those that are made again included. An error ends the turn: it is a [*LimitError] where a budget is
	// used up. free gives back what was reserved beyond what was spent, and is
	// called once, after Spent; it may be nil. maxTokens is that of
	// [Config.MaxTokens]; 0: the model's usual.
	Reserve(ctx context.Context, model string, maxTokens int) (free func(), err error)
	// Spent is told what a call has cost, also one that was cut. It is not
	// called for one of which no cost is known.
	Spent(model string, u Usage)
}

// LastMeter is a [Meter] that lets a conversation hand back what it has although
// its budget is used up.
type LastMeter interface {
	Meter
	// ReserveLast is Reserve for that one call.
	ReserveLast(ctx context.Context, model string, maxTokens int) (free func(), err error)
}

// Compaction is how a conversation is made shorter when it fills the window of
// its model: the model sums it up, and goes on from the summary.
type Compaction struct {
	Window int64   // tokens that the model can read; 0: unknown, so only after an overflow
	Share  float64 // of the window at which it is done, 0 to 1; 0: 0.8

	// MaxBytes of messages are sent in one request; more is an overflow, and
	// nobody is asked. 0: 32 MiB.
	MaxBytes int

	// Restore gives what the model must not lose with the conversation, such as
	// the tasks that run. It is put behind the summary. nil: nothing.
	Restore func(ctx context.Context) string
	// Before is told that a compaction begins; trigger is manual, auto or
	// overflow. What it returns is added to the instructions, and an error
	// prevents a compaction that is not due to an overflow. After is told the
	// summary of one that was done. nil: nobody is told.
	Before func(ctx context.Context, trigger, instructions string) (string, error)
	After  func(ctx context.Context, trigger, summary string)
}

// Reminders are what the model is told beside the conversation.
type Reminders interface {
	// Due returns texts that the model has not been told yet, as the model is to
	// read them. It is asked when something is put into the conversation anyway:
	// behind the results of calls, and with start set at the start of a turn and
	// behind a summary that was made within one. A text that was taken is not
	// returned again, except after a compaction.
	Due(ctx context.Context, start bool) []string
	// Forgotten says that a compaction has taken away what was told so far.
	Forgotten()
}

// Port is where everything enters a [Loop] that it does not compute itself: answers of models, decisions about
// calls and their results, mail, and the texts of reminders, hooks and compactions. Each method gets the
// function that does the real thing, and returns what the loop goes on with. A program that records
// conversations, or plays recorded ones, gives its own in [Config.Port]. The methods may be called by several
// goroutines.
type Port interface {
	// Reply is one call of a model.
	Reply(ctx context.Context, req *Request, on func(Part), ask func(func(Part)) (*Reply, error)) (*Reply, error)
	// Check is the decision about a call.
	Check(ctx context.Context, c Call, decide func() (Decision, error)) (Decision, error)
	// Run is a call that may run, of the tool with this name. after is [Hooks.Called].
	Run(ctx context.Context, tool string, c Call, run func() (Output, error), after func(Output) Output) (Output, error)
	// Take is a look into the mailbox.
	Take(ctx context.Context, take func() ([]MailMessage, error)) ([]MailMessage, error)
	// Texts are texts that the model reads beside the conversation. what says of which sort they are, such as
	// [StopTexts].
	Texts(ctx context.Context, what string, get func() ([]string, error)) ([]string, error)
}

// The sorts of texts for which a loop asks [Port.Texts].
const (
	ReminderTexts = "reminder" // of [Reminders.Due]
	BatchTexts    = "batch"    // of [Hooks.Batch]
	StopTexts     = "stop"     // of [Hooks.Stop]
	CompactTexts  = "compact"  // of [Compaction.Before]
	RestoreTexts  = "restore"  // of [Compaction.Restore]
)

// Direct is the [Port] that does the real thing.
type Direct struct{}

// Reply implements [Port].
func (Direct) Reply(
	_ context.Context, _ *Request, on func(Part), ask func(func(Part)) (*Reply, error),
) (*Reply, error) {
	return ask(on)
}

// Check implements [Port].
func (Direct) Check(_ context.Context, _ Call, decide func() (Decision, error)) (Decision, error) {
	return decide()
}

// Run implements [Port].
func (Direct) Run(
	_ context.Context, _ string, _ Call, run func() (Output, error), after func(Output) Output,
) (Output, error) {
	out, err := run()
	return after(out), err
}

// Take implements [Port].
func (Direct) Take(_ context.Context, take func() ([]MailMessage, error)) ([]MailMessage, error) {
	return take()
}

// Texts implements [Port].
func (Direct) Texts(_ context.Context, _ string, get func() ([]string, error)) ([]string, error) {
	return get()
}
