package agentsdk

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/mcp/mcpclient"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/tool/mcptool"
)

// toolList is the result of tools/list (MCP 2025-11-25).
type toolList struct {
	Tools []toolDef `json:"tools"`
}

type toolDef struct {
	Name        string          `json:"name"`
	Title       string          `json:"title"`
	Description string          `json:"description"`
	InputSchema json.RawMessage `json:"inputSchema"`
	Annotations json.RawMessage `json:"annotations"`
}

// tool is a tool of an MCP server in the program. The hint that it only reads is trusted: the program has both roles.
type tool struct {
	agent.Tool
	readOnly bool
}

func (t *tool) ReadOnly() bool { return t.readOnly }

func (t *tool) Parallel() bool { return t.readOnly }

// maxResult is how many characters of a result reach the model. The rest is lost.
const maxResult = 100_000

// newTool makes a tool. Errors of the program are results for the model.
func newTool(c *Conn, server string, def toolDef) agent.Tool {
	if len(def.InputSchema) == 0 {
		def.InputSchema = json.RawMessage(`{"type":"object"}`)
	}
	var hints struct {
		ReadOnly bool `json:"readOnlyHint"`
	}
	_ = json.Unmarshal(def.Annotations, &hints) // unreadable annotations have no hints
	return &tool{readOnly: hints.ReadOnly, Tool: mcptool.New(mcptool.Config{
		Server: server, Limit: maxResult,
		Tool: mcpclient.Tool{Name: def.Name, Title: def.Title, Description: def.Description, InputSchema: def.InputSchema,
			Annotations: def.Annotations},
		Call: func(ctx context.Context, call agent.Call) (json.RawMessage, string, error) {
			result, err := c.mcp(ctx, server, "tools/call", map[string]any{
				"name": def.Name, "arguments": call.Input, "_meta": map[string]any{"claudecode/toolUseId": call.ID},
			})
			return result, "", err
		},
	})}
}

// listTools asks a server of the program for its tools.
func (c *Conn) listTools(ctx context.Context, server string) (*toolList, error) {
	_, err := c.mcp(ctx, server, "initialize", map[string]any{
		"protocolVersion": "2025-11-25", "capabilities": map[string]any{},
		"clientInfo": map[string]any{"name": "drover", "version": "1"},
	})
	if err != nil {
		return nil, err
	}
	result, err := c.mcp(ctx, server, "tools/list", map[string]any{})
	if err != nil {
		return nil, err
	}
	l := &toolList{}
	if err := json.Unmarshal(result, l); err != nil {
		return nil, fmt.Errorf("read the list of tools: %w", err)
	}
	return l, nil
}

// mcpMessage is a message of JSON-RPC in the form of the SDK.
func mcpMessage(server string, fields map[string]any) map[string]any {
	fields["jsonrpc"] = "2.0"
	return map[string]any{"subtype": "mcp_message", "server_name": server, "message": fields}
}

// cancelWait is how long the program may take to acknowledge a cancelled call.
const cancelWait = 2 * time.Second

// mcp makes one request to a server of the program and returns its result. The program matches answers by server and
// ID, so IDs are unique.
func (c *Conn) mcp(ctx context.Context, server, method string, params any) (json.RawMessage, error) {
	c.mu.Lock()
	c.calls++
	id := c.calls
	c.mu.Unlock()
	answer, err := c.ask(ctx, mcpMessage(server, map[string]any{"id": id, "method": method, "params": params}))
	if ctx.Err() != nil { // ends the tool, which the withdrawn control request does not
		short, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelWait)
		defer cancel()
		_, _ = c.ask(short, mcpMessage(server, map[string]any{"method": "notifications/cancelled",
			"params": map[string]any{"requestId": id, "reason": "the call was interrupted"}})) // best effort
	}
	if err != nil {
		return nil, err
	}
	var r struct {
		MCP struct {
			Result json.RawMessage `json:"result"`
			Error  *struct {
				Code    int    `json:"code"`
				Message string `json:"message"`
			} `json:"error"`
		} `json:"mcp_response"`
	}
	if err := json.Unmarshal(answer, &r); err != nil {
		return nil, fmt.Errorf("read the answer of MCP server %s: %w", server, err)
	}
	if e := r.MCP.Error; e != nil {
		return nil, fmt.Errorf("%s (code %d)", e.Message, e.Code)
	}
	return r.MCP.Result, nil
}

// fromServer takes a message that a server of the program has started. Notifications, such as progress, are not shown.
// Requests except ping are refused.
func (c *Conn) fromServer(ctx context.Context, raw json.RawMessage) error {
	var in struct {
		Server  string `json:"server_name"`
		Message struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
		} `json:"message"`
	}
	if err := json.Unmarshal(raw, &in); err != nil {
		return fmt.Errorf("mcp_message: %w", err)
	}
	if in.Message.Method == "" || len(in.Message.ID) == 0 || string(in.Message.ID) == "null" {
		return nil
	}
	answer := map[string]any{"id": in.Message.ID, "result": map[string]any{}}
	if in.Message.Method != "ping" {
		delete(answer, "result")
		answer["error"] = map[string]any{"code": mcpclient.CodeNoMethod,
			"message": "Drover does not support " + excerpt.Line(in.Message.Method, 80) + " from a server in the program"}
	}
	_, err := c.ask(ctx, mcpMessage(in.Server, answer))
	return err
}
