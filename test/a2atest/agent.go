// Package a2atest is an agent of the Agent2Agent protocol that a test steers.
package a2atest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"

	"github.com/drover-dev/drover/internal/api/a2a"
)

// ErrBreak is a failure by which the connection breaks without an answer.
var ErrBreak = errors.New("the connection breaks")

// Agent is the server of an agent. Its tasks change only by Change, and by CancelTask. Its fields are set before it
// is used.
type Agent struct {
	*httptest.Server

	Token string             // that requests must bear; empty: none
	Polls bool               // it has no streams
	Begin func(*a2a.Task)    // changes a new task, which is at work; nil: nothing
	Fail  func(string) error // of a call of a method, after it had its effect: *a2a.Error, *a2a.StatusError or ErrBreak

	mu      sync.Mutex
	tasks   []*a2a.Task
	calls   map[string]int
	changed chan struct{}
}

// New starts an agent. Close ends it.
func New() *Agent {
	a := &Agent{calls: map[string]int{}, changed: make(chan struct{})}
	a.Server = httptest.NewServer(a)
	return a
}

// Close ends the streams and the server.
func (a *Agent) Close() {
	a.CloseClientConnections()
	a.Server.Close()
}

// Card returns the address of its card.
func (a *Agent) Card() string { return a.URL + a2a.CardPath }

// Calls returns how often a method was called.
func (a *Agent) Calls(method string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.calls[method]
}

// Tasks returns copies of its tasks.
func (a *Agent) Tasks() (all []a2a.Task) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, t := range a.tasks {
		all = append(all, copied(*t))
	}
	return all
}

// Change changes all tasks, and tells their streams.
func (a *Agent) Change(do func(*a2a.Task)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, t := range a.tasks {
		do(t)
	}
	a.tell()
}

func (a *Agent) tell() {
	close(a.changed)
	a.changed = make(chan struct{})
}

func copied(t a2a.Task) a2a.Task {
	t.History, t.Artifacts = slices.Clone(t.History), slices.Clone(t.Artifacts)
	for i, one := range t.Artifacts {
		t.Artifacts[i].Parts = slices.Clone(one.Parts)
	}
	return t
}

// Say makes the agent say something, in a state that waits for the client or not.
func Say(t *a2a.Task, state a2a.State, text string) {
	m := a2a.Message{ID: fmt.Sprintf("%s-m%d", t.ID, len(t.History)), Task: t.ID, Role: a2a.RoleAgent,
		Parts: []a2a.Part{a2a.TextPart(text)}}
	t.History = append(t.History, m)
	t.Status = a2a.Status{State: state, Message: &m}
}

// Print adds text to the artifact of a name.
func Print(t *a2a.Task, name, text string) {
	for i, one := range t.Artifacts {
		if one.Name == name {
			t.Artifacts[i].Parts = append(one.Parts, a2a.TextPart(text))
			return
		}
	}
	t.Artifacts = append(t.Artifacts, a2a.Artifact{ID: name, Name: name, Parts: []a2a.Part{a2a.TextPart(text)}})
}

// End ends a task with an artifact, if there is a text.
func End(t *a2a.Task, state a2a.State, text string) {
	if t.Status = (a2a.Status{State: state}); text != "" {
		Print(t, "result", text)
	}
}

// ServeHTTP answers requests.
func (a *Agent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if a.Token != "" && r.Header.Get("Authorization") != "Bearer "+a.Token {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Path == a2a.CardPath {
		_ = json.NewEncoder(w).Encode(a2a.Card{Name: "Test", Capabilities: a2a.Capabilities{Streaming: !a.Polls},
			Interfaces: []a2a.Interface{{URL: a.URL + "/rpc", Binding: a2a.JSONRPC, Version: a2a.Version}}})
		return
	}
	var q struct {
		ID     json.RawMessage
		Method string
		Params json.RawMessage
	}
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	result, err := a.call(q.Method, q.Params)
	if a.Fail != nil {
		if failed := a.Fail(q.Method); failed != nil {
			err = failed
		}
	}
	var status *a2a.StatusError
	if errors.As(err, &status) {
		w.WriteHeader(status.Code)
		return
	}
	if errors.Is(err, ErrBreak) {
		panic(http.ErrAbortHandler)
	}
	if q.Method == a2a.SubscribeToTask && err == nil {
		a.stream(w, r, q.ID, result.(string))
		return
	}
	_ = json.NewEncoder(w).Encode(envelope(q.ID, result, err)) // a client that has gone needs no answer
}

func envelope(id json.RawMessage, result any, err error) map[string]any {
	out := map[string]any{"jsonrpc": "2.0", "id": id}
	var e *a2a.Error
	if errors.As(err, &e) {
		out["error"] = e
	} else {
		out["result"] = result
	}
	return out
}

// call has the effect of a call, and returns its result.
func (a *Agent) call(method string, params json.RawMessage) (any, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls[method]++
	var p struct {
		ID      string       `json:"id"`
		Message *a2a.Message `json:"message"`
	}
	if err := json.Unmarshal(params, &p); err != nil {
		return nil, &a2a.Error{Code: a2a.CodeParams, Message: err.Error()}
	}
	if m := p.Message; method == a2a.SendMessage && m.Task == "" {
		t := &a2a.Task{ID: fmt.Sprintf("far-%d", len(a.tasks)+1), Context: "c", Status: a2a.Status{State: a2a.Working},
			History: []a2a.Message{*m}}
		if a.Begin != nil {
			a.Begin(t)
		}
		a.tasks = append(a.tasks, t)
		return a2a.Event{Task: new(copied(*t))}, nil
	} else if method == a2a.SendMessage {
		p.ID = m.Task
	}
	if method == a2a.ListTasks {
		list := a2a.List{Tasks: []a2a.Task{}}
		for _, t := range a.tasks {
			list.Tasks = append(list.Tasks, copied(*t))
		}
		return list, nil
	}
	i := slices.IndexFunc(a.tasks, func(t *a2a.Task) bool { return t.ID == p.ID })
	if i < 0 {
		return nil, &a2a.Error{Code: a2a.CodeTaskNotFound, Message: "there is no task " + p.ID}
	}
	t := a.tasks[i]
	switch method {
	case a2a.SubscribeToTask:
		if t.Status.State.Terminal() {
			return nil, &a2a.Error{Code: a2a.CodeUnsupported, Message: "the task has ended"}
		}
		return t.ID, nil
	case a2a.CancelTask:
		if t.Status.State.Terminal() {
			return nil, &a2a.Error{Code: a2a.CodeNotCancelable, Message: "the task has ended"}
		}
		t.Status = a2a.Status{State: a2a.Canceled}
		a.tell()
	case a2a.SendMessage:
		t.History = append(t.History, *p.Message)
		return a2a.Event{Task: new(copied(*t))}, nil
	}
	return copied(*t), nil
}

// stream sends the whole task whenever it has changed, until it ends.
func (a *Agent) stream(w http.ResponseWriter, r *http.Request, id json.RawMessage, name string) {
	w.Header().Set("Content-Type", "text/event-stream")
	for {
		a.mu.Lock()
		changed := a.changed
		i := slices.IndexFunc(a.tasks, func(t *a2a.Task) bool { return t.ID == name })
		t := copied(*a.tasks[i])
		a.mu.Unlock()
		data, err := json.Marshal(envelope(id, a2a.Event{Task: &t}, nil))
		if err != nil {
			panic(err)
		}
		_, _ = fmt.Fprintf(w, "data: %s\n\n", data)
		_ = http.NewResponseController(w).Flush()
		if t.Status.State.Terminal() {
			return
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}
