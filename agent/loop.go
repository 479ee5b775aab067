package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"time"
)

// DefaultMaxTurns is [Config.MaxTurns] where that is 0.
const DefaultMaxTurns = 50

const (
	maxBlocks  = 8 // of the end of a turn, in a row
	maxTooLong = 2 // replies, in a row, that were stopped for length within a call

	ackTimeout = 10 * time.Second

	nudge = "Your last answer was empty. Go on with the work, or say in words that it is done."
)

var (
	// ErrBusy says that a turn of this loop is running.
	ErrBusy = errors.New("a turn is already running")
	// ErrNothing says that there was neither prompt nor mail to answer.
	ErrNothing = errors.New("there is no prompt and no mail to answer")
)

// Config is what a [Loop] is made of. Model is required; the zero values of all
// others work.
type Config struct {
	Model      Model // the first one; see [Loop.SetModel]
	ModelName  string
	Thinking   Thinking
	System     string
	Tools      []Tool
	Deferred   []string    // names of Tools that requests leave out: others of Tools find and call them, see [Forwarder]
	Gate       Gate        // nil: every call is allowed
	Mail       Mail        // nil: none
	Hooks      Hooks       // nil: none
	Meter      Meter       // nil: nothing is counted
	Port       Port        // nil: [Direct]
	Reminders  Reminders   // nil: none
	Compaction *Compaction // nil: only by [Loop.Compact]
	Clearing   *Clearing   // of old results; nil: none
	Transcript *Transcript // nil: the conversation is in memory only
	MaxTurns   int         // replies in one turn; 0: 50
	MaxTokens  int         // of one reply; 0: the model's usual

	// Fallback are the models that answer for the rest of a turn, in this order, when the
	// model is overloaded or cannot be reached and the one before has failed as well. Their
	// Thinking does not count.
	Fallback []ModelSettings

	// SharedHead says that other agents have the same System and Tools, so that a provider keeps
	// them for long. Waits reports whether the request after the next may be long in coming; nil:
	// it never is. See [Retain].
	SharedHead bool
	Waits      func() bool

	// HandBack gives a turn that runs into MaxTurns or the limit of the Meter one
	// more reply, for what the model has; see [Loop.HandBack]. The turn ends with
	// the error of the limit all the same.
	HandBack bool

	// Sees reports whether a model sees images; those in results are left out for one that
	// does not. nil: all do.
	Sees func(model string) bool

	// Who speaks, as the model is told.
	Agent, AgentID, SessionID string

	// WaitWhilePaused is asked before each call of the model and of a tool, and returns when
	// it may be made; an error ends the turn. It may be called by several
	// goroutines. nil: nothing is held back.
	WaitWhilePaused func(ctx context.Context) error

	// On is told what happens, one event at a time, on goroutines of the turn.
	// It must not call the loop. nil: nobody listens.
	On func(Event)
}

// Loop is one conversation. Turn is called by one goroutine at a time; the
// other methods by any.
type Loop struct {
	cfg   Config // its surroundings only as they were at first
	tools *toolbox
	seed  maphash.Seed
	busy  sync.Mutex // held by Turn

	listen sync.Mutex  // serialises on
	on     func(Event) // guarded by listen

	around surroundings // see [Loop.MoveTurn]

	// Guarded by busy.
	ids  map[string]struct{} // of all calls in messages
	told map[int64]struct{}  // mail messages in messages, without a transcript
	// results, and what stands behind them, that are not recorded yet; the next message begins with them
	owed []Block

	aged  aged  // how far old results are cleared
	fresh bool  // no reply has come since a compaction
	base  int64 // Context of the first reply after it

	mu       sync.Mutex
	messages []Message     // guarded by mu; only ever appended to, or replaced by a summary
	size     int           // guarded by mu; bytes of them
	model    ModelSettings // guarded by mu
	totals   Totals        // guarded by mu
}

