// Package mcptest is an MCP server with tasks for tests: revision 2025-11-25, or the
// extension of 2026-07-28, over streamable HTTP and over stdin and stdout.
//
// It owns one store of tasks, which outlives its sessions, and the tool work, whose
// arguments say what the task does and how it misbehaves. It promises that every
// request is kept for the test to look at. Production does not import it.
package mcptest

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"sync"
	"time"
)

// Tool is the one that makes tasks.
const Tool = "work"

// Work says what a task does. The zero value ends well at once.
type Work struct {
	Say      []string `json:"say,omitempty"`      // messages of its status, one after another
	Ask      int      `json:"ask,omitempty"`      // questions, one after another
	Together bool     `json:"together,omitempty"` // all questions at the same time
	Hold     bool     `json:"hold,omitempty"`     // it does not end before [Server.Free]
	Text     string   `json:"text,omitempty"`     // of its result, before the answers to its questions
	Fail     string   `json:"fail,omitempty"`     // tool, protocol, or cancelled

	TTL          int64  `json:"ttl,omitempty"`  // ms, whatever was asked for
	Poll         int64  `json:"poll,omitempty"` // ms; 0: 10
	Steps        int    `json:"steps,omitempty"`
	Word         string `json:"word,omitempty"`  // a status that nobody knows, first
	Early        bool   `json:"early,omitempty"` // its status is told before the answer that names it
	Twice        bool   `json:"twice,omitempty"` // each status is told twice
	Quiet        bool   `json:"quiet,omitempty"` // nothing is told
	Immediate    string `json:"immediate,omitempty"`
	Plain        bool   `json:"plain,omitempty"`      // the call is answered without a task
	Break        int    `json:"break,omitempty"`      // so many streams of the result break off
	Unreadable   bool   `json:"unreadable,omitempty"` // the result is refused with -32603
	IgnoreCancel bool   `json:"ignore_cancel,omitempty"`
	Refuse       bool   `json:"refuse,omitempty"` // the call is refused
	RefuseCancel bool   `json:"refuse_cancel,omitempty"`
	RefuseUpdate int    `json:"refuse_update,omitempty"` // so many answers are refused
	AskOther     string `json:"ask_other,omitempty"`     // the method of the questions
}

// JSON is the work as arguments.
func (w Work) JSON() json.RawMessage {
	raw, err := json.Marshal(w)
	if err != nil {
		panic(err) // strings and numbers
	}
	return raw
}

// Request is one that the server has got.
type Request struct {
	Method string
	Params json.RawMessage
}

// Options say what the server can do.
type Options struct {
	Steers  bool   // it takes tasks/steer
	NoTasks bool   // it makes none
	Support string // of the tool; empty: required
	// Extension has it speak revision 2026-07-28, with tasks by its extension.
	Extension bool
}

// Server is an MCP server. Its methods may be called by several goroutines.
type Server struct {
	o Options

	mu       sync.Mutex
	got      []Request
	arrived  chan struct{} // closed and replaced at every request
	tasks    map[string]*job
	peers    map[*peer]struct{}
	asked    map[string]chan json.RawMessage // by the ID of our request
	sessions map[string]*peer
	freed    bool
	free     chan struct{}
	next     int
	work     sync.WaitGroup
	quit     chan struct{}
	once     sync.Once
}

// New makes a server. The caller closes it.
func New(o Options) *Server {
	return &Server{
		o:        o,
		arrived:  make(chan struct{}),
		tasks:    map[string]*job{},
		peers:    map[*peer]struct{}{},
		asked:    map[string]chan json.RawMessage{},
		sessions: map[string]*peer{},
		free:     make(chan struct{}),
		quit:     make(chan struct{}),
	}
}

// Close ends all tasks, and waits for them.
func (s *Server) Close() {
	s.once.Do(func() { close(s.quit) })
	s.work.Wait()
}

// Free lets work end that is held.
func (s *Server) Free() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.freed {
		s.freed = true
		close(s.free)
	}
}

