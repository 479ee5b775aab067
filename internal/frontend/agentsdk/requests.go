package agentsdk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/task"
)

// tailBytes is how many bytes of an output get_task_output returns.
const tailBytes = 8 << 10

// request handles one control request and returns its answer; nil: an empty one.
func (c *Conn) request(ctx context.Context, s Driven, name string, l line) (any, error) {
	var in struct {
		Mode     string          `json:"mode"`
		Model    *string         `json:"model"`
		Tokens   *int            `json:"max_thinking_tokens"`
		Settings json.RawMessage `json:"settings"`
		Task     string          `json:"task_id"`
		ToolUse  string          `json:"tool_use_id"`
	}
	if err := json.Unmarshal(l.Request, &in); err != nil {
		return nil, fmt.Errorf("read the request %s: %w", name, err)
	}
	switch name {
	case "initialize":
		return nil, errors.New("initialize must be the first line: the session has begun")
	case "interrupt":
		c.answer(l.RequestID, map[string]any{"still_queued": list(s.Stream.waiting())}, nil)
		c.interrupt(ctx, s)
		return nil, nil
	case "set_permission_mode":
		mode := Mode(in.Mode)
		if _, err := c.configure(ctx, s, control.ConfigureRequest{Mode: &mode}); err != nil {
			return nil, err
		}
		s.Stream.changeMode(in.Mode)
		return map[string]any{"mode": in.Mode}, nil
	case "set_model":
		if in.Model == nil {
			return nil, errors.New("set_model: name a model: Drover has no default to return to")
		}
		now, err := c.configure(ctx, s, control.ConfigureRequest{Model: in.Model})
		return map[string]any{"model": now.Model}, err
	case "set_max_thinking_tokens":
		_, err := c.configure(ctx, s, control.ConfigureRequest{Thinking: thinking(in.Tokens)})
		return nil, err
	case "apply_flag_settings":
		return nil, c.applySettings(ctx, s, in.Settings)
	case "mcp_message":
		return nil, c.fromServer(ctx, l.Request)
	case "mcp_status":
		env, err := s.API.Environment(ctx)
		return map[string]any{"mcpServers": c.serversWith(env.Servers)}, err
	case "get_context_usage":
		return contextUsage(ctx, s)
	case "get_session_cost":
		usd, _ := s.Stream.o.Cost()
		return map[string]any{"total_cost_usd": usd}, nil
	case "get_binary_version":
		return map[string]any{"version": s.Stream.o.Version}, nil
	case "stop_task":
		return stopTask(ctx, s, in.Task)
	case "background_tasks":
		return toBackground(ctx, s, in.ToolUse)
	case "get_task_output":
		return taskOutput(ctx, s, in.Task)
	}
	return nil, fmt.Errorf("the request %s is not supported", quoted(name))
}

// interrupt interrupts the turn of the main agent, if one is running.
func (c *Conn) interrupt(ctx context.Context, s Driven) {
	_, err := s.API.Interrupt(ctx, string(s.ID))
	if err != nil && !control.IsCode(err, control.Conflict) {
		c.warning("interrupt: %v", err)
	}
}

// serversWith are the MCP servers of the main agent and of the program.
func (c *Conn) serversWith(others []control.MCPServer) []MCPServer {
	all := []MCPServer{}
	for _, one := range others {
		all = append(all, MCPServer{one.Name, one.Status})
	}
	return append(all, c.Servers()...)
}

// Servers are the MCP servers in the program.
func (c *Conn) Servers() (all []MCPServer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range c.servers {
		all = append(all, MCPServer{name, "connected"})
	}
	return all
}

// Mode returns our word for a permission mode of the SDK.
func Mode(word string) string {
	if word == "manual" || word == "auto" || word == "" {
		return "default"
	}
	return word
}

// thinking maps a number of tokens of the SDK: null leaves it to the provider, and 0 means no thinking.
func thinking(tokens *int) *control.Thinking {
	switch {
	case tokens == nil:
		return &control.Thinking{}
	case *tokens <= 0:
		return &control.Thinking{Tokens: -1}
	}
	return &control.Thinking{Tokens: *tokens}
}

