package mcpwire

import (
	"context"
	"encoding/json"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const metaCapabilities = "io.modelcontextprotocol/clientCapabilities"

// declared reports whether a request declares the extension.
func declared(meta mcp.Meta) bool {
	capabilities, _ := meta[metaCapabilities].(map[string]any)
	extensions, _ := capabilities["extensions"].(map[string]any)
	_, ok := extensions[Extension]
	return ok
}

func errUndeclared() error {
	data, err := json.Marshal(map[string]any{
		"requiredCapabilities": map[string]any{"extensions": map[string]any{Extension: map[string]any{}}},
	})
	if err != nil {
		panic(err) // unreachable: the value is a constant
	}
	return &jsonrpc.Error{
		Code:    mcp.CodeMissingRequiredClientCapabilities,
		Message: "the request does not declare the extension " + Extension,
		Data:    data,
	}
}

func (s *taskServer) wishV2(req *mcp.CallToolRequest) (*Wish, error) {
	switch v := s.support(req.Params.Name); {
	case v == Forbidden:
		return nil, nil
	case declared(req.Params.Meta):
		return &Wish{Must: v == Required}, nil
	case v == Required:
		return nil, errUndeclared()
	}
	return nil, nil
}

// complete returns an answer that is not a task.
func complete(fields map[string]any) *result {
	if fields == nil {
		fields = map[string]any{}
	}
	fields["resultType"] = "complete"
	return &result{fields: fields}
}

// elicits reports whether a request declares that its client shows forms.
func elicits(meta mcp.Meta) bool {
	capabilities, _ := meta[metaCapabilities].(map[string]any)
	elicitation, ok := capabilities["elicitation"].(map[string]any)
	_, form := elicitation["form"]
	_, url := elicitation["url"]
	return ok && (form || !url)
}

func (s *taskServer) gotV2(t Task, meta mcp.Meta) (*result, error) {
	if t.Status == InputRequired && !elicits(meta) {
		t.Status, t.Message = Working, t.Message+" (it needs an answer that this client cannot give)"
	}
	fields := shapeV2.fields(t, s.Poll)
	switch {
	case t.Error != nil:
		fields["status"], fields["error"] = Failed, map[string]any{"code": t.Error.Code, "message": t.Error.Message}
	case t.Status == Failed, t.Status == Completed:
		// Here only an error of the protocol is a failure; an error of the tool is a result.
		fields["status"] = Completed
		res := t.Result
		if res == nil {
			res = &mcp.CallToolResult{Content: []mcp.Content{}, IsError: t.Status == Failed}
		}
		inner, err := fieldsOf(res)
		if err != nil {
			return nil, err
		}
		inner["resultType"] = "complete"
		fields["result"] = inner
	case t.Status == InputRequired:
		fields["inputRequests"] = t.Inputs
	}
	return complete(fields), nil
}

func (s *taskServer) update(ctx context.Context, ss *mcp.ServerSession, p *params) (*result, error) {
	if _, err := s.check(ss, p, "tasks/update", false, true); err != nil {
		return nil, err
	}
	if err := s.Holder.Answer(ctx, p.TaskID, p.Answers); err != nil {
		return nil, s.refused(p.TaskID, err)
	}
	return complete(nil), nil
}
