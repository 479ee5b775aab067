// Package remoteserver serves the session API of package remote: each session is
// an agent in one session of Drover.
//
// It promises one agent for a key, however often it is asked; that a session is
// in a file before its agent is started, so that the next server finds it; and
// that whoever has no token learns nothing. An agent that was at work when the
// server ended goes on in the next from its transcript, and its last step may be
// done twice. It keeps sessions until their files are deleted.
package remoteserver

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/api/remoteapi"
	"github.com/drover-dev/drover/task"
)

// Host is the session in which agents run.
type Host interface {
	control.API
	// Since returns events after a number that are there already, oldest first,
	// not all at once if they are many.
	Since(ctx context.Context, after task.Seq) ([]task.Event, error)
	// Grown returns a channel that is closed at the next event.
	Grown() <-chan struct{}
}

// Config is what a server is made of. Host and Dir are required.
type Config struct {
	Host  Host
	Dir   string // of the files of its sessions; must exist and be this user's alone
	Token string // that every request must carry; empty: none
	Cwd   string // where agents work; absolute
	Env   []string
}

// maxResult is how much of an answer a page of events has: a client takes no larger page.
const maxResult = 1 << 20

// Server answers requests. Its methods may be called by several goroutines.
type Server struct {
	cfg   Config
	store *store
}

// Open reads the sessions of earlier servers, and lets their agents go on that
// were at work.
func Open(ctx context.Context, cfg Config) (*Server, error) {
	st, err := openStore(cfg.Dir)
	if err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, store: st}
	for _, one := range st.all() {
		if err := s.takeUp(ctx, one); err != nil {
			return nil, fmt.Errorf("take up session %s: %w", one.ID, err)
		}
	}
	return s, nil
}

// takeUp brings a session of an earlier server to where it belongs.
func (s *Server) takeUp(ctx context.Context, one *entry) error {
	one.mu.Lock()
	defer one.mu.Unlock()
	if one.saved.Archived {
		return nil
	}
	r, ok, err := s.record(ctx, one)
	switch {
	case err != nil:
		return err
	case !ok:
		return s.start(ctx, one)
	case interrupted(r):
		_, err := s.cfg.Host.Resume(ctx, control.ResumeRequest{Ref: string(r.ID), Env: s.cfg.Env})
		return err
	}
	return nil
}

// interrupted tells the end of a server from that of the work.
func interrupted(r task.Record) bool {
	if r.Status != task.Killed || r.Cause == nil {
		return false
	}
	switch r.Cause.Reason {
	case task.ReasonClosing, task.ReasonHostLost, task.ReasonReboot, task.ReasonLost:
		return true
	}
	return false
}

// record is the agent of a session. One whose start was not noted any more is
// found by its name, which is the session's ID. The caller holds the entry.
func (s *Server) record(ctx context.Context, one *entry) (r task.Record, ok bool, err error) {
	ref := string(one.saved.Task)
	if ref == "" {
		ref = one.ID
	}
	r, err = s.cfg.Host.Get(ctx, ref)
	var e *control.Error
	if errors.As(err, &e) && e.Code == control.NotFound {
		return r, false, nil
	}
	if err == nil && one.saved.Task == "" {
		one.saved.Task = r.ID
		err = s.store.save(one)
	}
	return r, err == nil, err
}

// usualAgent is the sort of agent of a session that asks for none.
const usualAgent = "general-purpose"

// start starts the agent of a session. The caller holds the entry.
func (s *Server) start(ctx context.Context, one *entry) error {
	q := one.saved.Request
	started, err := s.cfg.Host.Start(ctx, []control.StartRequest{{Name: one.ID, Cwd: s.cfg.Cwd, Env: s.cfg.Env,
		Agent: &control.AgentRequest{Type: cmp.Or(q.AgentType, usualAgent), Prompt: q.Prompt, Model: q.Model}}})
	if err != nil {
		return err
	}
	if started[0].Error != nil {
		return started[0].Error
	}
	one.saved.Task = started[0].Task.ID
	return s.store.save(one)
}

