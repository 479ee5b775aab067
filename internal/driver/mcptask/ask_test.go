package mcptask_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/driver/mcptask"
	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/test/mcptest"
)

// A question is put to somebody outside and told to the agent; what comes of each
// answer is what the server hears.
func TestAsk(t *testing.T) {
	for name, tt := range map[string]struct {
		reply task.Reply
		hears string
	}{
		"answer":  {task.Reply{Allow: true, Input: json.RawMessage(`{"name":"Ahab"}`)}, "accept Ahab"},
		"decline": {task.Reply{Reason: "none of your business"}, "decline"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, input(mcptest.Work{Ask: 1, Text: "a boat for"}))
			r := start(t, overHTTP(t, mcptest.Options{}).driver(), h)
			q := r.question()
			if q.Kind != task.Form || q.Wait <= 0 || !strings.Contains(string(q.Input), `"schema":{`) || !strings.Contains(string(q.Input), "What is name 1?") {
				t.Errorf("asked %+v: %s", q.Question, q.Input)
			}
			if err := q.Check(task.Reply{Allow: true, Input: json.RawMessage(`{"name":7}`)}); err == nil {
				t.Error("a number is taken for a name")
			}
			if text := <-h.told; !strings.Contains(text, "What is name 1?") || !strings.Contains(text, string(h.Record().ID)) || !strings.Contains(text, `"minLength"`) {
				t.Errorf("the agent is told %q", text)
			}
			q.reply <- tt.reply
			res, err := r.wait()
			if err != nil || res.Text != "a boat for\n"+tt.hears {
				t.Errorf("%q, %v", res.Text, err)
			}
		})
	}
}

// When nobody answers in time, the server is told so, and the task goes on.
func TestUnanswered(t *testing.T) {
	h := newHost(t, input(mcptest.Work{Ask: 1}))
	r := start(t, overHTTP(t, mcptest.Options{}).driver(func(c *mcptask.Config) { c.AskWait = time.Millisecond }), h)
	q := r.question()
	q.reply <- task.Reply{Dismissed: true, Reason: "nobody answered within 1ms"} // as the runtime does
	res, err := r.wait()
	if err != nil || !strings.Contains(res.Text, "cancel") || !strings.Contains(h.Printed(), "nobody gave an answer") {
		t.Errorf("%q, %v, printed %q", res.Text, err, h.Printed())
	}
}

// Where nobody outside can answer, the agent can, unless it waits for the task.
func TestAskNobody(t *testing.T) {
	for name, tt := range map[string]struct {
		owner task.ID
		alone bool
		asks  bool
	}{
		"agent": {"s00000000", false, true}, "foreground": {"s00000000", true, false}, "unowned": {"", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			var call mcptask.Call
			if err := json.Unmarshal(input(mcptest.Work{Ask: 1}), &call); err != nil {
				t.Fatal(err)
			}
			call.Alone = tt.alone
			in, err := json.Marshal(call)
			if err != nil {
				t.Fatal(err)
			}
			h := newHost(t, in)
			h.owner = tt.owner
			d := overHTTP(t, mcptest.Options{}).driver(func(c *mcptask.Config) { c.AskWait = 0 })
			r := start(t, d, h)
			if tt.asks {
				r.question()
				if err := d.Steer(t.Context(), h.Record().ID, `{"name":"Ahab"}`); err != nil {
					t.Fatal(err)
				}
			}
			res, err := r.wait()
			if err != nil || strings.Contains(res.Text, "accept") != tt.asks || strings.Contains(res.Text, "cancel") == tt.asks {
				t.Errorf("%q, %v", res.Text, err)
			}
		})
	}
}

// The agent that owns the task answers by a message: only by what fits.
func TestSteerAnswers(t *testing.T) {
	h := newHost(t, input(mcptest.Work{Ask: 2}))
	d := overHTTP(t, mcptest.Options{}).driver()
	r := start(t, d, h)
	first := r.question()
	for text, says := range map[string]string{"Ahab": "by a JSON object", `{}`: `"name" is missing`, `{"name":"A"}`: "at least 2", `{"name":7}`: "must be a text"} {
		var refused *task.SteerError
		if err := d.Steer(t.Context(), h.Record().ID, text); !errors.As(err, &refused) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", text, err)
		}
	}
	if err := d.Steer(t.Context(), h.Record().ID, ` {"name":"Ahab"} `); err != nil {
		t.Fatal(err)
	}
	first.reply <- task.Reply{Reason: "too late"}
	r.question()
	if err := d.Steer(t.Context(), h.Record().ID, "Decline"); err != nil {
		t.Fatal(err)
	}
	if res, err := r.wait(); err != nil || !strings.Contains(res.Text, "accept Ahab\ndecline") {
		t.Errorf("%q, %v", res.Text, err)
	}
}

