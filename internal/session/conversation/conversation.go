// Package conversation owns one conversation with a main agent.
//
// A [Conversation] accepts prompts and runs turns, one at a time: each prompt has its own turn,
// in order, and mail begins one when no prompt waits. Its [State] changes only through [Apply];
// docs/conversation.md shows the table. Every accepted prompt begins one turn, or stays unread
// in the mailbox and is sent with the next prompt, or is refused and withdrawn. After an
// interruption or a failure no turn begins by itself until the user sends a prompt. Every
// change wakes all waiters.
//
// The package does not keep tasks, listen to clients, or configure its agent: that is the
// [Session].
package conversation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/engine/mailbox"
	"github.com/drover-dev/drover/internal/platform/picture"
	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
)

// TaskOrigin is the origin of a turn that mail has started.
const TaskOrigin = "task-notification"

// Errors of a conversation.
var (
	// ErrInterrupted is the cause of a turn that the user broke off.
	ErrInterrupted = errors.New("interrupted by the user")
	// ErrCeiling is returned by [Conversation.Settle] when commands were still running
	// at the wait ceiling, and were stopped.
	ErrCeiling = errors.New("background commands were still running at the wait ceiling")
)

// BlockedError means that a hook refused a prompt.
type BlockedError struct{ Err error }

func (e *BlockedError) Error() string { return "a hook blocked the prompt: " + e.Err.Error() }
func (e *BlockedError) Unwrap() error { return e.Err }

// Session is the part of a session that a conversation uses. Its methods may be called by several
// goroutines.
type Session interface {
	// Get returns the current record of a task.
	Get(id task.ID) (task.Record, bool)
	// Background returns the background work that the conversation waits for: commands, which
	// the wait ceiling stops, and the number of other running tasks.
	Background() (commands []task.ID, others int)
	// Running counts the background tasks that viewers see running.
	Running() int
	// Alone reports whether no task is running whose end would begin a turn.
	Alone() bool
	// Stop stops commands.
	Stop(ctx context.Context, ids []task.ID, cause task.Cause) (task.Receipt, error)
	// Changed returns a channel that is closed when the next task ends. The channel of NextCommit is closed
	// at the next event of the log, which is slightly earlier.
	Changed() <-chan struct{}
	NextCommit() <-chan struct{}
	// Moved is called after every change of the conversation, and Completed when the
	// agent has marked its work as complete. They must not call the conversation.
	Moved()
	Completed(c control.Completion)
}

// Hooks take part in turns. They are called on the goroutine of Run.
type Hooks interface {
	// Start is called before the first turn; the model reads its text first.
	Start(ctx context.Context) string
	// Command handles a prompt for the program, or returns the prompt to be answered instead,
	// such as the expanded one of a command. ok is false for every other prompt; an error
	// refuses the prompt. It is called for every prompt of the user, when its turn has begun.
	Command(ctx context.Context, prompt string) (answer, instead string, ok bool, err error)
	// Prompt may add to a prompt, or refuse it.
	Prompt(ctx context.Context, prompt string) (added string, err error)
	// Failed is called after a turn in which the model failed.
	Failed(ctx context.Context, err error, answer string)
}

// Config configures a conversation. All fields but Autopilot, Driven, Begin and Done are
// required.
type Config struct {
	ID      task.ID // of the session
	Agent   agent.Config
	History []agent.Message
	Past    []control.Piece // what viewers see of earlier hosts
	Newest  task.Seq        // the newest event of the log that Past takes in
	Log     Log
	Box     *mailbox.Box
	Mail    func(withheld func(mailbox.Mail) bool) agent.Mail     // the agent's mailbox
	Wrap    func(id task.ID, c *agent.Config)                     // changes what a loop is made of
	Post    func(context.Context, task.Message) (task.Seq, error) // writes a message to the log
	Session Session
	Hooks   Hooks
	Feed    *Feed

	Autopilot *Autopilot // nil: no autopilot
	Driven    bool       // the conversation begins on autopilot

	// Image reads an image of a prompt by its sum, in the form of the Messages API; nil:
	// prompts have none.
	Image func(sum string) (json.RawMessage, error)

	Structured *Structured // schema of the answers; nil: text

	// Begin and Done are called at every turn, in order, on the goroutine of Run.
	Begin func(origin string)
	Done  func(Turn)
}

// Turn is one turn that has ended.
type Turn struct {
	Origin string // empty for a prompt, else [TaskOrigin] or [AutopilotOrigin]
	Result agent.TurnResult
	Err    error
	Beside bool // the model was not asked: a command of the program, or a prompt that was refused
}

// Conversation is one conversation. Run is called by one goroutine at a time; the
// other methods by any.
type Conversation struct {
	cfg     Config // Agent only as it was at first
	session Session
	watcher atomic.Pointer[subagent.Watcher] // of the task of the conversation

	started bool   // Hooks.Start was called; of the goroutine of Run
	opening string // text of Hooks.Start, until a turn has it
	offered bool   // the agent has the tool that ends the work
	beside  bool   // the turn was answered without the agent and left no work

	order sync.Mutex // held while a prompt is written and accepted, so that prompts keep the order of their numbers
	host  hosting

	mu      sync.Mutex // guards the fields below
	state   State
	loop    *agent.Loop
	agent   agent.Config            // of the loop
	turning *turning                // the turn that is running; nil: none
	movedTo []*MovedTurn            // turns in the background that have not ended
	cancel  context.CancelCauseFunc // of the turn that is running
	last    Turn                    // that has ended
	driver  *Autopilot              // of the turn that is running; nil: it is not on autopilot
	changed chan struct{}           // closed and replaced at every change
}

