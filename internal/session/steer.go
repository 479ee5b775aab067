package session

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
)

// goOn is what an agent is told that is resumed without a prompt.
const goOn = "Go on."

// userName is who has written where nobody is named.
const userName = "user"

// Send gives a message to an agent, or a prompt to the main agent.
func (s *Session) Send(ctx context.Context, req control.SendRequest) (task.Record, error) {
	if strings.TrimSpace(req.Text) == "" && !req.Raw {
		return task.Record{}, &control.Error{Code: control.Invalid, Message: "the message is empty"}
	}
	if own := s.cfg.Info.Session; req.Ref == string(own) {
		rec, _ := s.sup.Get(own)
		rec.ID, rec.Session = own, own
		return rec, s.sendMain(ctx, req)
	}
	r, err := s.tree.Find(req.Ref)
	switch {
	case err != nil:
		return r, refusal(err)
	case r.ID == s.cfg.Info.Session:
		return r, s.sendMain(ctx, req)
	case r.TTY:
		return r, s.typeInto(ctx, r, req)
	case r.Traits().Work == task.ByCommand:
		return r, noReader(r)
	case req.Raw:
		return r, noKeys(r.ID)
	case !r.Kind.IsAgent():
		return r, s.steerWork(ctx, r, req.Text)
	case r.Status.Terminal() && r.Team == nil:
		return s.again(ctx, r, req.Text, req.Env)
	}
	m := task.Message{To: r.ID, From: cmp.Or(req.From, userName), Kind: task.PlainMessage, Text: req.Text}
	if err := m.Check(); err != nil {
		return r, &control.Error{Code: control.Invalid, Message: err.Error()}
	}
	seq, err := s.sup.Post(ctx, m)
	if errors.Is(err, task.ErrMailFull) {
		return r, &control.Error{
			Code:    control.Unavailable,
			Message: fmt.Sprintf("agent %s has too much mail that it has not read", r.ID),
			Fix:     "wait until it has read some",
		}
	} else if err != nil {
		return r, refusal(err)
	}
	if r.Status.Terminal() { // a teammate, which goes on with its mail
		rec, err := s.again(ctx, r, goOn, req.Env)
		return rec, s.takeBack(ctx, r.ID, seq, err)
	}
	return r, nil
}

// takeBack puts a message away for which an agent was to go on, and could not: who is
// told so sends it anew. An agent that somebody else let go on meanwhile has it.
func (s *Session) takeBack(ctx context.Context, to task.ID, seq task.Seq, refused error) error {
	if now, there := s.sup.Get(to); refused == nil || there && !now.Status.Terminal() {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), lastHooks, task.ErrClosing)
	defer cancel()
	box, err := s.box(ctx, to)
	if err == nil {
		err = box.Acknowledge(ctx, seq)
	}
	if err != nil {
		return errors.Join(refused, fmt.Errorf("the message stays in the mailbox: %w", err))
	}
	return refused
}

func (s *Session) sendMain(ctx context.Context, req control.SendRequest) error {
	if req.Raw {
		return noKeys(s.cfg.Info.Session)
	}
	return s.Prompt(ctx, control.PromptRequest{Text: req.Text})
}

func noKeys(id task.ID) error {
	return &control.Error{Code: control.Conflict, Message: fmt.Sprintf("%s has no terminal: keys mean nothing to it", id)}
}

// noReader says why something takes no message, and what can be done instead.
func noReader(r task.Record) error {
	e := &control.Error{Code: control.Conflict, Message: fmt.Sprintf("task %s (%s) reads no messages", r.ID, r.Noun())}
	if r.Traits().Work == task.ByCommand {
		e.Message = fmt.Sprintf("task %s is a command, which reads its input from /dev/null", r.ID)
		e.Fix = fmt.Sprintf(
			"give the input when it is started, or start it with a terminal: `drover run -d --tty`; `drover stop %s` ends this one",
			r.ID,
		)
	}
	return e
}

// Pause holds whole subtrees.
func (s *Session) Pause(ctx context.Context, refs []string) ([]task.Record, error) {
	ids, err := s.find(refs)
	if err != nil {
		return nil, err
	}
	for _, id := range ids { // all are looked at before the first stands still
		if r, _ := s.sup.Get(id); r.Status.Terminal() {
			return nil, &control.Error{Code: control.Conflict, Message: fmt.Sprintf("task %s has ended (%s)", id, r.Status)}
		}
	}
	recs := []task.Record{}
	for _, id := range ids {
		some, err := s.sup.Pause(ctx, id)
		if recs = append(recs, some...); err != nil {
			return recs, refusal(err)
		}
	}
	return recs, nil
}

