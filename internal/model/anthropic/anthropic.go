// Package anthropic is [agent.Model] over the Messages API.
//
// It owns the form of requests and of the events of an answer; the life of a
// call belongs to package modelwire. It promises that an [agent.Reply] is returned
// only for an answer that came to its end with a stop reason, that the messages
// of a conversation are sent as their stored bytes, that a key goes to
// the configured host only, and that the environment is not read. It
// does not keep conversations, run tools, or know the prices of models.
package anthropic

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/model/modelinfo"
	"github.com/drover-dev/drover/internal/model/modelwire"
)

// version is the version of the Messages API, which is sent with every call.
const version = "2023-06-01"

// DefaultBaseURL is the default address of calls.
const DefaultBaseURL = "https://api.anthropic.com"

// Config says how to reach the provider. A key, sent as X-Api-Key, or a token is required.
type Config struct {
	modelwire.Account
	AuthToken string            // sent as a bearer token
	Headers   string            // sent with every call: a line each, such as "Name: value"
	Aliases   map[string]string // from a short name to a full one; they win over the usual three
}

// Model calls the provider. It may be used by many loops at the same time.
type Model struct {
	endpoint  *modelwire.Endpoint
	url       string
	apiKey    string
	authToken string
	more      http.Header
	heads     modelwire.Heads
	ahead     modelwire.Ahead
	messages  modelwire.Translations // of messages that are not sent unchanged
	aliases   map[string]string
	maxTokens int
	images    modelinfo.ImageLimits
}

// New checks the configuration. It does no I/O. Its errors name the settings to
// change.
func New(c Config) (*Model, error) {
	endpoint, base, err := c.Endpoint("anthropic", DefaultBaseURL, c.AuthToken)
	if err != nil {
		return nil, err
	}
	if c.APIKey == "" && c.AuthToken == "" {
		return nil, errors.New("no key for the anthropic provider (set ANTHROPIC_API_KEY)")
	}
	more := http.Header{}
	for line := range strings.Lines(c.Headers) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), ":")
		if !ok && name == "" {
			continue
		}
		value = strings.TrimSpace(value)
		if !ok || !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
			return nil, fmt.Errorf("a line of ANTHROPIC_CUSTOM_HEADERS is no header (set it to lines such as Name: value)")
		}
		more.Set(name, value)
	}
	return &Model{endpoint: endpoint, more: more, url: base.JoinPath("v1/messages").String(), apiKey: c.APIKey,
		authToken: c.AuthToken, aliases: c.Aliases, maxTokens: cmp.Or(c.MaxTokens, 32_000),
		images: modelinfo.Images("anthropic")}, nil
}

// Close closes idle connections. Running calls continue.
func (m *Model) Close() { m.endpoint.HTTP.CloseIdleConnections() }

// Resolve returns the full name for a model's name: by an alias of the
// configuration, by a built-in alias, or the name itself, without
// a leading "anthropic/". The empty name means sonnet.
func (m *Model) Resolve(name string) string {
	name = strings.TrimPrefix(name, "anthropic/")
	if name == "" {
		name = modelinfo.Default
	}
	if full := m.aliases[name]; full != "" {
		return full
	}
	if full := modelinfo.Full(name); full != "" {
		return full
	}
	return name
}

// Reply implements [agent.Model].
func (m *Model) Reply(ctx context.Context, req *agent.Request, on func(agent.Part)) (*agent.Reply, error) {
	model := m.Resolve(req.Model)
	body, err := m.body(req, model)
	if err != nil {
		return nil, err
	}
	header := modelwire.Header(req)
	header.Set("Anthropic-Version", version)
	maps.Copy(header, m.more)
	if m.apiKey != "" {
		header.Set("X-Api-Key", m.apiKey)
	}
	if m.authToken != "" {
		header.Set("Authorization", "Bearer "+m.authToken)
	}
	call := func(on func(agent.Part)) (*agent.Reply, error) {
		return m.endpoint.Reply(ctx, &modelwire.Call{
			Model: model, URL: m.url, Header: header, Body: body, From: req,
			Decode: func(on func(agent.Part)) modelwire.Decoder { return &stream{on: on, usedName: model} },
		}, on)
	}
	if !req.Retain.Head || req.Retain.All || len(req.Messages) > 1 {
		return call(on)
	}
	return m.ahead.Reply(ctx, body[0], on, call) // the first of its conversation
}
