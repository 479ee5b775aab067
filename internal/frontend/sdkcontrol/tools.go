package sdkcontrol

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

// tool is one of an MCP server inside the program. The program knows what its tools do, so its
// hint that one only reads is believed.
type tool struct {
	agent.Tool
	readOnly bool
}

func (t *tool) ReadOnly() bool { return t.readOnly }

func (t *tool) Parallel() bool { return t.readOnly }

// maxResult is how many characters of a result a model is shown. What is longer is lost.
const maxResult = 100_000

// newTool makes a tool. What goes wrong in the program is told to the model.
func newTool(c *Conn, server string, def toolDef) agent.Tool {
	if len(def.InputSchema) == 0 {
		def.InputSchema = json.RawMessage(`{"type":"object"}`)
	}
	var hints struct {
		ReadOnly bool `json:"readOnlyHint"`
	}
	_ = json.Unmarshal(def.Annotations, &hints) // what is no hint says nothing
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

// message is one of JSON-RPC in the form of the SDK.
func message(server string, fields map[string]any) map[string]any {
	fields["jsonrpc"] = "2.0"
	return map[string]any{"subtype": "mcp_message", "server_name": server, "message": fields}
}

// cancelWait is how long the program may take to hear that a call was given up.
const cancelWait = 2 * time.Second

// mcp makes one request to a server of the program and returns its result. The program finds
// the answer by the server and the ID of the request, so no two of them have the same.
func (c *Conn) mcp(ctx context.Context, server, method string, params any) (json.RawMessage, error) {
	c.mu.Lock()
	c.calls++
	id := c.calls
	c.mu.Unlock()
	answer, err := c.ask(ctx, message(server, map[string]any{"id": id, "method": method, "params": params}))
	if ctx.Err() != nil { // the tool ends by this, and the control request only by itself
		short, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelWait)
		defer cancel()
		_, _ = c.ask(short, message(server, map[string]any{"method": "notifications/cancelled",
			"params": map[string]any{"requestId": id, "reason": "the call was interrupted"}})) // nobody waits for the tool
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

// fromServer takes what a server of the program sends by itself. Notifications, such as of
// progress, are not shown; a request is refused, or the server would wait for its answer.
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
			"message": "Drover does not take " + excerpt.Line(in.Message.Method, 80) + " from a server in the program"}
	}
	_, err := c.ask(ctx, message(in.Server, answer))
	return err
}