// applySettings changes settings that can be changed while a session runs. If there are others it names them and
// changes nothing.
func (c *Conn) applySettings(ctx context.Context, s Driven, raw json.RawMessage) error {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(raw, &all); err != nil {
		return fmt.Errorf("read the settings: %w", err)
	}
	var req control.ConfigureRequest
	var unknown []string
	for key, value := range all {
		var err error
		switch key {
		case "model":
			err = json.Unmarshal(value, &req.Model)
		case "effortLevel":
			var effort *string
			if err = json.Unmarshal(value, &effort); effort != nil {
				req.Thinking = &control.Thinking{Effort: *effort}
			}
		case "permissions":
			var p map[string]json.RawMessage
			if err = json.Unmarshal(value, &p); err == nil {
				for k := range p {
					if k != "defaultMode" {
						unknown = append(unknown, "permissions."+k)
						continue
					}
					err = json.Unmarshal(p[k], &req.Mode)
				}
			}
		default:
			unknown = append(unknown, key)
		}
		if err != nil {
			return fmt.Errorf("read the setting %s: %w", key, err)
		}
	}
	if len(unknown) > 0 {
		slices.Sort(unknown)
		return fmt.Errorf("these settings cannot be changed while a session runs: %s", strings.Join(unknown, ", "))
	}
	_, err := c.configure(ctx, s, req)
	return err
}

func contextUsage(ctx context.Context, s Driven) (any, error) {
	now, err := s.API.Configure(ctx, control.ConfigureRequest{})
	if err != nil {
		return nil, err
	}
	env, err := s.API.Environment(ctx)
	used, window := env.Context.Tokens, env.Context.Window
	percent := 0.0
	categories := []any{map[string]any{"id": "messages", "name": "Conversation", "tokens": used, "color": "promptBorder",
		"kind": "used"}}
	if window > 0 {
		percent = 100 * float64(used) / float64(window)
		categories = append(categories, map[string]any{"id": "free_space", "name": "Free space",
			"tokens": max(0, window-used), "color": "inactive", "kind": "free"})
	}
	return map[string]any{
		"categories":  categories,
		"totalTokens": used, "maxTokens": window, "rawMaxTokens": window, "percentage": percent, "gridRows": []any{},
		"model": now.Model, "memoryFiles": []any{}, "mcpTools": []any{}, "agents": []any{},
		"isAutoCompactEnabled": window > 0,
		"apiUsage":             nil,
	}, err
}

// stopTask stops a task. The lines of its end come before the answer.
func stopTask(ctx context.Context, s Driven, id string) (any, error) {
	if id == "" {
		return nil, errors.New("stop_task: task_id is missing")
	}
	_, err := s.API.Stop(ctx, control.StopRequest{Refs: []string{id}, Actor: task.ByUser,
		Detail: "stop_task of the Agent SDK"})
	s.Stream.flush()
	return map[string]any{}, err
}

// toBackground moves the tasks of a call to the background; without a call all tasks in the foreground.
func toBackground(ctx context.Context, s Driven, toolUse string) (any, error) {
	page, err := s.API.List(ctx, control.ListRequest{})
	if err != nil {
		return nil, err
	}
	found := false
	for _, r := range page.Tasks {
		if r.Backgrounded || r.ID == s.ID || toolUse != "" && r.ToolUseID != toolUse {
			continue
		}
		found = true
		if _, err := s.API.Promote(ctx, string(r.ID)); err != nil && !control.IsCode(err, control.Conflict) {
			return nil, err
		}
	}
	if !found && toolUse != "" {
		return nil, fmt.Errorf("background_tasks: the call %s runs nothing in the foreground", quoted(toolUse))
	}
	s.Stream.flush()
	return map[string]any{}, nil
}

// taskOutput returns the end of the output of a task.
func taskOutput(ctx context.Context, s Driven, id string) (any, error) {
	if id == "" {
		return nil, errors.New("get_task_output: task_id is missing")
	}
	first, err := s.API.Output(ctx, control.OutputRequest{Ref: id, Max: 1}) // for the size
	if err != nil {
		return nil, err
	}
	chunk, err := s.API.Output(ctx, control.OutputRequest{Ref: id, Offset: max(0, first.Size-tailBytes), Max: tailBytes})
	if err != nil {
		return nil, err
	}
	return map[string]any{
		"output": strings.ToValidUTF8(string(chunk.Data), "\uFFFD"), "total_bytes": chunk.Size,
		"truncated": chunk.Size > int64(len(chunk.Data)),
	}, nil
}
