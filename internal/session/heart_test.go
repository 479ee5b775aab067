package session

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/model/modeltest"
	"github.com/drover-dev/drover/internal/tool/tasktools"
	"github.com/drover-dev/drover/task"
)

// patient is an agent that is looked at as the session does.
type patient struct {
	h *heart
	t trace
	r task.Record
}

const silentAfter = 5 * time.Minute

// look is whether it is told of, at one look.
func (p *patient) look() (told bool) {
	told, _ = p.t.silent(time.Now(), p.r, p.h.beats.Load(), p.h.works(), silentAfter)
	return told
}

// told is how often it is told of within a time, while between two looks something is
// done.
func (p *patient) told(d time.Duration, between func()) (n int) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(silentAfter / stallLooks) {
		if between(); p.look() {
			n++
		}
	}
	return n
}

// An agent in a turn of which nothing is heard is told of once, and again only after it
// was heard. What waits for somebody, or for a child that is heard, is not silent, and
// time in which nobody looked does not count.
func TestSilent(t *testing.T) {
	nothing := func() {}
	for name, test := range map[string]func(*testing.T, *patient){
		"once": func(t *testing.T, p *patient) {
			if n := p.told(time.Hour, nothing); n != 1 {
				t.Errorf("told %d times", n)
			}
			p.h.on(agent.Event{Kind: agent.PartEvent})
			if told, again := p.t.silent(time.Now(), p.r, p.h.beats.Load(), true, silentAfter); told || !again {
				t.Errorf("heard again: told %v, again %v", told, again)
			}
			if n := p.told(time.Hour, nothing); n != 1 {
				t.Errorf("told %d times of a second silence", n)
			}
		},
		"beats": func(t *testing.T, p *patient) {
			if n := p.told(time.Hour, func() { p.h.on(agent.Event{Kind: agent.PartEvent}) }); n != 0 {
				t.Errorf("told %d times", n)
			}
		},
		"not too early": func(t *testing.T, p *patient) {
			if n := p.told(silentAfter, nothing); n != 0 {
				t.Errorf("told %d times", n)
			}
		},
		"waits": func(t *testing.T, p *patient) {
			for what, set := range map[string]func(r *task.Record){
				"asks": func(r *task.Record) { r.AwaitingApproval = true }, "paused": func(r *task.Record) { r.Paused = true },
				"rests": func(r *task.Record) { r.Idle = true }, "stops": func(r *task.Record) { r.Stopping = true }, "queued": func(r *task.Record) { r.Status = task.Pending },
			} {
				was := p.r
				set(&p.r)
				if n := p.told(time.Hour, nothing); n != 0 {
					t.Errorf("%s: told %d times", what, n)
				}
				p.r = was
				if n := p.told(silentAfter, nothing); n != 0 {
					t.Errorf("told %d times behind it: %s", n, what)
				}
			}
		},
		"between turns": func(t *testing.T, p *patient) {
			p.h.on(agent.Event{Kind: agent.TurnDoneEvent})
			if n := p.told(time.Hour, nothing); n != 0 {
				t.Errorf("told %d times", n)
			}
		},
		"asleep": func(t *testing.T, p *patient) {
			for range 10 {
				if n := p.told(silentAfter/2, nothing); n != 0 {
					t.Errorf("told %d times", n)
				}
				time.Sleep(8 * time.Hour)
			}
		},
		"a child works": func(t *testing.T, p *patient) {
			child := &heart{above: p.h, turn: true}
			p.h.on(agent.Event{Kind: agent.ToolStartEvent, Call: agent.Call{ID: "1", Name: "Agent"}})
			if n := p.told(time.Hour, child.beat); n != 0 {
				t.Errorf("told %d times while it waits for the child", n)
			}
			if n := p.told(time.Hour, nothing); n != 1 {
				t.Errorf("told %d times of both", n)
			}
			p.h.on(agent.Event{Kind: agent.ToolDoneEvent, Call: agent.Call{ID: "1", Name: "Agent"}})
			if n := p.told(time.Hour, child.beat); n != 1 {
				t.Errorf("told %d times while it waits for its model, and the child works", n)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &patient{h: &heart{}, r: task.Record{Kind: task.LocalAgent, Status: task.Running}}
				p.h.on(agent.Event{Kind: agent.TurnStartEvent})
				test(t, p)
			})
		})
	}
}

// What is no agent speaks for the one that waits for it, by what it prints and reports;
// what stands still for a reason does so at each look.
func TestSpeaks(t *testing.T) {
	var tr trace
	size := int64(0)
	r := task.Record{Kind: task.LocalBash, Status: task.Running, Parent: "a00000000"}
	for i, c := range []struct {
		do   func()
		want bool
	}{
		{func() {}, false}, {func() { size = 5 }, true}, {func() {}, false},
		{func() { r.Progress = &task.Progress{} }, true}, {func() {}, false},
		{func() { r.Paused = true }, true}, {func() {}, true}, {func() { r.Paused = false }, false},
		{func() { r.Kind = task.LocalAgent; size = 9 }, false}, {func() { r.AwaitingApproval = true }, true},
		{func() { r.AwaitingApproval = false; r.Status = task.Pending }, true},
	} {
		c.do()
		if got := tr.speaks(r, func(task.Record) int64 { return size }); got != c.want {
			t.Errorf("look %d: %v", i, got)
		}
	}
}

