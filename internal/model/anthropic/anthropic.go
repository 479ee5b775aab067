// Package anthropic is [agent.Model] over the Messages API.
//
// It owns the wire: one HTTP call for each reply, the event stream of its
// answer, and the decision to try again. It promises that a [agent.Reply] is
// returned only for an answer that came to its end with a stop reason, that a
// call is never repeated once content has been handed on, that the messages
// of a conversation are sent as the bytes they are kept as, that a key goes to
// the configured host only, and that nothing is read from the environment. It
// does not keep conversations, run tools, or know what a model costs.
package anthropic

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/model/limit"
)

// DefaultBaseURL is where calls go when the configuration does not say.
const DefaultBaseURL = "https://api.anthropic.com"

// Config is how the provider is reached. A key or a token is needed; the rest
// may stay zero.
type Config struct {
	BaseURL    string            // default: DefaultBaseURL; a path in it is kept
	APIKey     string            // sent as X-Api-Key
	AuthToken  string            // sent as a bearer token
	HTTPClient *http.Client      // default: one of its own; redirects are never followed
	Limiter    *limit.Limiter    // default: one of its own. Shared by all models of a process
	Aliases    map[string]string // from a short name to a full one; beside and before the usual three
	MaxTokens  int               // of a reply when the request does not say; default: 32,000
	Idle       time.Duration     // a call that brings no byte for so long is cut; default: 120 s
}

// Model calls the provider. It may be used by many loops at the same time.
type Model struct {
	client    sdk.Client
	http      *http.Client
	limiter   *limit.Limiter
	host      string // for error texts and as part of the limiter's key
	aliases   map[string]string
	maxTokens int
	idle      time.Duration
	backoff   func(tries int) time.Duration
}

// New checks the configuration. It does no I/O. Its errors tell the user what
// to set.
func New(c Config) (*Model, error) {
	if c.BaseURL == "" {
		c.BaseURL = DefaultBaseURL
	}
	base, err := url.Parse(c.BaseURL)
	if err != nil || (base.Scheme != "http" && base.Scheme != "https") || base.Host == "" {
		return nil, fmt.Errorf("base URL %q of the anthropic provider is no http address (set ANTHROPIC_BASE_URL to one such as %s)", c.BaseURL, DefaultBaseURL)
	}
	for _, secret := range []string{c.APIKey, c.AuthToken} {
		if strings.ContainsFunc(secret, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
			return nil, errors.New("the key of the anthropic provider has blanks or line breaks in it (set ANTHROPIC_API_KEY again)")
		}
	}
	client := noRedirects(c.HTTPClient)
	opts := []option.RequestOption{
		option.WithoutEnvironmentDefaults(),
		option.WithBaseURL(c.BaseURL),
		option.WithHTTPClient(client),
		option.WithMaxRetries(0), // retries belong to the shared limiter
		option.WithHeader("Accept", "text/event-stream"),
		option.WithHeader("Content-Type", "application/json"),
	}
	switch {
	case c.APIKey == "" && c.AuthToken == "":
		return nil, errors.New("no key for the anthropic provider (set ANTHROPIC_API_KEY)")
	case c.APIKey != "":
		opts = append(opts, option.WithAPIKey(c.APIKey))
	}
	if c.AuthToken != "" {
		opts = append(opts, option.WithAuthToken(c.AuthToken))
	}
	m := &Model{
		client: sdk.NewClient(opts...), http: client, limiter: c.Limiter, host: base.Host, aliases: c.Aliases,
		maxTokens: c.MaxTokens, idle: c.Idle, backoff: limit.Backoff,
	}
	if m.limiter == nil {
		m.limiter = limit.New(0)
	}
	if m.maxTokens == 0 {
		m.maxTokens = 32_000
	}
	if m.idle == 0 {
		m.idle = 120 * time.Second
	}
	return m, nil
}

// Close gives idle connections up. Calls that are under way go on.
func (m *Model) Close() { m.http.CloseIdleConnections() }

// noRedirects is a copy of the client that gives a redirect back as it is: a
// followed one would carry the key to a host that nobody chose.
func noRedirects(c *http.Client) *http.Client {
	var own http.Client
	if c != nil {
		own = *c
	} else if t, ok := http.DefaultTransport.(*http.Transport); ok {
		t = t.Clone()
		// Hundreds of agents talk to one host; the default of 2 would have them
		// open a connection for nearly every call.
		t.MaxIdleConns, t.MaxIdleConnsPerHost = 512, 512
		own.Transport = t
	}
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &own
}

// Resolve is the full name that a model's name stands for: an alias of the
// configuration, one of sonnet, opus and haiku, or the name itself, without
// a leading "anthropic/". No name is sonnet.
func (m *Model) Resolve(name string) string {
	name = strings.TrimPrefix(name, "anthropic/")
	if name == "" {
		name = "sonnet"
	}
	if full := m.aliases[name]; full != "" {
		return full
	}
	switch name {
	case "sonnet":
		return "claude-sonnet-4-5-20250929"
	case "opus":
		return "claude-opus-4-5-20250514"
	case "haiku":
		return "claude-haiku-4-5-20251001"
	}
	return name
}

