package remote

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/api/a2a"
	"github.com/drover-dev/drover/internal/options"
	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/test/tasktest"
	"github.com/drover-dev/drover/test/waittest"
)

// patience is how long one task may take.
const patience = 20 * time.Second

// peer is an agent that follows a script: for each method the answers in their order, the last one again and again.
// An answer is a result; one that begins with ! is an error of a code; a list is a stream; a function answers itself.
type peer struct {
	t      *testing.T
	at     string
	card   string // in place of the usual one; AT is the address
	noSSE  bool
	deaf   bool // its connections die without a word
	script map[string][]any

	mu    sync.Mutex
	calls []string // methods
	sent  []a2a.SendRequest
	gates map[string]chan struct{} // an event "wait:NAME" of a stream waits for one
}

func newPeer(t *testing.T, script map[string][]any) *peer {
	p := &peer{t: t, script: script, gates: map[string]chan struct{}{}}
	srv := httptest.NewServer(p)
	t.Cleanup(srv.Close)
	p.at = srv.URL
	return p
}

func (p *peer) gate(name string) chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gates[name] == nil {
		p.gates[name] = make(chan struct{})
	}
	return p.gates[name]
}

// heard reports whether a message with a text was sent.
func (p *peer) heard(text string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.sent, func(s a2a.SendRequest) bool { return a2a.Text(s.Message.Parts) == text })
}

func (p *peer) called(method string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(slices.DeleteFunc(slices.Clone(p.calls), func(m string) bool { return m != method }))
}

func (p *peer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "Bearer secret" || r.Header.Get(a2a.VersionHeader) != a2a.Version {
		http.Error(w, "who are you?", http.StatusUnauthorized)
		return
	}
	if r.URL.Path == a2a.CardPath {
		card := p.card
		if card == "" {
			card = fmt.Sprintf(`{"name":"Peer","capabilities":{"streaming":%v},"supportedInterfaces":[
				{"url":"AT/grpc","protocolBinding":"GRPC","protocolVersion":"1.0"},
				{"url":"AT/rpc","protocolBinding":"JSONRPC","protocolVersion":"1.0","tenant":"here"}]}`, !p.noSSE)
		}
		if strings.HasPrefix(card, "->") {
			http.Redirect(w, r, card[2:], http.StatusTemporaryRedirect)
			return
		}
		if !strings.HasPrefix(card, "<") {
			w.Header().Set("Content-Type", "application/json")
		}
		fmt.Fprint(w, strings.ReplaceAll(card, "AT", p.at))
		return
	}
	var q struct {
		ID     json.RawMessage
		Method string
		Params json.RawMessage
	}
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		p.t.Error(err)
	}
	p.mu.Lock()
	n := 0
	for _, m := range p.calls {
		if m == q.Method {
			n++
		}
	}
	p.calls = append(p.calls, q.Method)
	if q.Method == a2a.SendMessage {
		var s a2a.SendRequest
		if err := json.Unmarshal(q.Params, &s); err != nil || s.Tenant != "here" || s.Message.Role != a2a.RoleUser {
			p.t.Errorf("sent %s: %v", q.Params, err)
		}
		p.sent = append(p.sent, s)
	}
	answers := p.script[q.Method]
	p.mu.Unlock()
	if len(answers) == 0 {
		answers = []any{"!-32601 no such method"}
	}
	p.answer(w, r, string(q.ID), answers[min(n, len(answers)-1)])
}

func (p *peer) answer(w http.ResponseWriter, r *http.Request, id string, a any) {
	wrap := func(result string) string { return `{"jsonrpc":"2.0","id":` + id + `,"result":` + result + `}` }
	switch a := a.(type) {
	case func(http.ResponseWriter, *http.Request):
		a(w, r)
	case []string:
		w.Header().Set("Content-Type", "text/event-stream")
		for _, e := range a {
			if name, wait := strings.CutPrefix(e, "wait:"); wait {
				select {
				case <-p.gate(name):
				case <-r.Context().Done():
					return
				}
				continue
			}
			fmt.Fprintf(w, ": a comment\r\nevent: message\ndata: %s\n\n", wrap(e))
			_ = http.NewResponseController(w).Flush()
		}
	case string:
		w.Header().Set("Content-Type", "application/json")
		if a == "nothing" {
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s}`, id)
			return
		}
		if rest, bad := strings.CutPrefix(a, "!"); bad {
			code, text, _ := strings.Cut(rest, " ")
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":%s,"message":%q}}`, id, code, text)
			return
		}
		fmt.Fprint(w, wrap(a))
	}
}

