package replay

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/task"
)

// recorded is one call each of the main agent and of a1, whose requests say hello.
func recordedCalls() *Recording {
	h := Head{Session: "s1"}
	r := &Recording{Head: h}
	for n, id := range []task.ID{"s1", "a1"} {
		r.Entries = append(r.Entries, Entry{N: n + 1, Kind: CallEntry, Agent: id, Call: 1,
			Request: NamesOf(h).Request(asking("hello"), 0), Chunks: []Chunk{{Kind: agent.TextPart, Text: "hi"}},
			Reply: &agent.Reply{StopReason: "end_turn", Blocks: []agent.Block{agent.TextBlock("hi")}}})
	}
	return r
}

func playerOf(entries ...Entry) *Player {
	return NewPlayer(Config{Recording: &Recording{Head: Head{Session: "s1"}, Entries: entries}, Session: "s2",
		Names: NamesOf(Head{Session: "s2"}), Patience: time.Minute})
}

func unreal(func(agent.Part)) (*agent.Reply, error) { return nil, errors.New("a real model was asked") }

func TestAnswer(t *testing.T) {
	p, said := playerOf(recordedCalls().Entries...), ""
	reply, err := portOf(p, "s2", agent.Config{}).Reply(t.Context(), asking("hello"), func(part agent.Part) { said += part.Text }, unreal)
	if err != nil || said != "hi" || reply.Blocks[0].Text != "hi" {
		t.Errorf("%v, %q, %v", reply, said, err)
	}
	if left := p.Missing(); left != "answer 1 of the model to agent a1" {
		t.Errorf("missing is %q", left)
	}
}

// A request that is not the recorded one is named with both digests, and nothing goes on after it.
func TestDivergentRequest(t *testing.T) {
	var said []error
	p := NewPlayer(Config{Recording: recordedCalls(), Session: "s2", Patience: time.Minute, Diverged: func(err error) { said = append(said, err) }})
	_, err := portOf(p, "s2", agent.Config{}).Reply(t.Context(), asking("hullo"), func(agent.Part) {}, unreal)
	var d *Divergence
	was := recordedCalls().Entries[0].Request.Digest
	if !errors.As(err, &d) || !strings.Contains(err.Error(), was) || !strings.Contains(err.Error(), "hullo") {
		t.Fatalf("the error is %v", err)
	}
	if _, err := portOf(p, "a1", agent.Config{}).Reply(t.Context(), asking("hello"), func(agent.Part) {}, unreal); !errors.As(err, &d) {
		t.Errorf("the replay goes on: %v", err)
	}
	if len(said) != 1 || p.Err() == nil {
		t.Errorf("said %v", said)
	}
}

// What was recorded first goes first; if it does not come, it is named.
func TestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := playerOf(recordedCalls().Entries...)
		_, err := portOf(p, "a1", agent.Config{}).Reply(context.Background(), asking("hello"), func(agent.Part) {}, unreal)
		if err == nil || !strings.Contains(err.Error(), "answer 1 of the model to agent main was recorded next") {
			t.Errorf("the error is %v", err)
		}
	})
}

// An agent whose model was never asked, as one of another vendor, is not started in a replay; in a run that goes on live it is.
func TestForeignAgent(t *testing.T) {
	for until, refused := range map[int]bool{0: true, 1: false} {
		r := recordedCalls()
		r.Entries = append(r.Entries, Entry{N: 3, Kind: ToolEntry, Agent: "s1", After: 9, Tool: &agent.Call{ID: "t1"}, Decided: &Point{},
			Decision: &agent.Decision{Allow: true}, Output: &Result{}}, Entry{N: 4, Kind: EventEntry,
			Event: &task.Event{Seq: 5, Verb: task.Create, Task: task.Record{ID: "a7", Kind: task.LocalAgent, ToolUseID: "t1"}}})
		p := NewPlayer(Config{Recording: r, Session: "s2", Until: until, Patience: time.Minute})
		got := p.Prepare(worker{}, task.Spec{ToolUseID: "t1"})
		if _, real := got.Driver.(worker); got.ID != "a7" || real == refused || (p.Err() != nil) != refused {
			t.Errorf("until %d: %T, %s, %v", until, got.Driver, got.ID, p.Err())
		}
	}
}

type worker struct{ task.Driver }

func (worker) Kind() task.Kind { return task.LocalAgent }

// Until cuts after a call of a tool: what was noted later is gone, and so are later events and messages of the log.
func TestUntil(t *testing.T) {
	ran := func(n int, after task.Seq) Entry {
		return Entry{N: n, Kind: ToolEntry, After: after, Output: &Result{}}
	}
	r := &Recording{Entries: []Entry{
		{N: 1, Kind: CallEntry}, ran(2, 4), {N: 3, Kind: ToolEntry}, ran(4, 6),
		{N: 5, Kind: EventEntry, Event: &task.Event{Seq: 4}}, {N: 6, Kind: EventEntry, Event: &task.Event{Seq: 5}},
		{N: 7, Kind: OutputEntry}, {N: 8, Kind: MessageEntry, Message: &task.Message{Seq: 3}},
	}}
	for n, want := range map[int]string{0: "12345678", 1: "12578", 2: "12345678", 3: "12345678"} {
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

// Messages come into the log in the recorded order, whoever is first; what was not recorded is sent at once.
func TestMailOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var entries []Entry
		for i, from := range []string{"ada", "bob", "ada"} {
			entries = append(entries, Entry{N: i + 1, Kind: MessageEntry,
				Message: &task.Message{Seq: task.Seq(i + 1), To: "s1", From: from, Kind: task.PlainMessage}})
		}
		p, log := playerOf(entries...), &memory{}
		into := p.Log(log)
		send := func(from, text string) {
			if _, err := into.Post(t.Context(), task.Message{To: "s2", From: from, Kind: task.PlainMessage, Text: text}); err != nil {
				t.Error(err)
			}
		}
		go send("bob", "b1")
		synctest.Wait()
		send("eve", "e1")
		send("ada", "a1")
		send("ada", "a2")
		synctest.Wait()
		if got := strings.Join(log.posted, " "); got != "e1 a1 b1 a2" || p.Missing() != "" {
			t.Errorf("sent %s, missing %q", got, p.Missing())
		}
	})
}

