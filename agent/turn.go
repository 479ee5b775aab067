package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
)

const (
	maxBlocks  = 8 // times in a row that a hook can block the end of a turn
	maxTooLong = 2 // replies in a row that were cut for length within a call

	nudge = "Your last answer was empty. Go on with the work, or say in words that it is done."
)

// Prompt starts a turn. The zero Prompt lets mail alone start it.
type Prompt struct {
	Seq    int64   // of the message by which it came; 0: by none
	Before []Block // that the model reads first, and the user has not written
	Blocks []Block

	// User says that a person has written the blocks: the conversation can go back to the point
	// before them, see [ForkTranscriptBefore]. Typed is the text that they typed, where the
	// blocks say something else.
	User  bool
	Typed string
}

// TurnResult is the outcome of a turn, also of a turn that ended with an error.
type TurnResult struct {
	Text       string // of the last reply
	StopReason string // of the last reply
	// Reason is why the turn ended: the stop reason of the last reply, also with a
	// [*StopError], tool_end where a tool ended it, gate_end where the gate did, the
	// limit of a [*LimitError], interrupted, or error.
	Reason   string
	Turns    int   // replies
	ToolUses int   // calls in them
	Usage    Usage // summed over them, and over summaries
	Context  int64 // as in [Totals]
	Denials  []Denial
	Warnings []string // that the user should read although the turn went on
	Duration time.Duration

	Structured json.RawMessage // the answer, where it had to be a value of a schema; Text is its JSON; nil: none
}

// Denial is a call that the [Gate] refused.
type Denial struct {
	ToolUseID string          `json:"tool_use_id"`
	Name      string          `json:"tool_name"`
	Input     json.RawMessage `json:"tool_input"`
	Reason    string          `json:"reason"`
	Suggest   string          `json:"suggest,omitempty"` // the rule that would have allowed it
}

// StructuredLimit is the limit of an agent that had to answer with a value of a schema, and
// did not in as many tries as it has.
const StructuredLimit = "structured_output_retries"

// LimitError says that a limit of the loop ended a turn. The work until then is recorded, and
// the next turn can continue from there.
type LimitError struct {
	Limit string // max_turns, same_call, max_tokens, [StructuredLimit], or a limit of a [Meter]
	N     int
	Text  string // instead of ours
}

func (e *LimitError) Error() string {
	switch {
	case e.Text != "":
		return e.Text
	case e.Limit == "same_call":
		return fmt.Sprintf("the model made the same calls with the same results %d times in a row", e.N)
	case e.Limit == "max_tokens":
		return fmt.Sprintf("%d answers in a row were longer than an answer may be, and stopped in a call of a tool", e.N)
	}
	return fmt.Sprintf("the limit of %d turns was reached", e.N)
}

// Turn runs a turn for a prompt that came by no message; see [Loop.Answer].
func (l *Loop) Turn(ctx context.Context, prompt ...Block) (TurnResult, error) {
	return l.Answer(ctx, Prompt{Blocks: prompt})
}

// Answer runs one turn: it gives the model the undelivered mail and the prompt, and continues
// until the model calls no more tools, a limit is reached, or ctx ends. It returns when none of
// its tools runs any more. Without a prompt the mail alone starts the turn; with neither it
// returns [ErrNothing], unless the conversation waits for the model anyway.
//
// The transcript keeps the number of a prompt that came by mail, and acknowledges it like other
// mail; [Mail.Take] must not return it meanwhile. Mail that comes after the last call is left to
// the caller.
//
// When ctx ends, the text so far is kept and the error wraps the cause of ctx. Other errors are
// those of the model unchanged, a [*StopError], a [*LimitError], or a failure to keep the
// transcript, to acknowledge mail, or of a tool. A reply that failed is void: its cost is
// counted, and its text is not kept.
func (l *Loop) Answer(ctx context.Context, p Prompt) (TurnResult, error) {
	return l.turn(ctx, p, func(t *turn) error {
		err := t.run(ctx)
		if l.cfg.HandBack && handsBack(err) {
			t.handBack(ctx, err.Error())
		}
		return err
	})
}

// turn runs one turn between its first event and its last.
func (l *Loop) turn(ctx context.Context, p Prompt, run func(*turn) error) (TurnResult, error) {
	if !l.busy.TryLock() {
		return TurnResult{}, ErrBusy
	}
	defer l.busy.Unlock()
	defer l.around.end()
	start := time.Now()
	t := &turn{Loop: l, prompt: p}
	l.emit(Event{Kind: TurnStartEvent})
	err := run(t)
	t.res.Duration = time.Since(start)
	limit, stopped := (*LimitError)(nil), (*StopError)(nil)
	switch {
	case err == nil:
	case errors.As(err, &limit):
		t.res.Reason = limit.Limit
	case errors.As(err, &stopped):
		t.res.Reason = stopped.Reason
	case ctx.Err() != nil:
		t.res.Reason = "interrupted"
	default:
		t.res.Reason = "error"
	}
	l.emit(Event{Kind: TurnDoneEvent, Result: &t.res, Err: err})
	return t.res, err
}

