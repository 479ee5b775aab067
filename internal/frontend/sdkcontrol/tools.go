package sdkcontrol

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/drover-dev/drover/agent"
)

// toolList is the result of tools/list (MCP 2025-11-25).
type toolList struct {
	Tools []toolDef `json:"tools"`
}

type toolDef struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	InputSchema json.RawMessage `json:"inputSchema"`
	Annotations struct {
		ReadOnly bool `json:"readOnlyHint"`
	} `json:"annotations"`
}

// tool is one of an MCP server inside the program.
type tool struct {
	c      *Conn
	server string
	def    toolDef
}

func (t *tool) Spec() agent.ToolSpec {
	schema := t.def.InputSchema
	if len(schema) == 0 {
		schema = json.RawMessage(`{"type":"object"}`)
	}
	return agent.ToolSpec{Name: "mcp__" + t.server + "__" + t.def.Name, Description: t.def.Description,
		InputSchema: schema}
}

func (t *tool) ReadOnly() bool { return t.def.Annotations.ReadOnly }

func (t *tool) Parallel() bool { return t.def.Annotations.ReadOnly }

// Call has the program do the work. What goes wrong there is told to the model.
func (t *tool) Call(ctx context.Context, call agent.Call) (agent.Output, error) {
	result, err := t.c.mcp(ctx, t.server, "tools/call", map[string]any{
		"name": t.def.Name, "arguments": call.Input, "_meta": map[string]any{"claudecode/toolUseId": call.ID},
	})
	if err != nil {
		if ctx.Err() != nil {
			return agent.Output{}, err
		}
		return agent.Output{Text: fmt.Sprintf("call tool %s of the program's server %s: %v", t.def.Name, t.server,
			err), IsError: true}, nil
	}
	var r struct {
		Content []struct {
			Type string `json:"type"`
			Text string `json:"text"`
		} `json:"content"`
		Structured json.RawMessage `json:"structuredContent"`
		IsError    bool            `json:"isError"`
	}
	if err := json.Unmarshal(result, &r); err != nil {
		return agent.Output{Text: fmt.Sprintf("the answer of tool %s is no result of MCP: %v", t.def.Name, err),
			IsError: true}, nil
	}
	var parts []string
	for _, c := range r.Content {
		if c.Type != "text" {
			parts = append(parts, "["+c.Type+" is not shown]")
			continue
		}
		parts = append(parts, c.Text)
	}
	if len(parts) == 0 && len(r.Structured) > 0 && !bytes.Equal(r.Structured, []byte("null")) {
		parts = append(parts, string(r.Structured))
	}
	return agent.Output{Text: strings.Join(parts, "\n"), IsError: r.IsError}, nil
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

// mcp makes one request to a server of the program and returns its result.
func (c *Conn) mcp(ctx context.Context, server, method string, params any) (json.RawMessage, error) {
	answer, err := c.ask(ctx, map[string]any{"subtype": "mcp_message", "server_name": server, "message": map[string]any{
		"jsonrpc": "2.0", "id": 1, "method": method, "params": params,
	}})
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
