package a2a

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/drover-dev/drover/internal/platform/addresses"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/platform/lines"
)

// Limits of what is read from a stranger.
const (
	maxCard   = 1 << 20
	maxAnswer = 8 << 20 // bytes of an answer, or of one event of a stream
	maxError  = 64 << 10
	maxBody   = 2 << 20 // bytes of a request
	exchange  = 30 * time.Second
)

// Client calls one agent. Its methods may be called by several goroutines.
type Client struct {
	// Silence is how long a stream may send nothing before the task is asked for, since the connection may be dead.
	// Dial sets one minute.
	Silence time.Duration

	card  *url.URL
	token string
	http  *http.Client
	calls atomic.Int64 // IDs of requests

	mu    sync.Mutex
	agent *agent // what the card says; nil: not yet read; guarded by mu
}

// agent is where and how an agent is called.
type agent struct {
	url, tenant string
	streams     bool
}

// Dial returns the client of the agent whose card is at an address that [CheckCard] accepts. The token is sent as
// bearer token; empty: none. Dial does no I/O. Close closes idle connections.
func Dial(card, token string) (*Client, error) {
	u, err := checkURL(card)
	if err != nil {
		return nil, err
	}
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return nil, errors.New("the token of the agent contains a blank or a character outside of ASCII")
	}
	return &Client{card: u, token: token, http: newHTTP(u), Silence: time.Minute}, nil
}

// CheckCard refuses an address of an agent card to which nothing may be sent. Unless anyPath is set, its path must
// end in /agent-card.json.
func CheckCard(address string, anyPath bool) error {
	u, err := checkURL(address)
	if err == nil && !anyPath && !strings.HasSuffix(u.Path, "/agent-card.json") {
		err = fmt.Errorf("%.200q is not the address of an A2A agent card, and Drover's own session API was removed "+
			"(give the address of a card, such as https://example.com%s; `drover serve --a2a` offers the agents of a folder)",
			address, CardPath)
	}
	return err
}

func checkURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, fmt.Errorf("the address of the agent card cannot be parsed: %.200q", text)
	case u.User != nil:
		return nil, errors.New("the address of the agent card contains a name or password (set tokenEnv to the variable " +
			"with the token)")
	case u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.Opaque != "":
		return nil, fmt.Errorf("%.200q is not the address of an agent card (such as https://example.com%s)", text, CardPath)
	case u.Scheme == "https", u.Scheme == "http" && addresses.Loopback(u.Hostname()):
		return u, nil
	}
	return nil, fmt.Errorf("%.200q is neither https nor on this machine", text)
}

// newHTTP returns a client for one address. It follows no redirects; http reaches this machine only.
func newHTTP(u *url.URL) *http.Client {
	d := &net.Dialer{Timeout: 10 * time.Second}
	t := &http.Transport{
		DialContext:            d.DialContext,
		TLSHandshakeTimeout:    10 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
		IdleConnTimeout:        30 * time.Second,
		MaxIdleConnsPerHost:    64,
		ForceAttemptHTTP2:      true,
		Proxy:                  http.ProxyFromEnvironment,
	}
	if u.Scheme == "http" {
		// A host name such as localhost may be configured to mean another machine.
		t.Proxy, d.Control = nil, onlyLocal
	}
	return &http.Client{Transport: t,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

func onlyLocal(_, address string, _ syscall.RawConn) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		return fmt.Errorf("%s is not on this machine, and http is not encrypted", host)
	}
	return nil
}

// Host returns the host of the agent, for people.
func (c *Client) Host() string { return c.card.Host }

// Close closes idle connections. Followers of the client are closed by their owners.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// find reads the card, once.
func (c *Client) find(ctx context.Context) (agent, error) {
	c.mu.Lock()
	known := c.agent
	c.mu.Unlock()
	if known != nil {
		return *known, nil
	}
	var card Card
	var a agent
	data, err := c.exchange(ctx, http.MethodGet, c.card.String(), nil, maxCard)
	if err == nil {
		if err = json.Unmarshal(data, &card); err != nil {
			err = fmt.Errorf("the agent card cannot be parsed: %w", err)
		}
	}
	if err == nil {
		a, err = c.choose(card)
	}
	if err != nil {
		return a, fmt.Errorf("read the agent card at %s: %w", c.card, err)
	}
	c.mu.Lock()
	c.agent = &a
	c.mu.Unlock()
	return a, nil
}

// choose finds the interface of a card that this client speaks. It must have the origin of the card, so that a card
// leads the token to no other machine.
func (c *Client) choose(card Card) (agent, error) {
	for _, e := range card.Capabilities.Extensions {
		if e.Required {
			return agent{}, refuse("the agent requires the extension %.200q, which Drover does not have", e.URI)
		}
	}
	var offered []string
	for _, i := range card.Interfaces {
		major, _, _ := strings.Cut(i.Version, ".")
		if i.Binding != JSONRPC || major != "1" {
			offered = append(offered, excerpt.Line(i.Binding+" "+i.Version, 40))
			continue
		}
		u, err := checkURL(i.URL)
		if err != nil {
			return agent{}, refuse("the interface of the card: %w", err)
		}
		if origin(u) != origin(c.card) {
			return agent{}, refuse("the interface of the card is at %.200s, and the card is at %s: nothing is sent elsewhere",
				origin(u), origin(c.card))
		}
		return agent{url: u.String(), tenant: i.Tenant, streams: card.Capabilities.Streaming}, nil
	}
	list := cmp.Or(strings.Join(offered, ", "), "none")
	return agent{}, refuse("the card offers no interface %s of version %s (it offers: %s)", JSONRPC, Version,
		excerpt.Line(list, 200))
}

