package a2a

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/drover-dev/drover/internal/api/remoteapi"
	"github.com/drover-dev/drover/internal/platform/excerpt"
)

// Limits of what is read of a stranger.
const (
	maxCard     = 1 << 20
	maxAnswer   = 8 << 20 // bytes of an answer, or of one event of a stream
	maxKept     = 16 << 20
	maxPieces   = 1000 // artifacts of a task
	maxEvents   = 2000 // that are kept of a task
	maxMessages = 10_000
	exchange    = 30 * time.Second
)

// IsCard reports whether an address is that of an agent card by its path.
func IsCard(address string) bool {
	u, err := url.Parse(address)
	return err == nil && strings.HasSuffix(u.Path, "/agent-card.json")
}

// Client is one agent elsewhere, as a remote service: a session is a task of the agent. Its methods may be called by
// several goroutines.
type Client struct {
	card  *url.URL
	token string
	http  *http.Client
	calls atomic.Int64 // IDs of requests

	silence time.Duration // of a stream, after which the task is asked for: a connection may be dead

	life    context.Context // of streams
	end     context.CancelFunc
	streams sync.WaitGroup // one per task that is followed

	mu       sync.Mutex
	agent    *agent              // what the card says; nil: it was not read; guarded by mu
	followed map[string]*session // by task; guarded by mu
}

// agent is where and how an agent is called.
type agent struct {
	url, tenant string
	streams     bool
}

// Dial returns the client of an agent by the address of its card. It does no I/O. Close ends its streams.
func Dial(to remoteapi.Service) (*Client, error) {
	u, err := remoteapi.CheckURL(to.URL)
	if err == nil {
		err = remoteapi.CheckToken(to.Token)
	}
	if err != nil {
		return nil, err
	}
	c := &Client{card: u, token: to.Token, http: remoteapi.NewHTTP(u), followed: map[string]*session{},
		silence: time.Minute}
	c.life, c.end = context.WithCancel(context.Background())
	return c, nil
}

// Host returns the host of the agent, for people.
func (c *Client) Host() string { return c.card.Host }

// Close ends all streams and closes idle connections.
func (c *Client) Close() error {
	c.end()
	c.streams.Wait()
	c.http.CloseIdleConnections()
	return nil
}

// find reads the card, once.
func (c *Client) find(ctx context.Context) (agent, error) {
	c.mu.Lock()
	known := c.agent
	c.mu.Unlock()
	if known != nil {
		return *known, nil
	}
	var card Card
	err := c.exchange(ctx, http.MethodGet, c.card.String(), nil, maxCard, func(data []byte) error {
		if err := json.Unmarshal(data, &card); err != nil {
			return &remoteapi.FormError{Err: fmt.Errorf("the agent card cannot be read: %w", err)}
		}
		return nil
	})
	var a agent
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

// choose finds the interface of a card that this client speaks. It has the origin of the card: nobody else is
// given the token, and no card leads to other machines.
func (c *Client) choose(card Card) (agent, error) {
	var offered []string
	for _, e := range card.Capabilities.Extensions {
		if e.Required {
			return agent{}, &remoteapi.RefusedError{Err: fmt.Errorf("the agent requires the extension %.200q, which Drover does not have", e.URI)}
		}
	}
	for _, i := range card.Interfaces {
		major, _, _ := strings.Cut(i.Version, ".")
		if i.Binding != JSONRPC || major != "1" {
			offered = append(offered, excerpt.Line(i.Binding+" "+i.Version, 40))
			continue
		}
		u, err := remoteapi.CheckURL(i.URL)
		if err != nil {
			return agent{}, &remoteapi.RefusedError{Err: fmt.Errorf("the interface of the card: %w", err)}
		}
		if origin(u) != origin(c.card) {
			return agent{}, &remoteapi.RefusedError{Err: fmt.Errorf(
				"the interface of the card is at %.200s, and not at %s: nothing is sent elsewhere", origin(u), origin(c.card))}
		}
		return agent{url: u.String(), tenant: i.Tenant, streams: card.Capabilities.Streaming}, nil
	}
	list := strings.Join(offered, ", ")
	if list == "" {
		list = "none"
	}
	return agent{}, &remoteapi.RefusedError{Err: fmt.Errorf("the card offers no interface %s of version %s (it offers: %s)",
		JSONRPC, Version, excerpt.Line(list, 200))}
}

func origin(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"https": "443", "http": "80"}[u.Scheme]
	}
	return u.Scheme + "://" + strings.ToLower(u.Hostname()) + ":" + port
}

// exchange sends one request and reads its answer, which must be JSON.
func (c *Client) exchange(
	ctx context.Context, method, to string, body []byte, most int64, read func([]byte) error,
) error {
	own, done := context.WithTimeoutCause(ctx, exchange, fmt.Errorf("no answer within %s", exchange))
	defer done()
	resp, err := c.open(own, method, to, body, "application/json")
	if err == nil {
		defer resp.Body.Close()
		var data []byte
		if data, err = answer(resp, most); err == nil {
			return read(data)
		}
	}
	return broken(ctx, own, err)
}

// open sends a request, and returns the answer if it is no refusal of HTTP.
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
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 == 3 {
		return nil, &remoteapi.FormError{Err: fmt.Errorf("the agent redirects to %.200q, and redirects are not followed",
			resp.Header.Get("Location"))}
	}
	return nil, remoteapi.Refused(resp)
}

// broken returns why there is no answer. The end of the caller's context has precedence.
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
	var wrapped *url.Error
	if errors.As(err, &wrapped) { // its text repeats the address
		return wrapped.Err
	}
	return err
}

