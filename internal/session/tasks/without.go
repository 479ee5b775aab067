package tasks

import (
	"context"
	"fmt"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/engine/supervise"
	"github.com/drover-dev/drover/task"
)

var _ control.API = (*Session)(nil)

// noAgents refuses what a session of tasks cannot do.
func noAgents(what string) error {
	return control.Refuse(control.Unavailable, "cannot "+what+": this session has no agents", "")
}

// State returns the state of the session: it is idle while no task runs but commands and monitors.
func (s *Session) State(ctx context.Context, req control.StateRequest) (control.State, error) {
	wait, cancel := ctx, context.CancelFunc(func() {})
	if req.Wait > 0 {
		wait, cancel = context.WithTimeoutCause(ctx, req.Wait, supervise.ErrTimeout)
	}
	defer cancel()
	for {
		committed := s.NextCommit()
		now := s.look()
		if req.Wait <= 0 || now.Version != req.After {
			return now, nil
		}
		select {
		case <-committed:
		case <-wait.Done():
			if ctx.Err() != nil {
				return control.State{}, context.Cause(ctx)
			}
			return now, nil
		}
	}
}

// look updates the state and returns it.
func (s *Session) look() control.State {
	idle := true
	for _, r := range s.Tree.Tasks.Living() {
		if w := r.Traits().Work; w != task.ByCommand && w != task.ByEvents {
			idle = false
		}
	}
	s.ends.Lock()
	defer s.ends.Unlock()
	if s.state.Version == 0 || idle != s.state.Idle {
		s.state.Version++
		if s.state.Idle = idle; idle {
			s.state.IdleCount++
		}
	}
	s.state.Seq = s.Newest()
	return s.state
}

// Messages is refused.
func (s *Session) Messages(context.Context, control.MessagesRequest) (control.Messages, error) {
	return control.Messages{}, noAgents("show messages")
}

// Prompts returns none.
func (s *Session) Prompts(context.Context) (control.Prompts, error) {
	return control.Prompts{}, nil
}

// Fork is refused.
func (s *Session) Fork(context.Context, control.ForkRequest) (control.Forked, error) {
	return control.Forked{}, noAgents("copy the conversation")
}

// Diff is refused: no task has a worktree of its own.
func (s *Session) Diff(_ context.Context, req control.DiffRequest) (control.Diff, error) {
	return control.Diff{}, noAgents("show the changes of " + req.Ref)
}

// Comment is refused.
func (s *Session) Comment(_ context.Context, req control.CommentRequest) (task.Record, error) {
	return task.Record{}, noAgents("comment on the changes of " + req.Ref)
}

// Interrupt is refused.
func (s *Session) Interrupt(_ context.Context, ref string) (task.Record, error) {
	return task.Record{}, noAgents(fmt.Sprintf("interrupt a turn of %q", ref))
}
