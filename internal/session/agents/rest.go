package agents

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/engine/mailbox"
	"github.com/drover-dev/drover/internal/session/conversation"
	"github.com/drover-dev/drover/task"
)

// errRested ends the idle time of an agent that got no message.
var errRested = errors.New("nobody has written for a while")

// rest is called after an answer. With multi-turn agents, if no caller waits for the agent in
// the foreground, it sends the answer to the owner and waits for a message. If its idle time,
// its session or its parent ends, the run completes, since the work is done.
func (c *Child) rest(h task.Host, box *mailbox.Box) func(context.Context, agent.TurnResult) (bool, error) {
	s := c.s
	return func(ctx context.Context, turn agent.TurnResult) (bool, error) {
		r := h.Record()
		broken := turn.Reason == "interrupted"
		if !broken && (c.teammate.ends() || c.teammate == nil && (!s.cfg.Limits.MultiTurn || !r.Backgrounded)) {
			return false, nil
		}
		if !c.teammate.asks() || turn.Reason != "tool_end" { // its plan is the message otherwise
			if err := s.tellIdle(ctx, r, turn); err != nil {
				return false, err
			}
		}
		err := h.Rest(ctx, func(ctx context.Context) error {
			s.Idle.Change()        // callers that settle no longer wait for it
			if c.teammate != nil { // it stays until it is ended
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

// tellIdle sends an answer to the owner of an agent. If the owner has ended or its mailbox is
// full, it can still read the answer.
func (s *Set) tellIdle(ctx context.Context, r task.Record, turn agent.TurnResult) error {
	if r.Owner == "" || !r.Backgrounded { // a waiting owner would read it too late
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
	_, err := s.Tasks.Post(
		ctx,
		task.Message{To: r.Owner, From: cmp.Or(r.Name, string(r.ID)), Kind: kind, Text: text, Hops: s.Mailboxes.Hops(r.ID)},
	)
	if errors.Is(err, task.ErrMailFull) {
		return nil
	}
	return err
}

// turnOf returns for each turn of an agent a context that [Set.Interrupt] can cancel.
func (s *Set) turnOf(id task.ID) func(context.Context) (context.Context, func()) {
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

// Interrupt cancels the turn of an agent, which then waits for a message. It reports whether
// the agent was in a turn.
func (s *Set) Interrupt(id task.ID) bool {
	s.mu.Lock()
	cancel := s.turns[id]
	s.mu.Unlock()
	if cancel != nil {
		cancel(conversation.ErrInterrupted)
	}
	return cancel != nil
}
