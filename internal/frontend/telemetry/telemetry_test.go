package telemetry_test

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/frontend/telemetry"
	"github.com/drover-dev/drover/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// session answers when it is let.
type session struct {
	control.API // what is not used
	free        chan struct{}
	log         chan task.Event // closed: the log is
}

func (s *session) Info(context.Context) (control.Info, error) {
	return control.Info{Session: "s1", PID: 1}, nil
}

func (s *session) State(_ context.Context, _ control.StateRequest) (control.State, error) {
	return control.State{Settings: &control.Settings{Model: "claude-x"}}, nil
}

func (s *session) Get(context.Context, string) (task.Record, error) {
	<-s.free
	return task.Record{}, errors.New("there is no such task")
}

func (s *session) Price(string, agent.Usage) (float64, bool) { return 0, false }

func (s *session) Events(ctx context.Context, _ task.Seq) iter.Seq2[task.Event, error] {
	return func(yield func(task.Event, error) bool) {
		for {
			select {
			case e, ok := <-s.log:
				if !ok || !yield(e, nil) {
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}
}

// sink keeps what is sent to it.
type sink struct {
	mu   sync.Mutex
	text strings.Builder
}

func (s *sink) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	_ = r.Write(&b)
	s.text.WriteString(b.String())
}

func (s *sink) has(text string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Contains(s.text.String(), text)
}

func open(t *testing.T, at string, told func(string)) (*telemetry.Exporter, *session) {
	t.Helper()
	x := telemetry.New(telemetry.Config{Mode: telemetry.On, Endpoint: at, Env: variables(""), Tell: told})
	s := &session{free: make(chan struct{}), log: make(chan task.Event)}
	x.Open(s)
	return x, s
}

// Events of agents are dropped and counted where nobody takes them, and no agent waits.
func TestDropped(t *testing.T) {
	got := &sink{}
	srv := httptest.NewServer(got)
	defer srv.Close()
	x, s := open(t, srv.URL, func(text string) { t.Error(text) })
	x.Agent("a1", agent.Event{Kind: agent.TurnStartEvent}) // whose task is asked for, without an answer
	for range 10_000 {
		x.Agent("a2", agent.Event{Kind: agent.TurnStartEvent})
	}
	close(s.free)
	x.Close()
	if !got.has("drover.telemetry.dropped") {
		t.Error("what was dropped is not counted")
	}
}

// The last events of the log are exported, although the log is closed behind them at once.
func TestEnded(t *testing.T) {
	got := &sink{}
	srv := httptest.NewServer(got)
	defer srv.Close()
	x, s := open(t, srv.URL, func(text string) { t.Error(text) })
	now := time.Now()
	rec := task.Record{ID: "b1", Kind: task.LocalBash, Status: task.Running, CreateTime: now, StartTime: &now,
		Command: "SECRET \xff", Description: "SECRET"}
	s.log <- task.Event{Seq: 1, Verb: task.Begin, At: now, Task: rec}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		rec.Status, rec.EndTime = task.Killed, &now
		s.log <- task.Event{Seq: 2, Verb: task.Stop, At: now, Task: rec}
	}()
	x.Ended(2)
	<-sent
	x.Close()
	if !got.has(`{"key":"drover.task.status","value":{"stringValue":"killed"}}`) || got.has("unfinished") || got.has("SECRET") {
		t.Errorf("sent was %s", got.text.String())
	}
}

// A text that is no UTF-8, and one without end, keep nothing else from being sent.
func TestContent(t *testing.T) {
	got := &sink{}
	srv := httptest.NewServer(got)
	defer srv.Close()
	x := telemetry.New(telemetry.Config{Mode: telemetry.On, Endpoint: srv.URL, Content: true, Env: variables(""),
		Tell: func(text string) { t.Error(text) }})
	s := &session{log: make(chan task.Event)}
	x.Open(s)
	x.Agent("", agent.Event{Kind: agent.TurnStartEvent})
	c := agent.Call{ID: "c1\xff", Name: "To\xffol", Input: []byte(`{"a":"` + strings.Repeat("x", 1<<20) + `"}`)}
	x.Agent("", agent.Event{Kind: agent.ToolStartEvent, Call: c})
	x.Agent("", agent.Event{Kind: agent.ToolDoneEvent, Call: c, Output: agent.Output{Text: "out\xff\x00"}})
	x.Agent("", agent.Event{Kind: agent.TurnDoneEvent, Result: &agent.TurnResult{Reason: "end_turn"}})
	close(s.log)
	x.Close()
	if !got.has("execute_tool To\uFFFDol") || !got.has("out\uFFFD") {
		t.Error("the call was not sent")
	}
	if n := got.text.Len(); n > 64<<10 {
		t.Errorf("%d bytes were sent", n)
	}
}

// A failed call of a model has a span with the kind of its failure.
func TestModelError(t *testing.T) {
	got := &sink{}
	srv := httptest.NewServer(got)
	defer srv.Close()
	x, s := open(t, srv.URL, func(text string) { t.Error(text) })
	x.Agent("", agent.Event{Kind: agent.TurnStartEvent})
	x.Agent("", agent.Event{Kind: agent.PartEvent, Part: agent.Part{Kind: agent.RetryPart}})
	x.Agent("", agent.Event{Kind: agent.TurnDoneEvent, Err: &agent.ModelError{Kind: "overloaded", Text: "SECRET"}})
	close(s.log)
	x.Close()
	for _, text := range []string{"chat claude-x", "overloaded", "drover.retries"} {
		if !got.has(text) {
			t.Errorf("%q was not sent", text)
		}
	}
	if got.has("SECRET") {
		t.Error("the text of an error was sent")
	}
}