// Forget drops all tasks.
func (s *Server) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tasks = map[string]*job{}
}

// Cancel ends all tasks as if somebody else had asked for it.
func (s *Server) Cancel() {
	for _, j := range s.jobs() {
		j.set("cancelled", "somebody else did not want it")
	}
}

func (s *Server) jobs() []*job {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*job
	for _, j := range s.tasks {
		all = append(all, j)
	}
	return all
}

// Statuses are those of all tasks.
func (s *Server) Statuses() []string {
	var all []string
	for _, j := range s.jobs() {
		all = append(all, fmt.Sprint(j.wire()["status"]))
	}
	return all
}

// Requests are those of a method, oldest first.
func (s *Server) Requests(method string) []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	var some []Request
	for _, r := range s.got {
		if r.Method == method {
			some = append(some, r)
		}
	}
	return some
}

// Arrived is closed at the next request.
func (s *Server) Arrived() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.arrived
}

// Await reports whether n requests of a method come within a time.
func (s *Server) Await(method string, n int, within time.Duration) bool {
	late := time.After(within)
	for {
		arrived := s.Arrived()
		if len(s.Requests(method)) >= n {
			return true
		}
		select {
		case <-arrived:
		case <-late:
			return false
		}
	}
}

// peer is a session of a client.
type peer struct {
	told chan []byte // notifications; a peer that does not read loses them
}

type message struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  any             `json:"result,omitempty"`
	Error   *fault          `json:"error,omitempty"`
}

type fault struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    any    `json:"data,omitempty"`
}

func encode(v any) []byte {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err) // made here
	}
	return raw
}

// broken is what handle returns for an answer that must not come.
type broken struct{}

// handle answers one message; push sends what belongs to the answer before it. nil:
// no answer.
func (s *Server) handle(ctx context.Context, m message, push func([]byte)) any {
	if m.Method == "" { // an answer to us
		s.mu.Lock()
		c := s.asked[string(m.ID)]
		delete(s.asked, string(m.ID))
		s.mu.Unlock()
		if c != nil {
			c <- encode(m)
		}
		return nil
	}
	s.mu.Lock()
	s.got = append(s.got, Request{m.Method, m.Params})
	close(s.arrived)
	s.arrived = make(chan struct{})
	s.mu.Unlock()
	if m.ID == nil {
		return nil
	}
	res, bad := s.answer(ctx, m, push)
	if _, ok := res.(broken); ok {
		return res
	}
	if bad != nil {
		return message{JSONRPC: "2.0", ID: m.ID, Error: bad}
	}
	return message{JSONRPC: "2.0", ID: m.ID, Result: res}
}

func (s *Server) answer(ctx context.Context, m message, push func([]byte)) (any, *fault) {
	var p struct {
		Name string                     `json:"name"`
		Args json.RawMessage            `json:"arguments"`
		Task map[string]json.RawMessage `json:"task"`
		ID   string                     `json:"taskId"`
		Meta struct {
			Token any `json:"progressToken"`
		} `json:"_meta"`
	}
	_ = json.Unmarshal(m.Params, &p) // what is missing is refused below
	if s.o.Extension {
		if res, bad, ok := s.extended(m); ok {
			return res, bad
		}
	}
	switch m.Method {
	case "initialize":
		return s.hello(), nil
	case "ping":
		return struct{}{}, nil
	case "tools/list":
		support := s.o.Support
		if support == "" {
			support = "required"
		}
		return map[string]any{"tools": []any{
			map[string]any{
				"name":        Tool,
				"description": "Works for long.",
				"inputSchema": map[string]any{"type": "object"},
				"execution":   map[string]any{"taskSupport": support},
			},
			map[string]any{"name": "echo", "description": "Answers at once.", "inputSchema": map[string]any{"type": "object"}},
		}}, nil
	case "tools/call":
		return s.call(p.Name, p.Args, p.Task != nil, p.Meta.Token, push)
	}
	s.mu.Lock()
	j := s.tasks[p.ID]
	s.mu.Unlock()
	if j == nil {
		return nil, &fault{Code: -32602, Message: "no task " + p.ID}
	}
	switch m.Method {
	case "tasks/get":
		return j.wire(), nil
	case "tasks/cancel":
		return s.cancel(j)
	case "tasks/result":
		return j.result(ctx, push)
	case "tasks/steer":
		if s.o.Steers {
			return struct{}{}, nil
		}
	}
	return nil, &fault{Code: -32601, Message: "no method " + m.Method}
}

