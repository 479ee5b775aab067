// Package idle determines whether a session has anything left to do.
//
// [Watch] owns the last known state of a session ([control.State]), and wakes callers that wait
// for another one. Work that passes from a task through a mailbox to a turn is never missed on
// its way.
//
// The package changes neither tasks nor the conversation.
package idle

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/engine/supervise"
	"github.com/drover-dev/drover/internal/session/conversation"
	"github.com/drover-dev/drover/internal/session/messages"
	"github.com/drover-dev/drover/internal/session/tree"
	"github.com/drover-dev/drover/task"
)

// Watch observes a session. It is the [conversation.Session] of its conversation. Its methods
// may be called by several goroutines.
type Watch struct {
	s    *tree.Tree
	mail *messages.Mailboxes

	mu      sync.Mutex // guards the fields below
	state   control.State
	mark    mark                       // of the work of this state
	main    *conversation.Conversation // nil: none
	moved   chan struct{}              // closed and replaced when the conversation has changed
	changed chan struct{}              // closed and replaced when a task ends or becomes idle
}

var _ conversation.Session = (*Watch)(nil)

// New returns a watch.
func New(s *tree.Tree, mail *messages.Mailboxes) *Watch {
	return &Watch{s: s, mail: mail, moved: make(chan struct{}), changed: make(chan struct{})}
}

// Follow includes the conversation with the main agent, which has begun.
func (w *Watch) Follow(c *conversation.Conversation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.main = c
	wake(&w.moved)
}

// Conversation returns the conversation with the main agent; nil: none.
func (w *Watch) Conversation() *conversation.Conversation {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.main
}

// Moved implements [conversation.Session].
func (w *Watch) Moved() {
	w.mu.Lock()
	defer w.mu.Unlock()
	wake(&w.moved)
}

// Change wakes callers that wait for tasks: one has ended, or become idle.
func (w *Watch) Change() {
	w.mu.Lock()
	defer w.mu.Unlock()
	wake(&w.changed)
}

// Changed returns a channel that is closed when the next task ends, or becomes idle.
func (w *Watch) Changed() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.changed
}

// wake wakes callers that wait for a channel. The caller holds mu.
func wake(c *chan struct{}) {
	close(*c)
	*c = make(chan struct{})
}

// NextCommit returns a channel that is closed at the next event of the log.
func (w *Watch) NextCommit() <-chan struct{} { return w.s.Log.NextCommit() }

// Get implements [conversation.Session].
func (w *Watch) Get(id task.ID) (task.Record, bool) { return w.s.Tasks.Get(id) }

// Stop implements [conversation.Session].
func (w *Watch) Stop(ctx context.Context, ids []task.ID, cause task.Cause) (task.Receipt, error) {
	return w.s.Tasks.Stop(ctx, ids, supervise.StopRequest{Cause: cause})
}

// WaitedFor returns the tasks that a conversation waits for before it ends, without agents
// that have done their work and wait for a message.
func (w *Watch) WaitedFor() (tasks []task.Record) {
	for _, r := range w.s.Tasks.Living() {
		if r.WaitedFor() && !w.mail.Waits(r) && r.ID != w.s.Info.Session {
			tasks = append(tasks, r)
		}
	}
	return tasks
}

// Background implements [conversation.Session].
func (w *Watch) Background() (commands []task.ID, others int) {
	for _, r := range w.WaitedFor() {
		if r.Traits().Work == task.ByCommand {
			commands = append(commands, r.ID)
			continue
		}
		others++
	}
	return commands, others
}

// Running implements [conversation.Session].
func (w *Watch) Running() int {
	var live []task.Record
	for _, r := range w.s.Tasks.Living() {
		live = append(live, r)
	}
	return conversation.Running(live)
}

// Alone implements [conversation.Session].
func (w *Watch) Alone() bool {
	working, _ := w.atWork()
	return working == 0
}

// mark distinguishes two idle periods with work between them.
type mark struct {
	turns int       // turns of the main agent that have ended
	ended time.Time // end of the agent that ended last
}

// Completed implements [conversation.Session].
func (w *Watch) Completed(c control.Completion) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.state.Completed != nil {
		c.N = w.state.Completed.N
	}
	c.N++
	w.state.Completed = &c
	w.state.Version++
	wake(&w.moved)
}

// Configured stores the settings of the main agent.
func (w *Watch) Configured(now control.Settings) control.Settings {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.state.Settings = &now
	w.state.Version++
	wake(&w.moved)
	return now
}

