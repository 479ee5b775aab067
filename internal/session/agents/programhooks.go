package agents

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/drover-dev/drover/internal/policy/hook"
	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
)

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
