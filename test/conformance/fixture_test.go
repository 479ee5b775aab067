//nolint:staticcheck // the suite asks for what newer revisions deprecate
package conformance

import (
	"context"
	"encoding/base64"
	"encoding/json"

	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/drover-dev/drover/internal/frontend/mcpserver/mcpwire"
)

// fixture is a server with the tools, resources and prompts that the suite asks for, on
// the parts of which Drover's server is made: its transport over HTTP and its tasks.
func fixture(t *testing.T) *mcp.Server {
	t.Helper()
	capabilities := &mcp.ServerCapabilities{Logging: &mcp.LoggingCapabilities{}}
	capabilities.AddExtension(mcpwire.Extension, nil)
	nothing := func(context.Context) error { return nil }
	m := mcp.NewServer(&mcp.Implementation{Name: "fixture", Version: "1"}, &mcp.ServerOptions{
		Capabilities:       capabilities,
		SubscribeHandler:   func(ctx context.Context, _ *mcp.SubscribeRequest) error { return nothing(ctx) },
		UnsubscribeHandler: func(ctx context.Context, _ *mcp.UnsubscribeRequest) error { return nothing(ctx) },
		CompletionHandler: func(context.Context, *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
			return &mcp.CompleteResult{Completion: mcp.CompletionResultDetails{Values: []string{"one"}, Total: 1}}, nil
		},
	})
	contentTools(m)
	sessionTools(m)
	inputTools(m)
	resources(m)
	prompts(m)
	holder := newHolder(t)
	holder.tools(m)
	if err := (mcpwire.Tasks{Holder: holder, Poll: 50 * time.Millisecond, Support: map[string]mcpwire.Support{
		"slow_compute": mcpwire.Optional, "failing_job": mcpwire.Required, "protocol_error_job": mcpwire.Optional,
		"confirm_delete": mcpwire.Optional, "multi_input": mcpwire.Optional, "test_tool_with_task": mcpwire.Required,
	}}).Add(m); err != nil {
		t.Fatal(err)
	}
	return m
}

type handler func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error)

const anyObject = `{"type":"object"}`

func tool(m *mcp.Server, name, schema string, h handler) {
	m.AddTool(&mcp.Tool{Name: name, Description: "For the conformance suite.", InputSchema: json.RawMessage(schema)}, mcp.ToolHandler(h))
}

func texts(format string, args ...any) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{text(format, args...)}}
}

func text(format string, args ...any) *mcp.TextContent {
	return &mcp.TextContent{Text: fmt.Sprintf(format, args...)}
}

func embedded(uri string) *mcp.EmbeddedResource {
	return &mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: uri, MIMEType: "text/plain", Text: "what is embedded"}}
}

func bytesOf(encoded string) []byte {
	data, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		panic(err)
	}
	return data
}

// picture is a PNG of one pixel, sound a WAV of no length.
func picture() *mcp.ImageContent {
	return &mcp.ImageContent{MIMEType: "image/png", Data: bytesOf(
		"iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")}
}

func sound() *mcp.AudioContent {
	return &mcp.AudioContent{MIMEType: "audio/wav", Data: bytesOf("UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA=")}
}

func contentTools(m *mcp.Server) {
	for name, content := range map[string][]mcp.Content{
		"test_simple_text":            {text("This is a simple text response for testing.")},
		"test_image_content":          {picture()},
		"test_audio_content":          {sound()},
		"test_embedded_resource":      {embedded("test://embedded-resource")},
		"test_multiple_content_types": {text("text first"), picture(), embedded("test://mixed-content-resource")},
		"test_streaming_elicitation":  {text("nothing was asked")},
	} {
		tool(m, name, anyObject, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: content}, nil
		})
	}
	tool(m, "test_error_handling", anyObject, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{text("this tool always fails")}, IsError: true}, nil
	})
	tool(m, "json_schema_2020_12_tool", `{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object",
"$defs":{"address":{"$anchor":"addressDef","type":"object","properties":{"street":{"type":"string"},"city":{"type":"string"}}}},
"properties":{"name":{"type":"string"},"address":{"$ref":"#/$defs/address"},"contactMethod":{"type":"string","enum":["phone","email"]},
"phone":{"type":"string"},"email":{"type":"string"}},
"allOf":[{"anyOf":[{"required":["phone"]},{"required":["email"]}]}],
"if":{"properties":{"contactMethod":{"const":"phone"}},"required":["contactMethod"]},
"then":{"required":["phone"]},"else":{"required":["email"]},"additionalProperties":false}`,
		func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return texts("called with %s", r.Params.Arguments), nil
		})
	tool(m, "test_x_mcp_header", `{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"},"level":{"type":"integer"}}}`,
		func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return texts("called with %s", r.Params.Arguments), nil
		})
}