func (s *Server) hello() any {
	tasks := map[string]any{
		"list":     struct{}{},
		"cancel":   struct{}{},
		"requests": map[string]any{"tools": map[string]any{"call": struct{}{}}},
	}
	if s.o.Steers {
		tasks["steer"] = struct{}{}
	}
	capabilities := map[string]any{"tools": map[string]any{"listChanged": true}, "tasks": tasks}
	if s.o.NoTasks {
		delete(capabilities, "tasks")
	}
	return map[string]any{
		"protocolVersion": "2025-11-25",
		"capabilities":    capabilities,
		"serverInfo":      map[string]any{"name": "mcptest", "version": "1"},
	}
}

func content(text string, isError bool) map[string]any {
	return map[string]any{"content": []any{map[string]any{"type": "text", "text": text}}, "isError": isError}
}

func (s *Server) call(name string, args json.RawMessage, asTask bool, token any, push func([]byte)) (any, *fault) {
	if name == "echo" {
		return content(string(args), false), nil
	}
	var w Work
	if err := json.Unmarshal(args, &w); err != nil {
		return nil, &fault{Code: -32602, Message: err.Error()}
	}
	switch {
	case w.Refuse:
		return nil, &fault{Code: -32602, Message: "such work is not done here"}
	case w.Plain:
		s.plain(w, token, push)
		return content(w.Text, w.Fail == "tool"), nil
	case !asTask:
		return content("Tool work requires task augmentation (taskSupport: 'required')", true), nil
	}
	j := s.begin(w, token)
	if w.Early {
		push(j.notification())
	}
	res := map[string]any{"task": j.wire()}
	if w.Immediate != "" {
		res["_meta"] = map[string]any{"io.modelcontextprotocol/model-immediate-response": w.Immediate}
	}
	s.work.Go(j.run)
	return res, nil
}

// plain is work that is no task: it tells of its steps, with the last of what it says.
func (s *Server) plain(w Work, token any, push func([]byte)) {
	for i := range w.Steps {
		params := map[string]any{"progressToken": token, "progress": i + 1, "total": w.Steps}
		if n := len(w.Say); n > 0 {
			params["message"] = w.Say[n-1]
		}
		push(encode(map[string]any{"jsonrpc": "2.0", "method": "notifications/progress", "params": params}))
		if w.Hold && i == w.Steps/2 {
			select {
			case <-s.free:
			case <-s.quit:
			}
		}
	}
}

func (s *Server) cancel(j *job) (any, *fault) {
	if j.w.IgnoreCancel {
		return j.wire(), nil
	}
	if j.over() {
		return nil, &fault{Code: -32602, Message: "the task is over"}
	}
	j.set("cancelled", "cancelled by the client")
	return j.wire(), nil
}

// tell sends a notification to every session.
func (s *Server) tell(frame []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range s.peers {
		select {
		case p.told <- frame:
		default:
		}
	}
}

func (s *Server) join() *peer {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &peer{told: make(chan []byte, 1000)}
	s.peers[p] = struct{}{}
	return p
}

func (s *Server) leave(p *peer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.peers, p)
}

func (s *Server) begin(w Work, token any) *job {
	now := time.Now().UTC()
	j := &job{
		s:         s,
		id:        rand.Text(),
		w:         w,
		token:     token,
		status:    "working",
		created:   now,
		updated:   now,
		questions: make(chan question, 8),
		done:      make(chan struct{}),
		open:      map[string]chan json.RawMessage{},
	}
	if w.Word != "" {
		j.status = w.Word
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tasks[j.id] = j
	return j
}