func origin(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"https": "443", "http": "80"}[u.Scheme]
	}
	return u.Scheme + "://" + strings.ToLower(u.Hostname()) + ":" + port
}

// exchange sends one request and returns its answer, which must be JSON.
func (c *Client) exchange(ctx context.Context, method, to string, body []byte, most int64) (data []byte, err error) {
	own, done := context.WithTimeoutCause(ctx, exchange, fmt.Errorf("no answer within %s", exchange))
	defer done()
	resp, err := c.open(own, method, to, body, "application/json")
	if err == nil {
		defer resp.Body.Close()
		data, err = answer(resp, most)
	}
	return data, broken(ctx, own, err)
}

// open sends a request and returns the answer, which has a status of success.
func (c *Client) open(ctx context.Context, method, to string, body []byte, accept string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, to, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	req.Header.Set("Accept", accept)
	req.Header.Set(VersionHeader, Version)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	switch resp.StatusCode / 100 {
	case 2:
		return resp, nil
	case 3:
		err = fmt.Errorf("the agent redirects to %.200q, and redirects are not followed", resp.Header.Get("Location"))
	default:
		err = statusError(resp)
	}
	return nil, errors.Join(err, resp.Body.Close())
}

// broken returns why an exchange has no answer. The end of the caller's context has precedence.
func broken(ctx, own context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if own.Err() != nil {
		return context.Cause(own)
	}
	if wrapped, ok := errors.AsType[*url.Error](err); ok { // its text repeats the address
		return wrapped.Err
	}
	return err
}

// answer reads an answer, which must be JSON: a proxy may answer with a page.
func answer(resp *http.Response, most int64) ([]byte, error) {
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if kind != "application/json" && !strings.HasSuffix(kind, "+json") {
		return nil, fmt.Errorf("the answer is %.60q and not JSON", kind)
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, most+1))
	if err == nil && int64(len(data)) > most {
		err = fmt.Errorf("the answer is larger than %d bytes", most)
	}
	return data, err
}

// envelope is an answer of JSON-RPC.
type envelope struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Result  json.RawMessage `json:"result"`
	Error   *Error          `json:"error"`
}

// unwrap returns the result of an answer to a request.
func unwrap(data []byte, id int64) (json.RawMessage, error) {
	var e envelope
	if err := json.Unmarshal(data, &e); err != nil {
		return nil, fmt.Errorf("the answer cannot be parsed: %w", err)
	}
	switch {
	case e.Version != "2.0":
		return nil, errors.New("the answer is not JSON-RPC 2.0")
	case e.Error != nil:
		return nil, refused(e.Error)
	case string(e.ID) != strconv.FormatInt(id, 10):
		return nil, fmt.Errorf("the answer has the ID %.40q, the request has %d", e.ID, id)
	case len(e.Result) == 0:
		return nil, errors.New("the answer has neither a result nor an error")
	}
	return e.Result, nil
}

func (c *Client) request(method string, params any) ([]byte, int64, error) {
	id := c.calls.Add(1)
	data, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, "method": method, "params": params})
	switch {
	case err != nil:
		return nil, 0, fmt.Errorf("encode request: %w", err)
	case len(data) > maxBody:
		return nil, 0, refuse("the request has %d bytes, %d are possible", len(data), maxBody)
	}
	return data, id, nil
}

// call makes one call and decodes its result.
func (c *Client) call(ctx context.Context, a agent, method string, params, into any) error {
	body, id, err := c.request(method, params)
	var result json.RawMessage
	if err == nil {
		if body, err = c.exchange(ctx, http.MethodPost, a.url, body, maxAnswer); err == nil {
			result, err = unwrap(body, id)
		}
	}
	if err == nil {
		if err = json.Unmarshal(result, into); err != nil {
			err = fmt.Errorf("the result cannot be parsed: %w", err)
		}
	}
	if err != nil {
		return fmt.Errorf("%s at %s: %w", method, c.Host(), err)
	}
	return nil
}

// stream makes one call and passes each event of its answer to each, until the stream ends.
func (c *Client) stream(ctx context.Context, a agent, method string, params any, each func(Event) error) error {
	own, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	err := c.events(own, cancel, a, method, params, each)
	if err != nil {
		return fmt.Errorf("%s at %s: %w", method, c.Host(), broken(ctx, own, err))
	}
	return nil
}

func (c *Client) events(
	ctx context.Context, cancel context.CancelCauseFunc, a agent, method string, params any, each func(Event) error,
) error {
	body, id, err := c.request(method, params)
	if err != nil {
		return err
	}
	late := time.AfterFunc(exchange, func() { cancel(fmt.Errorf("no answer within %s", exchange)) })
	resp, err := c.open(ctx, http.MethodPost, a.url, body, "text/event-stream")
	if err != nil {
		late.Stop()
		return err
	}
	defer resp.Body.Close()
	if !late.Stop() {
		return context.Cause(ctx)
	}
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind != "text/event-stream" {
		data, err := answer(resp, maxAnswer)
		if err == nil {
			_, err = unwrap(data, id)
		}
		return cmp.Or(err, errors.New("the answer is not a stream of events"))
	}
	return frames(resp.Body, func(data []byte) error {
		result, err := unwrap(data, id)
		if err != nil {
			return err
		}
		var e Event
		if err := json.Unmarshal(result, &e); err != nil {
			return fmt.Errorf("an event cannot be parsed: %w", err)
		}
		return each(e)
	})
}

// frames reads the data of server-sent events.
func frames(r io.Reader, each func([]byte) error) error {
	events := lines.NewEvents(r, maxAnswer, fmt.Errorf("an event is larger than %d bytes", maxAnswer))
	for {
		e, err := events.Next()
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := each(e.Data); err != nil {
			return err
		}
	}
}
