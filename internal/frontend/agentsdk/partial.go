package agentsdk

import "github.com/drover-dev/drover/agent"

// reply is the state of a streaming reply, in terms of the events of the Messages API. The zero value is a reply before
// its first part.
type reply struct {
	begun bool
	open  map[int]bool // blocks that have begun, by index; true while they are open
}

// take returns the events of a part. The ID of the message is unknown while it streams; the assistant lines have it.
func (r *reply) take(model string, p agent.Part) []map[string]any {
	var out []map[string]any
	if !r.begun {
		r.begun, r.open = true, map[int]bool{}
		out = append(out, map[string]any{"type": "message_start", "message": message{
			Type: "message", Role: "assistant", Model: model, Content: []any{}, Usage: usageOf(agent.Usage{}),
		}})
	}
	if _, seen := r.open[p.Index]; !seen {
		r.open[p.Index] = true
		out = append(out, map[string]any{"type": "content_block_start", "index": p.Index, "content_block": opening(p)})
	}
	delta := func(kind, field string) {
		if p.Text != "" {
			out = append(out, map[string]any{"type": "content_block_delta", "index": p.Index,
				"delta": map[string]any{"type": kind, field: p.Text}})
		}
	}
	switch p.Kind {
	case agent.TextPart:
		delta("text_delta", "text")
	case agent.ThinkingPart:
		delta("thinking_delta", "thinking")
	case agent.InputPart:
		delta("input_json_delta", "partial_json")
	case agent.BlockPart:
		if r.open[p.Index] {
			r.open[p.Index] = false
			out = append(out, map[string]any{"type": "content_block_stop", "index": p.Index})
		}
	}
	return out
}

// opening is the block before its first part, or the whole block if it has no parts.
func opening(p agent.Part) any {
	switch p.Kind {
	case agent.ThinkingPart:
		return apiBlock(agent.Block{Type: "thinking"})
	case agent.ToolPart, agent.InputPart:
		return map[string]any{"type": "tool_use", "id": p.ID, "name": p.Name, "input": map[string]any{}}
	case agent.BlockPart:
		if p.Block != nil {
			return apiBlock(*p.Block)
		}
	}
	return apiBlock(agent.TextBlock(""))
}

// done returns the events of the end and resets r for the next reply.
func (r *reply) done(whole *agent.Reply) []map[string]any {
	begun := r.begun
	*r = reply{}
	if !begun {
		return nil
	}
	return []map[string]any{
		{
			"type": "message_delta",
			"delta": map[string]any{
				"stop_reason": whole.StopReason, "stop_sequence": nil, "stop_details": nil, "container": nil,
			},
			"usage": usageOf(whole.Usage), "context_management": nil,
		},
		{"type": "message_stop"},
	}
}