// A notice says what the agent is in.
func TestSilentWithin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &heart{turn: true}
		for _, c := range []struct {
			e    agent.Event
			want string
		}{
			{agent.Event{Kind: agent.PartEvent}, "has not begun yet"},
			{agent.Event{Kind: agent.TurnStartEvent}, "waits for model m-1"},
			{agent.Event{Kind: agent.CompactStartEvent}, "sums up its conversation"},
			{agent.Event{Kind: agent.CompactEvent}, "waits for model m-1"},
			{agent.Event{Kind: agent.ReplyDoneEvent, Reply: &agent.Reply{Blocks: []agent.Block{{Type: "text"}, {Type: "tool_use"}, {Type: "tool_use"}}}},
				"is about to call a tool, which hooks and rules have to pass"},
			{agent.Event{Kind: agent.ToolStartEvent, Call: agent.Call{ID: "1", Name: "Bash"}}, "is in a call of Bash that began 3m0s ago"},
			{agent.Event{Kind: agent.ToolStartEvent, Call: agent.Call{ID: "2", Name: "Read"}}, "is in a call of Bash that began 6m0s ago, and in 1 more"},
			{agent.Event{Kind: agent.ToolDoneEvent, Call: agent.Call{ID: "1"}}, "is in a call of Read that began 6m0s ago"},
			{agent.Event{Kind: agent.ToolDoneEvent, Call: agent.Call{ID: "2"}}, "waits for model m-1"},
		} {
			h.on(c.e)
			time.Sleep(3 * time.Minute)
			if got := h.within("m-1"); got != c.want {
				t.Errorf("after %v: %q, want %q", c.e.Kind, got, c.want)
			}
		}
	})
}

// The owner of an agent whose provider holds its answer is told once; the record says
// since when nothing was heard, the log does not, and what was heard of ended runs is
// forgotten.
func TestSilentProvider(t *testing.T) {
	asked, hold := make(chan struct{}), make(chan struct{})
	r, _ := served(t, func(context.Context, *modeltest.Request) modeltest.Answer {
		close(asked)
		a := modeltest.Text("at last")
		a.Wait = hold
		return a
	}, func(c *Config) { c.Agents.StallAfter = 100 * time.Millisecond })
	out, err := r.asMain().Agent(r.ctx, tasktools.AgentRequest{Description: "looks", Prompt: "look", Type: "explore", Background: true})
	if err != nil {
		t.Fatal(err)
	}
	id := out.Task.ID
	<-asked
	box, err := r.box(r.ctx, r.cfg.Info.Session)
	if err != nil {
		t.Fatal(err)
	}
	if err := box.Wait(r.ctx); err != nil {
		t.Fatal(err)
	}
	told := r.stalls()
	if len(told) != 1 || told[0].Message.From != string(id) || told[0].Message.Priority != task.Next {
		t.Fatalf("told %+v", told)
	}
	for _, want := range []string{`Agent "looks" is silent`, "for 100ms", "It waits for model", "SendMessage to " + string(id)} {
		if !strings.Contains(told[0].Message.Text, want) {
			t.Errorf("without %q: %q", want, told[0].Message.Text)
		}
	}
	now, err := r.Get(r.ctx, string(id))
	if err != nil || now.LastHeard == nil || now.LastHeard.Before(now.CreateTime) || time.Since(*now.LastHeard) < 100*time.Millisecond {
		t.Errorf("last heard %v, %v", now.LastHeard, err)
	}
	if now.Progress == nil || !strings.HasPrefix(now.Progress.Summary, "Silent for 100ms: it waits for model") {
		t.Errorf("the record: %+v", now.Progress)
	}
	close(hold)
	if end := r.wait(string(id))[0]; end.Status != task.Completed {
		t.Errorf("it ended %s", end.Status)
	}
	if got, err := r.Get(r.ctx, string(id)); err != nil || got.LastHeard != nil || len(r.hearts.of) != 0 {
		t.Errorf("after its end: %v, %v, %d hearts", got.LastHeard, err, len(r.hearts.of))
	}
	if n := len(r.stalls()); n != 1 {
		t.Errorf("told %d times", n)
	}
	events, err := r.Since(r.ctx, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		if data, err := json.Marshal(e); err != nil || strings.Contains(string(data), "last_heard") {
			t.Errorf("the log holds %s, %v", data, err)
		}
	}
}