// Answers and events of a task t-1.
func taskIn(state a2a.State, more string) string {
	return fmt.Sprintf(`{"id":"t-1","contextId":"c","status":{"state":%q}%s}`, state, more)
}

func made(state a2a.State) string { return `{"task":` + taskIn(state, "") + `}` }

func news(state a2a.State, id, text string) string {
	message := ""
	if text != "" {
		message = fmt.Sprintf(`,"message":{"messageId":%q,"role":"ROLE_AGENT","parts":[{"text":%q}]}`, id, text)
	}
	return fmt.Sprintf(`{"statusUpdate":{"taskId":"t-1","contextId":"c","status":{"state":%q%s}}}`, state, message)
}

func chunk(id, text string, more, last bool) string {
	return fmt.Sprintf(`{"artifactUpdate":{"taskId":"t-1","contextId":"c","append":%v,"lastChunk":%v,"artifact":{"artifactId":%q,"parts":[{"text":%q}]}}}`,
		more, last, id, text)
}

// run does one task at the peer, and returns how it was recorded.
func (p *peer) run(ctx context.Context, h task.Host, offline time.Duration) (task.Result, task.Record) {
	p.t.Helper()
	c, err := a2a.Dial(p.at+a2a.CardPath, "secret")
	if err != nil {
		p.t.Fatal(err)
	}
	hold := time.Duration(0)
	if p.deaf {
		hold, c.Silence = 10*time.Millisecond, 20*time.Millisecond
	}
	d := New(Config{Settings: options.Remote{Services: map[string]options.RemoteService{"peer": {URL: p.at + a2a.CardPath, TokenEnv: "TOKEN"}}, Offline: offline},
		Env: []string{"TOKEN=secret"}, Hold: hold, Base: time.Millisecond, Most: 4 * time.Millisecond})
	d.clients[target{p.at + a2a.CardPath, "secret"}] = c
	defer d.Close()
	go func() { // ends with the test
		for text := range steers(h) {
			waittest.Until(patience, func() bool { return d.Steer(ctx, h.Record().ID, text) == nil || ctx.Err() != nil })
		}
	}()
	res, err := d.Run(ctx, h)
	return res, recorded(context.Cause(ctx), res, err)
}

// host is one that hears what its owner is told, and steers.
type host struct {
	*tasktest.Host
	rec   func(task.Record) task.Record
	told  chan string
	steer chan string
}

func steers(h task.Host) chan string {
	if own, ok := h.(*host); ok {
		return own.steer
	}
	none := make(chan string)
	close(none)
	return none
}

func (h *host) Record() task.Record { return h.rec(h.Host.Record()) }

func (h *host) Tell(_ context.Context, _ task.MessageKind, text string, _ task.Priority) error {
	h.told <- text
	return nil
}

func newHost(t *testing.T) *host {
	h := &host{Host: tasktest.NewHost(t, task.RemoteAgent, json.RawMessage(`{"service":"peer","prompt":"do it"}`)),
		rec: func(r task.Record) task.Record { return r }, told: make(chan string, 10), steer: make(chan string)}
	t.Cleanup(func() { close(h.steer) })
	return h
}

// A task is followed by its stream. Artifacts are printed one after the other, in the order in which they began.
func TestStream(t *testing.T) {
	p := newPeer(t, map[string][]any{
		a2a.SendMessage: {made(a2a.Submitted)},
		a2a.SubscribeToTask: {[]string{`{"task":` + taskIn(a2a.Working, "") + `}`, chunk("a", "one ", false, false), chunk("b", "B", false, true),
			news(a2a.Working, "m1", "half of it"), chunk("a", "two", true, true), news(a2a.Completed, "", ""), news(a2a.Failed, "m2", "twice")}},
	})
	h := newHost(t)
	res, rec := p.run(waittest.Context(t, patience), h, time.Minute)
	if rec.Status != task.Completed || res.Text != "one two\nB" || h.Printed() != "one two\nB\n" {
		t.Errorf("%s, answer %q, printed %q", rec.Status, res.Text, h.Printed())
	}
	if got := p.sent[0]; got.Message.ID != string(h.Record().Run) || a2a.Text(got.Message.Parts) != "do it" || !got.Configuration.Immediately {
		t.Errorf("sent %+v", got)
	}
	if r := h.Record(); r.Progress == nil || r.Progress.Message != "half of it" || r.Progress.Remote.ID != "t-1" {
		t.Errorf("progress %+v", r.Progress)
	}
}

