package subagent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/task"
)

// Assembly is an agent that is put together and ready to run.
type Assembly struct {
	Config  agent.Config
	History []agent.Message // of an earlier run
	Close   func() error    // lets go of what the agent holds; nil: nothing

	// Leave gives up the place that the agent and its children have worked in, on
	// every path; see [task.Result]. nil: there is none to give up.
	Leave func(ctx context.Context) *task.Worktree

	// Start is told before the first turn; its text is put before the prompt, in
	// the same message. nil: nobody is told.
	Start func(ctx context.Context) string
	// Turn gives the context of one turn, which is done with when done is called. A
	// turn that ends by it alone was interrupted, and the run goes on with Rest.
	// nil: turns have the context of the run.
	Turn func(ctx context.Context) (turn context.Context, done func())
	// Rest is told of each answer, and of a turn that was interrupted, and waits
	// for more to do. It reports whether there is some, as mail of the
	// conversation; else the run ends with that answer. nil: it ends.
	Rest func(ctx context.Context, loop *agent.Loop, turn agent.TurnResult) (more bool, err error)
	// PassOn reports, after the end of the conversation, whether what the agent has left running goes
	// to its parent; see [task.Result]. nil: it is stopped.
	PassOn func() bool
	// End is told once for a run that got as far as Start, on every path, also
	// where Start or the conversation panicked, and before Close. err is how the
	// run ended, nil for the end of the conversation alone: it is the one
	// boundary that closes what Start has opened. ctx is not that of the run,
	// which may have ended; it ends by itself after 10 s. nil: nobody is told.
	End func(ctx context.Context, res agent.TurnResult, err error)

	// Detach reports whether the run is left to the next host when this one closes. nil: it ends.
	Detach func() bool

	// Cost is what the run has cost so far, in US dollars; known is false if the
	// price of some of it is not. nil: nobody counts.
	Cost func() (usd float64, known bool)
}

// endTimeout is how long End may take: a stop of the task waits for it.
const endTimeout = 10 * time.Second

// errCrashed is what End is told when there is no error to tell.
var errCrashed = errors.New("the agent crashed")

// Assemble puts an agent together for one run of a task.
type Assemble func(ctx context.Context, h task.Host, in Input) (*Assembly, error)

// Driver runs agents as tasks.
type Driver struct {
	kind     task.Kind
	assemble Assemble
	adopts   func(task.Record) bool // nil: no runs of earlier hosts
}

// New makes a driver of agents of kind local_agent.
func New(a Assemble) *Driver { return &Driver{kind: task.LocalAgent, assemble: a} }

// NewAdopting makes a driver of agents that goes on with those runs of earlier hosts for which adopts
// holds. a gets the type, the model and [GoOn] as their input.
func NewAdopting(a Assemble, adopts func(task.Record) bool) *Driver {
	return &Driver{kind: task.LocalAgent, assemble: a, adopts: adopts}
}

// GoOn is the prompt of a run that goes on under another host.
const GoOn = "[Drover was restarted while you waited for the reset of a usage limit. Go on where you were.]"

var _ task.Adopter = (*Driver)(nil)

// Adopts implements [task.Adopter].
func (d *Driver) Adopts(r task.Record) bool { return d.adopts != nil && d.adopts(r) }

// input is what a run was started with.
func (d *Driver) input(h task.Host) (Input, error) {
	if r := h.Record(); len(h.Input()) == 0 && d.Adopts(r) {
		return Input{Type: r.AgentType, Model: r.Model, Prompt: GoOn}, nil
	}
	return decode(h.Input())
}

// Kind is local_agent or in_process_teammate.
func (d *Driver) Kind() task.Kind { return d.kind }

// Check refuses input without a prompt.
func (d *Driver) Check(input json.RawMessage) error {
	_, err := decode(input)
	return err
}

