package servers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/driver/mcptask"
	"github.com/drover-dev/drover/internal/mcp/mcpclient"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/session/environment"
	"github.com/drover-dev/drover/internal/tool/mcptool"
	"github.com/drover-dev/drover/task"
)

// Bounds of a server's requests to a model during one call of a tool.
const (
	maxSamples      = 8
	maxSampleBytes  = 256 << 10
	maxSampleTokens = 8192
)

// codeRejected is the error of sampling that the user did not want.
const codeRejected = -1

// Sample is a request of a server to a model. It belongs to no conversation.
type Sample struct {
	System    string
	Messages  []agent.Message
	MaxTokens int
}

// serves are the requests of servers that are answered during a call of a tool.
func serves() []string { return []string{"elicitation/create", "sampling/createMessage"} }

// answering answers the questions of a server during one call, and stops when the call is over.
func (a *Agent) answering(conn *mcpclient.Conn, server string) (own mcpclient.Answerer, stop func()) {
	var samples atomic.Int32
	own = func(ctx context.Context, method string, params json.RawMessage) (any, error) {
		switch method {
		case "elicitation/create":
			return a.elicited(ctx, server, params)
		case "sampling/createMessage":
			if samples.Add(1) > maxSamples {
				return nil, rejected("a call of a tool may ask a model %d times", maxSamples)
			}
			return a.sampled(ctx, server, params)
		}
		return nil, mcpclient.ErrNotMine
	}
	var stops []func()
	for _, method := range serves() {
		stops = append(stops, conn.Serve(method, func(ctx context.Context, params json.RawMessage) (any, error) {
			return own(ctx, method, params)
		}))
	}
	return own, func() {
		for _, stop := range stops {
			stop()
		}
	}
}

func rejected(format string, args ...any) error {
	return &mcpclient.RPCError{Code: codeRejected, Message: fmt.Sprintf(format, args...)}
}

// elicited answers a question of a server. A question of a task is not for the call.
func (a *Agent) elicited(ctx context.Context, server string, params json.RawMessage) (any, error) {
	e, err := mcpclient.ReadElicitation(params)
	if err != nil {
		return nil, err
	}
	if e.Task != "" {
		return nil, mcpclient.ErrNotMine
	}
	action, values, err := a.askForm(ctx, server, e)
	if err != nil {
		return nil, err
	}
	return e.Result(action, values), nil
}

// askForm puts a question of a server to the user.
func (a *Agent) askForm(
	ctx context.Context, server string, e mcpclient.Elicitation,
) (mcpclient.TaskAction, json.RawMessage, error) {
	input, err := json.Marshal(mcptask.Form(server, e))
	if err != nil {
		return "", nil, err
	}
	reply, err := a.cfg.Ask(
		ctx,
		task.Question{Kind: task.Form, Tool: mcptool.Prefix + mcptool.ServerName(server), Input: input,
			Reason: "the MCP server " + server + " asks: " + excerpt.Line(e.Message, environment.AboutChars)},
	)
	switch {
	case err != nil || reply.Dismissed || !reply.Allow && !a.cfg.Attended:
		return mcpclient.FormIgnored, nil, nil // the server learns that no one has answered
	case !reply.Allow:
		return mcpclient.FormDeclined, nil, nil
	}
	return mcpclient.FormAccepted, reply.Input, nil
}

// visited has the user visit the addresses that a call wants visited first, if that is
// why it failed.
func (a *Agent) visited(ctx context.Context, server string, err error) bool {
	var rpc *mcpclient.RPCError
	if !errors.As(err, &rpc) {
		return false
	}
	all := mcpclient.Visits(rpc)
	for _, e := range all {
		if action, _, bad := a.askForm(ctx, server, e); bad != nil || action != mcpclient.FormAccepted {
			return false
		}
	}
	return len(all) > 0
}