// Handler routes requests.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	route := func(pattern string, serve func(http.ResponseWriter, *http.Request) error) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := s.admit(w, r); err != nil {
				refuse(w, err)
			} else if err := serve(w, r); err != nil {
				refuse(w, err)
			}
		})
	}
	route("POST /v1/remote/sessions", s.create)
	route("GET /v1/remote/sessions/{id}/events", s.events)
	route("GET /v1/remote/sessions/{id}/output", s.output)
	route("POST /v1/remote/sessions/{id}/messages", s.message)
	route("POST /v1/remote/sessions/{id}/archive", s.archive)
	route("/", func(http.ResponseWriter, *http.Request) error {
		return &httpError{http.StatusNotFound, "no such request (see docs/remote-agents.md)"}
	})
	return mux
}

// admit refuses who has no token, and pages in a browser, which could be anybody's.
func (s *Server) admit(w http.ResponseWriter, r *http.Request) error {
	r.Body = http.MaxBytesReader(w, r.Body, remoteapi.MaxBody)
	if r.Header.Get("Origin") != "" {
		return &httpError{http.StatusForbidden, "this is no place for a browser"}
	}
	if s.cfg.Token == "" {
		return nil
	}
	got, want := sha256.Sum256([]byte(r.Header.Get("Authorization"))), sha256.Sum256([]byte("Bearer "+s.cfg.Token))
	if subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
		return &httpError{http.StatusUnauthorized, "the token is missing or wrong"}
	}
	return nil
}

type httpError struct {
	code int
	text string
}

func (e *httpError) Error() string { return e.text }

func refuse(w http.ResponseWriter, err error) {
	code, text := http.StatusInternalServerError, err.Error()
	var own *httpError
	var e *control.Error
	switch {
	case errors.As(err, &own):
		code = own.code
	case errors.As(err, &e):
		code = map[control.Code]int{control.NotFound: http.StatusNotFound, control.Invalid: http.StatusBadRequest,
			control.Conflict:  http.StatusConflict,
			control.Ambiguous: http.StatusConflict, control.Unavailable: http.StatusServiceUnavailable}[e.Code]
		if code == 0 {
			code = http.StatusInternalServerError
		}
	}
	if code == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "2")
	}
	reply(w, code, map[string]any{"error": map[string]string{"message": text}})
}

func reply(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v) // who has gone reads nothing
}

// read reads the body as one JSON object.
func read(r *http.Request, into any) error {
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != "application/json" {
		return &httpError{http.StatusUnsupportedMediaType, "the body is not application/json"}
	}
	d := json.NewDecoder(r.Body)
	if err := d.Decode(into); err != nil {
		return &httpError{http.StatusBadRequest, "the body cannot be read: " + err.Error()}
	}
	return nil
}

func (s *Server) create(w http.ResponseWriter, r *http.Request) error {
	var q remoteapi.Request
	if err := read(r, &q); err != nil {
		return err
	}
	t, err := remoteapi.ParseType(string(q.Type))
	if err != nil {
		return &httpError{http.StatusBadRequest, err.Error()}
	}
	q.Type, q.Key = t, r.Header.Get("Idempotency-Key")
	if q.Prompt == "" || q.Key == "" || len(q.Key) > maxKey {
		return &httpError{
			http.StatusBadRequest,
			"a session needs a prompt, and a header Idempotency-Key of up to 200 characters",
		}
	}
	one, err := s.store.create(q)
	if err != nil {
		return err
	}
	one.mu.Lock()
	defer one.mu.Unlock()
	if _, ok, err := s.record(r.Context(), one); err != nil {
		return err
	} else if !ok && !one.saved.Archived {
		// Whoever asked may have gone: the session stays, and so must its agent.
		if err := s.start(context.WithoutCancel(r.Context()), one); err != nil {
			var e *control.Error
			if errors.As(err, &e) && e.Code == control.Invalid {
				err = errors.Join(err, s.store.drop(one)) // it will never work
			}
			return err
		}
	}
	reply(w, http.StatusCreated, map[string]string{"session_id": one.ID})
	return nil
}

