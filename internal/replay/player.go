package replay

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/internal/engine/supervise"
	"github.com/drover-dev/drover/internal/session/environment"
	"github.com/drover-dev/drover/task"
)

// Divergence is where a replay leaves the recording.
type Divergence struct{ Text string }

func (d *Divergence) Error() string { return "the replay differs from the recording: " + d.Text }

// Config is how a recording is played.
type Config struct {
	Recording *Recording
	Session   task.ID       // of the replay
	Names     Names         // of the replay
	Speed     float64       // 1: as recorded; 0: as fast as it goes
	Patience  time.Duration // how long the next entry is waited for while nothing else happens
	Diverged  func(error)   // called once, by any goroutine; nil: nobody needs to know

	// Until is the number of the call of a tool, in the order in which they ended, after which the run continues
	// live; 0: everything is played. See [Recording.Until].
	Until int
}

// Player is the [environment.Seam] of a session that plays a recording, once. Agents, messages and workflows of the
// session are real; other tasks print what they printed and end as they ended, and what agents got from outside
// they get again. With [Config.Until] what was not recorded by then is real. The methods may be called by several
// goroutines.
type Player struct {
	order
	c     Config
	names Names // of the recording
	live  bool  // what was not recorded is real

	// Of the recording, by task; they never change.
	ends    map[task.ID][]*end // one for each run
	begun   map[task.ID]*turn  // others have ended without
	told    map[task.ID][]task.Message
	outputs map[task.ID]Entry
	made    map[string]task.ID // tasks by parent and call

	play   sync.Mutex
	parts  map[task.ID]*part  // by agent; guarded by play, like the rest
	posts  map[string][]*turn // messages that have not been sent yet
	runs   map[task.ID]int    // that have begun
	starts map[string]int
}

// part is what one agent gets from outside, in the order in which it asks. It is guarded by the player's play.
type part struct {
	calls    []Entry
	tools    map[string][]Entry // calls by their IDs, of which some providers use one again
	looks    []Entry            // into the mailbox
	texts    map[string][]Entry // by their sort
	turns    map[int]*turn      // by number of the entry
	specs    []agent.ToolSpec
	deferred []string
	window   *Window // nil: not recorded

	called, messages int
}

// end is how a run of a task that is no agent has ended.
type end struct {
	rec  task.Record
	text string // its answer, where that is no output
	turn *turn  // nil: somebody has ended it
}

// NewPlayer prepares a recording.
func NewPlayer(c Config) *Player {
	p := &Player{c: c, names: NamesOf(c.Recording.Head), live: c.Until > 0, ends: map[task.ID][]*end{},
		begun: map[task.ID]*turn{}, told: map[task.ID][]task.Message{}, outputs: map[task.ID]Entry{},
		made: map[string]task.ID{}, parts: map[task.ID]*part{}, posts: map[string][]*turn{}, runs: map[task.ID]int{},
		starts: map[string]int{}}
	p.order = order{speed: c.Speed, patience: c.Patience, begin: time.Now(), diverged: c.Diverged,
		moved: make(chan struct{}), came: map[string]int{}, astray: map[task.ID]bool{}}
	all := p.take(c.Recording.Until(c.Until))
	arranged(all)
	late(all)
	for i, one := range all {
		one.n = i
		p.turns = append(p.turns, one.turn)
	}
	return p
}

// take sorts the entries by who asks for them, and returns those that have a place in the order.
func (p *Player) take(entries []Entry) (all []placed) {
	starts, kinds := map[string]int{}, map[task.ID]task.Kind{}
	input := func(a *part, e Entry, at Point, must bool, format string, v ...any) {
		t := &turn{ms: at.MS, what: fmt.Sprintf(format, v...)}
		if !must {
			t.of = p.who(e.Agent)
		}
		a.turns[e.N] = t
		all = append(all, placed{turn: t, after: at.After, input: true, by: p.who(e.Agent)})
	}
	for _, e := range inOrder(entries) {
		a, then := p.part(e.Agent), Point{e.MS, e.After}
		switch e.Kind {
		case AgentEntry:
			a.specs, a.deferred, a.window = e.Tools, e.Deferred, e.Window
		case CallEntry:
			for len(a.calls) < e.Call { // calls that overlap end in any order
				a.calls = append(a.calls, Entry{})
			}
			a.calls[e.Call-1] = e
			if e.Failure == nil || !e.Failure.Interrupted {
				input(a, e, then, true, "answer %d of the model to agent %s", e.Call, p.called(e.Agent))
			}
		case ToolEntry:
			a.tools[e.Tool.ID] = append(a.tools[e.Tool.ID], e)
			input(a, e, *e.Decided, false, "the decision on call %s of agent %s", e.Tool.ID, p.called(e.Agent))
		case MailEntry:
			a.looks = append(a.looks, e)
			input(a, e, then, false, "a look of agent %s into its mailbox", p.called(e.Agent))
		case TextEntry:
			a.texts[e.What] = append(a.texts[e.What], e)
		case OutputEntry:
			p.outputs[e.Task] = e
		case MessageEntry:
			m := e.Message
			t := &turn{ms: e.MS, what: fmt.Sprintf("a message of %s to %s", m.From, p.called(m.To)), step: p.post(*m)}
			p.posts[t.step] = append(p.posts[t.step], t)
			if k, ok := kinds[task.ID(m.From)]; ok && played(k) {
				p.told[task.ID(m.From)] = append(p.told[task.ID(m.From)], *m)
			}
			all = append(all, placed{turn: t, after: m.Seq, message: m})
		case EventEntry:
			r := e.Event.Task
			kinds[r.ID] = r.Kind
			if e.Event.Verb == task.Create {
				p.made[startKey(starts, p.main(r.Parent), r.Kind, r.ToolUseID, r.Key)] = r.ID
			}
			t := &turn{ms: e.Event.At.Sub(p.c.Recording.Head.Created).Milliseconds(), step: p.change(e.Event.Verb, r),
				of: p.who(r.ID)}
			if e.Event.Verb == task.Begin && p.begun[r.ID] == nil {
				p.begun[r.ID] = t
			}
			if r.Status.Terminal() && played(r.Kind) && e.Event.Verb != task.MarkSeen {
				x := &end{rec: r, text: strings.Join(e.Texts, "")}
				if endsItself(r.Cause) {
					t.what, t.of, x.turn = fmt.Sprintf("the end of task %s", r.ID), "", t
				}
				p.ends[r.ID] = append(p.ends[r.ID], x)
			}
			if t.step != "" {
				all = append(all, placed{turn: t, after: e.Event.Seq, event: e.Event})
			}
		}
	}
	return all
}

