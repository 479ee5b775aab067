package replay

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/replay/recording"
	"github.com/drover-dev/drover/task"
)

func request(text string) *agent.Request {
	return &agent.Request{Agent: "main", SessionID: "s2",
		Messages: []agent.Message{agent.NewMessage(agent.User, agent.TextBlock(text))}}
}

// two calls of the main agent, whose requests say hello.
func recorded() *recording.Recording {
	h := recording.Head{Session: "s1"}
	r := &recording.Recording{Head: h}
	for n, id := range []string{"", "a1"} {
		r.Entries = append(r.Entries, recording.Entry{Kind: recording.Call, Agent: "s1", Call: 1,
			Request: recording.NamesOf(h).Request("m", request("hello"), 0),
			Chunks:  []recording.Chunk{{Kind: agent.TextPart, Text: "hi"}},
			Reply:   &agent.Reply{StopReason: "end_turn", Blocks: []agent.Block{agent.TextBlock("hi")}}})
		if id != "" {
			r.Entries[n].Agent = "a1"
		}
	}
	return r
}

func player(diverged func(error)) *Player {
	return New(Config{Recording: recorded(), Session: "s2", Names: recording.NamesOf(recording.Head{Session: "s2"}),
		Patience: time.Minute, Diverged: diverged})
}

func TestAnswer(t *testing.T) {
	p, said := player(nil), ""
	reply, err := p.Model("m", nil).Reply(t.Context(), request("hello"), func(part agent.Part) { said += part.Text })
	if err != nil || said != "hi" || reply.Blocks[0].Text != "hi" {
		t.Errorf("%v, %q, %v", reply, said, err)
	}
	if left := p.Missing(); left != "answer 1 of the model to agent a1" {
		t.Errorf("missing is %q", left)
	}
}

// A request that is not the recorded one is named with both digests, and nothing goes on behind it.
func TestDivergentRequest(t *testing.T) {
	var told []error
	p := player(func(err error) { told = append(told, err) })
	m := p.Model("m", nil)
	_, err := m.Reply(t.Context(), request("hullo"), nil)
	var d *Divergence
	was := recorded().Entries[0].Request.Digest
	if !errors.As(err, &d) || !strings.Contains(err.Error(), was) || !strings.Contains(err.Error(), `"ullo`) &&
		!strings.Contains(err.Error(), "hullo") {
		t.Fatalf("the error is %v", err)
	}
	other := request("hello")
	other.AgentID = "a1"
	if _, err := m.Reply(t.Context(), other, nil); !errors.As(err, &d) {
		t.Errorf("the replay goes on: %v", err)
	}
	if len(told) != 1 || p.Err() == nil {
		t.Errorf("told %v", told)
	}
}

// What was recorded first goes first; if it does not come, it is named.
func TestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := player(nil)
		second := request("hello")
		second.AgentID = "a1"
		_, err := p.Model("m", nil).Reply(context.Background(), second, nil)
		if err == nil || !strings.Contains(err.Error(), "answer 1 of the model to agent main was recorded next") {
			t.Errorf("the error is %v", err)
		}
	})
}

// An agent whose model was never asked, as one of another vendor, is not started in a replay; in a run that goes on live it is.
func TestForeignAgent(t *testing.T) {
	for until, refused := range map[int]bool{0: true, 1: false} {
		r := recorded()
		r.Entries = append(r.Entries, recording.Entry{N: 3, Kind: recording.Tool, Agent: "s1", After: 9, Tool: &agent.Call{ID: "t1"},
			Output: &recording.Result{}}, recording.Entry{N: 4, Kind: recording.Event,
			Event: &task.Event{Seq: 5, Verb: task.Create, Task: task.Record{ID: "a7", Kind: task.LocalAgent, ToolUseID: "t1"}}})
		p := New(Config{Recording: r, Session: "s2", Until: until, Patience: time.Minute})
		d, id := p.Work(worker{}, task.Spec{ToolUseID: "t1"})
		if _, real := d.(worker); id != "a7" || real == refused || (p.Err() != nil) != refused {
			t.Errorf("until %d: %T, %s, %v", until, d, id, p.Err())
		}
	}
}

type worker struct{ task.Driver }

func (worker) Kind() task.Kind { return task.LocalAgent }

// Until cuts behind a call of a tool: what was noted later is gone, and so are later events of the log.
func TestUntil(t *testing.T) {
	r := &recording.Recording{Entries: []recording.Entry{
		{N: 1, Kind: recording.Call}, {N: 2, Kind: recording.Tool, After: 4}, {N: 3, Kind: recording.Call}, {N: 4, Kind: recording.Tool, After: 6},
		{N: 5, Kind: recording.Event, Event: &task.Event{Seq: 4}}, {N: 6, Kind: recording.Event, Event: &task.Event{Seq: 5}},
		{N: 7, Kind: recording.Output},
	}}
	for n, want := range map[int]string{0: "1234567", 1: "1257", 2: "1234567", 3: "1234567"} {
		got := ""
		for _, e := range r.Until(n) {
			got += strconv.Itoa(e.N)
		}
		if got != want {
			t.Errorf("until %d: %s, want %s", n, got, want)
		}
	}
	if r.Tools() != 2 {
		t.Errorf("%d calls of tools", r.Tools())
	}
}