// find returns a session and its agent.
func (s *Server) find(r *http.Request) (*entry, task.Record, error) {
	one := s.store.find(r.PathValue("id"))
	if one == nil {
		return nil, task.Record{}, &httpError{http.StatusNotFound, "there is no such session"}
	}
	one.mu.Lock()
	defer one.mu.Unlock()
	rec, ok, err := s.record(r.Context(), one)
	if err == nil && !ok {
		err = &httpError{http.StatusNotFound, "the agent of the session is gone"}
	}
	return one, rec, err
}

func (s *Server) events(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	after, err := readCursor(q.Get("after"))
	if err != nil {
		return err
	}
	hold := time.Duration(0)
	if text := q.Get("wait"); text != "" {
		seconds, err := strconv.ParseFloat(text, 64)
		if err != nil || !(seconds >= 0) {
			return &httpError{http.StatusBadRequest, "wait is no number of seconds"}
		}
		hold = time.Duration(min(seconds, remoteapi.MaxHold.Seconds()) * float64(time.Second))
	}
	p, err := s.page(r, after, hold)
	if err != nil {
		return err
	}
	reply(w, http.StatusOK, p)
	return nil
}

func number(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, &httpError{http.StatusBadRequest, fmt.Sprintf("%.40q is no number from 0 on", text)}
	}
	return n, nil
}

// cursor is what a client has seen: events up to a number, and so much output.
type cursor struct {
	seq    task.Seq
	output int64
}

func (c cursor) String() string { return fmt.Sprintf("%d.%d", c.seq, c.output) }

func readCursor(text string) (cursor, error) {
	seq, output, _ := strings.Cut(text, ".")
	n, err := number(seq)
	if err != nil {
		return cursor{}, err
	}
	size, err := number(output)
	return cursor{task.Seq(n), size}, err
}

// outputTick is how often output is looked at while a poll is held: it grows
// without an event.
const outputTick = 500 * time.Millisecond

// page waits until something of the session is new, or the time is up.
func (s *Server) page(r *http.Request, after cursor, hold time.Duration) (p remoteapi.Page, err error) {
	late, tick := time.NewTimer(hold), time.NewTicker(outputTick)
	defer late.Stop()
	defer tick.Stop()
	for {
		grown := s.cfg.Host.Grown()
		one, rec, err := s.find(r)
		if err != nil {
			return p, err
		}
		if p, err = s.now(r.Context(), one, rec, after); err != nil {
			return p, err
		}
		if len(p.Events) > 0 || p.More || p.OutputBytes != after.output || p.Status.Done() || hold <= 0 {
			return p, nil
		}
		select {
		case <-grown:
		case <-tick.C:
		case <-late.C:
			hold = 0
		case <-r.Context().Done():
			return p, context.Cause(r.Context())
		}
	}
}

// now is the state of a session, and its events after a cursor.
func (s *Server) now(ctx context.Context, one *entry, rec task.Record, seen cursor) (remoteapi.Page, error) {
	p := remoteapi.Page{Events: []remoteapi.Event{}, Status: one.status(rec)}
	after := seen.seq
	log, err := s.cfg.Host.Since(ctx, after)
	if err != nil {
		return p, err
	}
	for _, e := range log {
		after = e.Seq
		if e.Task.ID == rec.ID {
			p.Events = append(p.Events, told(e)...)
		}
	}
	if len(log) > 0 {
		more, err := s.cfg.Host.Since(ctx, after)
		if err != nil {
			return p, err
		}
		p.More = len(more) > 0
	}
	// Its end tells how much there is; the record knows what was there at the last event.
	chunk, err := s.printed(ctx, control.OutputRequest{Ref: string(rec.ID), Tail: 1, Max: 1})
	if err != nil {
		return p, err
	}
	p.OutputBytes = chunk.Size
	p.Cursor = cursor{after, p.OutputBytes}.String()
	switch p.Status {
	case remoteapi.Completed:
		a, err := s.cfg.Host.Result(ctx, control.ResultRequest{Ref: string(rec.ID), Max: maxResult})
		if err != nil {
			return p, err
		}
		if p.Result = a.Text; a.Next < a.Size {
			p.Result += fmt.Sprintf("\n[… %d bytes more]", a.Size-a.Next)
		}
		if !p.More {
			p.Events = append(p.Events, remoteapi.Event{Type: remoteapi.AssistantEvent, Text: p.Result})
		}
	case remoteapi.Failed:
		p.Error = rec.Error
	}
	return p, nil
}

