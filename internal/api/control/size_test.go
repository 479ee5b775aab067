package control

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/task"
)

// large is a session whose texts are long.
type large struct {
	*fake
	command string
	answer  string
	yielded chan struct{}
}

func (l *large) List(ctx context.Context, req ListRequest) (Page, error) {
	page, err := l.fake.List(ctx, req)
	for i := range page.Tasks {
		page.Tasks[i] = lifecycle.Short(page.Tasks[i])
	}
	return page, err
}

func (l *large) Get(ctx context.Context, ref string) (task.Record, error) {
	r, err := l.fake.Get(ctx, ref)
	r.Command, r.CommandBytes = l.command, 0
	return r, err
}

func (l *large) Result(_ context.Context, req ResultRequest) (Answer, error) {
	const part = 1000 // of whole characters
	to := min(len(l.answer), int(req.Offset)+part)
	return Answer{Task: task.Record{ID: "b00000001"}, Text: l.answer[req.Offset:to], Offset: req.Offset, Next: int64(to), Size: int64(len(l.answer))}, nil
}

// Events yields long events for as long as somebody takes them.
func (l *large) Events(ctx context.Context, _ task.Seq) iter.Seq2[task.Event, error] {
	return func(yield func(task.Event, error) bool) {
		for seq := task.Seq(1); ctx.Err() == nil; seq++ {
			if seq == 2 {
				l.yielded <- struct{}{}
			}
			if !yield(task.Event{Seq: seq, Verb: task.Create, Task: task.Record{ID: "b00000001", Command: l.command}}, nil) {
				return
			}
		}
	}
}

// A request above its limit is refused by 413, before it is sent where its length is known; a
// batch that is too long for one request is started by several.
func TestRequestSizes(t *testing.T) {
	s := NewServer(newFake())
	s.small = 1000
	w := serve(t, s)
	_, err := w.client.Send(t.Context(), SendRequest{Ref: "one", Text: strings.Repeat("x", 2000)})
	var e *Error
	if !errors.As(err, &e) || e.Code != TooLarge || e.Code.status() != http.StatusRequestEntityTooLarge || !strings.Contains(e.Message, "1000") {
		t.Errorf("got %v", err)
	}
	var reqs []StartRequest
	for n := range 6 { // more than a body together
		reqs = append(reqs, StartRequest{Name: fmt.Sprint(n), Shell: &ShellRequest{Line: strings.Repeat("x", maxBody/5)}})
	}
	started, err := w.client.Start(t.Context(), reqs)
	if err != nil || len(started) != len(reqs) {
		t.Fatalf("%d started, %v", len(started), err)
	}
	for n, st := range started {
		if st.Error != nil || st.Task.Name != fmt.Sprint(n) {
			t.Errorf("%d: %+v", n, st)
		}
	}
}

// A part of a spec that is too long is the client's mistake, and the answer says how to fix it.
func TestSizeError(t *testing.T) {
	e := AsError(fmt.Errorf("start task: %w", task.Spec{Name: strings.Repeat("n", 500)}.Check()))
	if e.Code != Invalid || e.Fix == "" || strings.Contains(e.Message, e.Fix) || !strings.Contains(e.Message, "128") {
		t.Errorf("%+v", e)
	}
}

// An event is encoded once for all who read it, and few are kept.
func TestEncodedOnce(t *testing.T) {
	var c encoded
	e := task.Event{Seq: 7, Verb: task.Create, Task: task.Record{ID: "b00000001", Command: strings.Repeat("c", 100_000)}}
	first := c.of(e)
	if again := c.of(e); again != first || &again.own[0] != &first.own[0] {
		t.Error("an event was encoded twice")
	}
	for n := range 200 {
		e.Seq = task.Seq(n + 8)
		c.of(e)
	}
	held := 0
	for _, one := range c.events {
		held += len(one.own) + len(one.named)
	}
	if held > encodedBytes || held != c.bytes || len(c.order) != len(c.events) {
		t.Errorf("%d bytes are kept, %d are counted, of %d events in %d places", held, c.bytes, len(c.events), len(c.order))
	}
}

// Readers that stand still cost a host the same few bytes each, however long the events are
// that they do not take.
func TestStalledReaders(t *testing.T) {
	f := &large{fake: newFake(), yielded: make(chan struct{}, 1000), command: strings.Repeat("c", 100_000)}
	const readers = 100
	w := serve(t, NewServer(f))
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range readers {
		c := w.raw(t, "GET /v1/events?after=0 HTTP/1.1\r\nHost: drover\r\n\r\n")
		defer c.Close()
		if _, err := c.Read(make([]byte, 1)); err != nil { // and then it stands still
			t.Fatal(err)
		}
	}
	for range readers {
		recv(t, f.yielded, "a reader that has filled its connection")
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if each := (int64(after.HeapAlloc) - int64(before.HeapAlloc)) / readers; each > 100<<10 {
		t.Errorf("a reader that stands still costs %d KiB", each>>10)
	}
}

// A listing has the whole of each command, and an answer that is read without a length is whole.
func TestListingIsWhole(t *testing.T) {
	command := strings.Repeat("c", 10_000)
	f := &large{fake: newFake(), command: command, answer: strings.Repeat("\"é\n", 2_000_000)}
	f.add(task.Record{ID: "b00000001", Name: "two", Command: command, Status: task.Completed})
	w := serve(t, NewServer(f))
	page, err := w.client.List(t.Context(), ListRequest{All: true})
	if err != nil || len(page.Tasks) == 0 {
		t.Fatalf("%+v, %v", page, err)
	}
	for _, r := range page.Tasks {
		if r.Command != command || r.CommandBytes != 0 {
			t.Errorf("%s has %d bytes of its command", r.ID, len(r.Command))
		}
	}
	c := w.raw(t, "GET /v1/tasks/two/result HTTP/1.1\r\nHost: drover\r\n\r\n")
	defer c.Close()
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var a Answer
	if err := json.NewDecoder(resp.Body).Decode(&a); err != nil || a.Text != f.answer || a.Task.ID == "" || a.Size != int64(len(f.answer)) {
		t.Errorf("%d bytes of %d, %v", len(a.Text), len(f.answer), err)
	}
	got, err := WholeResult(t.Context(), w.client, "two")
	if err != nil || got.Text != f.answer {
		t.Errorf("by parts: %d bytes of %d, %v", len(got.Text), len(f.answer), err)
	}
}

// The images of a prompt may have 20 MiB together.
func TestImageSizes(t *testing.T) {
	w := serve(t, NewServer(newFake()))
	req := PromptRequest{Text: "these"}
	for range 4 {
		req.Images = append(req.Images, Image{Name: "a.png", Data: make([]byte, 5<<20)})
	}
	if err := w.client.Prompt(t.Context(), req); err != nil {
		t.Error(err)
	}
}