// turn is one turn while it runs.
type turn struct {
	*Loop
	prompt Prompt
	before int        // blocks of prompt.Before that are not empty
	res    TurnResult // Warnings are guarded by mu

	asides   []string // for the model, after the results of this reply
	gateEnds bool     // the gate ends the turn after the calls of this reply

	nudged    bool   // the model was asked to continue after an empty reply
	blocked   int    // times that a hook has blocked the end
	tooLong   int    // replies in a row that were cut for length within a call
	circle    circle // of calls
	overflow  bool   // the conversation was summed up because it did not fit
	cramped   bool   // it could not be summed up, and this turn does not try again
	last      bool   // the next reply is the last, and none of its calls is run
	fallbacks int    // models of [Config.Fallback] that the turn has taken
}

// run is a turn: what the model is to read is recorded, then the model replies, and its calls
// run, until a reply ends the turn.
func (t *turn) run(ctx context.Context) error {
	if err := t.begin(ctx); err != nil {
		return err
	}
	for over := false; !over; {
		reply, calls, err := t.fittingReply(ctx)
		if err != nil {
			return err
		}
		if len(calls) > 0 {
			over, err = t.act(ctx, reply, calls)
		} else {
			over, err = t.finish(ctx, reply)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// begin records the mail and the prompt that the model is to answer.
func (t *turn) begin(ctx context.Context) error {
	if ctx.Err() != nil {
		return interrupted(ctx)
	}
	prompt, err := t.checkPrompt()
	if err != nil {
		return fmt.Errorf("prompt: %w", err)
	}
	t.around.step.Lock()
	defer t.around.step.Unlock()
	mail, err := t.takeMail(ctx)
	if err != nil {
		return err
	}
	t.around.begun = true
	if len(mail)+len(prompt)+len(t.unrecorded) == 0 {
		if m := t.Messages(); len(m) > 0 && m[len(m)-1].role == User {
			return nil
		}
		return ErrNothing
	}
	t.remind(ctx, true)
	return t.record(ctx, mail, nil, prompt)
}

// checkPrompt returns the blocks of the prompt that are not empty.
func (t *turn) checkPrompt() ([]Block, error) {
	all := slices.Concat(t.prompt.Before, t.prompt.Blocks)
	kept := make([]Block, 0, len(all))
	for i, b := range all {
		if i == len(t.prompt.Before) {
			t.before = len(kept)
		}
		switch {
		case b.Type == "text":
			if strings.TrimSpace(b.Text) != "" {
				kept = append(kept, TextBlock(b.Text))
			}
		case b.Type == "image" && isObject(b.Source):
			kept = append(kept, Block{Type: "image", Source: b.Source})
		default:
			return nil, fmt.Errorf("a block of type %q cannot be sent", b.Type)
		}
	}
	if size := len(NewMessage(User, kept...).raw); size > maxPromptBytes {
		return nil, fmt.Errorf("it has %d bytes, and may have %d: send less at once", size, maxPromptBytes)
	}
	return kept, nil
}

// fittingReply asks the model for a reply, and sums the conversation up where it is too long.
func (t *turn) fittingReply(ctx context.Context) (*Reply, []pending, error) {
	for {
		if err := t.makeRoom(ctx); err != nil {
			return nil, nil, err
		}
		reply, calls, err := t.reply(ctx)
		if !overflown(err) || t.cfg.Compaction == nil {
			return reply, calls, err
		}
		if err := t.shrink(ctx, err); err != nil {
			return nil, nil, err
		}
	}
}

// reply asks the model and records its answer.
func (t *turn) reply(ctx context.Context) (*Reply, []pending, error) {
	if ctx.Err() != nil {
		return nil, nil, interrupted(ctx)
	}
	purpose := ""
	if t.last {
		purpose = handBackPurpose
	}
	var text partial
	ownCalls := 0 // that the model's side has made and run itself
	reply, err := t.ask(ctx, t.Messages(), purpose, func(p Part) {
		text.take(p)
		switch p.Kind {
		case CallPart:
			ownCalls++
			t.emit(Event{Kind: ToolStartEvent, Call: p.Call})
		case ResultPart:
			t.emit(Event{Kind: ToolDoneEvent, Call: p.Call, Output: p.Output})
		default:
			t.emit(Event{Kind: PartEvent, Part: p})
		}
	})
	refused := (*refusedError)(nil)
	if errors.As(err, &refused) {
		return nil, nil, refused.err
	}
	if err != nil {
		return nil, nil, t.keepInterrupted(ctx, &text, err)
	}
	text = partial{} // the reply has it
	if t.last {
		reply.Blocks = slices.DeleteFunc(slices.Clone(reply.Blocks), func(b Block) bool { return b.Type == "tool_use" })
	}
	calls := accept(reply, t.ids, t.tools)
	if reply.ID == "" {
		reply.ID = "msg_" + uuid.NewString()
	}
	t.res.Text, t.res.StopReason = spoken(reply.Blocks), reply.StopReason
	m := NewMessage(Assistant, reply.Blocks...)
	if len(m.raw) > maxMessageBytes {
		return nil, nil, t.keepTooLarge(reply, len(m.raw))
	}
	err = t.keep(Record{
		Message: m, Usage: &reply.Usage, ToolUses: len(calls) + ownCalls,
		ReplyID: reply.ID, Model: reply.Model, StopReason: reply.StopReason,
	})
	if err != nil {
		return nil, nil, err
	}
	if t.fresh {
		t.fresh, t.base = false, t.Totals().Context
	}
	for _, b := range reply.Blocks {
		t.emit(Event{Kind: BlockEvent, Block: b, ReplyID: reply.ID, Model: reply.Model, Usage: reply.Usage})
	}
	t.emit(Event{Kind: ReplyDoneEvent, Reply: reply})
	return reply, calls, nil
}

// keepInterrupted returns why the turn ends after a reply that did not come to its end. The text
// of a reply that the user has read and broken off is kept.
func (t *turn) keepInterrupted(ctx context.Context, text *partial, err error) error {
	if ctx.Err() == nil {
		return err
	}
	why := interrupted(ctx)
	u := cost(ctx, nil, err)
	r := Record{Cut: true, Usage: &u}
	blocks := text.blocks(err, interruptedMark)
	if len(blocks) == 0 && u == (Usage{}) {
		return why
	}
	if len(blocks) > 0 {
		short, _ := fitting(blocks, maxMessageBytes)
		r.Message = NewMessage(Assistant, short...)
		t.res.Text, t.res.StopReason = spoken(blocks[:len(blocks)-1]), ""
	}
	if kept := t.keep(r); kept != nil {
		return errors.Join(why, kept)
	}
	return why
}

// act runs the calls of a reply and records their results, with the mail that has come
// meanwhile. It reports whether the turn is over.
func (t *turn) act(ctx context.Context, reply *Reply, calls []pending) (over bool, err error) {
	t.asides, t.gateEnds = nil, false
	all, toolEnds, err := t.runCalls(ctx, calls)
	t.unrecorded = t.results(ctx, all, err == nil)
	if err == nil {
		over, err = t.endsAfter(ctx, reply, toolEnds)
	} else if ctx.Err() != nil {
		err = interrupted(ctx)
	}
	// Mail is taken only where the model reads on at once: it would be acknowledged, and
	// nothing would wake the model for it.
	t.around.step.Lock()
	defer t.around.step.Unlock()
	var mail []MailMessage
	if !over && err == nil {
		mail, err = t.takeMail(ctx)
		t.remind(ctx, false)
	}
	if kept := t.record(ctx, mail, nil, nil); kept != nil {
		return true, errors.Join(err, kept)
	}
	return over, err
}

// results are the blocks that answer the calls of a reply: each result, then the texts for the
// model. ok is false if the runtime has failed.
func (t *turn) results(ctx context.Context, all []decided, ok bool) (blocks []Block) {
	done := make([]Done, len(all))
	for i, d := range all {
		done[i] = Done{d.call.Call, d.out}
		blocks = append(blocks, resultBlock(d.call.ID, t.visible(d.out)))
		t.circle.add(t.seed, done[i], d.took)
	}
	if t.cfg.Hooks != nil && ctx.Err() == nil && ok {
		said, _ := t.outside(ctx, "the hook after the calls of a reply", BatchTexts, func() ([]string, error) {
			return []string{t.cfg.Hooks.Batch(ctx, done)}, nil
		})
		t.asides = append(t.asides, said...)
	}
	t.asides = append(t.asides, t.circle.reminder())
	return append(blocks, texts(t.asides...)...)
}

// visible is a result without images that the model does not see.
func (t *turn) visible(out Output) Output {
	if len(out.Images) > 0 && t.cfg.Sees != nil && !t.cfg.Sees(t.ModelSettings().Name) {
		out.Text += fmt.Sprintf("\n[%d images are left out: this model does not see images]", len(out.Images))
		out.Images = nil
	}
	return out
}

// endsAfter reports whether the turn ends after the calls of a reply, and the error with which it
// ends early.
func (t *turn) endsAfter(ctx context.Context, reply *Reply, toolEnds bool) (bool, error) {
	if t.tooLong++; whole(reply.StopReason) {
		t.tooLong = 0
	}
	switch {
	case ctx.Err() != nil:
		return true, interrupted(ctx)
	case toolEnds:
		t.res.Reason = "tool_end"
		return true, nil
	case t.gateEnds:
		t.res.Reason = "gate_end"
		return true, nil
	case reply.StopReason == "refusal":
		return true, &StopError{reply.StopReason}
	case t.circle.closed():
		return true, &LimitError{Limit: "same_call", N: maxSameCalls}
	case t.tooLong >= maxTooLong:
		return true, &LimitError{Limit: "max_tokens", N: maxTooLong}
	}
	return false, t.turnsLeft()
}

// turnsLeft is an error if the turn has used up its replies.
func (t *turn) turnsLeft() error {
	if t.res.Turns >= t.cfg.MaxTurns {
		return &LimitError{Limit: "max_turns", N: t.cfg.MaxTurns}
	}
	return nil
}

// finish ends the turn after a reply without calls, unless the model is to be asked again.
func (t *turn) finish(ctx context.Context, reply *Reply) (over bool, err error) {
	t.res.Reason = reply.StopReason
	switch {
	case reply.StopReason == "pause_turn": // the model asks to be called again
	case !whole(reply.StopReason):
		return true, &StopError{reply.StopReason}
	case t.res.Text == "" && !t.nudged && t.res.Turns < t.cfg.MaxTurns:
		t.nudged = true
		err = t.record(ctx, nil, []Block{TextBlock(nudge)}, nil)
	default:
		var blocked bool
		if blocked, err = t.block(ctx); !blocked {
			return true, err
		}
	}
	if err != nil {
		return true, err
	}
	return false, t.turnsLeft()
}

// block asks the hook whether the turn may end, and reports whether it blocks the end.
func (t *turn) block(ctx context.Context) (bool, error) {
	if t.cfg.Hooks == nil || ctx.Err() != nil {
		return false, nil
	}
	said, _ := t.outside(ctx, "the hook at the end of a turn", StopTexts, func() ([]string, error) {
		return []string{t.cfg.Hooks.Stop(ctx, t.res, t.blocked)}, nil
	})
	reason := strings.Join(said, "\n")
	const ended = "the turn ended although a hook wanted it to go on: "
	switch {
	case strings.TrimSpace(reason) == "" || ctx.Err() != nil:
		return false, nil
	case t.blocked == maxBlocks:
		t.warn(fmt.Sprintf(ended+"it had blocked the end %d times in a row", maxBlocks))
		return false, nil
	case t.res.Turns >= t.cfg.MaxTurns:
		t.warn(fmt.Sprintf(ended+"the limit of %d turns was reached", t.cfg.MaxTurns))
		return false, nil
	}
	t.blocked++
	if err := t.record(ctx, nil, texts(reason), nil); err != nil {
		return false, err
	}
	t.emit(Event{Kind: BlockedEvent, Blocked: t.blocked, Text: reason})
	return true, nil
}

// outside asks for texts from outside of the loop. A source that panics has said nothing.
func (t *turn) outside(ctx context.Context, who, what string, get func() ([]string, error)) (said []string, err error) {
	t.guard(who, func() { said, err = t.cfg.Port.Texts(ctx, what, get) })
	return said, err
}

// remind adds the reminders that are due to the next message. They stay unrecorded until it is
// kept.
func (t *turn) remind(ctx context.Context, start bool) {
	if source := t.around.source(); source != nil {
		t.unrecorded = append(t.unrecorded, texts(t.due(ctx, source, start)...)...)
	}
}

// due returns the reminders for the model.
func (t *turn) due(ctx context.Context, source Reminders, start bool) []string {
	said, _ := t.outside(ctx, "the source of reminders", ReminderTexts, func() ([]string, error) {
		return source.Due(ctx, start), nil
	})
	return said
}

// texts are blocks of those texts that are not empty.
func texts(all ...string) []Block {
	var blocks []Block
	for _, text := range all {
		if strings.TrimSpace(text) != "" {
			blocks = append(blocks, TextBlock(bounded(text)))
		}
	}
	return blocks
}

func interrupted(ctx context.Context) error {
	return fmt.Errorf("turn interrupted: %w", context.Cause(ctx))
}
