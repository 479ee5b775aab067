package agentsdk

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/policy/hook"
)

// Initialize is the request of the program for the session to open. The zero value asks for nothing.
type Initialize struct {
	requestID string

	System       []string                   `json:"systemPrompt"` // empty texts: the default
	AppendSystem string                     `json:"appendSystemPrompt"`
	Agents       json.RawMessage            `json:"agents"` // an object from names to definitions
	Title        string                     `json:"title"`
	JSONSchema   json.RawMessage            `json:"jsonSchema"`
	Hooks        map[string][]hookMatcher   `json:"hooks"`
	Servers      []string                   `json:"sdkMcpServers"`
	Manifests    map[string]manifest        `json:"sdkMcpServerManifests"`
	MCPServers   map[string]json.RawMessage `json:"mcpServers"`

	Skills     []string `json:"skills"` // for the model; nil: all
	Plugins    []plugin `json:"plugins"`
	Disallowed []string `json:"disallowedTools"`

	unused []string // names of fields without effect
}

// supported are the fields that have an effect, or ask for the default.
func supported() []string {
	return []string{
		"agents", "appendSystemPrompt", "disallowedTools", "forwardSubagentText", "hooks", "jsonSchema", "mcpServers",
		"perTaskStopAffordance", "plugins", "sdkMcpServerManifests", "sdkMcpServers", "skills", "subtype",
		"supportedDialogKinds", "systemPrompt", "title",
	}
}

// plugin is a folder with agents, skills, commands and hooks.
type plugin struct {
	Type string `json:"type"`
	Path string `json:"path"`
}

// Unused returns the names of fields without effect.
func (in *Initialize) Unused() []string { return in.unused }

type hookMatcher struct {
	Matcher string   `json:"matcher"`
	IDs     []string `json:"hookCallbackIds"`
	Timeout float64  `json:"timeout"`   // seconds
	Failure string   `json:"onFailure"` // continue or block; empty: continue
}

// manifest describes an MCP server of the program.
type manifest struct {
	Tools *toolList `json:"toolsListResult"`
}