// A stream that breaks is opened again, and what it repeats is not printed twice.
func TestStreamAgain(t *testing.T) {
	p := newPeer(t, map[string][]any{
		a2a.SendMessage: {made(a2a.Working)},
		a2a.SubscribeToTask: {
			[]string{`{"task":` + taskIn(a2a.Working, "") + `}`, chunk("a", "one ", false, false)},
			[]string{`{"task":` + taskIn(a2a.Working, `,"artifacts":[{"artifactId":"a","parts":[{"text":"one "},{"text":"two "}]}]`) + `}`,
				chunk("a", "three", true, true), news(a2a.Completed, "", "")},
		},
	})
	h := newHost(t)
	if res, _ := p.run(waittest.Context(t, patience), h, time.Minute); res.Text != "one two three" || h.Printed() != "one two three\n" {
		t.Errorf("answer %q, printed %q", res.Text, h.Printed())
	}
	if p.called(a2a.SubscribeToTask) != 2 {
		t.Errorf("calls %v", p.calls)
	}
}

// An agent without streams is asked again and again.
func TestPolled(t *testing.T) {
	p := newPeer(t, map[string][]any{
		a2a.SendMessage: {made(a2a.Submitted)},
		a2a.GetTask: {taskIn(a2a.Working, ""), taskIn(a2a.Working, `,"artifacts":[{"artifactId":"a","parts":[{"text":"some"}]}]`),
			taskIn(a2a.Completed, `,"artifacts":[{"artifactId":"a","parts":[{"text":"some more"}]},{"artifactId":"d","parts":[{"data":{"n":1}}]}]`)},
	})
	p.noSSE = true
	h := newHost(t)
	if res, rec := p.run(waittest.Context(t, patience), h, time.Minute); rec.Status != task.Completed || res.Text != "some more\n{\"n\":1}" ||
		h.Printed() != "some more\n{\"n\":1}\n" {
		t.Errorf("%s, answer %q, printed %q", rec.Status, res.Text, h.Printed())
	}
	if p.called(a2a.SubscribeToTask) != 0 {
		t.Error("a stream was asked for")
	}
}

// The next host takes up the task, and prints what the local file has not; its owner is not told again.
func TestAdopted(t *testing.T) {
	p := newPeer(t, map[string][]any{a2a.SubscribeToTask: {[]string{
		`{"task":` + taskIn(a2a.InputRequired, `,"artifacts":[{"artifactId":"a","parts":[{"text":"one "}]}]`) + `}`,
		chunk("a", "two", true, true), news(a2a.Completed, "", "")}}})
	h := newHost(t)
	h.rec = func(r task.Record) task.Record {
		r.Checkpoint, r.Progress = []byte(`{"v":1,"state":"running","service":"peer","session":"t-1","type":"remote-agent"}`),
			&task.Progress{Phase: a2a.NeedsInput}
		return r
	}
	if _, err := h.Write([]byte("one")); err != nil {
		t.Fatal(err)
	}
	if _, rec := p.run(waittest.Context(t, patience), h, time.Minute); rec.Status != task.Completed || h.Printed() != "one two\n" {
		t.Errorf("%s, printed %q", rec.Status, h.Printed())
	}
	if len(h.told) > 0 || p.called(a2a.SendMessage) > 0 {
		t.Errorf("told %d times; calls %v", len(h.told), p.calls)
	}
}

