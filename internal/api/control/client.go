package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/drover-dev/drover/task"
)

// Client is the [API] of a session behind a socket, which documents its methods. Several goroutines may use
// one. When a context ends, a method returns its cause; when the session does
// not answer, an [*Error] with [Unavailable].
type Client struct {
	at      atomic.Pointer[target]
	next    func(context.Context) (string, error) // finds the next host; nil: the session has one only
	turning chan struct{}                         // capacity 1: held while next is called
}

// target is the current host.
type target struct {
	socket    string
	transport *http.Transport
}

var _ API = (*Client)(nil)

// Dial returns a client for the unix socket of a session. It does no I/O: the first call
// reports whether a host listens. Close closes idle connections.
func Dial(socket string) *Client {
	c := &Client{turning: make(chan struct{}, 1)}
	c.at.Store(newTarget(socket))
	return c
}

func newTarget(socket string) *target {
	var d net.Dialer
	return &target{socket: socket, transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return d.DialContext(ctx, "unix", socket)
		},
		DisableCompression:    true,
		MaxIdleConnsPerHost:   4,
		IdleConnTimeout:       time.Minute,
		ExpectContinueTimeout: askedWait,
	}}
}

// Close closes idle connections. Calls in progress continue.
func (c *Client) Close() error {
	c.at.Load().transport.CloseIdleConnections()
	return nil
}

func (c *Client) Info(ctx context.Context) (Info, error) {
	return call[Info](ctx, c, http.MethodGet, "/v1/info", nil)
}

func (c *Client) Start(ctx context.Context, reqs []StartRequest) ([]Started, error) {
	body, err := c.do(ctx, http.MethodPost, "/v1/tasks", newStartBody(reqs))
	if e, ok := errors.AsType[*Error](err); ok && e.Code == TooLarge && len(reqs) > 1 {
		return c.startParts(ctx, reqs)
	}
	if err != nil {
		return nil, err
	}
	defer drain(body)
	started := make([]Started, 0, len(reqs))
	if err := decodeSlice(json.NewDecoder(body), &started); err != nil {
		return nil, c.broken(ctx, err)
	}
	if len(started) != len(reqs) {
		return nil, Refuse(Internal, fmt.Sprintf("start: %d answers to %d requests", len(started), len(reqs)), "")
	}
	return started, nil
}

// startParts is Start for more tasks than one request may have. A failure after the first part
// does not affect earlier parts.
func (c *Client) startParts(ctx context.Context, reqs []StartRequest) ([]Started, error) {
	half := len(reqs) / 2
	first, err := c.Start(ctx, reqs[:half])
	if err != nil {
		return nil, err
	}
	rest, err := c.Start(ctx, reqs[half:])
	if err != nil {
		rest = make([]Started, len(reqs)-half)
		for i := range rest {
			rest[i].Error = AsError(err)
		}
	}
	return append(first, rest...), nil
}

// pageTasks is the number of tasks in one request of a long listing, so that the memory of a
// host does not grow with its history.
const pageTasks = 2000

// List implements [API]. It requests all tasks of a session in pages; tasks that start
// meanwhile are not included.
func (c *Client) List(ctx context.Context, req ListRequest) (Page, error) {
	if !req.All || req.Limit > 0 {
		return c.page(ctx, req)
	}
	req.Limit = pageTasks
	all := Page{Tasks: []task.Record{}}
	for {
		page, err := c.page(ctx, req)
		if err != nil {
			return Page{}, err
		}
		all.Tasks, all.Problem = append(all.Tasks, page.Tasks...), page.Problem
		if page.Next == 0 {
			return all, nil
		}
		req.Before = page.Next
	}
}

func (c *Client) page(ctx context.Context, req ListRequest) (Page, error) {
	body, err := c.do(ctx, http.MethodGet, "/v1/tasks?"+address(req).Encode(), nil)
	if err != nil {
		return Page{}, err
	}
	defer drain(body)
	page, err := decodePage(body)
	if err != nil {
		return Page{}, c.broken(ctx, err)
	}
	return page, nil
}

func (c *Client) Get(ctx context.Context, ref string) (task.Record, error) {
	return onTask[task.Record](ctx, c, http.MethodGet, ref, "")
}

func (c *Client) Wait(ctx context.Context, req WaitRequest) (WaitReply, error) {
	return call[WaitReply](ctx, c, http.MethodPost, "/v1/wait", req)
}

func (c *Client) Stop(ctx context.Context, req StopRequest) (task.Receipt, error) {
	return call[task.Receipt](ctx, c, http.MethodPost, "/v1/stop", req)
}

func (c *Client) Promote(ctx context.Context, ref string) (task.Record, error) {
	return onTask[task.Record](ctx, c, http.MethodPost, ref, "/promote")
}

