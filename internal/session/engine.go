package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/drover-dev/drover/internal/agentenv/hook"
	"github.com/drover-dev/drover/internal/agentenv/usage"
	"github.com/drover-dev/drover/internal/engine/supervise"
	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
)

// Engine is the session as a program sees it that holds it and starts agents by
// a [subagent.Manager]. env and cwd are those of the agents.
func (s *Session) Engine(env []string, cwd string) subagent.Engine { return &engine{s, env, cwd} }

// Catalog is the types of agents as they are now.
func (s *Session) Catalog() subagent.Catalog { return s.cfg.Agents.Catalog() }

type engine struct {
	s   *Session
	env []string
	cwd string
}

// Launch implements [subagent.Engine].
func (e *engine) Launch(ctx context.Context, l subagent.Launch) (task.Record, error) {
	rules := e.s.cfg.Agents.Rules
	rules.Allow = slices.Concat(rules.Allow, l.Input.AllowedTools)
	me := caller{
		s:     e.s,
		id:    l.Parent,
		cwd:   e.cwd,
		env:   e.s.clientEnv(e.env),
		model: e.s.cfg.Agents.Model,
		rules: rules,
		given: &given{l.Agents, programHooks(l.Hooks)},
	}
	spec := task.Spec{Name: l.Name, Description: l.Description, Parent: l.Parent, Backgrounded: l.Background, Cwd: e.cwd}
	var rec task.Record
	var err error
	if l.Resume != "" {
		rec, _, err = e.s.relaunch(ctx, l.Resume, l.Input, spec, me)
	} else {
		rec, _, err = e.s.launch(ctx, l.Input, spec, me)
	}
	return rec, refused(err)
}

// refused makes an error of the engine one that a program can decide by.
func refused(err error) error {
	var limit *supervise.LimitError
	var spent *usage.BudgetError
	switch {
	case errors.As(err, &spent):
		return &subagent.LimitError{Limit: spent.Limit, Err: err}
	case errors.As(err, &limit):
		return &subagent.LimitError{Limit: limit.Limit, N: limit.N, Wait: limit.Wait, Err: err}
	case errors.Is(err, supervise.ErrClosing), errors.Is(err, supervise.ErrFrozen):
		return fmt.Errorf("%w: %w", subagent.ErrClosed, err)
	}
	return err
}

// Agents implements [subagent.Engine].
func (e *engine) Agents() []task.Record {
	var out []task.Record
	_ = e.s.sup.Listing(context.Background(), 0, func(_ task.Seq, r task.Record) bool { // what cannot be read is left out
		if e.isAgent(r) {
			out = append(out, r)
		}
		return true
	})
	return out
}

// isAgent leaves out the task that stands for the main agent.
func (e *engine) isAgent(r task.Record) bool {
	return r.Kind.IsAgent() && r.ID != e.s.cfg.Info.Session
}

// Agent implements [subagent.Engine].
func (e *engine) Agent(id task.ID) (task.Record, bool) {
	r, ok := e.s.sup.Get(id)
	return r, ok && e.isAgent(r)
}

// Done implements [subagent.Engine].
func (e *engine) Done(id task.ID) <-chan struct{} { return e.s.sup.Done(id) }

// Text implements [subagent.Engine].
func (e *engine) Text(ctx context.Context, r task.Record) (string, error) {
	return (&runtime{caller: caller{s: e.s}}).Text(ctx, r)
}

// Stop implements [subagent.Engine].
func (e *engine) Stop(ctx context.Context, id task.ID) (task.Receipt, error) {
	return e.s.sup.Stop(
		ctx,
		[]task.ID{id},
		supervise.StopRequest{Cause: task.Cause{Actor: task.ByClient, Reason: task.ReasonStopped}},
	)
}

// StartOwn starts work of a program by a driver of its own, and returns when it
// is durably pending. It cannot be kept past its host: the next would not know
// the driver.
func (s *Session) StartOwn(ctx context.Context, d task.Driver, spec task.Spec) (task.Record, error) {
	switch {
	case spec.ID != "":
		return task.Record{}, errors.New("start task: its ID is made by the runtime, and cannot be given")
	case spec.Keep:
		return task.Record{}, errors.New("start task: it cannot be kept: the next session does not know its driver")
	}
	spec.Backgrounded = true
	rec, err := s.sup.Start(ctx, d, spec)
	return rec, refused(err)
}

// given is what a program gives with an agent for it and all that is under it.
// A nil one gives nothing.
type given struct {
	agents subagent.Catalog
	hooks  *hook.Set
}

// catalog is the types of agents that somebody may start.
func (me caller) catalog() subagent.Catalog {
	if me.given != nil {
		return me.given.agents
	}
	return me.s.cfg.Agents.Catalog()
}

// hooks are those of the session, of the definition, and of the program.
func (me caller) hooks(def subagent.Definition) *hook.Set {
	set := me.s.hooksOf(def)
	if me.given != nil {
		set = set.Join(me.given.hooks)
	}
	return set
}

// programHooks puts functions of a program beside the hooks of files, so that the
// same rules hold for them.
func programHooks(h subagent.Hooks) *hook.Set {
	set := &hook.Set{}
	if h == nil {
		return set
	}
	set, _ = set.With( // both events are known
		hook.Callback{Event: string(hook.SubagentStart), Call: program(func(ctx context.Context, p hookPayload) any {
			own := map[string]string{
				"hookEventName":     string(hook.SubagentStart),
				"additionalContext": h.SubagentStart(ctx, p.agent()),
			}
			return map[string]any{"hookSpecificOutput": own}
		})},
		hook.Callback{Event: string(hook.SubagentStop), Call: program(func(ctx context.Context, p hookPayload) any {
			reason := h.SubagentStop(ctx, p.agent(), subagent.HookEnd{Answer: p.Answer, Again: p.Again, Err: p.Error})
			if reason == "" {
				return map[string]any{}
			}
			return map[string]any{"decision": "block", "reason": reason}
		})})
	return set
}

// hookPayload is what a hook is told, as far as a program reads it.
type hookPayload struct {
	ID         task.ID `json:"agent_id"`
	Type       string  `json:"agent_type"`
	Transcript string  `json:"agent_transcript_path"`
	Answer     string  `json:"last_assistant_message"`
	Again      bool    `json:"stop_hook_active"`
	Error      string  `json:"error"`
}

func (p hookPayload) agent() subagent.HookAgent {
	return subagent.HookAgent{ID: p.ID, Type: p.Type, Transcript: p.Transcript}
}

// program calls a function that is told of an event. One that panics is a hook
// that could not be run.
func program(f func(context.Context, hookPayload) any) func(context.Context, json.RawMessage) (json.RawMessage, error) {
	return func(ctx context.Context, raw json.RawMessage) (_ json.RawMessage, err error) {
		defer func() {
			if v := recover(); v != nil {
				err = fmt.Errorf("panic: %v", v)
			}
		}()
		var p hookPayload
		if err := json.Unmarshal(raw, &p); err != nil {
			return nil, err
		}
		return json.Marshal(f(ctx, p))
	}
}