// Initialize waits for the first line of the program and returns its request. If the first line is another, such as a
// prompt, it keeps the line for [Conn.Serve].
func (c *Conn) Initialize(ctx context.Context) (*Initialize, error) {
	select {
	case l, more := <-c.lines:
		if !more {
			return &Initialize{}, nil
		}
		in := &Initialize{}
		if l.Type != "control_request" || subtype(l.Request) != "initialize" {
			c.mu.Lock()
			c.early = append(c.early, l)
			c.mu.Unlock()
			return in, nil
		}
		if err := json.Unmarshal(l.Request, in); err != nil {
			err = fmt.Errorf("initialize: %w", err)
			c.answer(l.RequestID, nil, err)
			return nil, err
		}
		in.requestID = l.RequestID
		if err := in.judge(l.Request); err != nil {
			c.answer(l.RequestID, nil, err)
			return nil, err
		}
		return in, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// judge refuses fields that must not be ignored, and finds the fields without effect.
func (in *Initialize) judge(request json.RawMessage) error {
	all := fields(request)
	for server, raw := range fields(all["sdkMcpServerConfigs"]) {
		for name, v := range fields(raw) {
			if name == "tools" && given(v) {
				return fmt.Errorf("initialize: the rules for the tools of server %s are not supported: "+
					"they would not be enforced (use allowedTools and disallowedTools)", excerpt.Line(server, 80))
			}
		}
	}
	for _, name := range []string{"managedSettings", "settings"} {
		if given(all[name]) {
			return fmt.Errorf("initialize: %s is not supported there: it would not be enforced (use --settings)", name)
		}
	}
	for name, v := range all {
		if given(v) && !slices.Contains(supported(), name) {
			in.unused = append(in.unused, name)
		}
	}
	slices.Sort(in.unused)
	return nil
}

// fields returns the fields of an object; another value has none.
func fields(raw json.RawMessage) (all map[string]json.RawMessage) {
	_ = json.Unmarshal(raw, &all)
	return all
}

// given reports whether a field asks for something.
func given(v json.RawMessage) bool {
	return !slices.Contains([]string{"", "null", "false", "[]", "{}", `"all"`}, string(v))
}

func subtype(request json.RawMessage) string {
	var r struct {
		Subtype string `json:"subtype"`
	}
	_ = json.Unmarshal(request, &r) // an unreadable request has no known subtype
	return r.Subtype
}

// Prompt is the system prompt of the program; empty: the default.
func (in *Initialize) Prompt() string {
	return strings.Join(slices.DeleteFunc(slices.Clone(in.System), func(s string) bool { return s == "" }), "\n\n")
}

// Callbacks are the hooks of the program.
func (in *Initialize) Callbacks(c *Conn) []hook.Callback {
	var out []hook.Callback
	for _, event := range slices.Sorted(maps.Keys(in.Hooks)) {
		for _, m := range in.Hooks[event] {
			for _, id := range m.IDs {
				out = append(out, hook.Callback{
					Event: event, Matcher: m.Matcher, Timeout: time.Duration(m.Timeout * float64(time.Second)),
					Call: func(ctx context.Context, payload json.RawMessage) (json.RawMessage, error) {
						return c.callHook(ctx, id, m.Failure == "block", payload)
					},
				})
			}
		}
	}
	return out
}

// callHook calls a hook of the program. A hook that fails blocks only if the program asks for that.
func (c *Conn) callHook(ctx context.Context, id string, blocks bool, payload json.RawMessage) (json.RawMessage, error) {
	var call struct {
		ToolUseID string `json:"tool_use_id"`
	}
	_ = json.Unmarshal(payload, &call) // only some events have the field
	out, err := c.ask(ctx, struct {
		Subtype   string          `json:"subtype"`
		Callback  string          `json:"callback_id"`
		Input     json.RawMessage `json:"input"`
		ToolUseID string          `json:"tool_use_id,omitempty"`
	}{"hook_callback", id, payload, call.ToolUseID})
	var object map[string]json.RawMessage
	if err == nil && len(out) > 0 && json.Unmarshal(out, &object) != nil {
		err = &answeredError{"not an object: " + excerpt.Line(string(out), 80)}
	}
	if failed := (*answeredError)(nil); errors.As(err, &failed) && !blocks {
		c.warning("hook %s failed and does not block: %s", excerpt.Line(id, 80), failed.text)
		return json.RawMessage(`{}`), nil
	}
	return out, err
}

// Tools returns the tools of the program's own MCP servers. It asks a server without a manifest for its tools.
func (in *Initialize) Tools(ctx context.Context, c *Conn) ([]agent.Tool, error) {
	c.mu.Lock()
	c.servers = in.Servers
	c.mu.Unlock()
	var out []agent.Tool
	for _, name := range in.Servers {
		list := in.Manifests[name].Tools
		if list == nil {
			var err error
			if list, err = c.listTools(ctx, name); err != nil {
				return nil, fmt.Errorf("ask MCP server %s of the program for its tools: %w", name, err)
			}
		}
		for _, t := range list.Tools {
			out = append(out, newTool(c, name, t))
		}
	}
	return out, nil
}

// Answered answers the request of Initialize.
func (c *Conn) Answered(in *Initialize, with Offer) {
	if in.requestID == "" {
		return
	}
	answer := map[string]any{
		"commands": list(with.Commands), "agents": list(with.Agents), "models": list(with.Models),
		"account": map[string]any{}, "output_style": "default", "available_output_styles": []string{"default"},
		"claude_code_version": with.Version, "drover_version": with.Version, "pid": with.PID,
		"current_permission_mode": cmp.Or(with.Mode, "default"), "session_state": "idle",
		"capabilities": []string{}, "hook_on_failure_supported": true,
	}
	if len(in.Hooks) > 0 {
		answer["hooks_applied"] = true
	}
	if len(in.MCPServers) > 0 {
		answer["mcp_servers_applied"] = true
	}
	err := c.write(map[string]any{"type": "control_response", "response": map[string]any{
		"subtype": "success", "request_id": in.requestID, "response": answer,
		"pending_permission_requests": []any{}, "pending_user_dialog_requests": []any{},
	}})
	if err != nil {
		c.warning("%v", err)
	}
}

// Offer lists the choices of the program.
type Offer struct {
	Version  string
	PID      int
	Mode     string // of permissions
	Commands []Command
	Agents   []Agent
	Models   []Model
}

// Command is a command with which a prompt may begin.
type Command struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Argument    string `json:"argumentHint"`
}

// Agent is a type of agent.
type Agent struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Model       string `json:"model,omitempty"`
}

// Model is a model that the program can choose.
type Model struct {
	Value       string `json:"value"`
	Name        string `json:"displayName"`
	Description string `json:"description"`
}

// Refuse answers the request of Initialize with the reason why the session cannot be opened.
func (c *Conn) Refuse(in *Initialize, why error) {
	if in.requestID != "" {
		c.answer(in.requestID, nil, why)
	}
}