// Run holds one conversation to its end.
func (d *Driver) Run(ctx context.Context, h task.Host) (res task.Result, err error) {
	in, err := d.input(h)
	if err != nil {
		return task.Result{}, err
	}
	a, err := d.assemble(ctx, h, in)
	if err != nil {
		return task.Result{}, &task.FailError{Reason: task.ReasonStart, Err: err}
	}
	if a.Leave != nil {
		defer func() {
			if v := recover(); v != nil { // what a crash has left is left in order too
				stack := debug.Stack()
				_, _ = fmt.Fprintf(h.Output(), "panic: %v\n\n%s", v, stack)
				err = &task.PanicError{Value: v, Stack: stack}
			}
			res.Leave = a.Leave
		}()
	}
	if a.Close != nil {
		defer func() { err = errors.Join(err, a.Close()) }()
	}
	w := NewWatcher(h)
	next := a.Config.On
	a.Config.On = func(e agent.Event) {
		w.On(e)
		if next != nil {
			next(e)
		}
	}
	loop, err := agent.NewLoop(a.Config, a.History)
	if err != nil {
		return task.Result{}, &task.FailError{Reason: task.ReasonStart, Err: err}
	}
	w.Totals, w.Cost = loop.Totals, a.Cost
	start, before := time.Now(), loop.Totals()
	turn, err := converse(within(ctx, h), a, loop, in.Prompt)
	if a.Detach != nil && errors.Is(context.Cause(ctx), task.ErrClosing) && errors.Is(err, task.ErrClosing) && a.Detach() {
		err = task.ErrDetached
	}
	res = task.Result{Text: turn.Text, Usage: Usage(before, loop.Totals(), time.Since(start))}
	res.Usage.CostUSD = w.Spent()
	res.PassOn = a.PassOn != nil && a.PassOn()
	return res, err
}

// converse holds the conversation between Start and End.
func converse(ctx context.Context, a *Assembly, loop *agent.Loop, prompt string) (turn agent.TurnResult, err error) {
	err = errCrashed
	if a.End != nil {
		defer func() { // also while a panic goes by
			last, done := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
			defer done()
			a.End(last, turn, err)
		}()
	}
	var blocks []agent.Block
	if a.Start != nil {
		blocks = append(blocks, agent.TextBlock(a.Start(ctx))) // the loop leaves out a blank text
	}
	blocks = append(blocks, agent.TextBlock(prompt))
	for more := true; more; blocks = nil {
		next, failed := a.turn(ctx, loop, blocks)
		if blocks == nil && errors.Is(failed, agent.ErrNothing) { // somebody else has read it
			failed = nil
		} else {
			turn = next
		}
		if err = Ending(ctx, failed); err != nil {
			break
		}
		if more = wanted(ctx, loop); !more && a.Rest != nil { // else it came behind the last call
			if more, err = a.Rest(ctx, loop, turn); err != nil {
				break
			}
		}
	}
	if last := lastWords(ctx, a, loop, turn); last != "" {
		turn.Text = last
	}
	return turn, err
}

// lastWordsTime is how long an agent whose time is up may take to hand back what
// it has.
const lastWordsTime = time.Minute

// lastWords is what an agent hands back whose time was up within a turn.
func lastWords(ctx context.Context, a *Assembly, loop *agent.Loop, turn agent.TurnResult) string {
	h, ok := Caller(ctx).(task.Overtimer)
	if !ok || !a.Config.HandBack || turn.Reason != "interrupted" || !errors.Is(context.Cause(ctx), task.ErrTimeout) {
		return ""
	}
	over, done := h.Overtime(lastWordsTime)
	defer done()
	res, _ := loop.HandBack(over, "its time is up") // without it the turn has what it had
	return res.Text
}

// turn takes one turn. That it was interrupted is no error where the run can rest.
func (a *Assembly) turn(ctx context.Context, loop *agent.Loop, blocks []agent.Block) (agent.TurnResult, error) {
	if a.Turn == nil {
		return loop.Turn(ctx, blocks...)
	}
	inner, done := a.Turn(ctx)
	defer done()
	res, err := loop.Turn(inner, blocks...)
	if err != nil && a.Rest != nil && inner.Err() != nil && ctx.Err() == nil {
		err = nil
	}
	return res, err
}