func sessionTools(m *mcp.Server) {
	says := func(n int) handler {
		return func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			for i := range n {
				if err := r.Session.Log(ctx, &mcp.LoggingMessageParams{Level: "info", Data: fmt.Sprintf("step %d", i)}); err != nil {
					return nil, err
				}
			}
			return texts("said"), nil
		}
	}
	tool(m, "test_tool_with_logging", anyObject, says(3))
	tool(m, "test_logging_tool", anyObject, says(1))
	tool(m, "test_tool_with_progress", anyObject, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		for _, p := range []float64{0, 50, 100} {
			if err := r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
				ProgressToken: r.Params.GetProgressToken(), Progress: p, Total: 100, Message: fmt.Sprintf("%.0f of 100", p),
			}); err != nil {
				return nil, err
			}
		}
		return texts("done"), nil
	})
	tool(m, "test_sampling", `{"type":"object","properties":{"prompt":{"type":"string"}},"required":["prompt"]}`,
		func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			var in struct{ Prompt string }
			if err := json.Unmarshal(r.Params.Arguments, &in); err != nil {
				return nil, err
			}
			res, err := r.Session.CreateMessage(ctx, &mcp.CreateMessageParams{
				MaxTokens: 100, Messages: []*mcp.SamplingMessage{{Role: "user", Content: text("%s", in.Prompt)}},
			})
			if err != nil {
				return nil, err
			}
			raw, err := json.Marshal(res.Content)
			return texts("LLM response: %s", raw), err
		})
	asks := func(name, message, schema string) {
		tool(m, name, anyObject, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			res, err := r.Session.Elicit(ctx, &mcp.ElicitParams{Message: message, RequestedSchema: json.RawMessage(schema)})
			if err != nil {
				return nil, err
			}
			raw, err := json.Marshal(res.Content)
			return texts("Elicitation completed: action=%s, content=%s", res.Action, raw), err
		})
	}
	asks("test_elicitation", "Who are you?", `{"type":"object","properties":{"username":{"type":"string","description":"your name"},"email":{"type":"string"}},"required":["username"]}`)
	asks("test_elicitation_sep1034_defaults", "Change what is wrong", `{"type":"object","properties":{
"name":{"type":"string","default":"John Doe"},"age":{"type":"integer","default":30},"score":{"type":"number","default":95.5},
"status":{"type":"string","enum":["active","inactive","pending"],"default":"active"},"verified":{"type":"boolean","default":true}}}`)
	asks("test_elicitation_sep1330_enums", "Choose", `{"type":"object","properties":{
"untitledSingle":{"type":"string","enum":["option1","option2","option3"]},
"titledSingle":{"type":"string","oneOf":[{"const":"value1","title":"First Option"},{"const":"value2","title":"Second Option"},{"const":"value3","title":"Third Option"}]},
"legacyEnum":{"type":"string","enum":["opt1","opt2","opt3"],"enumNames":["Option One","Option Two","Option Three"]},
"untitledMulti":{"type":"array","minItems":1,"maxItems":3,"items":{"type":"string","enum":["option1","option2","option3"]}},
"titledMulti":{"type":"array","minItems":1,"maxItems":3,"items":{"anyOf":[{"const":"value1","title":"First Choice"},{"const":"value2","title":"Second Choice"},{"const":"value3","title":"Third Choice"}]}}}}`)
	tool(m, "test_reconnection", anyObject, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if r.Extra != nil && r.Extra.CloseSSEStream != nil {
			r.Extra.CloseSSEStream(mcp.CloseSSEStreamArgs{RetryAfter: 10 * time.Millisecond})
		}
		later := time.NewTimer(100 * time.Millisecond) // the client comes back meanwhile, or gets it from the store
		defer later.Stop()
		select {
		case <-later.C:
		case <-ctx.Done():
		}
		return texts("the stream was closed before this"), nil
	})
	tool(m, "test_missing_capability", anyObject, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if c := r.ClientCapabilities(); c != nil && c.Sampling != nil {
			return texts("the client has it"), nil
		}
		return nil, &jsonrpc.Error{Code: mcp.CodeMissingRequiredClientCapabilities, Message: "the client has no sampling",
			Data: json.RawMessage(`{"requiredCapabilities":{"sampling":{}}}`)}
	})
	tool(m, "test_trigger_tool_change", anyObject, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		tool(m, "another", anyObject, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return texts("x"), nil })
		return texts("changed"), nil
	})
	tool(m, "test_trigger_prompt_change", anyObject, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		m.AddPrompt(&mcp.Prompt{Name: "another", Description: "Another."}, func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			return &mcp.GetPromptResult{}, nil
		})
		return texts("changed"), nil
	})
}

