// Package openai is [agent.Model] over the two streaming APIs of OpenAI, chat
// completions and responses, as OpenAI, Ollama, llama.cpp, vLLM, OpenRouter and
// many others speak them.
//
// It owns the form of requests and of the events of an answer; the life of a call
// belongs to package modelwire. It promises that an [agent.Reply] is returned only for
// an answer with a reason for its end, that a call of a tool is whole only when
// the wire says so, that a message is translated once, that a key goes to the
// configured host only, and that the environment is not read. It does
// not keep conversations, run tools, or know the prices of models. Note 4 in docs/adr
// says why it uses no library.
package openai

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync/atomic"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/model/modelinfo"
	"github.com/drover-dev/drover/internal/model/modelwire"
	"github.com/drover-dev/drover/internal/platform/jsonc"
)

// DefaultBaseURL is the default address of calls.
const DefaultBaseURL = "https://api.openai.com/v1"

// API is one of the two ways to ask for an answer.
type API string

// The APIs. Compatible servers speak chat completions.
const (
	Chat      API = "chat"
	Responses API = "responses"
)

// Model calls the provider. It may be used by many loops at the same time.
type Model struct {
	endpoint  *modelwire.Endpoint
	form      form
	url       string
	key       string
	own       bool // OpenAI itself, where the limit of a reply has another name
	maxTokens int
	heads     [2]modelwire.Heads // the second is of plain requests
	plain     atomic.Bool        // the server takes no stream_options
	messages  modelwire.Translations
	images    modelinfo.ImageLimits
}

// form holds the differences between the two APIs.
type form struct {
	path   string
	list   string // the field that holds the messages
	head   func(r *agent.Request, model string, maxTokens int, own, plain bool) any
	system func(text string) any // the first of the list; nil: the head has it
	items  func([]agent.Block, agent.Role) []any
	decode func(model string, on func(agent.Part)) modelwire.Decoder
}

// New checks an account, which needs a key, sent as a bearer token, or an address; one without
// a path gets /v1. An empty api is [Chat]. It does no I/O. Its errors name the settings to change.
func New(c modelwire.Account, api API) (*Model, error) {
	if c.APIKey == "" && c.BaseURL == "" {
		return nil, errors.New("no key for the openai provider (set OPENAI_API_KEY, or OPENAI_BASE_URL to a server that " +
			"needs none)")
	}
	endpoint, base, err := c.Endpoint("openai", DefaultBaseURL, "")
	if err != nil {
		return nil, err
	}
	m := &Model{endpoint: endpoint, key: c.APIKey, own: base.Host == "api.openai.com", maxTokens: c.MaxTokens,
		images: modelinfo.Images("openai")}
	switch api {
	case Chat, "":
		m.form = chatForm()
	case Responses:
		m.form = responsesForm()
	default:
		return nil, fmt.Errorf("the openai provider has no API %q (set DROVER_OPENAI_API to chat or responses)", api)
	}
	m.url = address(base, m.form.path)
	return m, nil
}

// address returns the address of calls. A base URL without a path gets the usual one.
func address(base *url.URL, path string) string {
	u := *base
	if u.Path = strings.TrimRight(u.Path, "/"); u.Path == "" {
		u.Path = "/v1"
	}
	u.Path += path
	return u.String()
}

// Close closes idle connections. Running calls continue.
func (m *Model) Close() { m.endpoint.HTTP.CloseIdleConnections() }

// Reply implements [agent.Model]. The name of the model is sent unchanged: some
// servers have names with a provider in them.
func (m *Model) Reply(ctx context.Context, req *agent.Request, on func(agent.Part)) (*agent.Reply, error) {
	plain := m.plain.Load()
	reply, err := m.ask(ctx, req, plain, on)
	told := (*agent.ModelError)(nil)
	if !plain && errors.As(err, &told) && told.Kind == "bad_request" && strings.Contains(told.Text, "stream_options") {
		m.plain.Store(true)
		reply, err = m.ask(ctx, req, true, on)
	}
	return reply, m.placed(err, req)
}

func (m *Model) ask(ctx context.Context, req *agent.Request, plain bool, on func(agent.Part)) (*agent.Reply, error) {
	model := req.Model
	body, err := m.body(req, model, plain)
	if err != nil {
		return nil, err
	}
	header := modelwire.Header(req)
	if m.key != "" {
		header.Set("Authorization", "Bearer "+m.key)
	}
	return m.endpoint.Reply(ctx, &modelwire.Call{
		Model: model, URL: m.url, Header: header, Body: body, From: req,
		Decode: func(on func(agent.Part)) modelwire.Decoder { return m.form.decode(model, on) },
	}, on)
}

// body returns the request in its wire form, in parts that share the bytes of the
// translated messages. The constant parts of a conversation come first: servers keep
// them as a prefix in their caches.
func (m *Model) body(req *agent.Request, model string, plain bool) (net.Buffers, error) {
	most := req.MaxTokens
	if most == 0 {
		most = m.maxTokens
	}
	heads := &m.heads[0]
	if plain {
		heads = &m.heads[1]
	}
	begin, err := heads.Of(req, func() ([]byte, error) {
		return modelwire.Head(m.form.head(req, model, most, m.own, plain))
	})
	if err != nil {
		return nil, err
	}
	parts := make(net.Buffers, 0, 2*len(req.Messages)+5)
	parts = append(parts, begin)
	begin = []byte(`,"` + m.form.list + `":[`)
	comma := []byte(nil) // the first has none before it
	if req.System != "" && m.form.system != nil {
		system, err := jsonc.Encode(m.form.system(req.System))
		if err != nil {
			return nil, fmt.Errorf("encode request: %w", err)
		}
		begin, comma = append(begin, system...), []byte(",")
	}
	parts = append(parts, begin)
	for i, msg := range req.Messages {
		items, err := m.messages.Of(msg, m.translate)
		if err != nil {
			return nil, fmt.Errorf("message %d for %s: %w", i+1, model, err)
		}
		if len(items) == 0 {
			continue
		}
		if comma != nil {
			parts = append(parts, comma)
		}
		parts, comma = append(parts, items), []byte(",")
	}
	return append(parts, []byte("]}")), nil
}

// translate makes the items of one message, joined by commas.
func (m *Model) translate(msg agent.Message) ([]byte, error) {
	blocks, err := msg.Blocks()
	if err != nil {
		return nil, err
	}
	blocks, _ = modelwire.Fitting(blocks, m.images)
	var out [][]byte
	for _, item := range m.form.items(blocks, msg.Role()) {
		b, err := jsonc.Encode(item)
		if err != nil {
			return nil, err
		}
		out = append(out, b)
	}
	return bytes.Join(out, []byte(",")), nil
}
