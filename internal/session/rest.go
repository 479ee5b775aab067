package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/engine/mailbox"
	"github.com/drover-dev/drover/internal/session/conversation"
	"github.com/drover-dev/drover/task"
)

// errRested ends the rest of an agent to whom nobody has written.
var errRested = errors.New("nobody has written for a while")

// rest makes what an agent does after an answer: with many turns, and nobody who
// waits for it in the foreground, its owner is told the answer, and it waits for
// a message. The end of its time, of its session or of its parent is a good end:
// the work is done.
func (c *child) rest(h task.Host, box *mailbox.Box) func(context.Context, agent.TurnResult) (bool, error) {
	s := c.s
	return func(ctx context.Context, turn agent.TurnResult) (bool, error) {
		r := h.Record()
		broken := turn.Reason == "interrupted"
		if !broken && (c.mate.ends() || c.mate == nil && (!s.cfg.Limits.MultiTurn || !r.Backgrounded)) {
			return false, nil
		}
		if !c.mate.asks() || turn.Reason != "tool_end" { // else its plan says more
			if err := s.tellIdle(ctx, r, turn); err != nil {
				return false, err
			}
		}
		err := h.Rest(ctx, func(ctx context.Context) error {
			s.mu.Lock()
			s.wake() // whoever settles does not wait for it now
			s.mu.Unlock()
			if c.mate != nil { // it stays until somebody ends it
				return box.Wait(ctx)
			}
			wait, cancel := context.WithTimeoutCause(ctx, s.cfg.Limits.IdleTimeout, errRested)
			defer cancel()
			return box.Wait(wait)
		})
		var stop *task.StopError
		switch {
		case err == nil:
			return true, nil
		case broken && errors.Is(err, errRested):
			return false, &task.FailError{
				Reason: "interrupted",
				Err:    errors.New("it was interrupted, and nobody has told it since how to go on"),
			}
		case broken:
			return false, err
		case errors.Is(err, errRested), errors.Is(err, task.ErrClosing),
			errors.As(err, &stop) && (stop.Cause.Reason == task.ReasonParentEnded || stop.Cause.Reason == task.ReasonClosing):
			return false, nil
		}
		return false, err
	}
}

// tellIdle gives an answer to the owner of an agent. An owner who is gone, or who
// reads nothing, can still ask for it.
func (s *Session) tellIdle(ctx context.Context, r task.Record, turn agent.TurnResult) error {
	if r.Owner == "" || !r.Backgrounded { // who waits for it would read it too late
		return nil
	}
	answer, has, kind := turn.Text, "answered", task.AgentIdle
	if turn.Reason == "interrupted" {
		has, kind = "been interrupted", task.AgentHalted
	}
	const most = task.MaxMessageBytes - 4<<10
	answer = cmp.Or(strings.TrimSpace(strings.ToValidUTF8(answer, "\uFFFD")), "(It gave no answer.)")
	if len(answer) > most {
		answer = strings.ToValidUTF8(answer[:most], "") + "\n[The rest is in " + r.OutputFile + "]"
	}
	what := "Agent"
	if r.Team != nil {
		what = "Teammate"
	}
	text := fmt.Sprintf(what+" %s has %s and waits for a message.\n\n%s", r.ID, has, answer)
	_, err := s.sup.Post(
		ctx,
		task.Message{To: r.Owner, From: cmp.Or(r.Name, string(r.ID)), Kind: kind, Text: text, Hops: s.hops.answer(r.ID)},
	)
	if errors.Is(err, task.ErrMailFull) {
		return nil
	}
	return err
}

// turnOf gives each turn of an agent a context that [Session.Interrupt] can end.
func (s *Session) turnOf(id task.ID) func(context.Context) (context.Context, func()) {
	return func(ctx context.Context) (context.Context, func()) {
		turn, cancel := context.WithCancelCause(ctx)
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.turns == nil {
			s.turns = map[task.ID]context.CancelCauseFunc{}
		}
		s.turns[id] = cancel
		return turn, func() {
			s.mu.Lock()
			delete(s.turns, id)
			s.mu.Unlock()
			cancel(nil)
		}
	}
}

// Interrupt breaks off the turn of an agent, which then waits for a message.
func (s *Session) Interrupt(_ context.Context, ref string) (task.Record, error) {
	own := s.cfg.Info.Session
	r, err := s.tree.Find(ref)
	s.mu.Lock()
	main, cancel := s.main, s.turns[r.ID]
	s.mu.Unlock()
	switch {
	case main != nil && (ref == string(own) || err == nil && r.ID == own):
		main.Interrupt()
		r.ID, r.Session = own, own
		return r, nil
	case err != nil:
		return r, refusal(err)
	case cancel == nil:
		return r, &control.Error{
			Code:    control.Conflict,
			Message: fmt.Sprintf("task %s is in no turn that could be interrupted", r.ID),
			Fix:     fmt.Sprintf("to end it use `drover stop %s`", r.ID),
		}
	}
	cancel(conversation.ErrInterrupted)
	return r, nil
}