// A detached conversation has no owner: its record says that it is silent, and no longer
// when it is heard of again.
func TestSilentMain(t *testing.T) {
	hold, heard, again := make(chan struct{}), make(chan struct{}), make(chan struct{})
	asked := 0
	r, _ := served(t, func(_ context.Context, q *modeltest.Request) modeltest.Answer {
		asked++ // the same call again and again would end the turn
		a := modeltest.Call("report_intent", map[string]string{"intent": fmt.Sprintf("Looking on, %d", asked)})
		a.Wait = hold
		if !strings.Contains(string(q.Body), "Looking on") {
			return a
		}
		select {
		case <-heard:
			a = modeltest.Text("done")
			a.Wait = again
		default: // it is busy until that was seen
			a.Wait = pause(50 * time.Millisecond)
		}
		return a
	}, func(c *Config) { c.Agents.StallAfter = 500 * time.Millisecond })
	m, err := r.OpenMain(r.ctx, MainConfig{})
	if err != nil {
		t.Fatal(err)
	}
	rec, err := r.StartMain(r.ctx, m, "go", time.Second)
	if err != nil {
		t.Fatal(err)
	}
	next, stop := iter.Pull2(r.Events(r.ctx, 0)) // each in turn: what a record says while nobody looks is not missed
	defer stop()
	const silence = "Silent for 500ms: it waits for model"
	says := func(silent bool) {
		t.Helper()
		for {
			e, err, _ := next()
			if err != nil {
				t.Fatalf("the record never says that silence is %v: %v", silent, err)
			}
			if p := e.Task.Progress; e.Task.ID == rec.ID && p != nil && p.Summary != "" && strings.Contains(p.Summary, silence) == silent {
				return
			}
		}
	}
	says(true)
	close(hold)
	says(false) // that it is heard of again, or what it does
	close(heard)
	says(true)
	close(again)
	if end := r.wait(string(rec.ID))[0]; end.Status != task.Completed || len(r.stalls()) != 0 {
		t.Errorf("it ended %s, and told %+v", end.Status, r.stalls())
	}
}

// pause is closed after a while.
func pause(d time.Duration) <-chan struct{} {
	over := make(chan struct{})
	time.AfterFunc(d, func() { close(over) })
	return over
}

// The step of a workflow has no owner: that of the workflow is told, and of the agent
// that a silent one waits for in the foreground nobody is.
func TestSilentStep(t *testing.T) {
	hold := make(chan struct{})
	r, server := served(t, func(_ context.Context, q *modeltest.Request) modeltest.Answer {
		last := q.LastText()
		switch {
		case q.Agent() == "plan":
			a := modeltest.Text("seen")
			a.Wait = hold
			return a
		case q.Agent() == "general-purpose" && !strings.Contains(last, "seen"):
			return modeltest.Call("Agent", map[string]any{"subagent_type": "plan", "prompt": "look closer", "description": "closer"})
		case strings.Contains(last, "is silent"):
			close(hold)
		case strings.HasSuffix(last, "\ngo"):
			return modeltest.Call("Workflow", map[string]any{"file": "w.yaml"})
		}
		return modeltest.Text("well")
	}, func(c *Config) { c.Agents.StallAfter = 300 * time.Millisecond })
	if err := os.WriteFile(filepath.Join(r.folder, "w.yaml"), []byte("name: w\nsteps:\n  - {id: look, agent: {type: general-purpose, prompt: look}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := converse(r)
	c.say("go")
	for range 3 { // the prompt, the silence, the end
		c.next()
	}
	told := ""
	for _, q := range of(server, "main") {
		if text := q.LastText(); strings.Contains(text, "is silent") {
			told += text
		}
	}
	if strings.Count(told, "is silent") != 1 || !strings.Contains(told, `Agent "step look of w" is silent`) || !strings.Contains(told, "It is in a call of Agent that began ") {
		t.Errorf("the owner was told %q", told)
	}
}

// An agent in a call is heard by a command below it that prints, and by a child that
// waits for its turn; one that waits for its model is not.
func TestListen(t *testing.T) {
	r := open(t, "", func(c *Config) { c.Agents.StallAfter = time.Hour })
	h := r.beginHeart("a00000001", "", true)
	command := task.Record{ID: "b00000000", Kind: task.LocalBash, Status: task.Running, Parent: "a00000001", OutputFile: r.cfg.Place.Output("b00000000")}
	child := task.Record{ID: "a00000002", Kind: task.LocalAgent, Status: task.Pending, Parent: "a00000001"}
	var tr *trace
	for i, c := range []struct {
		prints string
		calls  int32
		child  bool
		heard  bool
	}{
		{"", 1, false, false}, {"x", 1, false, true}, {"", 1, false, false}, {"", 1, true, true}, {"x", 0, true, false},
	} {
		if c.prints != "" {
			f, err := os.OpenFile(command.OutputFile, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.WriteString(c.prints); err != nil || f.Close() != nil {
				t.Fatal(err)
			}
		}
		h.calling.Store(c.calls)
		before := h.beats.Load()
		tr = r.listen(tr, command)
		if c.child {
			r.listen(nil, child)
		}
		if got := h.beats.Load() != before; got != c.heard {
			t.Errorf("look %d: heard %v", i, got)
		}
	}
}

// BenchmarkBeat is what a piece of a reply costs, three agents deep.
func BenchmarkBeat(b *testing.B) {
	h := &heart{}
	for range 2 {
		h.calling.Store(1)
		h = &heart{above: h}
	}
	for b.Loop() {
		h.on(agent.Event{Kind: agent.PartEvent})
	}
}
