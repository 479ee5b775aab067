package control

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"github.com/drover-dev/drover/internal/platform/failpoint"
	"github.com/drover-dev/drover/task"
)

// errClosing is the cause of requests that end with the session.
var errClosing = errors.New("the session is closing")

// Server serves an [API] over HTTP/1.1. The paths are in docs/control-api.md.
type Server struct {
	api API

	header    time.Duration // for a client to send its headers
	body      time.Duration // for a client to send its request
	write     time.Duration // for a client to read one part of an answer
	drain     time.Duration // for answers in progress when the session closes
	heartbeat time.Duration
	largest   int64 // limit for a request that starts something or has a prompt
	small     int64 // limit for any other request

	encoded encoded
}

// NewServer returns a server for api. It does nothing until Serve.
func NewServer(api API) *Server {
	return &Server{
		api:       api,
		header:    10 * time.Second,
		body:      time.Minute,
		write:     30 * time.Second,
		drain:     time.Second,
		heartbeat: 15 * time.Second,
		largest:   maxBody,
		small:     maxSmallBody,
	}
}

// Serve serves l until ctx ends, and then returns nil after every handler has returned. It
// closes l. The permissions of the socket's folder decide who may connect. When ctx ends, the
// contexts of handlers that call the API end too, and Serve waits for them.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	requests, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(errClosing)
	var conns sync.WaitGroup // one per connection, which is where handlers run
	srv := &http.Server{
		Handler:           s.handler(),
		ReadHeaderTimeout: s.header,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    1 << 20,
		BaseContext:       func(net.Listener) context.Context { return requests },
		ConnState: func(_ net.Conn, state http.ConnState) {
			switch state {
			case http.StateNew:
				conns.Add(1)
			case http.StateClosed, http.StateHijacked:
				conns.Done()
			}
		},
		ErrorLog: log.New(io.Discard, "", 0), // errors are in the answers
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }() // ends with Close or Shutdown below

	var err error
	select {
	case <-ctx.Done():
		cancel(errClosing)
		last, done := context.WithTimeout(context.WithoutCancel(ctx), s.drain)
		defer done()
		if srv.Shutdown(last) != nil {
			_ = srv.Close()
		}
		<-served //nolint:errcheck // the first error counts
	case err = <-served:
		cancel(errClosing)
		_ = srv.Close()
		err = fmt.Errorf("serve control socket: %w", err)
	}
	conns.Wait()
	return err
}

