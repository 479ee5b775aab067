package agent

import "context"

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