func (p *Player) part(id task.ID) *part {
	id = p.main(id)
	a := p.parts[id]
	if a == nil {
		a = &part{tools: map[string][]Entry{}, texts: map[string][]Entry{}, turns: map[int]*turn{}}
		p.parts[id] = a
	}
	return a
}

// known returns the part of an agent; nil: it was not recorded.
func (p *Player) known(id task.ID) *part {
	p.play.Lock()
	defer p.play.Unlock()
	return p.parts[p.main(id)]
}

// main is empty for the main agent of the recording and of the replay, which have different IDs.
func (p *Player) main(id task.ID) task.ID {
	if id == p.c.Recording.Head.Session || id == p.c.Session {
		return ""
	}
	return id
}

// who is a task or an agent in the order.
func (p *Player) who(id task.ID) task.ID { return cmp.Or(p.main(id), "main") }

// called is an agent in a text for people.
func (p *Player) called(id task.ID) string { return string(p.who(id)) }

// change is the step that a change of a task is; empty: a replay has it at another time, or not at all.
func (p *Player) change(v task.Verb, r task.Record) string {
	switch v {
	case task.Create, task.Begin, task.Rest, task.Wake, task.Background, task.RequestStop, task.Complete, task.Fail,
		task.Stop, task.Resume, task.Reparent:
		return fmt.Sprintf("%s %s", v, p.who(r.ID))
	}
	return ""
}

// post is the step that a message is.
func (p *Player) post(m task.Message) string {
	return fmt.Sprintf("%s from %s to %s", m.Kind, p.who(task.ID(m.From)), p.who(m.To))
}

// played reports whether the work of tasks of the kind is played; agents and workflows work.
func played(k task.Kind) bool { return !k.IsAgent() && k.Traits().Work != task.BySteps }

// endsItself reports whether the work of a task has ended without somebody who ends it.
func endsItself(c *task.Cause) bool {
	if c == nil || c.Actor == task.ByItself {
		return true
	}
	switch c.Reason {
	case task.ReasonOutputLimit, task.ReasonOutputQuota, task.ReasonOutputLoop, task.ReasonProcessLimit:
		return true
	}
	return false
}

// startKey names a start: by its parent, kind, call and key, and the number of starts with the same.
func startKey(seen map[string]int, parent task.ID, k task.Kind, call, key string) string {
	name := strings.Join([]string{string(parent), string(k), call, key}, "\x00")
	seen[name]++
	return fmt.Sprint(name, "\x00", seen[name])
}

// Err returns where the replay has left the recording.
func (p *Player) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// Missing names the first thing that was recorded and has not happened; empty: nothing is missing.
func (p *Player) Missing() string { return p.missing() }

func (p *Player) Texts(_ context.Context, id task.ID, what string, get func() ([]string, error)) ([]string, error) {
	e, ok := p.text(id, what)
	switch {
	case !ok && p.live:
		return get()
	case !ok && what == environment.WorktreeTexts:
		return nil, p.diverge("agent %s works in a worktree of its own, and none was recorded", p.called(id))
	case !ok && what == environment.LeftTexts: // its agent was at work when the recording ended
		raw, err := json.Marshal(task.Worktree{Removed: true})
		return []string{string(raw)}, err
	case !ok:
		return get()
	case e.Failure != nil:
		return nil, errors.New(e.Failure.Text)
	}
	return e.Texts, nil
}