// sampled asks the model of the agent for a server, if the user allows it.
func (a *Agent) sampled(ctx context.Context, server string, params json.RawMessage) (any, error) {
	r, err := readSample(params)
	if err != nil {
		return nil, err
	}
	if a.cfg.Sample == nil {
		return nil, rejected("there is no model to ask")
	}
	reply, err := a.cfg.Ask(
		ctx,
		task.Question{Kind: task.Permission, Tool: mcptool.Prefix + mcptool.ServerName(server), Input: params,
			Reason: fmt.Sprintf("the MCP server %s asks your model, for at most %d tokens: %s", server, r.MaxTokens,
				excerpt.Line(r.about(), environment.AboutChars))},
	)
	switch {
	case err != nil:
		return nil, err
	case !reply.Allow:
		why := reply.Reason
		if why == "" {
			why = "permission was denied"
		}
		return nil, rejected("the model was not asked: %s", why)
	}
	got, err := a.cfg.Sample(ctx, r)
	if err != nil {
		return nil, &mcpclient.RPCError{Code: mcpclient.CodeInternal, Message: "the model gave no answer: " + err.Error()}
	}
	text := ""
	for _, b := range got.Blocks {
		if b.Type == "text" {
			text += b.Text
		}
	}
	reasons := map[string]string{"end_turn": "endTurn", "max_tokens": "maxTokens", "stop_sequence": "stopSequence"}
	stop := reasons[got.StopReason]
	if stop == "" {
		stop = got.StopReason
	}
	return map[string]any{"role": "assistant", "content": map[string]string{"type": "text", "text": text},
		"model": got.Model, "stopReason": stop}, nil
}

// about is the beginning of what the model is asked, for the question.
func (s Sample) about() string {
	for _, m := range slices.Backward(s.Messages) {
		blocks, _ := m.Blocks() // it was made here
		for _, b := range blocks {
			if b.Text != "" {
				return b.Text
			}
		}
	}
	return ""
}

// readSample reads the parameters of sampling/createMessage. Preferences of models,
// context of other servers and temperature are not followed; tools are refused.
func readSample(params json.RawMessage) (Sample, error) {
	var p struct {
		Messages []struct {
			Role    string          `json:"role"`
			Content json.RawMessage `json:"content"`
		} `json:"messages"`
		System    string            `json:"systemPrompt"`
		MaxTokens int               `json:"maxTokens"`
		Tools     []json.RawMessage `json:"tools"`
	}
	bad := func(format string, args ...any) (Sample, error) {
		return Sample{}, &mcpclient.RPCError{Code: mcpclient.CodeBadParams, Message: fmt.Sprintf(format, args...)}
	}
	switch err := json.Unmarshal(params, &p); {
	case err != nil:
		return bad("the parameters of sampling/createMessage cannot be read")
	case len(params) > maxSampleBytes:
		return bad("a model is asked with at most %d bytes", maxSampleBytes)
	case len(p.Tools) > 0:
		return bad("tools are not supported in sampling")
	case len(p.Messages) == 0 || p.MaxTokens <= 0:
		return bad("messages and maxTokens are required")
	}
	s := Sample{System: p.System, MaxTokens: min(p.MaxTokens, maxSampleTokens)}
	for i, m := range p.Messages {
		role := agent.Role(m.Role)
		if role != agent.User && role != agent.Assistant {
			return bad("message %d: role %.20q is not known", i, m.Role)
		}
		parts := []json.RawMessage{m.Content}
		_ = json.Unmarshal(m.Content, &parts) // content that is not a list is the only part
		var blocks []agent.Block
		for _, raw := range parts {
			b, ok := sampleBlock(raw)
			if !ok {
				return bad("message %d: only text and images are supported in sampling", i)
			}
			blocks = append(blocks, b)
		}
		s.Messages = append(s.Messages, agent.NewMessage(role, blocks...))
	}
	return s, nil
}

func sampleBlock(raw json.RawMessage) (agent.Block, bool) {
	var c struct {
		Type string `json:"type"`
		Text string `json:"text"`
		Data string `json:"data"`
		MIME string `json:"mimeType"`
	}
	if json.Unmarshal(raw, &c) != nil {
		return agent.Block{}, false
	}
	switch c.Type {
	case "text":
		return agent.TextBlock(c.Text), true
	case "image":
		source, err := json.Marshal(map[string]string{"type": "base64", "media_type": c.MIME, "data": c.Data})
		return agent.Block{Type: "image", Source: source}, err == nil
	}
	return agent.Block{}, false
}