// Messages between agents come in the recorded order, whoever is first; what was not recorded is sent at once.
func TestMailOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recording.Recording{Head: recording.Head{Session: "s1"}}
		for _, from := range []string{"ada", "bob", "ada"} {
			r.Entries = append(r.Entries, recording.Entry{Kind: recording.Sent, Message: &task.Message{To: "s1", From: from, Kind: task.PlainMessage}})
		}
		p := New(Config{Recording: r, Session: "s2", Patience: time.Minute})
		var sent []string
		send := func(from, text string) {
			_, err := p.Mail(t.Context(), task.Message{To: "s2", From: from, Kind: task.PlainMessage}, func() (task.Seq, error) {
				sent = append(sent, text)
				return 0, nil
			})
			if err != nil {
				t.Error(err)
			}
		}
		go send("bob", "b1")
		synctest.Wait()
		send("eve", "e1")
		send("ada", "a1")
		send("ada", "a2")
		synctest.Wait()
		if got := strings.Join(sent, " "); got != "e1 a1 b1 a2" || p.Missing() != "" {
			t.Errorf("sent %s, missing %q", got, p.Missing())
		}
	})
}

// Between two turns an agent finds mail where it did, and rests where it did, whenever the mail comes.
func TestMailBetweenTurns(t *testing.T) {
	for _, found := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			e := recording.Entry{N: 1, Kind: recording.Found, Agent: "a1", Turn: 1}
			if found {
				e.Texts = []string{"hello"}
			}
			p := New(Config{Session: "s2", Patience: time.Minute, Recording: &recording.Recording{Head: recording.Head{Session: "s1"}, Entries: []recording.Entry{
				e, {N: 2, Kind: recording.Mail, Agent: "a1", Turn: 2, Texts: []string{"hello"}}}}})
			box, grown := &letters{}, make(chan struct{})
			p.Open(eventLog{grown: grown})
			c := &agent.Config{Mail: box}
			p.Loop("a1", c)
			c.On(agent.Event{Kind: agent.TurnStartEvent})
			c.On(agent.Event{Kind: agent.TurnDoneEvent})
			if !found {
				box.put("hello") // it comes too early
			}
			go func() {
				time.Sleep(time.Second)
				box.put("hello")
				close(grown)
			}()
			got, err := c.Mail.Take(t.Context())
			if err != nil || (len(got) == 1) != found {
				t.Errorf("recorded %v, found %v, %v", found, got, err)
			}
			time.Sleep(2 * time.Second)
			c.On(agent.Event{Kind: agent.TurnStartEvent})
			if got, err := c.Mail.Take(t.Context()); err != nil || len(got) != 1 {
				t.Errorf("the next turn begins with %v, %v", got, err)
			}
		})
	}
}

// eventLog is a log that does not change.
type eventLog struct {
	grown  chan struct{}
	events []task.Event
}

func (l eventLog) Grown() <-chan struct{} { return l.grown }

func (l eventLog) Since(_ context.Context, after task.Seq) ([]task.Event, error) {
	return slices.DeleteFunc(slices.Clone(l.events), func(e task.Event) bool { return e.Seq <= after }), nil
}

// letters is a mailbox with one message at most.
type letters struct {
	all atomic.Pointer[[]agent.MailMessage]
}

func (l *letters) put(text string) { l.all.Store(&[]agent.MailMessage{{Seq: 1, Text: text}}) }

func (l *letters) Take(context.Context) ([]agent.MailMessage, error) {
	if all := l.all.Load(); all != nil {
		return *all, nil
	}
	return nil, nil
}
func (*letters) Ack(context.Context, []agent.MailMessage) error { return nil }

// What was done behind a step of the log waits for this step, and is done all the same if the step does not come.
func TestStepFirst(t *testing.T) {
	for name, tt := range map[string]struct{ comes, after time.Duration }{
		"comes": {comes: time.Second, after: time.Second},
		"lost":  {after: time.Minute / 8},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				create := task.Event{Seq: 1, Verb: task.Create, Task: task.Record{ID: "b7", Kind: task.LocalBash, Parent: "a1"}}
				p := New(Config{Session: "s2", Patience: time.Minute, Recording: &recording.Recording{
					Head: recording.Head{Session: "s1"}, Entries: []recording.Entry{
						{N: 1, Kind: recording.Event, Event: &create},
						{N: 2, Kind: recording.Found, Agent: "a1", Turn: 1, After: 1, Works: true}}}})
				log := &growing{grown: make(chan struct{})}
				p.Open(log)
				c := &agent.Config{Mail: &letters{}}
				p.Loop("a1", c)
				c.On(agent.Event{Kind: agent.TurnStartEvent})
				c.On(agent.Event{Kind: agent.TurnDoneEvent})
				if !p.Works("a1", false) {
					t.Error("nothing is at work, and the recording has a task")
				}
				if tt.comes > 0 {
					time.AfterFunc(tt.comes, func() { log.add(create) })
				}
				began := time.Now()
				if got, err := c.Mail.Take(t.Context()); err != nil || len(got) > 0 {
					t.Errorf("found %v, %v", got, err)
				}
				if took := time.Since(began); took != tt.after {
					t.Errorf("it went on after %v, want %v", took, tt.after)
				}
			})
		})
	}
}

// growing is a log to which events are added.
type growing struct {
	mu     sync.Mutex
	events []task.Event
	grown  chan struct{}
}

func (l *growing) add(e task.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, e)
	close(l.grown)
	l.grown = make(chan struct{})
}

func (l *growing) Grown() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.grown
}

func (l *growing) Since(_ context.Context, after task.Seq) ([]task.Event, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(l.events), func(e task.Event) bool { return e.Seq <= after }), nil
}
