package agent

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"sync"
)

// DefaultMaxTurns is [Config.MaxTurns] where that is 0.
const DefaultMaxTurns = 50

var (
	// ErrBusy says that a turn of this loop is running.
	ErrBusy = errors.New("a turn is already running")
	// ErrNothing says that there was neither prompt nor mail to answer.
	ErrNothing = errors.New("there is no prompt and no mail to answer")
)

// Config configures a [Loop]. Model is required; the zero values of all
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

	// Who speaks, as requests say.
	Agent, AgentID, SessionID string

	// WaitWhilePaused is asked before each call of the model and of a tool, and returns when
	// it may be made; an error ends the turn. It may be called by several
	// goroutines. nil: nothing is held back.
	WaitWhilePaused func(ctx context.Context) error

	// On gets the events of turns, one at a time, on goroutines of the turn. It must not call
	// the loop. nil: they are lost.
	On func(Event)
}

// Loop is one conversation. One turn runs at a time; other methods may be called by any
// goroutine.
type Loop struct {
	cfg   Config // its surroundings only as they were at first
	tools *toolbox
	seed  maphash.Seed
	busy  sync.Mutex // held by a turn

	listen sync.Mutex  // serialises on
	on     func(Event) // guarded by listen

	around surroundings // see [Loop.MoveTurn]

	// Guarded by busy.
	ids        map[string]struct{} // of all calls in messages
	delivered  map[int64]struct{}  // mail in messages, without a transcript
	unrecorded []Block             // results and the texts after them; the next message begins with them

	aged  aged  // how far old results are cleared
	fresh bool  // no reply has come since a compaction
	base  int64 // Context of the first reply after it

	mu       sync.Mutex
	messages []Message     // guarded by mu; only ever appended to, or replaced by a summary
	size     int           // guarded by mu; bytes of them
	model    ModelSettings // guarded by mu
	totals   Totals        // guarded by mu
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
		ids: ids, delivered: map[int64]struct{}{}, messages: slices.Clip(messages), on: cfg.On,
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
		if l.unrecorded, err = messages[n-1].Blocks(); err != nil {
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