// accepted is a field of a form that was accepted.
func accepted(all mcp.InputResponseMap, key, field string) (v any, ok bool) {
	res, ok := all[key].(*mcp.ElicitResult)
	if !ok || res == nil || res.Action != "accept" {
		return nil, false
	}
	v, ok = res.Content[field]
	return v, ok
}

func form(field, kind string) *mcp.ElicitParams {
	return &mcp.ElicitParams{Mode: "form", Message: "Please give " + field, RequestedSchema: json.RawMessage(fmt.Sprintf(
		`{"type":"object","properties":{%q:{"type":%q}},"required":[%q]}`, field, kind, field))}
}

func sample() *mcp.CreateMessageParams {
	return &mcp.CreateMessageParams{MaxTokens: 100,
		Messages: []*mcp.SamplingMessage{{Role: "user", Content: text("What is the capital of France?")}}}
}

func sampled(all mcp.InputResponseMap, key string) bool {
	_, ok := all[key].(*mcp.CreateMessageWithToolsResult)
	return ok
}

func rooted(all mcp.InputResponseMap, key string) bool {
	_, ok := all[key].(*mcp.ListRootsResult)
	return ok
}

func needs(state string, requests mcp.InputRequestMap) *mcp.CallToolResult {
	return &mcp.CallToolResult{InputRequests: requests, RequestState: state}
}

// inputTools return requests for input, and are called again with the answers.
func inputTools(m *mcp.Server) {
	round := func(name string, h func(r *mcp.CallToolRequest, in mcp.InputResponseMap, state string) (*mcp.CallToolResult, error)) {
		tool(m, name, anyObject, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return h(r, r.Params.InputResponses, r.Params.RequestState)
		})
	}
	round("test_input_required_result_elicitation", func(_ *mcp.CallToolRequest, in mcp.InputResponseMap, _ string) (*mcp.CallToolResult, error) {
		if name, ok := accepted(in, "user_name", "name"); ok {
			if s, isText := name.(string); isText {
				return texts("Hello, %s!", s), nil
			}
		}
		return needs("", mcp.InputRequestMap{"user_name": form("name", "string")}), nil
	})
	round("test_input_required_result_sampling", func(_ *mcp.CallToolRequest, in mcp.InputResponseMap, _ string) (*mcp.CallToolResult, error) {
		if sampled(in, "capital_question") {
			return texts("sampled"), nil
		}
		return needs("", mcp.InputRequestMap{"capital_question": sample()}), nil
	})
	round("test_input_required_result_list_roots", func(_ *mcp.CallToolRequest, in mcp.InputResponseMap, _ string) (*mcp.CallToolResult, error) {
		if rooted(in, "client_roots") {
			return texts("roots listed"), nil
		}
		return needs("", mcp.InputRequestMap{"client_roots": &mcp.ListRootsParams{}}), nil
	})
	stated := func(_ *mcp.CallToolRequest, in mcp.InputResponseMap, state string) (*mcp.CallToolResult, error) {
		if state != "" && state != "the-state" {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "the requestState was changed"}
		}
		if _, ok := accepted(in, "confirm", "ok"); ok && state != "" {
			return texts("state-ok"), nil
		}
		return needs("the-state", mcp.InputRequestMap{"confirm": form("ok", "boolean")}), nil
	}
	round("test_input_required_result_request_state", stated)
	round("test_input_required_result_tampered_state", stated)
	all := func() mcp.InputRequestMap {
		return mcp.InputRequestMap{
			"user_name": form("name", "string"), "greeting": sample(),
			"client_roots": &mcp.ListRootsParams{},
		}
	}
	round("test_input_required_result_multiple_inputs", func(_ *mcp.CallToolRequest, in mcp.InputResponseMap, _ string) (*mcp.CallToolResult, error) {
		if _, ok := accepted(in, "user_name", "name"); ok && sampled(in, "greeting") && rooted(in, "client_roots") {
			return texts("all there"), nil
		}
		return needs("several", all()), nil
	})
	round("test_input_required_result_multi_round", func(_ *mcp.CallToolRequest, in mcp.InputResponseMap, state string) (*mcp.CallToolResult, error) {
		name, named := accepted(in, "step1", "name")
		color, coloured := accepted(in, "step2", "color")
		switch {
		case strings.HasPrefix(state, "two:") && coloured:
			return texts("%s likes %v", strings.TrimPrefix(state, "two:"), color), nil
		case state == "one" && named:
			return needs(fmt.Sprintf("two:%v", name), mcp.InputRequestMap{"step2": form("color", "string")}), nil
		}
		return needs("one", mcp.InputRequestMap{"step1": form("name", "string")}), nil
	})
	round("test_input_required_result_capabilities", func(r *mcp.CallToolRequest, in mcp.InputResponseMap, _ string) (*mcp.CallToolResult, error) {
		ask, c := all(), r.ClientCapabilities()
		if c == nil || c.Elicitation == nil {
			delete(ask, "user_name")
		}
		if c == nil || c.Sampling == nil {
			delete(ask, "greeting")
		}
		if c == nil || c.RootsV2 == nil {
			delete(ask, "client_roots")
		}
		if len(in) > 0 || len(ask) == 0 {
			return texts("no more to ask"), nil
		}
		return needs("", ask), nil
	})
}

