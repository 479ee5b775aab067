package session

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/engine/supervise"
	"github.com/drover-dev/drover/internal/session/conversation"
	"github.com/drover-dev/drover/task"
)

// pulse is the state of a session as it was seen last, with what makes others
// look again. The zero value works.
type pulse struct {
	mu      sync.Mutex // guards what follows
	state   control.State
	mark    mark          // of the work behind the state
	changed chan struct{} // closed and replaced when the main agent has moved
}

// mark tells two rests with work between them from one.
type mark struct {
	turns int       // of the main agent that have ended
	ended time.Time // of the agent that ended last
}

// moved says that the main agent has begun or ended something.
func (p *pulse) moved() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wake()
}

// wake frees those who wait for the state. The caller holds mu.
func (p *pulse) wake() {
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
}

// next returns a channel that is closed when the main agent moves.
func (p *pulse) next() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.changed == nil {
		p.changed = make(chan struct{})
	}
	return p.changed
}

// complete takes a call of task_complete in.
func (p *pulse) complete(c control.Completion) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state.Completed != nil {
		c.N = p.state.Completed.N
	}
	c.N++
	p.state.Completed = &c
	p.state.Version++
	p.wake()
}

// configured takes in the settings of the main agent.
func (p *pulse) configured(now control.Settings) control.Settings {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state.Settings = &now
	p.state.Version++
	p.wake()
	return now
}

// see takes in how the session stands, and returns its state.
func (p *pulse) see(idle bool, m mark, seq task.Seq) control.State {
	p.mu.Lock()
	defer p.mu.Unlock()
	first := p.state.Version == 0
	rested := idle && (first || !p.state.Idle || m != p.mark)
	if first || rested || idle != p.state.Idle {
		p.state.Version++
		p.state.Idle = idle
	}
	if rested {
		p.state.IdleCount++
		p.mark = m
	}
	p.state.Seq = seq
	return p.state
}

// State says where the session stands as a whole.
func (s *Session) State(ctx context.Context, req control.StateRequest) (control.State, error) {
	wait, cancel := ctx, context.CancelFunc(func() {})
	if req.Wait > 0 {
		wait, cancel = context.WithTimeoutCause(ctx, req.Wait, supervise.ErrTimeout)
	}
	defer cancel()
	for {
		moved, ended, grown := s.pulse.next(), s.Changed(), s.log.Grown()
		before := s.log.Last()
		idle, m := s.idle()
		// Read after the look: what made it so is in the log by now.
		state := s.pulse.see(idle, m, s.log.Last())
		if req.Wait <= 0 || state.Version != req.After {
			return state, nil
		}
		err := s.untilAgents(wait, moved, ended, grown, before)
		if errors.Is(err, supervise.ErrTimeout) {
			return state, nil
		}
		if err != nil {
			return control.State{}, err
		}
	}
}

// untilAgents waits until the main agent has moved, a task has ended, or
// something has happened to an agent: commands, of which there may be thousands,
// do not count while they run.
func (s *Session) untilAgents(ctx context.Context, moved, ended, grown <-chan struct{}, seq task.Seq) error {
	for {
		select {
		case <-moved:
			return nil
		case <-ended:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-grown:
		}
		grown = s.log.Grown()
		events, err := s.log.Since(ctx, seq)
		if err != nil {
			return err
		}
		for _, e := range events {
			if seq = e.Seq; s.works(e.Task) && e.Verb != task.Report && e.Verb != task.Save {
				return nil
			}
		}
	}
}

// works reports whether a task is of a sort that holds the session from being
// idle: not the main agent, no command, no monitor.
func (s *Session) works(r task.Record) bool {
	return r.ID != s.cfg.Info.Session && !slices.Contains([]task.Work{task.ByCommand, task.ByEvents}, r.Traits().Work)
}

// idle reports whether nothing is left to do until somebody asks for something.
func (s *Session) idle() (bool, mark) {
	s.mu.Lock()
	m := s.main
	s.mu.Unlock()
	if m == nil {
		working, ended := s.atWork()
		return working == 0, mark{ended: ended}
	}
	for {
		// Work goes from a task by the mailbox to a turn, and is looked for in this
		// order. A turn that came and went meanwhile may have started anything.
		before, _ := m.State()
		working, ended := s.atWork()
		mail, _ := m.Mail(context.Background()) // what cannot be read begins no turn
		at, _ := m.State()
		if at.Turns == before.Turns {
			quiet := working == 0 && !at.Working() && (!mail || at.Hold != conversation.NoHold)
			return quiet, mark{turns: at.Turns, ended: ended}
		}
	}
}

// atWork is how many tasks hold the session from being idle, and when the last
// such task ended. That an agent rests can be seen in the log a moment before it
// can be seen in its record.
func (s *Session) atWork() (working int, ended time.Time) {
	resting := map[task.RunID]bool{}
	for _, r := range s.sup.Living() {
		if s.works(r) { // else nobody can rest, and the log is left alone
			for e := range s.tree.Recent {
				resting[e.Task.Run] = e.Task.Idle
			}
			break
		}
	}
	for _, r := range s.sup.List(0) {
		if !s.works(r) {
			continue
		}
		if r.EndTime != nil && r.EndTime.After(ended) {
			ended = *r.EndTime
		}
		rests, told := resting[r.Run]
		if !told {
			rests = r.Idle
		}
		if !r.Status.Terminal() && !(rests && s.read(r.ID)) {
			working++
		}
	}
	return working, ended
}