// TurnResult is what came of a turn, also of one that ended with an error.
type TurnResult struct {
	Text       string // of the last reply
	StopReason string // of the last reply
	// Reason is why the turn ended: the stop reason of the last reply, also as
	// that of a [*StopError], tool_end where a tool ended it, gate_end where the
	// gate did, the limit of a [*LimitError], interrupted, or error.
	Reason   string
	Turns    int   // replies
	ToolUses int   // calls in them
	Usage    Usage // summed over them, and over summaries
	Context  int64 // as in [Totals]
	Denials  []Denial
	Warnings []string // what the user should know although the turn went on
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

// LimitError says that a turn was ended by a limit of the loop. What was done
// until then is recorded, and the next turn may go on from there.
type LimitError struct {
	Limit string // max_turns, same_call, max_tokens, [StructuredLimit], or what a [Meter] says
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

// NewLoop makes a loop that goes on from history. A history that no model would accept is
// repaired: a call without a result gets one that says so, a result without a call goes,
// and IDs are made unique. It does no I/O. Its totals begin with those of the transcript.
func NewLoop(cfg Config, history []Message) (*Loop, error) {
	if cfg.Model == nil {
		return nil, errors.New("new loop: no model")
	}
	if cfg.MaxTurns < 0 || cfg.MaxTokens < 0 {
		return nil, errors.New("new loop: a limit is negative")
	}
	if cfg.MaxTurns == 0 {
		cfg.MaxTurns = DefaultMaxTurns
	}
	if cfg.Port == nil {
		cfg.Port = Direct{}
	}
	tools, err := newToolbox(cfg.Tools, cfg.Deferred)
	if err != nil {
		return nil, fmt.Errorf("new loop: %w", err)
	}
	messages, added, ids, err := repair(history)
	if err != nil {
		return nil, fmt.Errorf("new loop: %w", err)
	}
	l := &Loop{
		cfg: cfg, tools: tools, seed: maphash.MakeSeed(),
		ids: ids, told: map[int64]struct{}{}, messages: slices.Clip(messages), on: cfg.On,
		around: surroundings{transcript: cfg.Transcript, mail: cfg.Mail, reminders: cfg.Reminders,
			agentID: cfg.AgentID},
		model: ModelSettings{Model: cfg.Model, Name: cfg.ModelName, Thinking: cfg.Thinking},
	}
	if cfg.Compaction != nil {
		l.model.Window = cfg.Compaction.Window
	}
	l.size = bytesOf(l.messages)
	// Results for the last message's calls wait for the next turn, which writes
	// them. Repairs in the middle are made anew at each opening: a file that is
	// only appended to has no place for them.
	if n := len(messages); n > len(history) && len(added) > 0 && messages[n-1].role == User {
		if l.owed, err = messages[n-1].Blocks(); err != nil {
			return nil, fmt.Errorf("new loop: %w", err)
		}
		l.messages = slices.Clip(messages[:n-1])
	}
	if cfg.Transcript != nil {
		l.totals = cfg.Transcript.Totals()
	}
	return l, nil
}

// Messages is the conversation so far. The caller must not change it.
func (l *Loop) Messages() []Message {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clip(l.messages)
}

// Totals is what the conversation has used so far, earlier runs included.
func (l *Loop) Totals() Totals {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.totals
}

// Turn gives the model the mail that is owed and the prompt, and goes on until
// the model has nothing more to call, a limit is reached, or ctx ends. It
// returns when no tool of it runs any more. Without a prompt the mail alone
// starts the turn; with neither it returns [ErrNothing], unless the
// conversation waits for the model anyway.
//
// Mail that comes after the last call is left to the caller. When ctx ends, what
// was said is kept and the error wraps the cause of ctx. Other errors are those
// of the model as they are, a [*StopError], a [*LimitError], or a failure to keep
// the transcript, to acknowledge mail, or of a tool. What had come of a reply that
// failed is void: it is counted, and not kept.
func (l *Loop) Turn(ctx context.Context, prompt ...Block) (TurnResult, error) {
	return l.Answer(ctx, 0, prompt...)
}

// Answer is [Loop.Turn] for a prompt that came by mail: the transcript keeps the
// number seq of its message with it, and acknowledges it like other mail. [Mail.Take] must
// not return it meanwhile. The number 0 means that the prompt did not come by mail.
func (l *Loop) Answer(ctx context.Context, seq int64, prompt ...Block) (TurnResult, error) {
	return l.AnswerPrompt(ctx, Prompt{Seq: seq, Blocks: prompt})
}

// Prompt is what a turn answers.
type Prompt struct {
	Seq    int64   // of the message by which it came; 0: by none
	Before []Block // that the model reads first, and the user has not written
	Blocks []Block

	// User says that a person has written the blocks: the conversation can go back to
	// where it stood before them, see [ForkTranscriptBefore]. Typed is what they have
	// written, where the blocks say something else.
	User  bool
	Typed string
}

// AnswerPrompt is [Loop.Answer] with all that is known of a prompt.
func (l *Loop) AnswerPrompt(ctx context.Context, p Prompt) (TurnResult, error) {
	if !l.busy.TryLock() {
		return TurnResult{}, ErrBusy
	}
	defer l.busy.Unlock()
	return l.turn(ctx, func(t *turn) error {
		t.prompt = p
		err := t.run(ctx, slices.Concat(p.Before, p.Blocks))
		if l.cfg.HandBack && handsBack(err) {
			t.handBack(ctx, err.Error())
		}
		return err
	})
}

// turn runs one turn between its first event and its last. The caller holds
// busy.
func (l *Loop) turn(ctx context.Context, run func(*turn) error) (TurnResult, error) {
	start := time.Now()
	t := &turn{Loop: l}
	defer l.around.end()
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

// turn is one call of Turn.
type turn struct {
	*Loop
	res      TurnResult // Warnings are guarded by mu
	asides   []string   // for the model, behind the results of this reply
	halt     bool       // the gate wants the turn to end
	nudged   bool
	blocked  int    // how often the end was blocked
	tooLong  int    // replies, in a row, that were stopped for length within a call
	circle   circle // of calls
	overflow bool   // the conversation was summed up since it did not fit
	cramped  bool   // it could not be summed up, and is not tried again
	last     bool   // the next reply is the last, and nothing that it calls is run
	prompt   Prompt // that the turn answers
	fallen   int    // how many of the models in whose place others answer have failed
	before   int    // blocks of it that the user has not written and are not empty
}

func (t *turn) run(ctx context.Context, prompt []Block) error {
	if err := t.begin(ctx, prompt); err != nil {
		return err
	}
	for {
		if err := t.makeRoom(ctx); err != nil {
			return err
		}
		reply, calls, err := t.reply(ctx)
		if overflown(err) && t.cfg.Compaction != nil {
			if err := t.shrink(ctx, err); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		if t.fresh {
			t.fresh, t.base = false, t.Totals().Context
		}
		if len(calls) > 0 {
			if done, err := t.act(ctx, reply, calls); done || err != nil {
				return err
			}
			continue
		}
		t.res.Reason = reply.StopReason
		if again, err := t.goOn(ctx, reply); !again || err != nil {
			return err
		}
		if t.res.Turns >= t.cfg.MaxTurns {
			return &LimitError{Limit: "max_turns", N: t.cfg.MaxTurns}
		}
	}
}

// goOn says whether the model is to be asked again after a reply without calls.
func (t *turn) goOn(ctx context.Context, reply *Reply) (bool, error) {
	switch {
	case reply.StopReason == "pause_turn": // the model asks to be called again
		return true, nil
	case !whole(reply.StopReason):
		return false, &StopError{reply.StopReason}
	case t.res.Text == "" && !t.nudged && t.res.Turns < t.cfg.MaxTurns:
		t.nudged = true
		return true, t.record(ctx, nil, []Block{TextBlock(nudge)}, nil)
	}
	return t.block(ctx)
}

// block asks whether the turn may end.
func (t *turn) block(ctx context.Context) (bool, error) {
	if t.cfg.Hooks == nil || ctx.Err() != nil {
		return false, nil
	}
	said, _ := t.outside(ctx, "the hook at the end of a turn", StopTexts, func() ([]string, error) {
		return []string{t.cfg.Hooks.Stop(ctx, t.res, t.blocked)}, nil
	})
	reason := strings.Join(said, "\n")
	switch {
	case strings.TrimSpace(reason) == "" || ctx.Err() != nil:
		return false, nil
	case t.blocked == maxBlocks:
		t.warn(
			fmt.Sprintf(
				"the turn ended although a hook wanted it to go on: it had blocked the end %d times in a row",
				maxBlocks,
			),
		)
		return false, nil
	case t.res.Turns >= t.cfg.MaxTurns:
		t.warn(
			fmt.Sprintf("the turn ended although a hook wanted it to go on: the limit of %d turns was reached", t.cfg.MaxTurns),
		)
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
func (t *turn) outside(
	ctx context.Context, who, what string, get func() ([]string, error),
) (said []string, err error) {
	t.guard(who, func() { said, err = t.cfg.Port.Texts(ctx, what, get) })
	return said, err
}

// due returns what the model is to be reminded of now.
func (t *turn) due(ctx context.Context, source Reminders, start bool) []string {
	said, _ := t.outside(ctx, "the source of reminders", ReminderTexts, func() ([]string, error) {
		return source.Due(ctx, start), nil
	})
	return said
}

// aside keeps a text for the model that goes behind the results.
func (t *turn) aside(text string) { t.asides = append(t.asides, text) }

// texts are blocks of those texts that say something.
func texts(all ...string) []Block {
	var blocks []Block
	for _, text := range all {
		if strings.TrimSpace(text) != "" {
			blocks = append(blocks, TextBlock(bounded(text)))
		}
	}
	return blocks
}

// remind makes what the model is to be reminded of part of the next message. It
// stays owed until that is kept.
func (t *turn) remind(ctx context.Context, start bool) {
	due := t.around.source()
	if due == nil {
		return
	}
	t.owed = append(t.owed, texts(t.due(ctx, due, start)...)...)
}

// begin records what the model is to answer.
func (t *turn) begin(ctx context.Context, prompt []Block) error {
	if ctx.Err() != nil {
		return interrupted(ctx)
	}
	kept := make([]Block, 0, len(prompt))
	for i, b := range prompt {
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
			return fmt.Errorf("prompt: a block of type %q cannot be sent", b.Type)
		}
	}
	if size := len(NewMessage(User, kept...).raw); size > maxPromptBytes {
		return fmt.Errorf("prompt: it has %d bytes, and may have %d: send less at once", size, maxPromptBytes)
	}
	t.around.step.Lock()
	defer t.around.step.Unlock()
	letters, err := t.takeMail(ctx)
	if err != nil {
		return err
	}
	t.around.begun = true
	if len(letters)+len(kept)+len(t.owed) == 0 {
		if m := t.Messages(); len(m) > 0 && m[len(m)-1].role == User {
			return nil
		}
		return ErrNothing
	}
	t.remind(ctx, true)
	return t.record(ctx, letters, nil, kept)
}

// reply asks the model and records its answer.
func (t *turn) reply(ctx context.Context) (*Reply, []pending, error) {
	if ctx.Err() != nil {
		return nil, nil, interrupted(ctx)
	}
	var so partial
	purpose := ""
	if t.last {
		purpose = handBackPurpose
	}
	own := 0 // calls that who answers has made by itself
	reply, err := t.ask(ctx, t.Messages(), purpose, func(p Part) {
		so.take(p)
		switch p.Kind {
		case CallPart:
			own++
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
		return nil, nil, t.lost(ctx, &so, err)
	}
	so = partial{} // the reply has it
	if t.last {
		reply.Blocks = slices.DeleteFunc(slices.Clone(reply.Blocks), func(b Block) bool { return b.Type == "tool_use" })
	}
	calls := accept(reply, t.ids, t.tools)
	if reply.ID == "" {
		reply.ID = "msg_" + newUUID()
	}
	t.res.Text, t.res.StopReason = spoken(reply.Blocks), reply.StopReason
	m := NewMessage(Assistant, reply.Blocks...)
	if len(m.raw) > maxMessageBytes {
		return nil, nil, t.keepTooLarge(reply, len(m.raw))
	}
	err = t.keep(Record{
		Message: m, Usage: &reply.Usage, ToolUses: len(calls) + own,
		ReplyID: reply.ID, Model: reply.Model, StopReason: reply.StopReason,
	})
	if err != nil {
		return nil, nil, err
	}
	for _, b := range reply.Blocks {
		t.emit(Event{Kind: BlockEvent, Block: b, ReplyID: reply.ID, Model: reply.Model, Usage: reply.Usage})
	}
	t.emit(Event{Kind: ReplyDoneEvent, Reply: reply})
	return reply, calls, nil
}

// refusedError is a call of a model that the meter did not allow.
type refusedError struct{ err error }

func (e *refusedError) Error() string { return e.err.Error() }
func (e *refusedError) Unwrap() error { return e.err }

// askOne calls a model once, and counts what is void of its answers. Its error is
// a [*refusedError] if it was not called.
func (t *turn) askOne(
	ctx context.Context, m ModelSettings, messages []Message, purpose string, on func(Part),
) (*Reply, error) {
	if err := t.hold(ctx); err != nil {
		return nil, &refusedError{err}
	}
	free, err := t.reserve(ctx, m.Name)
	if err != nil {
		return nil, err
	}
	defer func() { free() }()
	call, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	var unkept, refused error
	hear := func(p Part) {
		if p.Kind == VoidPart && p.Usage != (Usage{}) {
			t.spent(m.Name, p.Usage)
			unkept = errors.Join(unkept, t.keep(Record{Usage: &p.Usage, Aside: true}))
		}
		on(p)
		if p.Kind == RetryPart && p.Retry.Attempt > 0 { // it costs as much as a call of its own
			free()
			if free, refused = t.reserve(ctx, m.Name); refused != nil {
				giveUp(refused)
			}
		}
	}
	req := &Request{
		Agent: t.cfg.Agent, AgentID: t.around.speaker(), SessionID: t.cfg.SessionID, Purpose: purpose,
		Model: m.Name, Thinking: m.Thinking, System: t.cfg.System, MaxTokens: t.cfg.MaxTokens,
		Tools: t.tools.specs, Messages: messages, Retain: t.retain(),
	}
	reply, err := t.cfg.Port.Reply(call, req, hear, func(on func(Part)) (*Reply, error) {
		return m.Model.Reply(call, req, on)
	})
	if refused != nil {
		return nil, errors.Join(refused, unkept)
	}
	if err == nil && (reply == nil || reply.StopReason == "") {
		cut := &CutError{}
		if reply != nil {
			cut.Whole, cut.Usage = reply.Blocks, reply.Usage
		}
		err = cut
	}
	if cut := (*CutError)(nil); errors.As(err, &cut) && ctx.Err() == nil {
		hear(Part{Kind: VoidPart, Usage: cut.Usage})
	}
	t.spent(m.Name, cost(ctx, reply, err))
	if unkept != nil {
		return nil, errors.Join(err, unkept)
	}
	return reply, err
}

func (t *turn) retain() Retain {
	all := false
	if t.cfg.Waits != nil {
		t.guard("who knows how long a conversation waits", func() { all = t.cfg.Waits() })
	}
	return Retain{Head: t.cfg.SharedHead || all, All: all}
}

// reserve asks the meter for a call of a model. free may be called in any case.
func (t *turn) reserve(ctx context.Context, model string) (free func(), err error) {
	if t.cfg.Meter == nil {
		return func() {}, nil
	}
	reserve := t.cfg.Meter.Reserve
	if m, ok := t.cfg.Meter.(LastMeter); ok && t.last {
		reserve = m.ReserveLast
	}
	free, err = reserve(ctx, model, t.cfg.MaxTokens)
	if err != nil && ctx.Err() != nil {
		err = interrupted(ctx)
	}
	if err != nil {
		err = &refusedError{err}
	}
	if free == nil {
		free = func() {}
	}
	return free, err
}

func (t *turn) spent(model string, u Usage) {
	if t.cfg.Meter != nil && u != (Usage{}) {
		t.cfg.Meter.Spent(model, u)
	}
}

// hold waits until the turn may go on.
func (t *turn) hold(ctx context.Context) error {
	if t.cfg.WaitWhilePaused == nil {
		return nil
	}
	err := t.cfg.WaitWhilePaused(ctx)
	if ctx.Err() != nil {
		return interrupted(ctx)
	}
	return err
}

// cost is what a call of a model is known to have cost, beside what was void. Of
// an answer that the user broke off it is what had come.
func cost(ctx context.Context, reply *Reply, err error) Usage {
	cut := (*CutError)(nil)
	switch {
	case err == nil:
		return reply.Usage
	case ctx.Err() != nil && errors.As(err, &cut):
		return cut.Usage
	}
	return Usage{}
}

// lost returns why the turn ends after a reply that did not come to its end. What
// the user has read of a reply before breaking it off is kept.
func (t *turn) lost(ctx context.Context, so *partial, err error) error {
	if ctx.Err() == nil {
		return err
	}
	why := interrupted(ctx)
	u := cost(ctx, nil, err)
	r := Record{Cut: true, Usage: &u}
	blocks := so.blocks(err, interruptedMark)
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

// act runs the calls and records their results, with the mail that is owed by
// then. done says that the turn is over.
func (t *turn) act(ctx context.Context, reply *Reply, calls []pending) (done bool, err error) {
	t.asides, t.halt = nil, false
	all, end, err := t.runCalls(ctx, calls)
	ran := make([]Done, len(all))
	t.owed = nil
	for i, d := range all {
		ran[i] = Done{d.call.Call, d.out}
		t.owed = append(t.owed, resultBlock(d.call.ID, t.visible(d.out)))
		t.circle.add(t.seed, ran[i], d.took)
	}
	if t.cfg.Hooks != nil && ctx.Err() == nil && err == nil {
		said, _ := t.outside(ctx, "the hook after the calls of a reply", BatchTexts, func() ([]string, error) {
			return []string{t.cfg.Hooks.Batch(ctx, ran)}, nil
		})
		t.asides = append(t.asides, said...)
	}
	if hint := t.circle.reminder(); hint != "" {
		t.asides = append(t.asides, hint)
	}
	t.owed = append(t.owed, texts(t.asides...)...)
	if t.tooLong++; whole(reply.StopReason) {
		t.tooLong = 0
	}
	switch {
	case ctx.Err() != nil:
		err = interrupted(ctx)
	case err != nil:
	case end:
		t.res.Reason = "tool_end"
	case t.halt:
		t.res.Reason, end = "gate_end", true
	case reply.StopReason == "refusal":
		err = &StopError{reply.StopReason}
	case t.circle.closed():
		err = &LimitError{Limit: "same_call", N: maxSameCalls}
	case t.tooLong >= maxTooLong:
		err = &LimitError{Limit: "max_tokens", N: maxTooLong}
	case t.res.Turns >= t.cfg.MaxTurns:
		err = &LimitError{Limit: "max_turns", N: t.cfg.MaxTurns}
	}
	done = end || err != nil
	// Mail goes in only where the model reads on at once: it would be
	// acknowledged, and nobody would wake the model for it.
	t.around.step.Lock()
	defer t.around.step.Unlock()
	var letters []MailMessage
	if !done {
		letters, err = t.takeMail(ctx)
		done = err != nil
		t.remind(ctx, false)
	}
	if kept := t.record(ctx, letters, nil, nil); kept != nil {
		return true, errors.Join(err, kept)
	}
	return done, err
}

// visible is a result without images that the model does not see.
func (t *turn) visible(out Output) Output {
	if len(out.Images) > 0 && t.cfg.Sees != nil && !t.cfg.Sees(t.ModelSettings().Name) {
		out.Text += fmt.Sprintf("\n[%d images are left out: this model does not see images]", len(out.Images))
		out.Images = nil
	}
	return out
}

// takeMail returns the mail messages that the conversation does not hold yet. Those
// that it holds came again because their acknowledgement was lost. The caller holds
// around.step until they are recorded.
func (t *turn) takeMail(ctx context.Context) ([]MailMessage, error) {
	if t.around.mail == nil {
		return nil, nil
	}
	letters, err := t.unread(ctx, t.around.mail)
	if err != nil {
		if ctx.Err() != nil {
			return nil, interrupted(ctx)
		}
		return nil, fmt.Errorf("take mail: %w", err)
	}
	var fresh, again []MailMessage
	now := map[int64]struct{}{}
	for _, l := range letters {
		_, twice := now[l.Seq]
		switch {
		case t.holds(l.Seq):
			again = append(again, l)
		case !twice:
			now[l.Seq] = struct{}{}
			fresh = append(fresh, l)
		}
	}
	if err := t.ack(ctx, again); err != nil {
		return nil, err
	}
	return atOnce(fresh, t.cfg.Compaction.window()), nil
}

// Unread is a look into the mailbox between two turns. It acknowledges nothing.
func (l *Loop) Unread(ctx context.Context) ([]MailMessage, error) {
	if l.cfg.Mail == nil {
		return nil, nil
	}
	return l.unread(ctx, l.cfg.Mail)
}

func (l *Loop) unread(ctx context.Context, box Mail) ([]MailMessage, error) {
	return l.cfg.Port.Take(ctx, func() ([]MailMessage, error) { return box.Take(ctx) })
}

// atOnce is how many mail messages go into one message, at least one: a quarter of the
// window. The rest is owed still. Mail that came in a long call could be more than
// the model can read, and no summary makes the last message shorter.
func atOnce(letters []MailMessage, window int64) []MailMessage {
	size := 0
	for i, l := range letters {
		if size += len(l.Text); i > 0 && int64(size) > window/4*bytesPerToken {
			return letters[:i]
		}
	}
	return letters
}

func (l *Loop) holds(seq int64) bool {
	if t := l.around.file(); t != nil {
		return t.Holds(seq)
	}
	_, ok := l.told[seq]
	return ok
}

func (l *Loop) ack(ctx context.Context, letters []MailMessage) error {
	if len(letters) == 0 {
		return nil
	}
	last, done := context.WithTimeout(context.WithoutCancel(ctx), ackTimeout)
	defer done()
	if err := l.around.mail.Ack(last, letters); err != nil {
		return fmt.Errorf("acknowledge mail: %w", err)
	}
	return nil
}

// record adds a user message: results that are owed, then the text before mail,
// mail, and the prompt. What it holds stays owed if it cannot be kept.
func (t *turn) record(ctx context.Context, letters []MailMessage, before, prompt []Block) error {
	blocks := slices.Concat(t.owed, before)
	var seqs []int64
	for _, l := range letters {
		if text := strings.ToValidUTF8(l.Text, "\uFFFD"); strings.TrimSpace(text) != "" {
			blocks = append(blocks, TextBlock(text))
		}
		seqs = append(seqs, l.Seq)
	}
	told := letters
	if len(prompt) > 0 && t.prompt.Seq != 0 {
		told, seqs = append(slices.Clone(letters), MailMessage{Seq: t.prompt.Seq}), append(seqs, t.prompt.Seq)
	}
	if len(blocks)+len(prompt) > 0 {
		r := Record{Message: t.userMessage(blocks, prompt), Mail: seqs}
		if len(prompt) > 0 && t.prompt.User {
			r.Prompt, r.Typed = len(blocks)+t.before+1, t.prompt.Typed
		}
		if err := t.keep(r); err != nil {
			return err
		}
		t.owed = nil
	}
	for _, seq := range seqs {
		t.told[seq] = struct{}{}
	}
	if len(letters) > 0 {
		t.emit(Event{Kind: MailEvent, Mail: letters})
	}
	if len(prompt) > 0 {
		t.emit(Event{Kind: PromptEvent, Prompt: prompt})
	}
	return t.ack(ctx, told)
}

// keep makes a record durable, and only then part of the conversation.
func (t *turn) keep(r Record) error {
	t.around.keeping.Lock()
	defer t.around.keeping.Unlock()
	if t.around.transcript != nil {
		if err := t.around.transcript.Append(r); err != nil {
			return err
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if r.Boundary != nil {
		t.messages, t.size, t.aged = nil, 0, aged{}
	}
	if len(r.LeftOut) > 0 {
		t.messages = without(t.messages, r)
		t.size = bytesOf(t.messages)
	}
	if r.Message.raw != nil {
		t.messages = append(t.messages, r.Message)
		t.size += len(r.Message.raw)
	}
	t.totals.count(r)
	if r.Usage == nil {
		return nil
	}
	t.res.Usage.add(*r.Usage)
	t.res.Context = t.totals.Context
	if r.Boundary == nil && !r.Aside {
		t.res.Turns++
		t.res.ToolUses += r.ToolUses
	}
	return nil
}

// SetTools changes the tools from the next turn on. It is [ErrBusy] while a turn runs.
func (l *Loop) SetTools(tools []Tool) error {
	box, err := newToolbox(tools, l.cfg.Deferred)
	if err != nil {
		return fmt.Errorf("set the tools of a loop: %w", err)
	}
	if !l.busy.TryLock() {
		return ErrBusy
	}
	defer l.busy.Unlock()
	l.tools = box
	return nil
}

func (l *Loop) emit(e Event) {
	l.listen.Lock()
	defer l.listen.Unlock()
	if l.on != nil {
		l.on(e)
	}
}

func interrupted(ctx context.Context) error {
	return fmt.Errorf("turn interrupted: %w", context.Cause(ctx))
}

// ModelSettings are those of the next call of the model. It may be called by any goroutine.
func (l *Loop) ModelSettings() ModelSettings {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.model
}

// SetModel changes what the next call of the model is made with; a call that is under way
// ends with what it has begun with. It may be called by any goroutine.
func (l *Loop) SetModel(s ModelSettings) error {
	if s.Model == nil {
		return errors.New("set the model of a loop: no model")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.model = s
	return nil
}