// answer reads an answer of JSON: the page of a proxy is none.
func answer(resp *http.Response, most int64) ([]byte, error) {
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if kind != "application/json" && !strings.HasSuffix(kind, "+json") {
		return nil, &remoteapi.FormError{Err: fmt.Errorf("the answer is %.60q and not JSON", kind)}
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, most+1))
	if err == nil && int64(len(data)) > most {
		err = &remoteapi.FormError{Err: fmt.Errorf("the answer is larger than %d bytes", most)}
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

// unwrap is the result of an answer to a request.
func unwrap(data []byte, id int64) (json.RawMessage, error) {
	var e envelope
	if err := json.Unmarshal(data, &e); err != nil {
		return nil, &remoteapi.FormError{Err: fmt.Errorf("the answer cannot be read: %w", err)}
	}
	switch {
	case e.Version != "2.0":
		return nil, &remoteapi.FormError{Err: errors.New("the answer is none of JSON-RPC 2.0")}
	case e.Error != nil:
		return nil, refused(e.Error)
	case string(e.ID) != strconv.FormatInt(id, 10):
		return nil, &remoteapi.FormError{Err: fmt.Errorf("the answer has the ID %.40q, and the request had %d", e.ID, id)}
	case len(e.Result) == 0:
		return nil, &remoteapi.FormError{Err: errors.New("the answer has neither a result nor an error")}
	}
	return e.Result, nil
}

// refused is an error of the agent. An internal one may pass.
func refused(e *Error) error {
	said := &Error{Code: e.Code, Message: fmt.Sprintf("the agent answers %d: %s", e.Code, excerpt.Line(e.Message, 300))}
	if e.Code == CodeInternal || e.Code == CodeInvalidAnswer {
		return said
	}
	return &remoteapi.RefusedError{Err: said}
}

// is reports whether the agent answered with a code.
func is(err error, code int) bool {
	var e *Error
	return errors.As(err, &e) && e.Code == code
}

func (c *Client) request(method string, params any) ([]byte, int64, error) {
	id := c.calls.Add(1)
	data, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, "method": method, "params": params})
	switch {
	case err != nil:
		return nil, 0, fmt.Errorf("encode request: %w", err)
	case len(data) > remoteapi.MaxBody:
		return nil, 0, &remoteapi.RefusedError{
			Err: fmt.Errorf("the request has %d bytes, %d are possible", len(data), remoteapi.MaxBody)}
	}
	return data, id, nil
}

// call makes one call and reads its result.
func (c *Client) call(ctx context.Context, a agent, method string, params, into any) error {
	body, id, err := c.request(method, params)
	if err == nil {
		err = c.exchange(ctx, http.MethodPost, a.url, body, maxAnswer, func(data []byte) error {
			result, err := unwrap(data, id)
			if err != nil {
				return err
			}
			if err := json.Unmarshal(result, into); err != nil {
				return &remoteapi.FormError{Err: fmt.Errorf("the result cannot be read: %w", err)}
			}
			return nil
		})
	}
	if err != nil {
		return fmt.Errorf("%s at %s: %w", method, c.Host(), err)
	}
	return nil
}

// stream makes one call and gives each event of its answer to each, until the stream ends. An answer that is no
// stream is an error.
func (c *Client) stream(ctx context.Context, a agent, method string, params any, each func(Event) error) error {
	body, id, err := c.request(method, params)
	if err != nil {
		return err
	}
	own, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := time.AfterFunc(exchange, func() { cancel(fmt.Errorf("no answer within %s", exchange)) })
	resp, err := c.open(own, http.MethodPost, a.url, body, "text/event-stream")
	if !late.Stop() && err == nil {
		_ = resp.Body.Close()
		err = context.Cause(own)
	}
	if err != nil {
		return fmt.Errorf("%s at %s: %w", method, c.Host(), broken(ctx, own, err))
	}
	defer resp.Body.Close()
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind != "text/event-stream" {
		data, err := answer(resp, maxAnswer)
		if err == nil {
			if _, err = unwrap(data, id); err == nil {
				err = &remoteapi.FormError{Err: errors.New("the answer is no stream of events")}
			}
		}
		return fmt.Errorf("%s at %s: %w", method, c.Host(), err)
	}
	err = frames(resp.Body, func(data []byte) error {
		result, err := unwrap(data, id)
		if err != nil {
			return err
		}
		var e Event
		if err := json.Unmarshal(result, &e); err != nil {
			return &remoteapi.FormError{Err: fmt.Errorf("an event cannot be read: %w", err)}
		}
		return each(e)
	})
	if err != nil {
		return fmt.Errorf("%s at %s: %w", method, c.Host(), broken(ctx, own, err))
	}
	return nil
}

// frames reads the data of server-sent events.
func frames(r io.Reader, each func([]byte) error) error {
	in := bufio.NewReaderSize(r, 64<<10)
	var line, data []byte
	for {
		part, err := in.ReadSlice('\n')
		line = append(line, part...)
		if len(line)+len(data) > maxAnswer {
			return &remoteapi.FormError{Err: fmt.Errorf("an event is larger than %d bytes", maxAnswer)}
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		text := bytes.TrimRight(line, "\r\n")
		if rest, ok := bytes.CutPrefix(text, []byte("data:")); ok {
			data = append(append(data, bytes.TrimPrefix(rest, []byte(" "))...), '\n')
		}
		if err != nil {
			return nil // what is not whole is no event
		}
		if len(text) == 0 && len(data) > 0 {
			if failed := each(data); failed != nil {
				return failed
			}
			data = nil
		}
		line = line[:0]
	}
}