func (c *Client) Output(ctx context.Context, req OutputRequest) (Chunk, error) {
	return onTask[Chunk](ctx, c, http.MethodGet, req.Ref, "/output?"+address(req).Encode())
}

func (c *Client) Messages(ctx context.Context, req MessagesRequest) (Messages, error) {
	return onTask[Messages](ctx, c, http.MethodGet, req.Ref, "/messages?"+address(req).Encode())
}

func (c *Client) Result(ctx context.Context, req ResultRequest) (Answer, error) {
	q := address(req)
	q.Set("offset", strconv.FormatInt(req.Offset, 10)) // also 0: without one, a host gives the whole answer
	return onTask[Answer](ctx, c, http.MethodGet, req.Ref, "/result?"+q.Encode())
}

func (c *Client) Approvals(ctx context.Context, req ApprovalsRequest) (Approvals, error) {
	return call[Approvals](ctx, c, http.MethodGet, "/v1/approvals?"+address(req).Encode(), nil)
}

func (c *Client) Decide(ctx context.Context, req DecideRequest) error {
	_, err := call[struct{}](ctx, c, http.MethodPost, "/v1/approvals", req)
	return err
}

func (c *Client) Attention(ctx context.Context, req AttentionRequest) (Attention, error) {
	return call[Attention](ctx, c, http.MethodGet, "/v1/attention?"+address(req).Encode(), nil)
}

func (c *Client) Schedules(ctx context.Context, req ScheduleRequest) (Schedules, error) {
	if req == (ScheduleRequest{}) {
		return call[Schedules](ctx, c, http.MethodGet, "/v1/schedules", nil)
	}
	return call[Schedules](ctx, c, http.MethodPost, "/v1/schedules", req)
}

func (c *Client) Forward(ctx context.Context, req ForwardRequest) (Forwards, error) {
	if req == (ForwardRequest{}) {
		return call[Forwards](ctx, c, http.MethodGet, "/v1/forwards", nil)
	}
	return call[Forwards](ctx, c, http.MethodPost, "/v1/forwards", req)
}

func (c *Client) MarkSeen(ctx context.Context, refs []string) ([]task.Record, error) {
	return call[[]task.Record](ctx, c, http.MethodPost, "/v1/attention/seen", seenRequest{refs})
}

func (c *Client) State(ctx context.Context, req StateRequest) (State, error) {
	return call[State](ctx, c, http.MethodGet, "/v1/state?"+address(req).Encode(), nil)
}

func (c *Client) Configure(ctx context.Context, req ConfigureRequest) (Settings, error) {
	return call[Settings](ctx, c, http.MethodPatch, "/v1/settings", req)
}

func (c *Client) Environment(ctx context.Context) (Environment, error) {
	return call[Environment](ctx, c, http.MethodGet, "/v1/environment", nil)
}

func (c *Client) Commands(ctx context.Context) (Commands, error) {
	return call[Commands](ctx, c, http.MethodGet, "/v1/commands", nil)
}

func (c *Client) Prompts(ctx context.Context) (Prompts, error) {
	return call[Prompts](ctx, c, http.MethodGet, "/v1/prompts", nil)
}

func (c *Client) Fork(ctx context.Context, req ForkRequest) (Forked, error) {
	return call[Forked](ctx, c, http.MethodPost, "/v1/fork", req)
}

func (c *Client) Diff(ctx context.Context, req DiffRequest) (Diff, error) {
	return call[Diff](ctx, c, http.MethodPost, "/v1/diff", req)
}

func (c *Client) Comment(ctx context.Context, req CommentRequest) (task.Record, error) {
	return call[task.Record](ctx, c, http.MethodPost, "/v1/comments", req)
}

func (c *Client) Prompt(ctx context.Context, req PromptRequest) error {
	_, err := call[struct{}](ctx, c, http.MethodPost, "/v1/prompt", req)
	return err
}

func (c *Client) Send(ctx context.Context, req SendRequest) (task.Record, error) {
	return call[task.Record](ctx, c, http.MethodPost, "/v1/send", req)
}

func (c *Client) Pause(ctx context.Context, refs []string) ([]task.Record, error) {
	return call[[]task.Record](ctx, c, http.MethodPost, "/v1/pause", pauseBody{refs})
}

func (c *Client) Resume(ctx context.Context, req ResumeRequest) (task.Record, error) {
	return call[task.Record](ctx, c, http.MethodPost, "/v1/resume", req)
}

func (c *Client) Interrupt(ctx context.Context, ref string) (task.Record, error) {
	return onTask[task.Record](ctx, c, http.MethodPost, ref, "/interrupt")
}