// Open opens a conversation at the end of its history. Prompts for which no turn began under an
// earlier host are sent with the next prompt.
func Open(cfg Config) (*Conversation, error) {
	c := &Conversation{cfg: cfg, session: cfg.Session, changed: make(chan struct{})}
	mail, err := cfg.Box.Mail(context.Background())
	if err != nil {
		return nil, err
	}
	c.agent = c.wired(cfg.Agent)
	if c.loop, err = agent.NewLoop(c.agent, cfg.History); err != nil {
		return nil, err
	}
	cfg.Feed.seed(cfg.Past, cfg.Newest)
	c.state = State{Phase: Idle, Most: cfg.Autopilot.reminders(cfg.Driven)}
	for _, x := range mail {
		if isPrompt(x) {
			c.state.Passed = x.Seq
			c.kept(x.Message.Text)
		}
	}
	return c, nil
}

// wired returns the parts of a loop of the conversation.
func (c *Conversation) wired(cfg agent.Config) agent.Config {
	next := cfg.On
	cfg.On = func(e agent.Event) { c.on(e, next) }
	cfg.Mail = c.cfg.Mail(c.withheld)
	c.cfg.Wrap(c.cfg.ID, &cfg)
	return cfg
}

// now returns the loop of the conversation and its parts.
func (c *Conversation) now() (*agent.Loop, agent.Config) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.loop, c.agent
}

// kept tells the user that a prompt goes with the next one.
func (c *Conversation) kept(prompt string) {
	_, prompt, _ = picture.Split(prompt)
	text, _ := short(strings.Join(strings.Fields(prompt), " "), 200)
	c.cfg.Feed.add(control.Piece{Kind: control.NotePiece, Text: "not answered yet, goes with the next prompt: " + text})
}

// apply applies an event, and returns the effects that the caller must execute.
func (c *Conversation) apply(e Event) ([]Effect, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.step(e)
}

// step is apply, and executes the effects that do not block. The caller holds mu.
func (c *Conversation) step(e Event) ([]Effect, error) {
	next, effects, err := Apply(c.state, e)
	c.state = next
	for _, one := range effects {
		switch one := one.(type) {
		case CancelTurn:
			c.cancel(ErrInterrupted)
		case Keep:
			for _, p := range one.Prompts {
				c.kept(p.Text)
			}
		case Wake:
			close(c.changed)
			c.changed = make(chan struct{})
			c.session.Moved()
		}
	}
	return effects, err
}

// must is apply for an event that every phase accepts.
func (c *Conversation) must(v Verb) { _, _ = c.apply(Event{Verb: v, At: time.Now()}) }

// State returns the current state, and a channel that is closed when it changes.
func (c *Conversation) State() (State, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state, c.changed
}

// Prompt queues a prompt, and returns when it is durable.
func (c *Conversation) Prompt(ctx context.Context, text string) error {
	_, err := c.post(ctx, text)
	return err
}

// post is Prompt, and returns the number of the prompt.
func (c *Conversation) post(ctx context.Context, text string) (task.Seq, error) {
	switch {
	case strings.TrimSpace(text) == "":
		return 0, control.Refuse(control.Invalid, "the prompt is empty", "")
	case len(text) > task.MaxPromptBytes:
		text := fmt.Sprintf("the prompt is longer than %d MiB", task.MaxPromptBytes>>20)
		return 0, control.Refuse(control.Invalid, text, "put it in a file and name that")
	}
	if _, err := c.apply(Event{Verb: Offer}); err != nil {
		return 0, c.refusal(err)
	}
	seq, effects, err := c.write(ctx, strings.ToValidUTF8(text, "\uFFFD"))
	if errors.Is(err, task.ErrMailFull) {
		err = control.Refuse(control.Unavailable, err.Error(), "wait until some are answered")
	}
	for _, one := range effects {
		if gone, ok := one.(Withdraw); ok {
			if err := c.withdraw(ctx, seq); err != nil { // it is sent with the next prompt
				return 0, err
			}
			return 0, c.refusal(gone.Why)
		}
	}
	return seq, err
}

// write makes a prompt durable and puts it into the queue.
func (c *Conversation) write(ctx context.Context, text string) (task.Seq, []Effect, error) {
	c.order.Lock()
	defer c.order.Unlock()
	seq, err := c.cfg.Post(ctx, task.Message{To: c.cfg.ID, From: string(task.ByUser), Kind: task.Prompt, Text: text})
	if err != nil {
		c.must(GiveUp)
		return 0, nil, err
	}
	effects, err := c.apply(Event{Verb: Accept, Prompt: Prompt{seq, text}})
	return seq, effects, err
}

