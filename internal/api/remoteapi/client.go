package remoteapi

import (
	"bytes"
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
	"syscall"
	"time"

	"github.com/drover-dev/drover/internal/platform/excerpt"
)

// Limits of one exchange.
const (
	maxPage   = 8 << 20 // bytes of a JSON answer
	maxError  = 64 << 10
	MaxOutput = 1 << 20 // bytes of output in one answer
	MaxBody   = 2 << 20 // bytes of a request
	MaxHold   = 20 * time.Second
	exchange  = 30 * time.Second // in addition to the time for which a poll may be held
)

// Client is the client of a service over HTTP. Its methods may be called by several goroutines.
type Client struct {
	base  *url.URL
	token string
	http  *http.Client
}

// Service is the address of a service and its token.
type Service struct {
	URL   string // https, or http to this machine; see [CheckURL]
	Token string // sent as bearer token; empty: none
}

// CheckURL refuses an address to which nothing may be sent.
func CheckURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, fmt.Errorf("the address of the service cannot be read: %.200q", text)
	case u.User != nil:
		return nil, errors.New(
			"the address of the service holds a name or password (name a variable with the token in the setting tokenEnv)",
		)
	case u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.Opaque != "":
		return nil, fmt.Errorf("%.200q is no address of a service (such as https://example.com/drover)", text)
	case u.Scheme == "https", u.Scheme == "http" && local(u.Hostname()):
		return u, nil
	}
	return nil, fmt.Errorf("%.200q is neither https nor on this machine", text)
}

func local(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Dial returns a client. It does no I/O. Close closes idle connections.
func Dial(s Service) (*Client, error) {
	u, err := CheckURL(s.URL)
	if err != nil {
		return nil, err
	}
	if err := CheckToken(s.Token); err != nil {
		return nil, err
	}
	u.Path = strings.TrimRight(u.Path, "/")
	return &Client{base: u, token: s.Token, http: NewHTTP(u)}, nil
}

// CheckToken refuses a token that cannot be sent.
func CheckToken(token string) error {
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return errors.New("the token of the service holds blanks, or characters that no token has")
	}
	return nil
}