// A request whose answer was lost is looked for before it is sent again.
func TestLostAnswer(t *testing.T) {
	h := newHost(t)
	message := fmt.Sprintf(`,"history":[{"messageId":%q,"role":"ROLE_USER","parts":[{"text":"do it"}]}]`, h.Record().Run)
	p := newPeer(t, map[string][]any{
		a2a.SendMessage: {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }},
		a2a.ListTasks: {`{"tasks":[{"id":"other","status":{"state":"TASK_STATE_WORKING"}}],"nextPageToken":"2","pageSize":1,"totalSize":2}`,
			`{"tasks":[` + taskIn(a2a.Completed, message) + `],"nextPageToken":"","pageSize":1,"totalSize":2}`},
		a2a.GetTask: {taskIn(a2a.Completed, `,"artifacts":[{"artifactId":"a","parts":[{"text":"done"}]}]`)},
	})
	p.noSSE = true
	if res, rec := p.run(waittest.Context(t, patience), h, time.Minute); rec.Status != task.Completed || res.Text != "done" || p.called(a2a.SendMessage) != 1 {
		t.Errorf("%s %q; calls %v", rec.Status, res.Text, p.calls)
	}
}

// A stop before the agent has answered begins no work there: what may have arrived is looked for, and cancelled.
func TestStopBeforeAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		list    string
		cancels int
		left    string
	}{
		"arrived":     {`{"tasks":[` + taskIn(a2a.Working, `,"history":[{"messageId":"RUN","role":"ROLE_USER","parts":[]}]`) + `]}`, 1, ""},
		"not arrived": {`{"tasks":[]}`, 0, ""},
		"no lists":    {"!-32601 no such method", 0, "no such method"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, stop := context.WithCancelCause(waittest.Context(t, patience))
			h := newHost(t)
			p := newPeer(t, map[string][]any{a2a.ListTasks: {strings.ReplaceAll(c.list, "RUN", string(h.Record().Run))}, a2a.CancelTask: {taskIn(a2a.Canceled, "")},
				a2a.SendMessage: {func(http.ResponseWriter, *http.Request) {
					stop(&task.StopError{Cause: task.Cause{Actor: task.ByUser, Reason: task.ReasonStopped}})
					panic(http.ErrAbortHandler)
				}}})
			res, rec := p.run(ctx, h, time.Minute)
			left := ""
			for _, l := range res.Left {
				left += l.Why
			}
			if rec.Status != task.Killed || p.called(a2a.SendMessage) != 1 || p.called(a2a.CancelTask) != c.cancels || (left == "") != (c.left == "") ||
				!strings.Contains(left, c.left) {
				t.Errorf("%s, left %q; calls %v", rec.Status, left, p.calls)
			}
		})
	}
}

// What the task asks is told to the owner, each question once; messages answer it.
func TestInput(t *testing.T) {
	p := newPeer(t, map[string][]any{
		a2a.SendMessage: {made(a2a.Working), made(a2a.Working), made(a2a.Working)},
		a2a.SubscribeToTask: {[]string{`{"task":` + taskIn(a2a.Working, "") + `}`, news(a2a.InputRequired, "q1", "Which colour?"), "wait:blue",
			news(a2a.InputRequired, "q2", "Which brush?"), "wait:broad", news(a2a.AuthRequired, "q3", "Sign in"), "wait:auth", news(a2a.Working, "", ""),
			news(a2a.Completed, "m", "painted")}},
	})
	h := newHost(t)
	asked := make(chan []string, 1)
	go func() {
		var all []string
		for _, answer := range []string{"blue", "broad"} {
			all = append(all, <-h.told)
			h.steer <- answer
			if waittest.Until(patience, func() bool { return p.heard(answer) }) { // the work goes on once it has the answer
				close(p.gate(answer))
			}
		}
		asked <- append(all, <-h.told)
		close(p.gate("auth"))
	}()
	res, rec := p.run(waittest.Context(t, patience), h, time.Minute)
	if rec.Status != task.Completed || res.Text != "painted" {
		t.Errorf("%s %q", rec.Status, res.Text)
	}
	var all []string
	select {
	case all = <-asked:
	default:
		t.Fatalf("told %d times too few", 3-len(h.told))
	}
	for i, part := range []string{"Which colour?", "Which brush?", "authenticate"} {
		if !strings.Contains(all[i], part) {
			t.Errorf("told %q, want %s", all[i], part)
		}
	}
	for i, text := range []string{"do it", "blue", "broad"} {
		if m := p.sent[i].Message; a2a.Text(m.Parts) != text || (m.Task == "t-1") != (i > 0) {
			t.Errorf("sent %+v, want %s", m, text)
		}
	}
}

