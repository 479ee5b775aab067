package mcpwire

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// metaRelated is the key of the task of an answer in revision 2025-11-25.
const metaRelated = "io.modelcontextprotocol/related-task"

// initialize declares tasks to clients of revision 2025-11-25. It also stores the agreed revision, since the library
// keeps the requested one.
func (s *taskServer) initialize(
	ctx context.Context, next mcp.MethodHandler, method string, req mcp.Request,
) (mcp.Result, error) {
	res, err := next(ctx, method, req)
	agreed, ok := res.(*mcp.InitializeResult)
	if err != nil || !ok {
		return res, err
	}
	if p, ok := req.GetParams().(*mcp.InitializeParams); ok && p != nil {
		p.ProtocolVersion = agreed.ProtocolVersion
	}
	fields, err := fieldsOf(agreed)
	if err != nil {
		return nil, err
	}
	capabilities, ok := fields["capabilities"].(map[string]any)
	if !ok {
		return res, nil
	}
	delete(capabilities, "extensions") // of a later revision
	if agreed.ProtocolVersion == revisionV1 {
		capabilities["tasks"] = map[string]any{
			"list": map[string]any{}, "cancel": map[string]any{},
			"requests": map[string]any{"tools": map[string]any{"call": map[string]any{}}},
		}
	}
	return &result{fields: fields}, nil
}

// tools adds to each tool whether its calls can be tasks.
func (s *taskServer) tools(
	ctx context.Context, next mcp.MethodHandler, method string, req mcp.Request,
) (mcp.Result, error) {
	res, err := next(ctx, method, req)
	list, ok := req.(*mcp.ListToolsRequest)
	if err != nil || !ok || list.ProtocolVersion() != revisionV1 {
		return res, err
	}
	fields, err := fieldsOf(res)
	if err != nil {
		return nil, err
	}
	all, _ := fields["tools"].([]any)
	for _, one := range all {
		tool, ok := one.(map[string]any)
		if !ok {
			continue
		}
		name, _ := tool["name"].(string)
		if v := s.support(name); v != Forbidden {
			tool["execution"] = map[string]any{"taskSupport": v}
		}
	}
	return &result{fields: fields}, nil
}

func (s *taskServer) wishV1(req *mcp.CallToolRequest) (*Wish, error) {
	asked, has := req.Params.Meta[metaTask]
	switch v := s.support(req.Params.Name); {
	case has && v == Forbidden:
		return nil, notFound(fmt.Sprintf("the tool %.100q cannot run as a task (call it without the field task)", req.Params.Name))
	case !has && v == Required:
		return nil, notFound(fmt.Sprintf("the tool %.100q runs as a task only (call it with the field task)", req.Params.Name))
	case !has:
		return nil, nil
	}
	var in struct {
		TTL *int64 `json:"ttl"`
	}
	raw, err := json.Marshal(asked)
	if err == nil {
		err = json.Unmarshal(raw, &in)
	}
	if err != nil || in.TTL != nil && *in.TTL <= 0 {
		return nil, invalid("the field task must be an object, and its ttl a number of milliseconds above 0")
	}
	w := &Wish{Must: true}
	if in.TTL != nil {
		ttl := time.Duration(min(*in.TTL, int64(1<<62)/int64(time.Millisecond))) * time.Millisecond
		w.TTL = &ttl
	}
	return w, nil
}

func notFound(message string) error {
	return &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: message}
}

// result waits for the end of a task and returns the result of its call.
func (s *taskServer) result(ctx context.Context, ss *mcp.ServerSession, p *params) (*result, error) {
	if _, err := s.check(ss, p, "tasks/result", true, false); err != nil {
		return nil, err
	}
	from := &mcp.CallToolRequest{Session: ss, Params: &mcp.CallToolParamsRaw{Meta: p.Meta}}
	t, err := s.Holder.Wait(ctx, from, p.TaskID)
	switch {
	case err != nil:
		return nil, s.refused(p.TaskID, err)
	case t.Error != nil:
		return nil, t.Error
	}
	res := t.Result
	if res == nil {
		res = &mcp.CallToolResult{
			Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprintf("the task was %s", t.Status)}}, IsError: true,
		}
	}
	fields, err := fieldsOf(res)
	if err != nil {
		return nil, err
	}
	out := &result{fields: fields}
	out.Meta = mcp.Meta{metaRelated: map[string]any{"taskId": t.ID}}
	return out, nil
}

func (s *taskServer) list(ctx context.Context, ss *mcp.ServerSession, p *params) (*result, error) {
	if p == nil {
		p = &params{}
	}
	if _, err := s.check(ss, p, "tasks/list", true, false); err != nil {
		return nil, err
	}
	all, next, err := s.Holder.List(ctx, p.Cursor)
	if err != nil {
		return nil, s.refused(p.Cursor, err)
	}
	list := make([]any, 0, len(all))
	for _, t := range all {
		list = append(list, shapeV1.fields(t, s.Poll))
	}
	out := &result{fields: map[string]any{"tasks": list}}
	if next != "" {
		out.fields["nextCursor"] = next
	}
	return out, nil
}
