package agents

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/engine/mailbox"
	"github.com/drover-dev/drover/internal/session/conversation"
	"github.com/drover-dev/drover/internal/session/environment"
	"github.com/drover-dev/drover/internal/session/messages"
	"github.com/drover-dev/drover/internal/session/tree"
	"github.com/drover-dev/drover/task"
)

// Ends of the idle time of an agent that got no mail.
var (
	errRested = errors.New("nobody has written for a while")
	errAlone  = errors.New("none of its tasks is at work")
)

// next is what an agent does after an answer.
type next int

const (
	ends          next = iota // its run ends, and its tasks are stopped
	passesOn                  // its run ends, and its tasks go to its parent
	reads                     // it continues with its mail
	waitsForMail              // it rests
	waitsForTasks             // it rests until a task of its own ends
)

// answered has the facts about an agent after an answer.
type answered struct {
	leaves  bool   // a teammate that was asked to finish
	stays   bool   // it was interrupted, or answers messages: a teammate, or a multi-turn agent
	called  bool   // an agent waits in the foreground for its answer
	onEnd   string // of its definition
	movable bool   // its tasks can outlive the place in which it works
	unread  bool   // an end or a message that it has not read
	works   bool   // a task of its own is at work, other than monitors
}

// next decides what the agent does, so that no end of a task that it has started is lost.
func (a answered) next() next {
	switch {
	case a.leaves:
		return ends
	case a.stays:
		return waitsForMail
	case a.onEnd == "" && !a.called && (a.works || a.unread):
		return waitsForTasks // with mail for no time, so that a replay has the same events
	case a.unread:
		return reads
	case a.onEnd == task.Reparents, a.onEnd == "" && a.called && a.movable:
		return passesOn
	}
	return ends
}

// movable reports whether the tasks of an agent can outlive its run. Those in a checkout or a
// workspace of its own end with that.
func movable(r task.Record) bool { return !tree.Isolated(r) && r.On == "" }

// called reports whether an agent waits for a run in the foreground. A workflow or a client that
// waits cannot take the tasks of the run over.
func called(r task.Record) bool { return !r.Backgrounded && r.Owner != "" }

// unless returns the end of the sentence "You will be told when it ends" about a task that the agent has
// started: what becomes of the task if the agent ends first. events is set for a monitor.
func (rt *Runtime) unless(events bool) string {
	if rt.Host == nil || rt.teammate != nil {
		return ""
	}
	switch r := rt.Host.Record(); {
	case r.OnEnd == task.Reparents, r.OnEnd == "" && called(r) && movable(r):
		return ", unless you end before: then it belongs to the agent that started you, which will be told"
	case r.OnEnd == task.Stops, called(r), events:
		return ", unless you end before: then it is stopped"
	}
	return fmt.Sprintf(", also after your answer, and go on then; what runs %s after an answer is stopped", rt.s.Options.Agents.WaitForTasks)
}

// rest is called after an answer, and decides whether the agent continues. An agent whose idle
// time, session or parent ends while it waits for a message has completed, since its work is
// done.
func (c *Child) rest(h task.Host, box *mailbox.Box) func(context.Context, *agent.Loop, agent.TurnResult) (bool, error) {
	s, replies := c.s, 0
	return func(ctx context.Context, loop *agent.Loop, turn agent.TurnResult) (bool, error) {
		replies += turn.Turns
		// Read before the mail, which has the end of one that ends now.
		atWork, err := s.cfg.Seam.Texts(ctx, h.Record().ID, environment.WorksTexts, func() ([]string, error) {
			return s.atWork(h.Record().ID), nil
		})
		if err != nil {
			return false, err
		}
		unread, err := loop.Unread(ctx)
		if err != nil {
			return false, err
		}
		works := len(atWork) > 0
		r := h.Record()
		broken := turn.Reason == "interrupted"
		do := answered{
			leaves: !broken && c.teammate.ends(),
			stays:  broken || c.teammate != nil || s.Options.Agents.MultiTurn && r.Backgrounded,
			called: called(r), onEnd: r.OnEnd, movable: movable(r), works: works,
			unread: slices.ContainsFunc(unread, func(m agent.MailMessage) bool { return m.Origin != messages.EventOrigin }),
		}.next()
		switch do {
		case ends, passesOn:
			c.passOn = do == passesOn
			return false, nil
		case reads:
			return true, nil
		case waitsForTasks:
			if most := cmp.Or(c.MaxTurns, agent.DefaultMaxTurns); replies >= most {
				return false, &agent.LimitError{Limit: "max_turns", N: most}
			}
		case waitsForMail:
			if c.teammate.asks() && turn.Reason == "tool_end" { // its plan is the message
				break
			}
			if err := s.tellIdle(ctx, r, turn); err != nil {
				return false, err
			}
		}
		err = h.Rest(ctx, func(ctx context.Context) error {
			s.idle.Change() // callers that settle no longer wait for it
			limit := s.Options.Agents.IdleTimeout
			switch {
			case c.teammate != nil: // it stays until it is ended
				return box.Wait(ctx)
			case do == waitsForTasks:
				limit = s.Options.Agents.WaitForTasks
			case works:
				limit = max(s.Options.Agents.WaitForTasks, limit)
			}
			for {
				err := func() error {
					wait, cancel := context.WithTimeoutCause(ctx, limit, errRested)
					defer cancel()
					if do == waitsForTasks {
						return s.untilTask(wait, r.ID, box)
					}
					return box.Wait(wait)
				}()
				if !errors.Is(err, errRested) || !h.Record().Paused {
					return err
				}
				if err := h.WaitWhilePaused(ctx); err != nil { // a pause ends nothing
					return err
				}
			}
		})
		var stop *task.StopError
		switch {
		case err == nil:
			return true, nil
		case do == waitsForTasks:
			if errors.Is(err, errRested) || errors.Is(err, errAlone) {
				err = nil
			}
			return false, err
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

// works reports whether a task of an agent is at work for which it waits.
func (s *Set) works(id task.ID) bool { return len(s.atWork(id)) > 0 }

// atWork returns the IDs of these tasks.
func (s *Set) atWork(id task.ID) (ids []string) {
	for _, r := range s.Tasks.Children(id) {
		if r.WaitedFor() && !s.mail.Waits(r) {
			ids = append(ids, string(r.ID))
		}
	}
	return ids
}

// untilTask waits until an agent has mail, or nothing of its own is at work.
func (s *Set) untilTask(ctx context.Context, id task.ID, box *mailbox.Box) error {
	for {
		ended, mailed := s.idle.Changed(), box.Mailed()
		works := s.works(id)
		mail, err := box.Mail(ctx)
		switch {
		case len(mail) > 0 || err != nil:
			return err
		case !works:
			return errAlone
		}
		select {
		case <-ended:
		case <-mailed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
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
	_, err := s.Tasks.Post(ctx,
		task.Message{To: r.Owner, From: cmp.Or(r.Name, string(r.ID)), Kind: kind, Text: text, Hops: s.mail.Hops(r.ID)})
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