// told is what an event of the log is to somebody elsewhere.
func told(e task.Event) []remoteapi.Event {
	p := e.Task.Progress
	if e.Verb != task.Report || p == nil {
		return nil
	}
	out := []remoteapi.Event{}
	if p.TokenCount > 0 {
		out = append(out, remoteapi.Event{Type: remoteapi.UsageEvent, Tokens: p.TokenCount, At: e.At})
	}
	if p.LastActivity != nil {
		out = append(
			out,
			remoteapi.Event{Type: remoteapi.ToolEvent, Tool: p.LastActivity.ToolName, Input: p.LastActivity.Input, At: e.At},
		)
	}
	return out
}

// status is that of a session whose agent is in this state.
func (one *entry) status(r task.Record) remoteapi.Status {
	one.mu.Lock()
	archived := one.saved.Archived
	one.mu.Unlock()
	switch {
	case archived:
		return remoteapi.Archived
	case interrupted(r): // it goes on in a moment, or with the next server
		return remoteapi.Running
	}
	return map[task.Status]remoteapi.Status{task.Pending: remoteapi.Queued, task.Running: remoteapi.Running,
		task.Completed: remoteapi.Completed,
		task.Failed:    remoteapi.Failed, task.Killed: remoteapi.Archived}[r.Status]
}

// printed reads output. An agent has begun a moment before its file is there.
func (s *Server) printed(ctx context.Context, req control.OutputRequest) (control.Chunk, error) {
	c, err := s.cfg.Host.Output(ctx, req)
	if errors.Is(err, fs.ErrNotExist) {
		return control.Chunk{}, nil
	}
	return c, err
}

func (s *Server) output(w http.ResponseWriter, r *http.Request) error {
	offset, err := number(r.URL.Query().Get("offset"))
	if err != nil {
		return err
	}
	_, rec, err := s.find(r)
	if err != nil {
		return err
	}
	c, err := s.printed(r.Context(), control.OutputRequest{Ref: string(rec.ID), Offset: offset, Max: remoteapi.MaxOutput})
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(c.Data) // who has gone asks again from where it has read to
	return nil
}

func (s *Server) message(w http.ResponseWriter, r *http.Request) error {
	var m struct {
		Text string `json:"text"`
	}
	if err := read(r, &m); err != nil {
		return err
	}
	one, rec, err := s.find(r)
	if err != nil {
		return err
	}
	ended := &httpError{http.StatusConflict, "the session has ended"}
	if one.status(rec).Done() {
		return ended
	}
	_, err = s.cfg.Host.Send(r.Context(), control.SendRequest{Ref: string(rec.ID), Text: m.Text, Env: s.cfg.Env})
	if one.status(rec).Done() { // it was archived meanwhile, and the message may have let it go on
		return errors.Join(ended, s.stop(r.Context(), rec.ID))
	}
	if err != nil {
		return err
	}
	reply(w, http.StatusAccepted, struct{}{})
	return nil
}

// archive notes the wish before it acts: a server that ends in between does not
// let the agent go on, and who asks again after a stop that failed has it stopped.
func (s *Server) archive(w http.ResponseWriter, r *http.Request) error {
	one, rec, err := s.find(r)
	if err != nil {
		return err
	}
	if !one.status(rec).Done() || !rec.Status.Terminal() {
		if err := s.store.archive(one); err != nil {
			return err
		}
		if err := s.stop(r.Context(), rec.ID); err != nil {
			return err
		}
	}
	reply(w, http.StatusOK, struct{}{})
	return nil
}

// stop ends the agent of a session that was archived.
func (s *Server) stop(ctx context.Context, id task.ID) error {
	receipt, err := s.cfg.Host.Stop(
		ctx,
		control.StopRequest{Refs: []string{string(id)}, Actor: task.ByClient, Detail: "its session was archived"},
	)
	if err != nil {
		return err
	}
	if n := len(receipt.Survivors); n > 0 {
		return &httpError{http.StatusInternalServerError, fmt.Sprintf("%d processes of the session could not be ended", n)}
	}
	return nil
}