// A stop cancels the task. One that goes on all the same is named.
func TestCancel(t *testing.T) {
	for name, c := range map[string]struct {
		cancel, get any
		left        string
	}{
		"canceled": {taskIn(a2a.Canceled, ""), nil, ""},
		"later":    {taskIn(a2a.Working, ""), taskIn(a2a.Canceled, ""), ""},
		"ended":    {"!-32002 it has ended", nil, ""},
		"gone":     {"!-32001 unknown", nil, ""},
		"goes on":  {taskIn(a2a.Working, ""), taskIn(a2a.Working, ""), "still TASK_STATE_WORKING"},
		"refused":  {"!-32004 no cancels here", nil, "no cancels here"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPeer(t, map[string][]any{a2a.SendMessage: {made(a2a.Working)}, a2a.CancelTask: {c.cancel}, a2a.GetTask: {c.get},
				a2a.SubscribeToTask: {[]string{`{"task":` + taskIn(a2a.Working, "") + `}`, chunk("a", "begun", false, false), "wait:ever"}}})
			ctx, stop := context.WithCancelCause(waittest.Context(t, patience))
			h := newHost(t)
			go func() {
				h.UntilPrinted("begun", 1)
				grace := time.Second
				stop(&task.StopError{Cause: task.Cause{Actor: task.ByUser, Reason: task.ReasonStopped}, Grace: &grace})
			}()
			res, rec := p.run(ctx, h, time.Minute)
			left := ""
			for _, l := range res.Left {
				left += l.Command + ": " + l.Why
			}
			if rec.Status != task.Killed || p.called(a2a.CancelTask) != 1 || (left == "") != (c.left == "") || !strings.Contains(left, c.left) {
				t.Errorf("%s, left %q, calls %v", rec.Status, left, p.calls)
			}
		})
	}
}