// body is the request in its wire form, in parts that share the bytes of the
// messages: a long conversation is neither encoded nor copied again. System and tools come first and are the same bytes in every call of an
// agent, which is what the provider's cache needs.
func (m *Model) body(req *agent.Request, model string) (net.Buffers, error) {
	type cached struct {
		Type string `json:"type"`
	}
	type block struct {
		Type  string `json:"type"`
		Text  string `json:"text"`
		Cache cached `json:"cache_control"`
	}
	head := struct {
		Model     string           `json:"model"`
		MaxTokens int              `json:"max_tokens"`
		Stream    bool             `json:"stream"`
		Cache     cached           `json:"cache_control"`
		System    []block          `json:"system,omitempty"`
		Tools     []agent.ToolSpec `json:"tools,omitempty"`
	}{Model: model, MaxTokens: req.MaxTokens, Stream: true, Cache: cached{"ephemeral"}, Tools: req.Tools}
	if head.MaxTokens == 0 {
		head.MaxTokens = m.maxTokens
	}
	if req.System != "" {
		head.System = []block{{Type: "text", Text: req.System, Cache: cached{"ephemeral"}}}
	}

	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(head); err != nil {
		return nil, fmt.Errorf("encode request: %w", err)
	}
	buf.Truncate(buf.Len() - len("}\n"))
	buf.WriteString(`,"messages":[`)

	parts := make(net.Buffers, 0, 2*len(req.Messages)+2)
	parts = append(parts, buf.Bytes())
	comma := []byte(",")
	for i, msg := range req.Messages {
		if i > 0 {
			parts = append(parts, comma)
		}
		parts = append(parts, msg.Encoded())
	}
	return append(parts, []byte("]}")), nil
}

// attach makes parts the body of a request. Each sending lets go of its own
// list of parts as it goes, so a call that waits for its answer holds no
// request.
func attach(r *http.Request, parts net.Buffers) {
	r.GetBody = func() (io.ReadCloser, error) {
		own := slices.Clone(parts)
		return io.NopCloser(&own), nil
	}
	r.ContentLength = 0
	for _, p := range parts {
		r.ContentLength += int64(len(p))
	}
	r.Body, _ = r.GetBody() // the function above has no error
}

// who are the headers that tell which agent calls.
func who(req *agent.Request) []option.RequestOption {
	var opts []option.RequestOption
	for _, h := range [...]struct{ name, value string }{
		{"Drover-Session-Id", req.SessionID}, {"Drover-Agent-Id", req.AgentID}, {"Drover-Agent", req.Agent},
	} {
		if h.value != "" {
			opts = append(opts, option.WithHeader(h.name, printable(h.value)))
		}
	}
	return opts
}

// printable makes text fit for a header: agent types are named by users.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '_'
		}
		return r
	}, s)
}

// Reply implements [agent.Model].
func (m *Model) Reply(ctx context.Context, req *agent.Request, on func(agent.Part)) (*agent.Reply, error) {
	if on == nil {
		on = func(agent.Part) {}
	}
	model := m.Resolve(req.Model)
	body, err := m.body(req, model)
	if err != nil {
		return nil, err
	}
	opts := who(req)
	key := m.host + " " + model
	for tries := 1; ; tries++ {
		if parked := m.limiter.Parked(key); parked > 0 && tries == 1 {
			on(agent.Part{Kind: agent.RetryPart, Text: "the provider asked all calls of " + model + " to wait", After: parked})
		}
		release, err := m.limiter.Acquire(ctx, key)
		if err != nil {
			return nil, fmt.Errorf("ask model %s: %w", model, err)
		}
		reply, err := m.once(ctx, model, body, opts, on)
		release()
		var again *retry
		if !errors.As(err, &again) {
			return reply, err
		}
		if tries >= again.most {
			return nil, again.exhausted(tries)
		}
		wait := m.backoff(tries)
		if again.after > 0 {
			wait = min(again.after, limit.MaxWait)
			m.limiter.Park(key, wait)
		}
		on(agent.Part{
			Kind: agent.RetryPart, After: wait,
			Text: fmt.Sprintf("%s; try %d of %d", again.why.Text, tries+1, again.most),
		})
		if again.after > 0 {
			continue // Acquire waits with all the others
		}
		if err := limit.Sleep(ctx, wait); err != nil {
			return nil, fmt.Errorf("ask model %s: %w", model, err)
		}
	}
}

// once makes one call. An error that is worth another try is a *retry.
func (m *Model) once(ctx context.Context, model string, body net.Buffers, opts []option.RequestOption, on func(agent.Part)) (*agent.Reply, error) {
	call, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	w := newWatch(m.idle, cancel)
	defer w.stop()

	var res *http.Response
	opts = append(opts[:len(opts):len(opts)], option.WithMiddleware(
		func(r *http.Request, next option.MiddlewareNext) (*http.Response, error) {
			attach(r, body)
			res, err := next(r)
			if err != nil {
				return nil, err
			}
			res.Body = &watched{body: res.Body, watch: w}
			return res, m.refuse(res, model)
		}))
	err := m.client.Post(call, "v1/messages", nil, &res, opts...)
	if err != nil {
		if res != nil {
			_ = res.Body.Close() // refused: what it held is in err
		}
		return nil, m.callError(ctx, call, model, err)
	}
	defer func() { _ = res.Body.Close() }() // an error here changes nothing: the answer is read or given up
	s := stream{on: on, res: res, usedName: model}
	reply, err := s.read()
	if err == nil {
		w.drain(res.Body)
		return reply, nil
	}
	if call.Err() != nil {
		err = context.Cause(call) // says more than the read error that it caused
	}
	return nil, s.fail(m, ctx, err)
}