// ModeChanged stores another permission mode of the main agent.
func (w *Watch) ModeChanged(mode string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.state.Settings == nil {
		return
	}
	now := *w.state.Settings
	now.Mode = mode
	w.state.Settings = &now
	w.state.Version++
	wake(&w.moved)
}

// see updates the state of the session and returns it.
func (w *Watch) see(idle bool, m mark, seq task.Seq) control.State {
	w.mu.Lock()
	defer w.mu.Unlock()
	first := w.state.Version == 0
	rested := idle && (first || !w.state.Idle || m != w.mark)
	if first || rested || idle != w.state.Idle {
		w.state.Version++
		w.state.Idle = idle
	}
	if rested {
		w.state.IdleCount++
		w.mark = m
	}
	w.state.Seq = seq
	return w.state
}

// next returns a channel that is closed when the conversation changes.
func (w *Watch) next() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.moved
}

// State returns the state of the whole session.
func (w *Watch) State(ctx context.Context, req control.StateRequest) (control.State, error) {
	wait, cancel := ctx, context.CancelFunc(func() {})
	if req.Wait > 0 {
		wait, cancel = context.WithTimeoutCause(ctx, req.Wait, supervise.ErrTimeout)
	}
	defer cancel()
	for {
		moved, ended, committed := w.next(), w.Changed(), w.NextCommit()
		before := w.s.Log.Last()
		idle, m := w.idle()
		// Read after the check: the log has its cause by now.
		state := w.see(idle, m, w.s.Log.Last())
		if req.Wait <= 0 || state.Version != req.After {
			return state, nil
		}
		err := w.untilAgents(wait, moved, ended, committed, before)
		if errors.Is(err, supervise.ErrTimeout) {
			return state, nil
		}
		if err != nil {
			return control.State{}, err
		}
	}
}

// untilAgents waits until the main agent has changed, a task has ended, or something has
// happened to an agent. Running commands, of which there may be thousands, do not count.
func (w *Watch) untilAgents(ctx context.Context, moved, ended, committed <-chan struct{}, seq task.Seq) error {
	for {
		select {
		case <-moved:
			return nil
		case <-ended:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-committed:
		}
		committed = w.s.Log.NextCommit()
		events, err := w.s.Log.Since(ctx, seq)
		if err != nil {
			return err
		}
		for _, e := range events {
			if seq = e.Seq; w.works(e.Task) && e.Verb != task.Report && e.Verb != task.Save {
				return nil
			}
		}
	}
}

// works reports whether a task of this kind keeps the session from being idle: not the main
// agent, a command or a monitor.
func (w *Watch) works(r task.Record) bool {
	return r.ID != w.s.Info.Session && !slices.Contains([]task.Work{task.ByCommand, task.ByEvents}, r.Traits().Work)
}

// idle reports whether nothing is left to do until the next request.
func (w *Watch) idle() (bool, mark) {
	w.mu.Lock()
	m := w.main
	w.mu.Unlock()
	if m == nil {
		working, ended := w.atWork()
		return working == 0, mark{ended: ended}
	}
	for {
		// Work passes from a task through the mailbox to a turn, and is checked in this order.
		// A turn that began and ended meanwhile may have started a task.
		before, _ := m.State()
		working, ended := w.atWork()
		mail, _ := m.Mail(context.Background()) // unreadable mail begins no turn
		at, _ := m.State()
		if at.Turns == before.Turns {
			quiet := working == 0 && !at.Working() && (!mail || at.Hold != conversation.NoHold)
			return quiet, mark{turns: at.Turns, ended: ended}
		}
	}
}

// atWork returns how many tasks keep the session from being idle, and when the last such task
// ended. The log shows slightly earlier than the record that an agent is idle.
func (w *Watch) atWork() (working int, ended time.Time) {
	resting := map[task.RunID]bool{}
	for _, r := range w.s.Tasks.Living() {
		if w.works(r) { // otherwise no task can be idle, and the log is not read
			for e := range w.s.Recent {
				resting[e.Task.Run] = e.Task.Resting()
			}
			break
		}
	}
	for _, r := range w.s.Tasks.List(0) {
		if !w.works(r) {
			continue
		}
		if r.EndTime != nil && r.EndTime.After(ended) {
			ended = *r.EndTime
		}
		rests, told := resting[r.Run]
		if !told {
			rests = r.Resting()
		}
		if !r.Status.Terminal() && !(rests && w.mail.Empty(r.ID)) {
			working++
		}
	}
	return working, ended
}