// Whatever a stranger answers, the task ends with an error that says what is wrong; nothing else is called.
func TestStrangers(t *testing.T) {
	page := func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>sign in</html>") }
	raw := func(text string) any {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, text)
		}
	}
	flood := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for block := "data: " + strings.Repeat("x", 1<<20); r.Context().Err() == nil; block = block[6:] {
			if _, err := w.Write([]byte(block)); err != nil {
				return
			}
		}
	}
	follow := func(events ...string) map[string][]any {
		return map[string][]any{a2a.SendMessage: {made(a2a.Working)}, a2a.SubscribeToTask: {events}, a2a.CancelTask: {taskIn(a2a.Canceled, "")}}
	}
	for name, c := range map[string]struct {
		card   string
		script map[string][]any
		says   string
	}{
		"card is a page":     {"<html>", nil, `the answer is "text/html" and not JSON`},
		"card redirects":     {"->https://elsewhere.example/card", nil, `redirects to "https://elsewhere.example/card"`},
		"card is no object":  {`[]`, nil, "the agent card cannot be parsed"},
		"card is old":        {`{"url":"AT","protocolVersion":"0.3.0","preferredTransport":"JSONRPC"}`, nil, "no interface JSONRPC of version 1.0 (it offers: none)"},
		"card of 0.3":        {`{"supportedInterfaces":[{"url":"AT","protocolBinding":"JSONRPC","protocolVersion":"0.3"}]}`, nil, "it offers: JSONRPC 0.3"},
		"card of elsewhere":  {`{"supportedInterfaces":[{"url":"https://evil.example/","protocolBinding":"JSONRPC","protocolVersion":"1.0"}]}`, nil, "nothing is sent elsewhere"},
		"card of an insider": {`{"supportedInterfaces":[{"url":"http://169.254.169.254/","protocolBinding":"JSONRPC","protocolVersion":"1.0"}]}`, nil, "neither https nor on this machine"},
		"extension":          {`{"capabilities":{"extensions":[{"uri":"urn:x","required":true}]}}`, nil, `requires the extension "urn:x"`},
		"page":               {"", map[string][]any{a2a.SendMessage: {page}}, "and not JSON"},
		"redirect": {"", map[string][]any{a2a.SendMessage: {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://elsewhere.example/", http.StatusPermanentRedirect)
		}}}, "redirects are not followed"},
		"other request": {"", map[string][]any{a2a.SendMessage: {raw(`{"jsonrpc":"2.0","id":99999,"result":` + made(a2a.Working) + `}`)}}, `has the ID "99999"`},
		"no JSON-RPC":   {"", map[string][]any{a2a.SendMessage: {raw(made(a2a.Working))}}, "not JSON-RPC 2.0"},
		"no result":     {"", map[string][]any{a2a.SendMessage: {"nothing"}}, "neither a result nor an error"},
		"nothing":       {"", map[string][]any{a2a.SendMessage: {`{}`}}, "neither a task nor a message"},
		"refusal":       {"", map[string][]any{a2a.SendMessage: {"!-32005 no text please"}}, "the agent answers -32005: no text please"},
		"internal":      {"", map[string][]any{a2a.SendMessage: {"!-32603 oops"}}, "the agent answers -32603: oops"},
		"bad ID":        {"", map[string][]any{a2a.SendMessage: {`{"task":{"id":"../../etc","status":{"state":"TASK_STATE_WORKING"}}}`}}, "no ID of a task"},
		"unknown state": {"", follow(news("TASK_STATE_DREAMING", "", "")), `the unknown state "TASK_STATE_DREAMING"`},
		"other task":    {"", follow(strings.ReplaceAll(news(a2a.Completed, "", ""), "t-1", "t-2")), `is about task "t-2"`},
		"no stream":     {"", map[string][]any{a2a.SendMessage: {made(a2a.Working)}, a2a.SubscribeToTask: {taskIn(a2a.Working, "")}, a2a.CancelTask: {taskIn(a2a.Canceled, "")}}, "not a stream of events"},
		"giant event":   {"", map[string][]any{a2a.SendMessage: {made(a2a.Working)}, a2a.SubscribeToTask: {flood}, a2a.CancelTask: {taskIn(a2a.Canceled, "")}}, "an event is larger than"},
		"many artifacts": {"", follow(func() (all []string) {
			for i := range 1001 {
				all = append(all, chunk(fmt.Sprint(i), "x", false, true))
			}
			return all
		}()...), "more than 1000 artifacts"},
		"failed":   {"", follow(news(a2a.Failed, "m", "it broke")), "it broke"},
		"rejected": {"", follow(news(a2a.Rejected, "m", "not mine")), "the agent refused the task: not mine"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPeer(t, c.script)
			p.card = c.card
			_, rec := p.run(waittest.Context(t, patience), newHost(t), 20*time.Millisecond)
			if rec.Status != task.Failed || !strings.Contains(rec.Error, c.says) {
				t.Errorf("%s: %s\nwant %s", rec.Status, rec.Error, c.says)
			}
		})
	}
}

// An agent may answer with a message: that is all of the work.
func TestMessage(t *testing.T) {
	p := newPeer(t, map[string][]any{a2a.SendMessage: {`{"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"at once"}]}}`}})
	h := newHost(t)
	if res, rec := p.run(waittest.Context(t, patience), h, time.Minute); rec.Status != task.Completed || res.Text != "at once" || h.Printed() != "at once\n" {
		t.Errorf("%s %q %q", rec.Status, res.Text, h.Printed())
	}
}

// A connection that dies without a word is noticed: the task is asked for.
func TestSilentStream(t *testing.T) {
	p := newPeer(t, map[string][]any{
		a2a.SendMessage:     {made(a2a.Working)},
		a2a.SubscribeToTask: {[]string{`{"task":` + taskIn(a2a.Working, "") + `}`, "wait:ever"}},
		a2a.GetTask:         {taskIn(a2a.Working, ""), taskIn(a2a.Completed, `,"artifacts":[{"artifactId":"a","parts":[{"text":"done"}]}]`)},
	})
	p.deaf = true
	if res, rec := p.run(waittest.Context(t, patience), newHost(t), time.Minute); rec.Status != task.Completed || res.Text != "done" {
		t.Errorf("%s %q", rec.Status, res.Text)
	}
}