// text is the next of the texts of an agent. A run that continues live reads from the start what its place says
// today.
func (p *Player) text(id task.ID, what string) (e Entry, ok bool) {
	p.play.Lock()
	defer p.play.Unlock()
	a := p.parts[p.main(id)]
	if a == nil || len(a.texts[what]) == 0 {
		return e, false
	}
	switch what {
	case environment.StartTexts, environment.PromptTexts, environment.WorktreeTexts, environment.LeftTexts,
		agent.CompactTexts, agent.RestoreTexts:
		if p.live {
			return e, false
		}
	}
	e, a.texts[what] = a.texts[what][0], a.texts[what][1:]
	return e, true
}

// Prepare implements [environment.Seam]: it gives a task its recorded ID and the place of its begin, and what
// is no agent and no workflow its recorded output and end instead of work.
func (p *Player) Prepare(d task.Driver, spec task.Spec) supervise.Prepared {
	if spec.ID != "" { // of the session itself
		return supervise.Prepared{Driver: d}
	}
	p.play.Lock()
	id := p.made[startKey(p.starts, p.main(spec.Parent), d.Kind(), spec.ToolUseID, spec.Key)]
	p.play.Unlock()
	start := supervise.Prepared{Driver: d, ID: id}
	begun := p.begun[id]
	if begun != nil {
		start.Ready = func(ctx context.Context) { _ = p.await(ctx, begun) } // a divergence ends the session
	}
	switch a := p.known(id); {
	case d.Kind().IsAgent() && id != "" && !p.live && (a == nil || len(a.calls) == 0): // its program would be started
		_ = p.diverge("no call of the model of agent %s was recorded: it is of another vendor, "+
			"or ended before its first one", id)
		start.Driver = &driver{p, d}
	case !played(d.Kind()):
	case p.live && (id == "" || len(p.ends[id]) == 0): // it had not ended, or not begun, by then: it runs
	case begun == nil:
		start.Driver = &unbegun{driver{p, d}}
	default:
		start.Driver = &driver{p, d}
	}
	return start
}

func (p *Player) Log(log environment.Log) supervise.Log {
	return playedLog{heard{log, func(_ task.Seq, e lifecycle.Entry) { p.step(p.change(e.Verb, e.Task)) }}, p}
}

// playedLog says what has come into the log, and lets messages into it in the recorded order.
type playedLog struct {
	heard
	p *Player
}

// Post writes a message when its turn has come. What was not recorded is written at once: agents that go on
// live send it.
func (l playedLog) Post(ctx context.Context, m task.Message) (task.Seq, error) {
	p, what := l.p, l.p.post(m)
	p.play.Lock()
	turns := p.posts[what]
	if len(turns) > 0 {
		p.posts[what] = turns[1:]
	}
	p.play.Unlock()
	if len(turns) == 0 {
		defer p.step("") // who waits for mail looks again
		return l.Log.Post(ctx, m)
	}
	if err := p.await(ctx, turns[0]); err != nil {
		return 0, err
	}
	seq, err := l.Log.Post(ctx, m)
	if err == nil {
		p.step(what)
	}
	return seq, err
}

// driver prints the recorded output, and ends as recorded.
type driver struct {
	p    *Player
	next task.Driver
}

// unbegun is work that could not be started, and has ended without having begun.
type unbegun struct{ driver }

func (*unbegun) Launches() {}

func (d *driver) Kind() task.Kind                   { return d.next.Kind() }
func (d *driver) Check(input json.RawMessage) error { return d.next.Check(input) }

// Steer takes a message for the work, which has answered it already.
func (d *driver) Steer(context.Context, task.ID, string) error { return nil }

func (d *driver) Run(ctx context.Context, h task.Host) (task.Result, error) {
	p, rec := d.p, h.Record()
	p.play.Lock()
	n := p.runs[rec.ID]
	p.runs[rec.ID]++
	p.play.Unlock()
	if n >= len(p.ends[rec.ID]) {
		return task.Result{}, p.diverge("a task begins that was not recorded: %s (%s)", rec.ID,
			cmp.Or(rec.Command, rec.Description))
	}
	was := p.ends[rec.ID][n]
	if n == 0 {
		if _, err := h.Output().Write(p.outputs[rec.ID].Data); err != nil {
			return task.Result{}, err
		}
	}
	for _, m := range p.told[rec.ID] {
		if err := h.Tell(ctx, m.Kind, m.Text, m.Priority); err != nil {
			return task.Result{}, err
		}
	}
	res := task.Result{ExitCode: was.rec.ExitCode, Usage: was.rec.Usage, Text: was.text}
	if c := was.rec.Cause; c != nil {
		res.Signal = c.Signal
	}
	if was.rec.Progress != nil {
		h.Progress(*was.rec.Progress)
	}
	if was.turn == nil {
		<-ctx.Done()
		return res, context.Cause(ctx)
	}
	if err := p.await(ctx, was.turn); err != nil || was.rec.Status == task.Completed {
		return res, err
	}
	fail := &task.FailError{Reason: task.ReasonError, Err: errors.New(cmp.Or(was.rec.Error, "it has failed"))}
	if was.rec.Cause != nil {
		fail.Reason = was.rec.Cause.Reason
	}
	return res, fail
}