// handler routes requests, and applies the checks that are common to all.
func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	route := func(pattern string, serve func(http.ResponseWriter, *http.Request) error) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := serve(w, r); err != nil {
				answerError(w, r, err)
			}
		})
	}
	route("GET /v1/info", s.info)
	route("GET /v1/tasks", s.list)
	route("POST /v1/tasks", s.start)
	route("GET /v1/tasks/{ref}", s.get)
	route("GET /v1/tasks/{ref}/output", s.output)
	route("GET /v1/tasks/{ref}/result", s.result)
	route("GET /v1/tasks/{ref}/messages", s.messages)
	route("POST /v1/tasks/{ref}/promote", s.promote)
	route("POST /v1/tasks/{ref}/interrupt", s.interrupt)
	route("POST /v1/wait", s.wait)
	route("POST /v1/stop", s.stop)
	route("GET /v1/approvals", s.approvals)
	route("POST /v1/approvals", s.decide)
	route("GET /v1/attention", s.attention)
	route("POST /v1/attention/seen", s.markSeen)
	route("GET /v1/schedules", s.schedules)
	route("POST /v1/schedules", s.schedules)
	route("GET /v1/forwards", s.forward)
	route("POST /v1/forwards", s.forward)
	route("GET /v1/state", s.state)
	route("PATCH /v1/settings", s.configure)
	route("GET /v1/commands", s.commands)
	route("GET /v1/environment", s.environment)
	route("POST /v1/prompt", s.prompt)
	route("GET /v1/prompts", s.prompts)
	route("POST /v1/fork", s.fork)
	route("POST /v1/diff", s.diff)
	route("POST /v1/comments", s.comment)
	route("POST /v1/send", s.send)
	route("POST /v1/pause", s.pause)
	route("POST /v1/resume", s.resume)
	route("POST /v1/lease", s.hold)
	route("GET /v1/events", s.events)
	route("GET /v1/watch", s.watch)
	route("/", func(_ http.ResponseWriter, r *http.Request) error {
		return &Error{
			Code:    Invalid,
			Message: fmt.Sprintf("no such request: %.20s %.100s", r.Method, r.URL.Path),
			Fix:     "see docs/control-api.md",
		}
	})

	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w := &answer{ResponseWriter: rw, rc: http.NewResponseController(rw), limit: s.write}
		// Includes what net/http writes after the handler.
		defer w.extend()
		defer s.contain(w, r)
		w.Header().Set(protocolHeader, Protocol)
		w.Header().Set("X-Content-Type-Options", "nosniff")
		if v := r.Header.Get(protocolHeader); v != "" && v != Protocol {
			answerError(w, r, mismatch(v, Protocol))
			return
		}
		if errors.Is(context.Cause(r.Context()), errClosing) {
			answerError(w, r, &Error{Code: Unavailable, Message: errClosing.Error(), NotAccepted: true})
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// contain converts a panic of the API into an answer: one bad request does not end the session.
func (s *Server) contain(w *answer, r *http.Request) {
	v := recover()
	if v == nil {
		return
	}
	if w.begun {
		panic(http.ErrAbortHandler) // breaks the connection, so the client sees a torn answer as torn
	}
	answerError(w, r, fmt.Errorf("panic while answering %s: %v\n%s", r.URL.Path, v, debug.Stack()))
}

// answer sets a time limit for every part of an answer: a reader may be slow, but not stalled.
type answer struct {
	http.ResponseWriter
	rc    *http.ResponseController
	limit time.Duration
	begun bool
}

func (a *answer) extend() { _ = a.rc.SetWriteDeadline(time.Now().Add(a.limit)) }

func (a *answer) WriteHeader(status int) {
	a.begun = true
	a.ResponseWriter.WriteHeader(status)
}

func (a *answer) Write(p []byte) (int, error) {
	a.begun = true
	a.extend()
	return a.ResponseWriter.Write(p)
}

// Unwrap lets a ResponseController find the connection.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

func mismatch(theirs, ours string) *Error {
	return &Error{
		Code:    Unavailable,
		Message: fmt.Sprintf("the other side speaks protocol %.20q, this drover speaks %q", theirs, ours),
		Fix:     "use the drover that started the session, or let the session end",
	}
}

func answerError(w http.ResponseWriter, r *http.Request, err error) {
	e := AsError(err)
	var tooLarge *http.MaxBytesError
	switch {
	case errors.Is(context.Cause(r.Context()), errClosing):
		e = &Error{
			Code:        Unavailable,
			Message:     errClosing.Error(),
			Fix:         "see `drover sessions`",
			NotAccepted: e.NotAccepted || r.Method == http.MethodGet,
		}
	case errors.As(err, &tooLarge):
		e = tooLong(tooLarge.Limit)
	}
	_ = answerJSON(w, e.Code.status(), errorBody{e})
}

func tooLong(limit int64) *Error {
	return &Error{
		Code:    TooLarge,
		Message: fmt.Sprintf("the request has more than the limit of %d bytes", limit),
		Fix:     "send it in parts, or give the names of files",
	}
}

func answerJSON(w http.ResponseWriter, status int, v any) error {
	data, err := encode(v)
	if err != nil {
		return fmt.Errorf("encode answer: %w", err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	w.WriteHeader(status)
	_, _ = w.Write(data) // the client has disconnected
	return nil
}

// reply answers with the result of a call of the API.
func reply[T any](w http.ResponseWriter, v T, err error) error {
	if err != nil {
		return err
	}
	return answerJSON(w, http.StatusOK, v)
}

// read decodes the request and then removes the read deadline: a long request waits as long as
// its client stays connected.
func (s *Server) read(w http.ResponseWriter, r *http.Request, into any) error {
	limit := s.small
	switch into.(type) {
	case *startBody, *ResumeRequest, *CommentRequest:
		limit = s.largest
	case *PromptRequest: // with images
		limit = 2 * s.largest
	}
	if r.ContentLength > limit { // refuse it before it is sent
		return tooLong(limit)
	}
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Now().Add(s.body))
	err := decodeStrict(http.MaxBytesReader(w, r.Body, limit), into)
	_ = rc.SetReadDeadline(time.Time{})
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return err
	}
	if err != nil {
		return &Error{Code: Invalid, Message: "read request: " + err.Error(), Fix: "see docs/control-api.md"}
	}
	return nil
}

func (s *Server) info(w http.ResponseWriter, r *http.Request) error {
	v, err := s.api.Info(r.Context())
	return reply(w, v, err)
}

func (s *Server) start(w http.ResponseWriter, r *http.Request) error {
	var body startBody
	if err := s.read(w, r, &body); err != nil {
		return err
	}
	_ = failpoint.Hit("start/read")
	started, err := s.api.Start(r.Context(), body.requests())
	if err == nil {
		err = untaken(started)
	}
	if err != nil {
		return err
	}
	_ = failpoint.Hit("start/answer")
	return inPieces(w, func(out io.Writer) error {
		if err := encodeSlice(out, encoder(out), started, func(st Started) Started { return st }); err != nil {
			return err
		}
		_, err := io.WriteString(out, "\n")
		return err
	})
}

func (s *Server) list(w http.ResponseWriter, r *http.Request) error {
	q := query{Values: r.URL.Query()}
	req := ListRequest{
		All:    q.boolean("all"),
		Under:  task.ID(q.Get("under")),
		Before: task.Seq(q.number("before")),
		Limit:  int(q.number("limit")),
	}
	if q.err != nil {
		return q.err
	}
	page, err := s.api.List(r.Context(), req)
	if err != nil {
		return err
	}
	return inPieces(w, func(out io.Writer) error {
		return encodePage(out, page, func(t task.Record) task.Record { return s.whole(r.Context(), t) })
	})
}

// whole returns a record with its complete command, if it is available.
func (s *Server) whole(ctx context.Context, t task.Record) task.Record {
	if t.CommandBytes == 0 {
		return t
	}
	full, err := s.api.Get(ctx, string(t.ID))
	if err != nil {
		return t
	}
	t.Command, t.CommandBytes = full.Command, full.CommandBytes
	return t
}

// inPieces answers in pieces of 32 KiB. An error in the middle breaks the connection, so that a
// partial answer is never taken for a complete one.
func inPieces(w http.ResponseWriter, write func(io.Writer) error) error {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	out := bufio.NewWriterSize(w, 32<<10)
	if err := write(out); err != nil {
		panic(http.ErrAbortHandler)
	}
	if err := out.Flush(); err != nil {
		panic(http.ErrAbortHandler)
	}
	return nil
}

func (s *Server) get(w http.ResponseWriter, r *http.Request) error {
	v, err := s.api.Get(r.Context(), r.PathValue("ref"))
	return reply(w, v, err)
}

func (s *Server) promote(w http.ResponseWriter, r *http.Request) error {
	v, err := s.api.Promote(r.Context(), r.PathValue("ref"))
	return reply(w, v, err)
}

func (s *Server) interrupt(w http.ResponseWriter, r *http.Request) error {
	v, err := s.api.Interrupt(r.Context(), r.PathValue("ref"))
	return reply(w, v, err)
}

// result answers with a part of an answer, or with all of it, read part by part at the speed of
// the client.
func (s *Server) result(w http.ResponseWriter, r *http.Request) error {
	q := query{Values: r.URL.Query()}
	req := ResultRequest{Ref: r.PathValue("ref"), Offset: q.number("offset"), Max: int(q.number("max"))}
	if q.err != nil {
		return q.err
	}
	v, err := s.api.Result(r.Context(), req)
	if q.Has("offset") || q.Has("max") || err != nil || v.Next >= v.Size {
		return reply(w, v, err)
	}
	return inPieces(w, func(out io.Writer) error {
		first, err := encode(v.Task)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(out, `{"task":%s,"size":%d,"text":"`, bytes.TrimSpace(first), v.Size); err != nil {
			return err
		}
		for {
			text, err := encode(v.Text)
			if err != nil {
				return err
			}
			if _, err := out.Write(text[1 : len(text)-len("\"\n")]); err != nil {
				return err
			}
			if v.Next >= v.Size {
				break
			}
			if v, err = s.api.Result(r.Context(), ResultRequest{Ref: req.Ref, Offset: v.Next}); err != nil {
				return err
			}
		}
		_, err = io.WriteString(out, "\"}\n")
		return err
	})
}

func (s *Server) output(w http.ResponseWriter, r *http.Request) error {
	q := query{Values: r.URL.Query()}
	req := OutputRequest{
		Ref:    r.PathValue("ref"),
		Offset: q.number("offset"),
		Tail:   int(q.number("tail")),
		Max:    int(q.number("max")),
		Wait:   time.Duration(q.number("wait_ns")),
	}
	if q.err != nil {
		return q.err
	}
	v, err := s.api.Output(r.Context(), req)
	_ = failpoint.Hit("output/answer")
	return reply(w, v, err)
}

func (s *Server) wait(w http.ResponseWriter, r *http.Request) error {
	var req WaitRequest
	if err := s.read(w, r, &req); err != nil {
		return err
	}
	_ = failpoint.Hit("wait/read")
	v, err := s.api.Wait(r.Context(), req)
	return reply(w, v, err)
}

func (s *Server) schedules(w http.ResponseWriter, r *http.Request) error {
	var req ScheduleRequest
	if r.Method == http.MethodPost {
		if err := s.read(w, r, &req); err != nil {
			return err
		}
	}
	v, err := s.api.Schedules(r.Context(), req)
	return reply(w, v, err)
}

func (s *Server) stop(w http.ResponseWriter, r *http.Request) error {
	var req StopRequest
	if err := s.read(w, r, &req); err != nil {
		return err
	}
	_ = failpoint.Hit("stop/read")
	v, err := s.api.Stop(r.Context(), req)
	_ = failpoint.Hit("stop/answer")
	return reply(w, v, err)
}

func (s *Server) approvals(w http.ResponseWriter, r *http.Request) error {
	q := query{Values: r.URL.Query()}
	req := ApprovalsRequest{After: q.number("after"), Wait: time.Duration(q.number("wait_ns")), ID: q.Get("id"),
		Person: q.Get("person") == "true"}
	if q.err != nil {
		return q.err
	}
	v, err := s.api.Approvals(r.Context(), req)
	return reply(w, v, err)
}

func (s *Server) attention(w http.ResponseWriter, r *http.Request) error {
	q := query{Values: r.URL.Query()}
	req := AttentionRequest{After: q.Get("after"), Wait: time.Duration(q.number("wait_ns"))}
	if q.err != nil {
		return q.err
	}
	v, err := s.api.Attention(r.Context(), req)
	return reply(w, v, err)
}

func (s *Server) forward(w http.ResponseWriter, r *http.Request) error {
	var req ForwardRequest
	if r.Method == http.MethodPost {
		if err := s.read(w, r, &req); err != nil {
			return err
		}
		if req.Port < 1 || req.Port > 65535 || req.HostPort < 0 || req.HostPort > 65535 {
			return &Error{Code: Invalid, Message: "forward a port: ports are 1 to 65535",
				Fix: "set port, and host_port or leave it out"}
		}
	}
	v, err := s.api.Forward(r.Context(), req)
	return reply(w, v, err)
}

func (s *Server) markSeen(w http.ResponseWriter, r *http.Request) error {
	var req seenRequest
	if err := s.read(w, r, &req); err != nil {
		return err
	}
	if len(req.Refs) == 0 {
		return &Error{Code: Invalid, Message: "the request names no task", Fix: "see GET /v1/attention"}
	}
	v, err := s.api.MarkSeen(r.Context(), req.Refs)
	return reply(w, v, err)
}

func (s *Server) decide(w http.ResponseWriter, r *http.Request) error {
	var req DecideRequest
	if err := s.read(w, r, &req); err != nil {
		return err
	}
	if req.ID == "" || req.Digest == "" {
		return &Error{Code: Invalid, Message: "an answer names the question and its digest", Fix: "see GET /v1/approvals"}
	}
	return reply(w, struct{}{}, s.api.Decide(r.Context(), req))
}

func (s *Server) state(w http.ResponseWriter, r *http.Request) error {
	q := query{Values: r.URL.Query()}
	req := StateRequest{After: q.number("after"), Wait: time.Duration(q.number("wait_ns"))}
	if q.err != nil {
		return q.err
	}
	v, err := s.api.State(r.Context(), req)
	return reply(w, v, err)
}

func (s *Server) commands(w http.ResponseWriter, r *http.Request) error {
	v, err := s.api.Commands(r.Context())
	return reply(w, v, err)
}

func (s *Server) prompts(w http.ResponseWriter, r *http.Request) error {
	v, err := s.api.Prompts(r.Context())
	return reply(w, v, err)
}

func (s *Server) fork(w http.ResponseWriter, r *http.Request) error {
	var req ForkRequest
	if err := s.read(w, r, &req); err != nil {
		return err
	}
	v, err := s.api.Fork(r.Context(), req)
	return reply(w, v, err)
}

func (s *Server) diff(w http.ResponseWriter, r *http.Request) error {
	var req DiffRequest
	if err := s.read(w, r, &req); err != nil {
		return err
	}
	v, err := s.api.Diff(r.Context(), req)
	return reply(w, v, err)
}

func (s *Server) comment(w http.ResponseWriter, r *http.Request) error {
	var req CommentRequest
	if err := s.read(w, r, &req); err != nil {
		return err
	}
	v, err := s.api.Comment(r.Context(), req)
	return reply(w, v, err)
}

func (s *Server) prompt(w http.ResponseWriter, r *http.Request) error {
	var req PromptRequest
	if err := s.read(w, r, &req); err != nil {
		return err
	}
	return reply(w, struct{}{}, s.api.Prompt(r.Context(), req))
}

func (s *Server) configure(w http.ResponseWriter, r *http.Request) error {
	var req ConfigureRequest
	if err := s.read(w, r, &req); err != nil {
		return err
	}
	v, err := s.api.Configure(r.Context(), req)
	return reply(w, v, err)
}

func (s *Server) send(w http.ResponseWriter, r *http.Request) error {
	var req SendRequest
	if err := s.read(w, r, &req); err != nil {
		return err
	}
	_ = failpoint.Hit("send/read")
	v, err := s.api.Send(r.Context(), req)
	return reply(w, v, err)
}

func (s *Server) pause(w http.ResponseWriter, r *http.Request) error {
	var req pauseBody
	if err := s.read(w, r, &req); err != nil {
		return err
	}
	v, err := s.api.Pause(r.Context(), req.Refs)
	return reply(w, v, err)
}

func (s *Server) resume(w http.ResponseWriter, r *http.Request) error {
	var req ResumeRequest
	if err := s.read(w, r, &req); err != nil {
		return err
	}
	v, err := s.api.Resume(r.Context(), req)
	return reply(w, v, err)
}

// hold lasts as long as the client's connection, which is the lease.
func (s *Server) hold(w http.ResponseWriter, r *http.Request) error {
	var req leaseBody
	if err := s.read(w, r, &req); err != nil {
		return err
	}
	return reply(w, struct{}{}, s.api.HoldLease(r.Context(), req.Lease))
}

// query reads parameters and keeps the first error.
type query struct {
	url.Values
	err error
}

func (q *query) number(name string) int64 {
	text := q.Get(name)
	if text == "" {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if (err != nil || n < 0) && q.err == nil {
		q.err = &Error{Code: Invalid, Message: fmt.Sprintf("%s %.40q: not a whole number from 0 on", name, text)}
	}
	return n
}

func (q *query) boolean(name string) bool {
	text := q.Get(name)
	if text == "" {
		return false
	}
	b, err := strconv.ParseBool(text)
	if err != nil && q.err == nil {
		q.err = &Error{Code: Invalid, Message: fmt.Sprintf("%s %.40q: neither true nor false", name, text)}
	}
	return b
}