func resources(m *mcp.Server) {
	one := func(uri, mime string, c mcp.ResourceContents) {
		m.AddResource(&mcp.Resource{URI: uri, Name: strings.TrimPrefix(uri, "test://"), MIMEType: mime},
			func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
				c := c
				return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{&c}}, nil
			})
	}
	one("test://static-text", "text/plain", mcp.ResourceContents{Text: "text that stays"})
	one("test://static-binary", "image/png", mcp.ResourceContents{Blob: picture().Data})
	one("test://watched-resource", "text/plain", mcp.ResourceContents{Text: "watched"})
	m.AddResourceTemplate(&mcp.ResourceTemplate{Name: "template", URITemplate: "test://template/{id}/data", MIMEType: "application/json"},
		func(_ context.Context, r *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
			id := strings.TrimSuffix(strings.TrimPrefix(r.Params.URI, "test://template/"), "/data")
			raw, err := json.Marshal(map[string]any{"id": id, "templateTest": true, "data": "Data for ID: " + id})
			return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{Text: string(raw)}}}, err
		})
}

func prompts(m *mcp.Server) {
	one := func(p *mcp.Prompt, messages func(args map[string]string) []mcp.Content) {
		m.AddPrompt(p, func(_ context.Context, r *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			res := &mcp.GetPromptResult{}
			for _, c := range messages(r.Params.Arguments) {
				res.Messages = append(res.Messages, &mcp.PromptMessage{Role: "user", Content: c})
			}
			return res, nil
		})
	}
	needed := func(name string) *mcp.PromptArgument {
		return &mcp.PromptArgument{Name: name, Description: "a value", Required: true}
	}
	one(&mcp.Prompt{Name: "test_simple_prompt", Description: "Simple."}, func(map[string]string) []mcp.Content {
		return []mcp.Content{text("This is a simple prompt for testing.")}
	})
	one(&mcp.Prompt{Name: "test_prompt_with_arguments", Description: "Two.", Arguments: []*mcp.PromptArgument{needed("arg1"), needed("arg2")}},
		func(a map[string]string) []mcp.Content {
			return []mcp.Content{text("Prompt with arguments: arg1='%s', arg2='%s'", a["arg1"], a["arg2"])}
		})
	one(&mcp.Prompt{Name: "test_prompt_with_embedded_resource", Description: "Embeds.", Arguments: []*mcp.PromptArgument{needed("resourceUri")}},
		func(a map[string]string) []mcp.Content {
			return []mcp.Content{embedded(a["resourceUri"]), text("Read it.")}
		})
	one(&mcp.Prompt{Name: "test_prompt_with_image", Description: "Shows."}, func(map[string]string) []mcp.Content {
		return []mcp.Content{picture(), text("Look at it.")}
	})
	m.AddPrompt(&mcp.Prompt{Name: "test_input_required_result_prompt", Description: "Asks."},
		func(_ context.Context, r *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			if v, ok := accepted(r.Params.InputResponses, "user_context", "context"); ok {
				return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{{Role: "user", Content: text("Context: %v", v)}}}, nil
			}
			return &mcp.GetPromptResult{InputRequests: mcp.InputRequestMap{"user_context": form("context", "string")}}, nil
		})
}