// Suspend pauses everything before this process stands still; see [supervise.Supervisor.Suspend].
func (s *Session) Suspend(ctx context.Context) (goOn func(context.Context) error, err error) {
	return s.sup.Suspend(ctx)
}

// Resume lets a paused subtree go on, or gives an ended agent a new run.
func (s *Session) Resume(ctx context.Context, req control.ResumeRequest) (task.Record, error) {
	r, err := s.tree.Find(req.Ref)
	if err != nil {
		return r, refusal(err)
	}
	switch {
	case r.Paused && req.Prompt != "":
		return r, &control.Error{
			Code:    control.Conflict,
			Message: fmt.Sprintf("task %s is paused and goes on with what it did", r.ID),
			Fix:     fmt.Sprintf("resume it without a prompt, and tell it the rest by `drover send %s`", r.ID),
		}
	case r.Paused:
		if _, err := s.sup.Thaw(ctx, r.ID); err != nil {
			return r, refusal(err)
		}
		r, _ = s.sup.Get(r.ID)
		return r, nil
	case !r.Status.Terminal():
		return r, &control.Error{Code: control.Conflict, Message: fmt.Sprintf("task %s is %s and not paused", r.ID, r.Status),
			Fix: fmt.Sprintf("to tell it something use `drover send %s`", r.ID)}
	case r.ID == s.cfg.Info.Session:
		return r, &control.Error{Code: control.Conflict, Message: "this conversation has ended",
			Fix: fmt.Sprintf("go on with `drover -p --resume %s \"…\"`", r.ID)}
	case r.Traits().Work == task.BySteps:
		return s.resumeWorkflow(ctx, r, req)
	case !r.Kind.IsAgent():
		return r, &control.Error{
			Code:    control.Conflict,
			Message: fmt.Sprintf("task %s (%s) has ended (%s) and cannot go on", r.ID, r.Noun(), r.Status),
			Fix:     "start it anew",
		}
	}
	return s.again(ctx, r, cmp.Or(req.Prompt, goOn), req.Env)
}

// again gives an agent that has ended a new run, for somebody outside. Whoever
// is told of its ends is told of this one.
func (s *Session) again(ctx context.Context, r task.Record, prompt string, env []string) (task.Record, error) {
	me, err := s.above(r, env)
	if err != nil {
		return r, refusal(err)
	}
	in, err := asked(s.sup.Input(r.ID))
	if err != nil {
		return r, refusal(err)
	}
	s.hops.worked(r.ID)
	in.Type, in.Prompt, in.Model = r.AgentType, prompt, r.Model
	me.rules.Allow = slices.Concat(me.rules.Allow, in.AllowedTools)
	rec, _, err := s.relaunch(ctx, r.ID, in, task.Spec{Backgrounded: true, Owner: r.Owner, Cwd: r.Cwd}, me)
	if err != nil {
		return r, refusal(err)
	}
	return rec, nil
}

// asked is the input of an earlier run, as far as it is known.
func asked(raw json.RawMessage) (in subagent.Input, err error) {
	if raw != nil {
		err = json.Unmarshal(raw, &in)
	}
	return in, err
}

// above stands for who has started an agent, so that a further run gets no more
// than the first: the main agent or a client, and then each agent down to it.
func (s *Session) above(r task.Record, env []string) (caller, error) {
	if p, ok := s.sup.Get(r.Parent); ok && r.Parent != s.cfg.Info.Session {
		me, err := s.above(p, env)
		if err != nil || p.Traits().Work == task.BySteps {
			return me, err
		}
		c, err := s.child(subagent.Input{Type: p.AgentType, Model: p.Model}, me)
		if err != nil {
			return me, err
		}
		c.id, c.depth, c.cwd = p.ID, p.Depth, cmp.Or(p.Cwd, c.cwd)
		return c.caller, nil
	}
	s.mu.Lock()
	m := s.main
	s.mu.Unlock()
	if m != nil && r.Owner == s.cfg.Info.Session {
		return m.environment.me, nil
	}
	if len(env) == 0 {
		env = s.cfg.Agents.Env
	}
	return caller{
		s:     s,
		cwd:   cmp.Or(r.Cwd, s.cfg.Info.Project),
		env:   s.clientEnv(env),
		model: s.cfg.Agents.Model,
		rules: s.cfg.Agents.Rules,
	}, nil
}