// NewHTTP returns a client for one address that [CheckURL] has accepted. It follows no redirects; http leads to
// this machine only.
func NewHTTP(u *url.URL) *http.Client {
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

// Host returns the host of the service, for people.
func (c *Client) Host() string { return c.base.Host }

// Close closes idle connections.
func (c *Client) Close() error {
	c.http.CloseIdleConnections()
	return nil
}

// Create creates a session, or finds the one that the key has created already.
func (c *Client) Create(ctx context.Context, r Request) (string, error) {
	var out struct {
		ID string `json:"session_id"`
	}
	if err := c.post(ctx, "/v1/remote/sessions", r.Key, r, &out); err != nil {
		return "", fmt.Errorf("create session at %s: %w", c.Host(), err)
	}
	if err := CheckSession(out.ID); err != nil {
		return "", fmt.Errorf("create session at %s: %w", c.Host(), &FormError{err})
	}
	return out.ID, nil
}

// Poll reads the events after a cursor. A service that supports it holds the answer until there
// is one, for hold at most.
func (c *Client) Poll(ctx context.Context, session, cursor string, hold time.Duration) (Page, error) {
	q := url.Values{}
	if cursor != "" {
		q.Set("after", cursor)
	}
	if hold = min(hold, MaxHold); hold > 0 {
		q.Set("wait", strconv.FormatFloat(hold.Seconds(), 'f', -1, 64))
	}
	var p Page
	err := c.do(ctx, call{method: http.MethodGet, path: c.at(session, "/events"), query: q, hold: hold, into: &p})
	if err == nil {
		if bad := p.Check(); bad != nil {
			err = &FormError{bad}
		}
	}
	if err != nil {
		return Page{}, fmt.Errorf("poll session %s at %s: %w", session, c.Host(), err)
	}
	return p, nil
}

// Output reads output from an offset on, as much as fits into one answer. An empty result means
// that there is none yet.
func (c *Client) Output(ctx context.Context, session string, offset int64) ([]byte, error) {
	var data []byte
	q := url.Values{"offset": {strconv.FormatInt(offset, 10)}}
	if err := c.do(ctx, call{method: http.MethodGet, path: c.at(session, "/output"), query: q, raw: &data}); err != nil {
		return nil, fmt.Errorf("read output of session %s at %s: %w", session, c.Host(), err)
	}
	return data, nil
}

// Send sends a message to a session.
func (c *Client) Send(ctx context.Context, session, text string) error {
	body := struct {
		Text string `json:"text"`
	}{text}
	if err := c.post(ctx, c.at(session, "/messages"), "", body, nil); err != nil {
		return fmt.Errorf("send to session %s at %s: %w", session, c.Host(), err)
	}
	return nil
}

// Archive ends a session. An ended session is not an error.
func (c *Client) Archive(ctx context.Context, session string) error {
	if err := c.post(ctx, c.at(session, "/archive"), "", struct{}{}, nil); err != nil {
		return fmt.Errorf("archive session %s at %s: %w", session, c.Host(), err)
	}
	return nil
}

func (c *Client) at(session, rest string) string {
	return "/v1/remote/sessions/" + url.PathEscape(session) + rest
}

func (c *Client) post(ctx context.Context, path, key string, body, into any) error {
	return c.do(ctx, call{method: http.MethodPost, path: path, key: key, body: body, into: into})
}

// call is one exchange.
type call struct {
	method, path, key string
	query             url.Values
	hold              time.Duration
	body              any     // sent as JSON; nil: nothing
	into              any     // decoded answer; nil: ignored
	raw               *[]byte // in its place: the bytes of the answer
}

func (c *Client) do(ctx context.Context, k call) error {
	own, done := context.WithTimeoutCause(ctx, exchange+k.hold, &timeError{exchange + k.hold})
	defer done()
	req, err := c.request(own, k)
	if err != nil {
		return err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return c.broken(ctx, own, err)
	}
	defer func() {
		_, _ = io.CopyN(io.Discard, resp.Body, 4096) // so that the connection can be reused
		_ = resp.Body.Close()
	}()
	if resp.StatusCode/100 != 2 {
		return Refused(resp)
	}
	switch {
	case k.raw != nil:
		*k.raw, err = bounded(resp.Body, MaxOutput)
	case k.into != nil:
		err = decode(resp, k.into)
	}
	if err != nil {
		return c.broken(ctx, own, err)
	}
	return nil
}

func (c *Client) request(ctx context.Context, k call) (*http.Request, error) {
	var body io.Reader
	if k.body != nil {
		data, err := json.Marshal(k.body)
		if err != nil {
			return nil, fmt.Errorf("encode request: %w", err)
		}
		if len(data) > MaxBody {
			return nil, fmt.Errorf("%w: it has %d bytes, %d are possible", errTooLarge, len(data), MaxBody)
		}
		body = bytes.NewReader(data)
	}
	u := *c.base
	u = *u.JoinPath(k.path)
	u.RawQuery = k.query.Encode()
	req, err := http.NewRequestWithContext(ctx, k.method, u.String(), body)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	if k.body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if k.key != "" {
		req.Header.Set("Idempotency-Key", k.key)
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	return req, nil
}

// broken returns why there is no answer. The end of the caller's context has precedence.
func (c *Client) broken(ctx, own context.Context, err error) error {
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

// decode accepts JSON only: a page of a proxy is not an answer.
func decode(resp *http.Response, into any) error {
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind != "application/json" {
		return &FormError{fmt.Errorf("the answer is %.60q and not JSON", kind)}
	}
	data, err := bounded(resp.Body, maxPage)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return &FormError{fmt.Errorf("the answer cannot be read: %w", err)}
	}
	return nil
}

func bounded(r io.Reader, most int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, most+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > most {
		return nil, &FormError{fmt.Errorf("the answer is larger than %d bytes", most)}
	}
	return data, nil
}

// errTooLarge is a request above the size limit.
var errTooLarge = errors.New("the request is too large")

// StatusError is an answer with an error status.
type StatusError struct {
	Code       int
	Message    string        // of the service; one line
	RetryAfter time.Duration // requested by the service; 0: none
}

func (e *StatusError) Error() string {
	text := fmt.Sprintf("the service answers %d %s", e.Code, http.StatusText(e.Code))
	if e.Message != "" {
		text += ": " + e.Message
	}
	return text
}

// FormError is an answer that violates the API.
type FormError struct{ Err error }

func (e *FormError) Error() string { return e.Err.Error() }
func (e *FormError) Unwrap() error { return e.Err }

// RefusedError is an answer that another try does not change.
type RefusedError struct{ Err error }

func (e *RefusedError) Error() string { return e.Err.Error() }
func (e *RefusedError) Unwrap() error { return e.Err }

type timeError struct{ after time.Duration }

func (e *timeError) Error() string { return fmt.Sprintf("no answer within %s", e.after) }

// Refused is the error of an answer with an error status.
func Refused(resp *http.Response) *StatusError {
	e := &StatusError{Code: resp.StatusCode, RetryAfter: retryAfter(resp.Header.Get("Retry-After"), time.Now())}
	var said struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if data, err := bounded(resp.Body, maxError); err == nil && json.Unmarshal(data, &said) == nil {
		e.Message = excerpt.Line(said.Error.Message, 300)
	}
	return e
}

// retryAfter parses seconds or a date.
func retryAfter(text string, now time.Time) time.Duration {
	if n, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(n) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}

// Passing reports whether a failure may be temporary: the service is not reached, is busy or
// broken, or something in between answers.
func Passing(err error) bool {
	var status *StatusError
	if errors.As(err, &status) {
		switch status.Code {
		case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
			return true
		}
		return status.Code >= 500 || status.Code/100 == 3
	}
	var final *RefusedError
	return err != nil && !errors.Is(err, errTooLarge) && !errors.As(err, &final)
}