// wanted reports whether somebody has written and waits for an answer. The end
// of what the agent has started is no such thing.
func wanted(ctx context.Context, loop *agent.Loop) bool {
	letters, err := loop.Unread(ctx) // what cannot be read stays owed
	return err == nil && slices.ContainsFunc(letters, func(l agent.MailMessage) bool { return l.Origin == MessageOrigin })
}

// MessageOrigin is the [agent.MailMessage] origin of what a person or an agent wrote.
const MessageOrigin = "message"

// Ending classes the error of a turn for the record of a task. Only a turn that came to its end is
// completed; what the model said is never asked.
func Ending(ctx context.Context, err error) error {
	var limit *agent.LimitError
	var stopped *agent.StopError
	var fail *task.FailError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, &stopped):
		return &task.FailError{Reason: task.Reason(stopped.Reason), Err: err}
	case errors.As(err, &limit):
		return &task.FailError{Reason: task.Reason(limit.Limit), Err: err}
	case errors.As(err, &fail): // of a tool, which says more than that there was an error
		return &task.FailError{Reason: fail.Reason, Err: err, Detail: fail.Detail}
	}
	return &task.FailError{Reason: task.ReasonError, Err: err}
}

// Usage is what one run of a conversation has cost, as a record shows it: what
// the conversation has used since before, in took. A run reads all that came
// before it, so the size of its input is that of the whole conversation.
func Usage(before, now agent.Totals, took time.Duration) *task.Usage {
	out := now.Usage.OutputTokens - before.Usage.OutputTokens
	return &task.Usage{
		TotalTokens:  now.Context + out,
		InputTokens:  now.Usage.InputTokens - before.Usage.InputTokens,
		OutputTokens: out,
		CacheRead:    now.Usage.CacheReadTokens - before.Usage.CacheReadTokens,
		CacheWrite:   now.Usage.CacheWriteTokens - before.Usage.CacheWriteTokens,
		ToolUses:     now.ToolUses - before.ToolUses,
		Turns:        now.Turns - before.Turns,
		DurationMS:   took.Milliseconds(),
	}
}

// Watcher turns the events of a conversation into the output and the progress of
// the task that holds it. Its conversation calls it one event at a time.
type Watcher struct {
	// Totals is what the conversation has used so far. It is set before the
	// first turn.
	Totals func() agent.Totals
	// Cost is as that of an [Assembly].
	Cost func() (usd float64, known bool)

	host     task.Host
	out      io.Writer
	progress task.Progress
	midLine  bool
	coming   bool // text of a reply that has not come to its end was written

	reporting map[string]struct{} // IDs of running calls that tell how far they are
	aside     string              // the message that theirs takes the place of
}

// NewWatcher makes a watcher for a running task.
func NewWatcher(h task.Host) *Watcher {
	return &Watcher{host: h, out: h.Output(), reporting: map[string]struct{}{}}
}

// On takes an event in.
func (w *Watcher) On(e agent.Event) {
	switch e.Kind {
	case agent.TurnStartEvent:
		w.coming = false
	case agent.PartEvent:
		w.part(e.Part)
	case agent.BlockEvent:
		if e.Block.Type == "text" && w.midLine {
			w.print("\n")
		}
	case agent.ReplyDoneEvent:
		w.coming = false
		w.progress.TokenCount, w.progress.CostUSD = w.Totals().Tokens(), w.Spent()
		w.host.Progress(w.progress)
	case agent.BlockedEvent:
		w.print("\n[Going on: " + e.Text + "]\n")
	case agent.CompactEvent:
		w.compacted(e)
	case agent.ToolStartEvent:
		w.intend(e.Call)
		if w.midLine {
			w.print("\n")
		}
		w.print(fmt.Sprintf("[%s %s]\n", e.Call.Name, brief(e.Call.Input)))
	case agent.ToolProgressEvent:
		w.reported(e.Call, brief([]byte(e.Text)))
	case agent.ToolDoneEvent:
		w.print("\n[Tool completed]\n" + e.Output.Text + "\n")
		w.unreport(e.Call)
		w.progress = w.progress.Add(task.Activity{ToolName: e.Call.Name, Input: e.Call.Input})
		w.host.Progress(w.progress)
	}
}