// refusal tells a client why a prompt is refused. Another run, or another host, may accept it.
func (c *Conversation) refusal(why error) error {
	e := &control.Error{Code: control.Unavailable, Message: why.Error(), NotAccepted: true}
	if errors.Is(why, ErrStopped) {
		e.Fix = fmt.Sprintf("go on with `drover -p --resume %s \"…\"`", c.cfg.ID)
	}
	return e
}

// lastWords limits the withdrawal of a prompt after its sender has stopped waiting.
const lastWords = 10 * time.Second

// withdraw acknowledges a prompt that is not to be delivered.
func (c *Conversation) withdraw(ctx context.Context, seq task.Seq) error {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), lastWords, task.ErrClosing)
	defer cancel()
	return c.cfg.Box.Acknowledge(ctx, seq)
}

func isPrompt(x mailbox.Mail) bool { return x.Message != nil && x.Message.Kind == task.Prompt }

// withheld reports whether the current turn must not read a piece of mail: a prompt that has,
// or will have, its own turn.
func (c *Conversation) withheld(x mailbox.Mail) bool {
	s, _ := c.State()
	return isPrompt(x) && !s.Delivers(x.Seq)
}

// Mail reports whether there is mail for which a turn is to begin.
func (c *Conversation) Mail(ctx context.Context) (bool, error) {
	mail, err := c.cfg.Box.Mail(ctx)
	return slices.ContainsFunc(mail, c.begins), err
}

// begins reports whether a turn is to begin for a piece of mail. The result of an action of the
// user waits for the next turn that begins for another reason.
func (c *Conversation) begins(x mailbox.Mail) bool {
	if x.Message != nil {
		return x.Message.Kind != task.AgentHalted && x.Message.Kind != task.Prompt
	}
	if x.Notification.ByUser {
		return false
	}
	r, ok := c.session.Get(x.Notification.Task)
	return !ok || r.Run != x.Notification.Run || !r.StoppedByUser() // the earlier run was replaced by a requested one
}

// Interrupt cancels the current turn, if there is one. Mail then waits for the next prompt.
func (c *Conversation) Interrupt() { c.must(Interrupt) }

// Detached records that the last client has detached.
func (c *Conversation) Detached() { c.must(Detach) }

// End refuses further prompts, since the session ends. The current turn is completed.
func (c *Conversation) End() { c.must(Close) }

// Last returns the last turn that has ended.
func (c *Conversation) Last() Turn {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

// Totals is what the conversation has used so far.
func (c *Conversation) Totals() agent.Totals {
	loop, _ := c.now()
	return loop.Totals()
}

// ModelSettings are the settings of the next call of the model.
func (c *Conversation) ModelSettings() agent.ModelSettings {
	loop, _ := c.now()
	return loop.ModelSettings()
}

// SetModel changes them.
func (c *Conversation) SetModel(s agent.ModelSettings) error {
	loop, _ := c.now()
	return loop.SetModel(s)
}

// Messages are the messages so far.
func (c *Conversation) Messages() []agent.Message {
	loop, _ := c.now()
	return loop.Messages()
}

// The modes of a conversation.
const (
	AutopilotMode   = "autopilot"
	InteractiveMode = "interactive"
)

// Mode returns the mode of the conversation.
func (c *Conversation) Mode() string {
	if s, _ := c.State(); s.Most > 0 {
		return AutopilotMode
	}
	return InteractiveMode
}

// SetMode changes the mode from the next prompt on; due reminders are no longer sent. It
// reports whether there is such a mode.
func (c *Conversation) SetMode(mode string) bool {
	if mode != InteractiveMode && (mode != AutopilotMode || c.cfg.Autopilot == nil) {
		return false
	}
	_, _ = c.apply(Event{Verb: SetMode, Most: c.cfg.Autopilot.reminders(mode == AutopilotMode)}) // every phase accepts it
	return true
}

// driving returns the autopilot of the current turn; nil: none.
func (c *Conversation) driving() *Autopilot {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.driver
}

// catchUp shows viewers the events of tasks. The session reports faults of its log itself.
func (c *Conversation) catchUp() { _ = c.cfg.Feed.CatchUp(context.Background(), c.cfg.Log) }

// on handles events of the agent in the order in which other readers get them: a call that
// completes the work is reported as a call first.
func (c *Conversation) on(e agent.Event, next func(agent.Event)) {
	driver := c.driving()
	if e.Kind == agent.TurnDoneEvent && e.Result != nil && e.Err == nil {
		res, err := c.cfg.Structured.ended(driver.answered(*e.Result), nil)
		e.Result, e.Err = &res, err
	}
	if w := c.watcher.Load(); w != nil {
		w.On(e)
	}
	if next != nil {
		next(e)
	}
	if e.Kind == agent.MailEvent || e.Kind == agent.ToolDoneEvent { // what they speak of has happened before
		c.catchUp()
	}
	c.cfg.Feed.take(e)
	done, ok := driver.takeIn(e)
	if !ok {
		return
	}
	if done.Success {
		c.must(Complete)
	}
	c.session.Completed(done)
}
