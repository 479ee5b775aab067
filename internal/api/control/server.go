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
		Handler:           s.routes(),
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

// routes routes requests, and applies the checks that are common to all.
func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	route := func(pattern string, serve handler) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := serve(w, r); err != nil {
				answerError(w, r, err)
			}
		})
	}
	route("GET /v1/info", plain(s.api.Info))
	route("GET /v1/tasks", s.list)
	route("POST /v1/tasks", s.start)
	route("GET /v1/tasks/{ref}", named(s.api.Get))
	route("GET /v1/tasks/{ref}/output", asked(s.output))
	route("GET /v1/tasks/{ref}/result", s.result)
	route("GET /v1/tasks/{ref}/messages", asked(s.api.Messages))
	route("POST /v1/tasks/{ref}/promote", named(s.api.Promote))
	route("POST /v1/tasks/{ref}/interrupt", named(s.api.Interrupt))
	route("POST /v1/wait", sent(s, s.wait))
	route("POST /v1/stop", sent(s, s.stop))
	route("GET /v1/approvals", asked(s.api.Approvals))
	route("POST /v1/approvals", sent(s, s.decide))
	route("GET /v1/attention", asked(s.api.Attention))
	route("POST /v1/attention/seen", sent(s, s.markSeen))
	route("GET /v1/schedules", plain(empty(s.api.Schedules)))
	route("POST /v1/schedules", sent(s, s.api.Schedules))
	route("GET /v1/forwards", plain(empty(s.api.Forward)))
	route("POST /v1/forwards", sent(s, s.forward))
	route("GET /v1/state", asked(s.api.State))
	route("PATCH /v1/settings", sent(s, s.api.Configure))
	route("GET /v1/commands", plain(s.api.Commands))
	route("GET /v1/environment", plain(s.api.Environment))
	route("POST /v1/prompt", sent(s, silent(s.api.Prompt)))
	route("GET /v1/prompts", plain(s.api.Prompts))
	route("POST /v1/fork", sent(s, s.api.Fork))
	route("POST /v1/diff", sent(s, s.api.Diff))
	route("POST /v1/comments", sent(s, s.api.Comment))
	route("POST /v1/send", sent(s, s.send))
	route("POST /v1/pause", sent(s, s.pause))
	route("POST /v1/resume", sent(s, s.api.Resume))
	route("POST /v1/lease", sent(s, silent(s.hold)))
	route("GET /v1/events", s.events)
	route("GET /v1/watch", s.watch)
	route("/", func(_ http.ResponseWriter, r *http.Request) error {
		return Refuse(Invalid, fmt.Sprintf("no such request: %.20s %.100s", r.Method, r.URL.Path),
			"see docs/control-api.md")
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
	return Refuse(Unavailable, fmt.Sprintf("the other side speaks protocol %.20q, this drover speaks %q", theirs, ours),
		"use the drover that started the session, or let the session end")
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
	return Refuse(TooLarge, fmt.Sprintf("the request has more than the limit of %d bytes", limit),
		"send it in parts, or give the names of files")
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

// handler serves one request; its error is the answer.
type handler func(http.ResponseWriter, *http.Request) error

// plain serves a method without a request.
func plain[Reply any](do func(context.Context) (Reply, error)) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		v, err := do(r.Context())
		return reply(w, v, err)
	}
}

// named serves a method whose request is a ref.
func named[Reply any](do func(context.Context, string) (Reply, error)) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		v, err := do(r.Context(), r.PathValue("ref"))
		return reply(w, v, err)
	}
}

// asked serves a method whose request is in the address.
func asked[Request, Reply any](do func(context.Context, Request) (Reply, error)) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		var req Request
		if err := ask(r, &req); err != nil {
			return err
		}
		v, err := do(r.Context(), req)
		return reply(w, v, err)
	}
}

// sent serves a method whose request is a body of JSON.
func sent[Request, Reply any](s *Server, do func(context.Context, Request) (Reply, error)) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		var req Request
		if err := s.read(w, r, &req); err != nil {
			return err
		}
		v, err := do(r.Context(), req)
		return reply(w, v, err)
	}
}

// empty calls a method with the request that changes nothing.
func empty[Request, Reply any](do func(context.Context, Request) (Reply, error)) func(context.Context) (Reply, error) {
	return func(ctx context.Context) (Reply, error) {
		var none Request
		return do(ctx, none)
	}
}

// silent gives a method without a result an empty one.
func silent[Request any](do func(context.Context, Request) error) func(context.Context, Request) (struct{}, error) {
	return func(ctx context.Context, req Request) (struct{}, error) { return struct{}{}, do(ctx, req) }
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
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return err
	}
	if err != nil {
		return Refuse(Invalid, "read request: "+err.Error(), "see docs/control-api.md")
	}
	return nil
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
	var req ListRequest
	if err := ask(r, &req); err != nil {
		return err
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

// result answers with a part of an answer, or with all of it, read part by part at the speed of
// the client.
func (s *Server) result(w http.ResponseWriter, r *http.Request) error {
	var req ResultRequest
	if err := ask(r, &req); err != nil {
		return err
	}
	q := r.URL.Query()
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

func (s *Server) output(ctx context.Context, req OutputRequest) (Chunk, error) {
	v, err := s.api.Output(ctx, req)
	_ = failpoint.Hit("output/answer")
	return v, err
}

func (s *Server) wait(ctx context.Context, req WaitRequest) (WaitReply, error) {
	_ = failpoint.Hit("wait/read")
	return s.api.Wait(ctx, req)
}

func (s *Server) stop(ctx context.Context, req StopRequest) (task.Receipt, error) {
	_ = failpoint.Hit("stop/read")
	v, err := s.api.Stop(ctx, req)
	_ = failpoint.Hit("stop/answer")
	return v, err
}

func (s *Server) forward(ctx context.Context, req ForwardRequest) (Forwards, error) {
	if req.Port < 1 || req.Port > 65535 || req.HostPort < 0 || req.HostPort > 65535 {
		return Forwards{}, Refuse(Invalid, "forward a port: ports are 1 to 65535", "set port, and host_port or leave it out")
	}
	return s.api.Forward(ctx, req)
}

func (s *Server) markSeen(ctx context.Context, req seenRequest) ([]task.Record, error) {
	if len(req.Refs) == 0 {
		return nil, Refuse(Invalid, "the request names no task", "see GET /v1/attention")
	}
	return s.api.MarkSeen(ctx, req.Refs)
}

func (s *Server) decide(ctx context.Context, req DecideRequest) (struct{}, error) {
	if req.ID == "" || req.Digest == "" {
		return struct{}{}, Refuse(Invalid, "an answer names the question and its digest", "see GET /v1/approvals")
	}
	return struct{}{}, s.api.Decide(ctx, req)
}

func (s *Server) send(ctx context.Context, req SendRequest) (task.Record, error) {
	_ = failpoint.Hit("send/read")
	return s.api.Send(ctx, req)
}

func (s *Server) pause(ctx context.Context, req pauseBody) ([]task.Record, error) {
	return s.api.Pause(ctx, req.Refs)
}

// hold lasts as long as the client's connection, which is the lease.
func (s *Server) hold(ctx context.Context, req leaseBody) error {
	return s.api.HoldLease(ctx, req.Lease)
}