// An agent finds in its mailbox what it found then, whenever the messages come.
func TestLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		look := func(n int, texts ...string) Entry { return Entry{N: n, Kind: MailEntry, Agent: "a1", Texts: texts} }
		p := playerOf(look(1), look(2, "two", "one"), look(3, "three"))
		port, into := portOf(p, "a1", agent.Config{}), p.Log(&memory{})
		var mu sync.Mutex
		var have []agent.MailMessage // guarded by mu
		hold := func(list ...agent.MailMessage) {
			mu.Lock()
			defer mu.Unlock()
			have = list
		}
		take := func(want ...string) {
			t.Helper()
			got, err := port.Take(t.Context(), func() ([]agent.MailMessage, error) {
				mu.Lock()
				defer mu.Unlock()
				return have, nil
			})
			var texts []string
			for _, m := range got {
				texts = append(texts, m.Text)
			}
			if err != nil || strings.Join(texts, " ") != strings.Join(want, " ") {
				t.Errorf("found %q, want %q, %v", texts, want, err)
			}
		}
		one, three, two := agent.MailMessage{Seq: 1, Text: "one"}, agent.MailMessage{Seq: 2, Text: "three"}, agent.MailMessage{Seq: 3, Text: "two"}
		hold(one)
		take() // it comes too early
		time.AfterFunc(time.Second, func() {
			hold(one, three, two)
			_, _ = into.Append(context.Background(), lifecycle.Entry{Verb: task.Report})
		})
		take("two", "one")
		hold(three)
		take("three")
	})
}

func step(seq task.Seq, v task.Verb, r task.Record) Entry {
	return Entry{N: int(seq), Kind: EventEntry, Event: &task.Event{Seq: seq, Verb: v, Task: r}}
}

// What was done after a step of the log waits for this step, and is done if the step does not come for long.
func TestStepFirst(t *testing.T) {
	for name, tt := range map[string]struct{ comes, after time.Duration }{
		"comes": {comes: time.Second, after: time.Second},
		"lost":  {after: time.Minute / 8},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				child := task.Record{ID: "b7", Kind: task.LocalBash, Parent: "a1"}
				p := playerOf(step(1, task.Create, child), Entry{N: 2, Kind: MailEntry, Agent: "a1", After: 1})
				into := p.Log(&memory{})
				if tt.comes > 0 {
					time.AfterFunc(tt.comes, func() {
						_, _ = into.Append(context.Background(), lifecycle.Entry{Verb: task.Create, Task: child})
					})
				}
				began := time.Now()
				got, err := portOf(p, "a1", agent.Config{}).Take(t.Context(), func() ([]agent.MailMessage, error) { return nil, nil })
				if err != nil || len(got) > 0 {
					t.Errorf("found %v, %v", got, err)
				}
				if took := time.Since(began); took != tt.after {
					t.Errorf("it went on after %v, want %v", took, tt.after)
				}
			})
		})
	}
}

// An agent that has nothing more to do ends only when its child has begun, if it had begun then; and the child begins only
// after it has its new parent, if it had it then.
func TestBeginAndReparent(t *testing.T) {
	parent := task.Record{ID: "a1", Kind: task.LocalAgent}
	child, moved := task.Record{ID: "b7", Kind: task.LocalBash, Parent: "a1", ToolUseID: "t1"}, task.Record{ID: "b7", Kind: task.LocalBash}
	for name, tt := range map[string]struct {
		second, third Entry
		waits         bool // the look, for the begin
	}{
		"begins-first": {step(3, task.Begin, child), step(4, task.Reparent, moved), true},
		"moves-first":  {step(3, task.Reparent, moved), step(4, task.Begin, moved), false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := playerOf(step(1, task.Create, parent), step(2, task.Create, child),
					Entry{N: 9, Kind: MailEntry, Agent: "a1", After: 2}, tt.second, tt.third)
				into := p.Log(&memory{})
				comes := func(e Entry) {
					_, _ = into.Append(context.Background(), lifecycle.Entry{Verb: e.Event.Verb, Task: e.Event.Task})
				}
				comes(step(1, task.Create, parent))
				start := p.Prepare(bash{}, task.Spec{Parent: "a1", ToolUseID: "t1"})
				comes(step(2, task.Create, child))
				looked, ready := false, false
				go func() {
					_, _ = portOf(p, "a1", agent.Config{}).Take(t.Context(), func() ([]agent.MailMessage, error) { return nil, nil })
					looked = true
				}()
				go func() { start.Ready(t.Context()); ready = true }()
				synctest.Wait()
				if start.ID != "b7" || looked == tt.waits || ready != tt.waits {
					t.Errorf("%s: looked %v, may begin %v", start.ID, looked, ready)
				}
				comes(tt.second)
				synctest.Wait()
				if !looked || !ready {
					t.Errorf("after step 3: looked %v, may begin %v", looked, ready)
				}
				comes(tt.third)
			})
		})
	}
}

type bash struct{ task.Driver }

func (bash) Kind() task.Kind { return task.LocalBash }