// parkedAfter is how long a call of the model waits before the agent counts as parked.
const parkedAfter = 5 * time.Second

// part shows a piece of a reply. What was written of one that has failed stays in
// the file, with a word that it is void.
func (w *Watcher) part(p agent.Part) {
	line := func(text string) {
		if w.midLine {
			w.print("\n")
		}
		w.print("[" + text + "]\n")
	}
	if w.progress.ParkedUntil != nil && p.Kind != agent.RetryPart {
		w.progress.ParkedUntil, w.progress.Message = nil, ""
		w.host.Progress(w.progress)
	}
	switch p.Kind {
	case agent.TextPart:
		w.coming = w.coming || p.Text != ""
		w.print(p.Text)
	case agent.VoidPart:
		if w.coming {
			w.coming = false
			line("The partial answer above is discarded")
		}
	case agent.IntentPart:
		line(p.Text)
		if p.Name != "" {
			w.progress.Message = p.Name
			w.host.Progress(w.progress)
		}
	case agent.FallbackPart:
		line(p.Fallback.String())
		w.progress.Message = p.Fallback.String()
		w.host.Progress(w.progress)
	case agent.RetryPart:
		line(p.Retry.String())
		if p.Retry.After >= parkedAfter {
			until := time.Now().Add(p.Retry.After).UTC()
			w.progress.ParkedUntil, w.progress.Message = &until, p.Retry.String()
			w.host.Progress(w.progress)
		}
	}
}

// Spent is what the run has cost so far, nil where that is not known.
func (w *Watcher) Spent() *float64 {
	if w.Cost == nil {
		return nil
	}
	usd, known := w.Cost()
	if !known {
		return nil
	}
	return &usd
}

// compacted shows that the conversation was summed up, or why it was not.
func (w *Watcher) compacted(e agent.Event) {
	if e.Err != nil {
		w.print("\n[" + e.Err.Error() + "]\n")
		return
	}
	w.print(fmt.Sprintf("\n[The conversation of %d tokens was summed up]\n", e.Compaction.Before))
	w.progress.TokenCount = w.Totals().Tokens()
	w.host.Progress(w.progress)
}

// reported shows how far a call is. Of calls at the same time, the latest word counts.
func (w *Watcher) reported(c agent.Call, text string) {
	if len(w.reporting) == 0 {
		w.aside = w.progress.Message
	}
	w.reporting[c.ID] = struct{}{}
	w.progress.Message = c.Name + ": " + text
	if w.midLine {
		w.print("\n")
	}
	w.print("[" + w.progress.Message + "]\n")
	w.host.Progress(w.progress)
}

// unreport takes the word of a call back that is over. The caller tells the host.
func (w *Watcher) unreport(c agent.Call) {
	if _, told := w.reporting[c.ID]; !told {
		return
	}
	delete(w.reporting, c.ID) // what it said stays until another says something, or all are over
	if len(w.reporting) == 0 {
		w.progress.Message = w.aside
	}
}

// intend shows what the agent says that it is about to do.
func (w *Watcher) intend(c agent.Call) {
	if c.Name != intentTool {
		return
	}
	var in struct {
		Intent string `json:"intent"`
	}
	if json.Unmarshal(c.Input, &in) != nil {
		return
	}
	if text := strings.Join(strings.Fields(in.Intent), " "); text != "" {
		w.progress.Message = brief([]byte(text))
		w.host.Progress(w.progress)
	}
}

// intentTool is the tool by which an agent says what it is about to do.
const intentTool = "report_intent"

// print writes to the output file. What cannot be written is lost there and
// kept by the transcript, which refuses to go on without a place on the disk.
func (w *Watcher) print(text string) {
	if text == "" {
		return
	}
	_, _ = io.WriteString(w.out, text)
	w.midLine = text[len(text)-1] != '\n'
}

// brief is the beginning of a tool's input, for people.
func brief(input json.RawMessage) string {
	const most = 200
	if len(input) <= most {
		return string(input)
	}
	cut := most
	for cut > 0 && input[cut]&0xC0 == 0x80 {
		cut--
	}
	return string(input[:cut]) + "…"
}
