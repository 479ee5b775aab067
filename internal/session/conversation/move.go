package conversation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
)

// MovedReason is why a turn has ended for its conversation that continues in the background.
const MovedReason = "backgrounded"

// Handover has the needs of a turn that continues in the background, and of its conversation,
// which continues without it.
type Handover struct {
	ID    task.ID      // of the task that the turn becomes
	Agent agent.Config // of the conversation; it keeps its transcript and its mailbox

	// Start starts the task; prompt is what the turn answers.
	Start func(ctx context.Context, prompt string, d task.Driver) (task.Record, error)
	Fork  func() (*agent.Transcript, error) // as [agent.Move.Fork]
	Mail  agent.Mail                        // to the task
	On    func(agent.Event)                 // called with the events of the turn
	// Begun is called when the turn begins to act as the task.
	Begun func(h task.Host)
	// Close is called once when the turn has ended, and after no error of MoveTurn.
	Close func()
}

// MovedTurn is a turn that continues in the background. It is the driver of its task.
type MovedTurn struct {
	Handover
	of      *Conversation
	before  agent.Totals
	begun   time.Time
	settled chan struct{} // closed when the turn is moved, or could not be
	turn    *turning      // set before that; nil: it could not be
	watcher atomic.Pointer[subagent.Watcher]
	closing sync.Once
	file    *agent.Transcript
}

// MoveTurn moves the turn that is running to the background, where it continues unchanged as
// a task. When it returns, the conversation accepts the next prompt and begins its turn.
func (c *Conversation) MoveTurn(ctx context.Context, h Handover) (task.Record, error) {
	if err := c.Movable(); err != nil {
		return task.Record{}, err
	}
	c.mu.Lock()
	r := c.turning
	c.mu.Unlock()
	if r == nil {
		return task.Record{}, noTurn()
	}
	r.moving.Lock()
	defer r.moving.Unlock()
	if r.ended || r.moved != nil {
		return task.Record{}, noTurn()
	}
	m := &MovedTurn{Handover: h, of: c, before: r.loop.Totals(), begun: time.Now(), settled: make(chan struct{})}
	defer close(m.settled)
	rec, err := h.Start(ctx, r.Prompt.Text, m)
	if err != nil {
		return rec, err
	}
	if err := c.move(r, m); err != nil {
		return rec, err
	}
	m.turn, r.moved = r, m
	close(r.gone)
	return rec, nil
}

// Movable is nil if a turn is running that may be moved to the background.
func (c *Conversation) Movable() error {
	if c.cfg.Structured != nil {
		return control.Refuse(control.Unavailable,
			"move the turn to the background: the answers of this conversation have to fit a JSON schema", "")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.turning == nil || c.state.Phase != Busy {
		return noTurn()
	}
	return nil
}

func noTurn() error {
	return control.Refuse(control.Conflict,
		"move the turn to the background: the main agent is in no turn that could be moved",
		"try again when the model has begun to work on the prompt")
}

// move takes the turn out of the conversation. The caller holds r.moving.
func (c *Conversation) move(r *turning, m *MovedTurn) error {
	next := c.wired(m.Agent)
	next.Transcript = r.agent.Transcript
	if _, err := agent.NewLoop(next, nil); err != nil { // nothing may fail after the move
		return err
	}
	messages, err := r.loop.MoveTurn(agent.Move{Mail: m.Mail, On: m.on, Note: m.note(), AgentID: string(m.ID),
		Fork: func() (_ *agent.Transcript, err error) {
			m.file, err = m.Fork()
			return m.file, err
		}})
	if errors.Is(err, agent.ErrNoTurn) {
		return noTurn()
	}
	if err != nil {
		return err
	}
	loop, err := agent.NewLoop(next, messages)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := loop.SetModel(r.loop.ModelSettings()); err != nil {
		return err
	}
	c.loop, c.agent, c.turning, c.cancel = loop, next, nil, nil
	c.movedTo = append(c.movedTo, m)
	c.offered = false
	r.free()                                             // from now on the turn ends with its task
	_, _ = c.step(Event{Verb: MoveTurn, At: time.Now()}) // every phase with a turn takes it
	return nil
}

// note is what the model of the conversation reads of the turn.
func (m *MovedTurn) note() string {
	return fmt.Sprintf("<system-reminder>\nThe user moved this turn to the background. It goes on there by itself as "+
		"task %s, with all that was under way, and you will be told how it ends. Do not do its work again: wait for the "+
		"next prompt.\n</system-reminder>", m.ID)
}

// left tells those who follow the conversation that a turn has left it.
func (c *Conversation) left(r *turning, m *MovedTurn) {
	text := fmt.Sprintf("The turn goes on in the background as task %s.", m.ID)
	c.cfg.Feed.add(control.Piece{Kind: control.NotePiece, Text: text})
	c.cfg.Feed.end(agent.TurnResult{}, nil, c.session.Running())
	turn := Turn{Origin: r.Origin, Result: agent.TurnResult{Text: text, Reason: MovedReason}}
	c.mu.Lock()
	c.last = turn
	c.mu.Unlock()
	if c.cfg.Done != nil {
		c.cfg.Done(turn)
	}
}

// CloseMoved ends turns in the background that have no task any more, and waits for them.
func (c *Conversation) CloseMoved() {
	c.mu.Lock()
	left := slices.Clone(c.movedTo)
	c.mu.Unlock()
	for _, m := range left {
		m.turn.cancel(task.ErrClosing)
		<-m.turn.done
		m.close()
	}
}

// Kind implements [task.Driver].
func (m *MovedTurn) Kind() task.Kind { return task.MainKind }

// Check implements [task.Driver].
func (m *MovedTurn) Check(json.RawMessage) error { return nil }

// Run waits for the end of the turn, and lets it answer the mail that comes after it.
func (m *MovedTurn) Run(ctx context.Context, h task.Host) (task.Result, error) {
	<-m.settled
	if m.turn == nil {
		return task.Result{}, &task.FailError{Reason: task.ReasonStart, Err: errors.New("the turn could not be moved")}
	}
	defer m.close()
	loop := m.turn.loop
	w := subagent.NewWatcher(h)
	w.Totals = loop.Totals
	m.watcher.Store(w)
	m.Begun(h)
	defer context.AfterFunc(ctx, func() { m.turn.cancel(context.Cause(ctx)) })()
	<-m.turn.done
	res, err := m.turn.res, m.turn.err
	for err == nil && m.wanted(ctx) {
		res, err = loop.Turn(ctx)
	}
	used := subagent.Usage(m.before, loop.Totals(), time.Since(m.begun))
	return task.Result{Text: res.Text, Usage: used}, subagent.Ending(ctx, err)
}

// wanted reports whether mail has come after the last call of the model.
func (m *MovedTurn) wanted(ctx context.Context) bool {
	mail, err := m.Mail.Take(ctx) // what cannot be read stays in the mailbox
	return err == nil && ctx.Err() == nil && len(mail) > 0
}

// on hears what the turn does since it was moved.
func (m *MovedTurn) on(e agent.Event) {
	if w := m.watcher.Load(); w != nil {
		w.On(e)
	}
	m.On(e)
}

// close frees what the turn holds, once it has ended.
func (m *MovedTurn) close() {
	m.closing.Do(func() {
		m.turn.cancel(nil)
		m.of.mu.Lock()
		m.of.movedTo = slices.DeleteFunc(m.of.movedTo, func(x *MovedTurn) bool { return x == m })
		m.of.mu.Unlock()
		m.Handover.Close()
		if m.file != nil {
			_ = m.file.Close()
		}
	})
}