// HoldLease implements [API]. The lease is the connection: it ends with the process
// of the client at the latest.
func (c *Client) HoldLease(ctx context.Context, lease string) error {
	_, err := call[struct{}](ctx, c, http.MethodPost, "/v1/lease", leaseBody{lease})
	return err
}

// Events implements [API]. It does not reconnect: after an error, call it again with the last
// sequence number. It requests only Drover's names of events, and ignores others.
func (c *Client) Events(ctx context.Context, after task.Seq) iter.Seq2[task.Event, error] {
	return func(yield func(task.Event, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel() // breaks the connection when the reader stops
		body, err := c.do(ctx, http.MethodGet, "/v1/events?names="+ownNames+"&after="+strconv.FormatInt(int64(after), 10),
			nil)
		if err != nil {
			yield(task.Event{}, err)
			return
		}
		defer body.Close()
		for f, err := range frames(body) {
			if err != nil {
				yield(task.Event{}, c.broken(ctx, err))
				return
			}
			if !f.known() {
				continue
			}
			e, err := decodeEvent(f)
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// onTask calls a path below one task.
func onTask[T any](ctx context.Context, c *Client, method, ref, rest string) (T, error) {
	if ref == "" {
		var none T
		return none, NotFoundError(ref)
	}
	// Dots are escaped too: a ref of dots would mean a parent path.
	ref = strings.ReplaceAll(url.PathEscape(ref), ".", "%2E")
	return call[T](ctx, c, method, "/v1/tasks/"+ref+rest, nil)
}

// call sends in, if it is not nil, and decodes the complete answer.
func call[T any](ctx context.Context, c *Client, method, path string, in any) (T, error) {
	var out T
	body, err := c.do(ctx, method, path, in)
	if err != nil {
		return out, err
	}
	defer drain(body)
	if err := json.NewDecoder(body).Decode(&out); err != nil {
		return out, c.broken(ctx, err)
	}
	return out, nil
}

// drain reads a short rest, so that the connection can be reused.
func drain(body io.ReadCloser) {
	_, _ = io.CopyN(io.Discard, body, 4096)
	_ = body.Close()
}

// do sends a request and returns the body of a successful answer. A request that a host has not
// accepted is sent to the next.
func (c *Client) do(ctx context.Context, method, path string, in any) (io.ReadCloser, error) {
	var data []byte
	if in != nil {
		var err error
		if data, err = encode(in); err != nil {
			return nil, fmt.Errorf("encode request: %w", err)
		}
		limit := maxBody
		if _, ok := in.(PromptRequest); ok { // with images
			limit = 2 * maxBody
		}
		if len(data) > limit {
			return nil, tooLong(int64(limit))
		}
	}
	for tries := 1; ; tries++ {
		at := c.at.Load()
		body, err := c.ask(ctx, at, method, path, data)
		if !Refused(err) || c.next == nil || tries == mostHosts {
			return body, err
		}
		if err := c.turn(ctx, at); err != nil {
			return nil, err
		}
	}
}

// ask sends a request to one host.
func (c *Client) ask(ctx context.Context, at *target, method, path string, data []byte) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://drover"+path, nil)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	req.Header.Set(protocolHeader, Protocol)
	send := &offer{data: data}
	if data != nil {
		send.put(req)
	}
	resp, err := at.transport.RoundTrip(req)
	if err != nil {
		err = c.broken(ctx, err)
		var e *Error
		// A read changes nothing; a request without an offered body may have been executed.
		if (method == http.MethodGet || data != nil && send.revoke()) && errors.As(err, &e) {
			e.NotAccepted = true
		}
		return nil, err
	}
	if v := resp.Header.Get(protocolHeader); v != Protocol {
		_ = resp.Body.Close()
		return nil, mismatch(v, Protocol)
	}
	if resp.StatusCode/100 == 2 {
		return resp.Body, nil
	}
	defer drain(resp.Body)
	var e errorBody
	if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&e); err != nil || e.Error == nil {
		return nil, Refuse(Internal, "session answers "+resp.Status, "")
	}
	return nil, e.Error
}

// Refused reports whether a session could not be reached or refused the request, because it is
// ending or has ended: nothing was done, and the next host may be asked.
func Refused(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.NotAccepted
}

// broken describes why an answer is missing.
func (c *Client) broken(ctx context.Context, err error) error {
	socket := c.at.Load().socket
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return &Error{
			Code:        Unavailable,
			Message:     "no session listens at " + socket,
			Fix:         "see `drover sessions`",
			NotAccepted: true,
		}
	case errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, io.EOF),
		errors.Is(err, syscall.ECONNRESET),
		errors.Is(err, syscall.EPIPE):
		return Refuse(Unavailable, "the connection to the session broke", "see `drover sessions`")
	}
	return Refuse(Unavailable, fmt.Sprintf("ask session at %s: %v", socket, err), "see `drover sessions`")
}
