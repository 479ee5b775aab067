package activity

import (
	"context"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/options"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tasks are those of a session in which nothing runs.
type tasks struct {
	posted []task.Message
}

func (*tasks) Living() func(func(task.Seq, task.Record) bool) {
	return func(func(task.Seq, task.Record) bool) {}
}
func (*tasks) Get(task.ID) (task.Record, bool)                  { return task.Record{}, false }
func (*tasks) Summarize(context.Context, task.ID, string) error { return nil }
func (s *tasks) Post(_ context.Context, m task.Message) (task.Seq, error) {
	s.posted = append(s.posted, m)
	return task.Seq(len(s.posted)), nil
}

// watch is one that was not started.
func watch(t *testing.T, opt options.Options) (*Watch, *tasks) {
	t.Helper()
	s := &tasks{}
	place := home.At(t.TempDir()).Project(t.TempDir()).Session(task.NewSessionID())
	if err := place.Ensure(); err != nil {
		t.Fatal(err)
	}
	return New(s, nil, place, opt), s
}

// patient is an agent that is looked at as a watch does.
type patient struct {
	a *Agent
	l look
	r task.Record
}

const silentAfter = 5 * time.Minute

// look is whether it is told of, at one look.
func (p *patient) look() (told bool) {
	told, _ = p.l.silent(time.Now(), p.r, p.a.signs.Load(), p.a.works(), silentAfter)
	return told
}

// told is how often it is told of within a time, while between two looks something is
// done.
func (p *patient) told(d time.Duration, between func()) (n int) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(silentAfter / looks) {
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
			p.a.on(agent.Event{Kind: agent.PartEvent})
			if told, again := p.l.silent(time.Now(), p.r, p.a.signs.Load(), true, silentAfter); told || !again {
				t.Errorf("heard again: told %v, again %v", told, again)
			}
			if n := p.told(time.Hour, nothing); n != 1 {
				t.Errorf("told %d times of a second silence", n)
			}
		},
		"beats": func(t *testing.T, p *patient) {
			if n := p.told(time.Hour, func() { p.a.on(agent.Event{Kind: agent.PartEvent}) }); n != 0 {
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
			p.a.on(agent.Event{Kind: agent.TurnDoneEvent})
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
			child := &Agent{above: p.a, turn: true}
			p.a.on(agent.Event{Kind: agent.ToolStartEvent, Call: agent.Call{ID: "1", Name: "Agent"}})
			if n := p.told(time.Hour, child.sign); n != 0 {
				t.Errorf("told %d times while it waits for the child", n)
			}
			if n := p.told(time.Hour, nothing); n != 1 {
				t.Errorf("told %d times of both", n)
			}
			p.a.on(agent.Event{Kind: agent.ToolDoneEvent, Call: agent.Call{ID: "1", Name: "Agent"}})
			if n := p.told(time.Hour, child.sign); n != 1 {
				t.Errorf("told %d times while it waits for its model, and the child works", n)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &patient{a: &Agent{}, r: task.Record{Kind: task.LocalAgent, Status: task.Running}}
				p.a.on(agent.Event{Kind: agent.TurnStartEvent})
				test(t, p)
			})
		})
	}
}

// What is no agent speaks for the one that waits for it, by what it prints and reports;
// what stands still for a reason does so at each look.
func TestSpeaks(t *testing.T) {
	var l look
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
		if got := l.speaks(r, func(task.Record) int64 { return size }); got != c.want {
			t.Errorf("look %d: %v", i, got)
		}
	}
}

// A notification says what the agent is in.
func TestSilentWithin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &Agent{turn: true}
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
			a.on(c.e)
			time.Sleep(3 * time.Minute)
			if got := a.doing("m-1"); got != c.want {
				t.Errorf("after %v: %q, want %q", c.e.Kind, got, c.want)
			}
		}
	})
}

// An agent in a call is heard by a command below it that prints, and by a child that
// waits for its turn; one that waits for its model is not.
func TestListen(t *testing.T) {
	w, _ := watch(t, options.Options{Agents: options.Agents{StallAfter: time.Hour}})
	a := w.Begin("a00000001", "", true)
	command := task.Record{ID: "b00000000", Kind: task.LocalBash, Status: task.Running, Parent: "a00000001", OutputFile: w.place.Output("b00000000")}
	child := task.Record{ID: "a00000002", Kind: task.LocalAgent, Status: task.Pending, Parent: "a00000001"}
	var l *look
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
		a.calling.Store(c.calls)
		before := a.signs.Load()
		l = w.lookAtAgent(l, command)
		if c.child {
			w.lookAtAgent(nil, child)
		}
		if got := a.signs.Load() != before; got != c.heard {
			t.Errorf("look %d: heard %v", i, got)
		}
	}
}

// BenchmarkBeat is what a piece of a reply costs, three agents deep.
func BenchmarkBeat(b *testing.B) {
	a := &Agent{}
	for range 2 {
		a.calling.Store(1)
		a = &Agent{above: a}
	}
	for b.Loop() {
		a.on(agent.Event{Kind: agent.PartEvent})
	}
}
