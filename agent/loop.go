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

const (
	defaultMaxTurns = 50
	maxSameCalls    = 8 // the same call with the same result, in a row

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
	Model      Model
	ModelName  string
	System     string
	Tools      []Tool
	Gate       Gate        // nil: every call is allowed
	Mail       Mail        // nil: none
	Hooks      Hooks       // nil: none
	Meter      Meter       // nil: nothing is counted
	Reminders  Reminders   // nil: none
	Compaction *Compaction // nil: never
	Transcript *Transcript // nil: the conversation is in memory only
	MaxTurns   int         // replies in one turn; 0: 50
	MaxTokens  int         // of one reply; 0: the model's usual

	// Who speaks, as the model is told.
	Agent, AgentID, SessionID string

	// On is told what happens, one event at a time, on goroutines of the turn.
	// It must not call the loop. nil: nobody listens.
	On func(Event)
}

// Loop is one conversation. Turn is called by one goroutine at a time; the
// other methods by any.
type Loop struct {
	cfg   Config
	tools *toolbox
	seed  maphash.Seed
	busy  sync.Mutex // held by Turn

	listen sync.Mutex // serialises cfg.On

	// Guarded by busy.
	ids  map[string]struct{} // of all calls in messages
	told map[int64]struct{}  // letters in messages, without a transcript
	owed []Block             // results that are not recorded yet; the next message begins with them

	mu       sync.Mutex
	messages []Message // guarded by mu; only ever appended to
	totals   Totals    // guarded by mu
}

// TurnResult is what came of a turn, also of one that ended with an error.
type TurnResult struct {
	Text       string // of the last reply
	StopReason string // of the last reply
	// Reason is why the turn ended: the stop reason of the last reply,
	// tool_end where a tool ended it, max_turns or same_call at a limit,
	// interrupted, or error.
	Reason   string
	Turns    int   // replies
	ToolUses int   // calls in them
	Usage    Usage // summed over them
	Context  int64 // tokens the latest request held, cache included
	Denials  []Denial
	Duration time.Duration
}

// Denial is a call that the [Gate] refused.
type Denial struct {
	ToolUseID string          `json:"tool_use_id"`
	Name      string          `json:"tool_name"`
	Input     json.RawMessage `json:"tool_input"`
	Reason    string          `json:"reason"`
}

// LimitError says that a turn was ended by a limit of the loop. What was done
// until then is recorded, and the next turn may go on from there.
type LimitError struct {
	Limit string // max_turns or same_call
	N     int
}

func (e *LimitError) Error() string {
	if e.Limit == "same_call" {
		return fmt.Sprintf("the model made the same call with the same result more than %d times in a row", e.N)
	}
	return fmt.Sprintf("the limit of %d turns was reached", e.N)
}

