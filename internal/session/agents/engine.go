package agents

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/drover-dev/drover/internal/engine/supervise"
	"github.com/drover-dev/drover/internal/model/usage"
	"github.com/drover-dev/drover/internal/policy/hook"
	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
)

// Engine is the session as seen by a program that embeds it and starts agents with a
// [subagent.Manager]. Its agents get env and cwd.
func (s *Set) Engine(env []string, cwd string) subagent.Engine { return &engine{s, env, cwd} }

// Catalog returns the current types of agents.
func (s *Set) Catalog() subagent.Catalog { return s.cfg.Catalog() }

type engine struct {
	s   *Set
	env []string
	cwd string
}

// Launch implements [subagent.Engine].
func (e *engine) Launch(ctx context.Context, l subagent.Launch) (task.Record, error) {
	rules := e.s.cfg.Rules
	rules.Allow = slices.Concat(rules.Allow, l.Input.AllowedTools)
	me := Caller{ID: l.Parent,
		Cwd:   e.cwd,
		Env:   e.s.clientEnv(e.env),
		Model: e.s.Options.Model,
		Rules: rules,
		given: &given{l.Agents, programHooks(l.Hooks)},
	}
	spec := task.Spec{Name: l.Name, Description: l.Description, Parent: l.Parent, Backgrounded: l.Background, Cwd: e.cwd}
	var rec task.Record
	var err error
	if l.Resume != "" {
		rec, _, err = e.s.Relaunch(ctx, l.Resume, l.Input, spec, me)
	} else {
		rec, _, err = e.s.Launch(ctx, l.Input, spec, me)
	}
	return rec, ProgramError(err)
}

// ProgramError converts an error of the engine into an error that programs can test for.
func ProgramError(err error) error {
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
	// Unreadable parts are left out.
	_ = e.s.Tasks.Listing(context.Background(), 0, func(_ task.Seq, r task.Record) bool {
		if e.isAgent(r) {
			out = append(out, r)
		}
		return true
	})
	return out
}

// isAgent excludes the task of the main agent.
func (e *engine) isAgent(r task.Record) bool {
	return r.Kind.IsAgent() && r.ID != e.s.Info.Session
}

// Agent implements [subagent.Engine].
func (e *engine) Agent(id task.ID) (task.Record, bool) {
	r, ok := e.s.Tasks.Get(id)
	return r, ok && e.isAgent(r)
}

// Done implements [subagent.Engine].
func (e *engine) Done(id task.ID) <-chan struct{} { return e.s.Tasks.Done(id) }

// Text implements [subagent.Engine].
func (e *engine) Text(ctx context.Context, r task.Record) (string, error) {
	return e.s.Runtime(Caller{}).Text(ctx, r)
}

// Stop implements [subagent.Engine].
func (e *engine) Stop(ctx context.Context, id task.ID) (task.Receipt, error) {
	return e.s.Tasks.Stop(ctx, []task.ID{id},
		supervise.StopRequest{Cause: task.Cause{Actor: task.ByClient, Reason: task.ReasonStopped}})
}

// given is a program's own catalog and hooks for an agent and everything below it. A nil one
// is empty.
type given struct {
	agents subagent.Catalog
	hooks  *hook.Set
}

// catalog returns the types of agents that a caller may start.
func (s *Set) catalog(me Caller) subagent.Catalog {
	if me.given != nil {
		return me.given.agents
	}
	return s.cfg.Catalog()
}

// hooks joins the hooks of the session, of the definition and of the program.
func (s *Set) hooks(me Caller, def subagent.Definition) *hook.Set {
	set := s.hooksOf(def)
	if me.given != nil {
		set = set.Join(me.given.hooks)
	}
	return set
}