// A message to a task that asks nothing goes to servers that take some, and to no
// other.
func TestSteer(t *testing.T) {
	for _, steers := range []bool{true, false} {
		w := overHTTP(t, mcptest.Options{Steers: steers})
		h := newHost(t, input(mcptest.Work{Hold: true}))
		d := w.driver()
		r := start(t, d, h)
		r.until("working", func() bool { return h.state().Status == "working" })
		err := d.Steer(t.Context(), h.Record().ID, "a bigger one")
		got := w.s.Requests("tasks/steer")
		if steers && (err != nil || len(got) != 1 || !strings.Contains(string(got[0].Params), "a bigger one")) {
			t.Errorf("%v, %v", err, got)
		}
		if !steers && (err == nil || !strings.Contains(err.Error(), "start a new task") || len(got) != 0) {
			t.Errorf("a server that offers no steering: %v, %v", err, got)
		}
		w.s.Free()
		if _, err := r.wait(); err != nil {
			t.Error(err)
		}
		var gone *task.SteerError
		if err := d.Steer(t.Context(), h.Record().ID, "still there?"); !errors.As(err, &gone) {
			t.Errorf("a task that has ended: %v", err)
		}
	}
}

// A question that is open when the host closes is one of the next host, if the task
// goes on: nobody has said anything for it.
func TestAskOverClose(t *testing.T) {
	d := overHTTP(t, mcptest.Options{}).sharing() // the connection is there long enough for a wrong answer
	h := newHost(t, input(mcptest.Work{Ask: 1}))
	h.keep = true
	r := start(t, d, h)
	r.question()
	r.end(task.ErrClosing)
	if _, err := r.wait(); !errors.Is(err, task.ErrDetached) {
		t.Fatalf("Run returned %v", err)
	}
	next := newHost(t, nil)
	next.keep, next.point = true, h.Host.Record().Checkpoint
	r = start(t, d, next)
	r.question().reply <- task.Reply{Allow: true, Input: json.RawMessage(`{"name":"Ahab"}`)}
	if res, err := r.wait(); err != nil || strings.TrimSpace(res.Text) != "accept Ahab" {
		t.Errorf("%q, %v", res.Text, err)
	}
}

// The server asks again for who comes after a broken stream.
func TestAskAfterBreak(t *testing.T) {
	h := newHost(t, input(mcptest.Work{Ask: 1, Break: 1}))
	r := start(t, overHTTP(t, mcptest.Options{}).driver(), h)
	r.question().reply <- task.Reply{Allow: true, Input: json.RawMessage(`{"name":"Ahab"}`)}
	if res, err := r.wait(); err != nil || !strings.Contains(res.Text, "accept Ahab") {
		t.Errorf("%q, %v", res.Text, err)
	}
	if len(h.state().Warnings) == 0 {
		t.Error("nobody hears that the stream broke")
	}
}

// Of tasks that share a connection each gets its own answers.
func TestSharedConnection(t *testing.T) {
	w := overHTTP(t, mcptest.Options{})
	d := w.sharing()
	names := []string{"Ahab", "Ishmael", "Queequeg"}
	all := make([]*running, len(names))
	for i := range names {
		all[i] = start(t, d, newHost(t, input(mcptest.Work{Ask: 1, Early: true})))
	}
	for i, r := range all {
		r.question().reply <- task.Reply{Allow: true, Input: json.RawMessage(`{"name":"` + names[i] + `"}`)}
	}
	for i, r := range all {
		if res, err := r.wait(); err != nil || !strings.Contains(res.Text, "accept "+names[i]) {
			t.Errorf("%d: %q, %v", i, res.Text, err)
		}
	}
	if n := len(w.s.Requests("initialize")); n != 1 {
		t.Errorf("%d connections", n)
	}
}