// NewLoop makes a loop that goes on from history, which is repaired as by
// [Repair]. It does no I/O. Its totals begin with those of the transcript.
func NewLoop(cfg Config, history []Message) (*Loop, error) {
	if cfg.Model == nil {
		return nil, errors.New("new loop: no model")
	}
	if cfg.MaxTurns < 0 || cfg.MaxTokens < 0 {
		return nil, errors.New("new loop: a limit is negative")
	}
	if cfg.MaxTurns == 0 {
		cfg.MaxTurns = defaultMaxTurns
	}
	tools, err := newToolbox(cfg.Tools)
	if err != nil {
		return nil, fmt.Errorf("new loop: %w", err)
	}
	messages, added, ids, err := repair(history)
	if err != nil {
		return nil, fmt.Errorf("new loop: %w", err)
	}
	l := &Loop{
		cfg: cfg, tools: tools, seed: maphash.MakeSeed(),
		ids: ids, told: map[int64]struct{}{}, messages: slices.Clip(messages),
	}
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
// of the model as they are, a [*LimitError], or a failure to keep the
// transcript, to acknowledge mail, or of a tool.
func (l *Loop) Turn(ctx context.Context, prompt ...Block) (TurnResult, error) {
	if !l.busy.TryLock() {
		return TurnResult{}, ErrBusy
	}
	defer l.busy.Unlock()
	start := time.Now()
	t := &turn{Loop: l}
	l.emit(Event{Kind: TurnStartEvent})
	err := t.run(ctx, prompt)
	t.res.Duration = time.Since(start)
	limit := (*LimitError)(nil)
	switch {
	case err == nil:
	case errors.As(err, &limit):
		t.res.Reason = limit.Limit
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
	res    TurnResult
	nudged bool

	same  uint64 // hash of the last call and its result
	times int    // how often it came in a row
}

func (t *turn) run(ctx context.Context, prompt []Block) error {
	if err := t.begin(ctx, prompt); err != nil {
		return err
	}
	for {
		reply, calls, err := t.reply(ctx)
		if err != nil {
			return err
		}
		if len(calls) > 0 {
			if done, err := t.act(ctx, calls); done || err != nil {
				return err
			}
			continue
		}
		t.res.Reason = reply.StopReason
		again := false
		switch {
		case reply.StopReason == "pause_turn": // the model asks to be called again
			again = true
		case t.res.Text == "" && whole(reply.StopReason) && !t.nudged && t.res.Turns < t.cfg.MaxTurns:
			t.nudged, again = true, true
			if err := t.record(ctx, nil, []Block{TextBlock(nudge)}, nil); err != nil {
				return err
			}
		}
		if !again {
			return nil
		}
		if t.res.Turns >= t.cfg.MaxTurns {
			return &LimitError{"max_turns", t.cfg.MaxTurns}
		}
	}
}

// begin records what the model is to answer.
func (t *turn) begin(ctx context.Context, prompt []Block) error {
	if ctx.Err() != nil {
		return interrupted(ctx)
	}
	kept := make([]Block, 0, len(prompt))
	for _, b := range prompt {
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
	letters, err := t.takeMail(ctx)
	if err != nil {
		return err
	}
	if len(letters)+len(kept)+len(t.owed) == 0 {
		if m := t.Messages(); len(m) > 0 && m[len(m)-1].role == User {
			return nil
		}
		return ErrNothing
	}
	return t.record(ctx, letters, nil, kept)
}

// reply asks the model and records its answer.
func (t *turn) reply(ctx context.Context) (*Reply, []pending, error) {
	if ctx.Err() != nil {
		return nil, nil, interrupted(ctx)
	}
	var so partial
	reply, err := t.cfg.Model.Reply(ctx, &Request{
		Agent: t.cfg.Agent, AgentID: t.cfg.AgentID, SessionID: t.cfg.SessionID,
		Model: t.cfg.ModelName, System: t.cfg.System, MaxTokens: t.cfg.MaxTokens,
		Tools: t.tools.specs, Messages: t.Messages(),
	}, func(p Part) {
		so.take(p)
		t.emit(Event{Kind: PartEvent, Part: p})
	})
	if err == nil && (reply == nil || reply.StopReason == "") {
		cut := &CutError{}
		if reply != nil {
			cut.Whole, cut.Usage = reply.Blocks, reply.Usage
		}
		err = cut
	}
	if err != nil {
		return nil, nil, t.lost(ctx, &so, err)
	}
	calls := accept(reply, t.ids)
	if reply.ID == "" {
		reply.ID = "msg_" + newUUID()
	}
	t.res.Text, t.res.StopReason = spoken(reply.Blocks), reply.StopReason
	m := NewMessage(Assistant, reply.Blocks...)
	err = t.keep(Record{
		Message: m, Usage: &reply.Usage, ToolUses: len(calls),
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

// lost keeps what had come of a reply that did not come to its end, and returns
// why the turn ends.
func (t *turn) lost(ctx context.Context, so *partial, err error) error {
	mark, why := cutMark, err
	if ctx.Err() != nil {
		mark, why = interruptedMark, interrupted(ctx)
	}
	r := Record{Cut: true, Usage: &Usage{}}
	cut := (*CutError)(nil)
	isCut := errors.As(err, &cut)
	if isCut {
		*r.Usage = cut.Usage
	}
	blocks := so.blocks(err, mark)
	if len(blocks) == 0 && *r.Usage == (Usage{}) {
		return why
	}
	if len(blocks) > 0 {
		r.Message = NewMessage(Assistant, blocks...)
		t.res.Text, t.res.StopReason = spoken(blocks[:len(blocks)-1]), ""
	}
	if kept := t.keep(r); kept != nil {
		return errors.Join(why, kept)
	}
	return why
}

// act runs the calls and records their results, with the mail that is owed by
// then. done says that the turn is over.
func (t *turn) act(ctx context.Context, calls []pending) (done bool, err error) {
	all, end, err := t.runCalls(ctx, calls)
	results := make([]Block, len(all))
	for i, d := range all {
		results[i] = ToolResultBlock(d.call.ID, d.out.Text, d.out.IsError)
		t.count(d)
	}
	switch {
	case ctx.Err() != nil:
		err = interrupted(ctx)
	case err != nil:
	case end:
		t.res.Reason = "tool_end"
	case t.times > maxSameCalls:
		err = &LimitError{"same_call", maxSameCalls}
	case t.res.Turns >= t.cfg.MaxTurns:
		err = &LimitError{"max_turns", t.cfg.MaxTurns}
	}
	done = end || err != nil
	t.owed = results
	// Mail goes in only where the model reads on at once: it would be
	// acknowledged, and nobody would wake the model for it.
	var letters []Letter
	if !done {
		letters, err = t.takeMail(ctx)
		done = err != nil
	}
	if kept := t.record(ctx, letters, nil, nil); kept != nil {
		return true, errors.Join(err, kept)
	}
	return done, err
}

// count follows calls that are repeated without effect.
func (t *turn) count(d decided) {
	var h maphash.Hash
	h.SetSeed(t.seed)
	for _, s := range []string{d.call.Name, string(d.call.Input), d.out.Text} {
		_, _ = h.WriteString(s)
		_ = h.WriteByte(0)
	}
	if sum := h.Sum64(); t.times == 0 || sum != t.same {
		t.same, t.times = sum, 1
		return
	}
	t.times++
}

// takeMail returns the letters that the conversation does not hold yet. Those
// that it holds came again because their acknowledgement was lost.
func (t *turn) takeMail(ctx context.Context) ([]Letter, error) {
	if t.cfg.Mail == nil {
		return nil, nil
	}
	letters, err := t.cfg.Mail.Take(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil, interrupted(ctx)
		}
		return nil, fmt.Errorf("take mail: %w", err)
	}
	var fresh, again []Letter
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
	return fresh, nil
}

func (l *Loop) holds(seq int64) bool {
	if l.cfg.Transcript != nil {
		return l.cfg.Transcript.Holds(seq)
	}
	_, ok := l.told[seq]
	return ok
}

func (l *Loop) ack(ctx context.Context, letters []Letter) error {
	if len(letters) == 0 {
		return nil
	}
	last, done := context.WithTimeout(context.WithoutCancel(ctx), ackTimeout)
	defer done()
	if err := l.cfg.Mail.Ack(last, letters); err != nil {
		return fmt.Errorf("acknowledge mail: %w", err)
	}
	return nil
}

// record adds a user message: results that are owed, then the text before mail,
// mail, and the prompt. What it holds stays owed if it cannot be kept.
func (t *turn) record(ctx context.Context, letters []Letter, before, prompt []Block) error {
	blocks := slices.Concat(t.owed, before)
	var seqs []int64
	for _, l := range letters {
		if text := strings.ToValidUTF8(l.Text, "\uFFFD"); strings.TrimSpace(text) != "" {
			blocks = append(blocks, TextBlock(text))
		}
		seqs = append(seqs, l.Seq)
	}
	blocks = append(blocks, prompt...)
	if len(blocks) > 0 {
		if err := t.keep(Record{Message: NewMessage(User, blocks...), Letters: seqs}); err != nil {
			return err
		}
		t.owed = nil
	}
	for _, seq := range seqs {
		t.told[seq] = struct{}{}
	}
	if len(letters) > 0 {
		t.emit(Event{Kind: MailEvent, Letters: letters})
	}
	if len(prompt) > 0 {
		t.emit(Event{Kind: PromptEvent, Prompt: prompt})
	}
	return t.ack(ctx, letters)
}

// keep makes a record durable, and only then part of the conversation.
func (t *turn) keep(r Record) error {
	if t.cfg.Transcript != nil {
		if err := t.cfg.Transcript.Append(r); err != nil {
			return err
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if r.Message.raw != nil {
		t.messages = append(t.messages, r.Message)
	}
	if r.Usage != nil {
		t.totals.add(*r.Usage, r.ToolUses)
		t.res.Turns++
		t.res.ToolUses += r.ToolUses
		t.res.Usage.add(*r.Usage)
		t.res.Context = t.totals.Context
	}
	return nil
}

func (l *Loop) emit(e Event) {
	if l.cfg.On == nil {
		return
	}
	l.listen.Lock()
	defer l.listen.Unlock()
	l.cfg.On(e)
}

func interrupted(ctx context.Context) error {
	return fmt.Errorf("turn interrupted: %w", context.Cause(ctx))
}
