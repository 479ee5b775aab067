package agents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/drover-dev/drover/internal/engine/supervise"
	"github.com/drover-dev/drover/internal/model/usage"
	"github.com/drover-dev/drover/internal/policy/hook"
	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
)

// Own is an agent that the program starts which holds the session.
type Own struct {
	subagent.Input
	Spec   task.Spec // Name, Description, Team, Cwd and Backgrounded
	Env    []string
	Parent task.ID // the agent whose tool starts it; empty: none
}

// StartOwn starts an agent for the program, and returns when it is durably pending.
func (s *Set) StartOwn(ctx context.Context, o Own) (task.Record, error) {
	me := s.Client(o.Spec.Cwd, o.Env, o.AllowedTools)
	me.ID, o.Spec.Parent = o.Parent, o.Parent
	rec, _, err := s.Launch(ctx, o.Input, o.Spec, me)
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

// ProgramHooks are functions of a program as hooks, which run together with those of files under the same
// rules.
func ProgramHooks(h subagent.Hooks) []hook.Callback {
	return []hook.Callback{
		{Event: string(hook.SubagentStart), Call: program(func(ctx context.Context, p hookPayload) any {
			own := map[string]string{
				"hookEventName":     string(hook.SubagentStart),
				"additionalContext": h.SubagentStart(ctx, p.agent()),
			}
			return map[string]any{"hookSpecificOutput": own}
		})},
		{Event: string(hook.SubagentStop), Call: program(func(ctx context.Context, p hookPayload) any {
			reason := h.SubagentStop(ctx, p.agent(), subagent.HookEnd{Answer: p.Answer, Again: p.Again, Err: p.Error})
			if reason == "" {
				return map[string]any{}
			}
			return map[string]any{"decision": "block", "reason": reason}
		})},
	}
}

// hookPayload is the part of a hook input that a program reads.
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

// program calls a function with an event. A panic counts as a hook that could not be run.
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
