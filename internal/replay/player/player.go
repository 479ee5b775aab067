// Package player plays a recording: models, tools and rules answer as they were recorded, and
// commands print what they printed then. No process is run, no file is written, and no model is
// asked.
//
// The session around it is a real one. What was answered by models, and what ended by itself, is
// let through in the recorded order, so that the events of the session come as in the original.
// What does not come, or comes otherwise, is a [Divergence]. It is let through when the log has what
// it had then, so that a slow start of a task or end of an agent changes nothing.
//
// With [Config.Until] only the begin of a recording is played, up to the end of a call of a tool, and the run
// goes on live from there: what was not recorded by then is asked of the real models, tools and rules.
package player

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/replay/recording"
	"github.com/drover-dev/drover/task"
)

// Divergence is where a replay leaves the recording.
type Divergence struct{ Text string }

func (d *Divergence) Error() string { return "the replay differs from the recording: " + d.Text }

// Config is how a recording is played.
type Config struct {
	Recording *recording.Recording
	Session   task.ID         // of the replay
	Names     recording.Names // of the replay
	Speed     float64         // 1: as recorded; 0: as fast as it goes
	Patience  time.Duration   // how long the next entry is waited for while nothing else happens
	Diverged  func(error)     // is told once, by any goroutine

	// Until is the number of the call of a tool, in the order in which they ended, behind which the run goes on
	// live; 0: everything is played. See [recording.Recording.Until].
	Until int
}

// Player plays one recording once. Its methods may be called by several goroutines.
type Player struct {
	c     Config
	names recording.Names // of the recording
	begin time.Time
	live  bool // what was not recorded is real

	byAgent map[task.ID]*part           // never changes
	ends    map[task.ID][]*end          // by task, one for each run; never changes
	made    map[string]task.ID          // tasks by parent and call
	begun   map[task.ID]bool            // others have ended without; never changes
	told    map[task.ID][]said          // by task; never changes
	sent    map[letter][]*turn          // that have not been sent yet; guarded by mu
	outputs map[task.ID]recording.Entry // never changes

	commands []recording.Entry // never changes

	placed map[int]*turn // of entries by their numbers; never changes

	mu       sync.Mutex
	command  int     // of commands, that is next
	order    []*turn // what is let through or comes by itself, in this order
	next     int     // of order
	passed   chan struct{}
	came     map[step]int     // steps of the log that have come before their place
	astray   map[task.ID]bool // tasks and agents of which something did not come
	runs     map[task.ID]int  // that have begun
	starts   map[string]int
	diverged error
	log      Log // nil: the session is not open yet

	reading sync.Mutex
	read    task.Seq // of the log; guarded by reading
}

// Log is the log of the session.
type Log interface {
	Grown() <-chan struct{} // closed when it has more
	Since(ctx context.Context, after task.Seq) ([]task.Event, error)
}

// Open gives the player the log of the session.
func (p *Player) Open(log Log) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.log = log
}

// grown returns a channel that is closed when the log has more; nil: the session is not open yet.
func (p *Player) grown() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.log == nil {
		return nil
	}
	return p.log.Grown()
}

// part is what one agent is given.
type part struct {
	calls     []recording.Entry
	turns     []*turn // of the calls; nil: it was interrupted
	tools     []agent.ToolSpec
	deferred  []string
	window    *recording.Window // nil: not recorded
	gates     byCall            // decisions
	results   byCall            // of tools
	mail      []recording.Entry
	found     map[int]recording.Entry // by turn: what there was after it; not in recordings of earlier versions
	reminders []recording.Entry
	stops     []recording.Entry
	batches   []recording.Entry
	texts     map[string][]recording.Entry // by what they are
	trees     []recording.Entry
	left      []recording.Entry

	// Guarded by the player's mu.
	called, messages, reminded, stopped, batched, opened, ended int
	read                                                        map[string]int // of texts

	begun  int  // turns
	inTurn bool // the last of them has not ended

	sure map[int64]int // which recorded message each message is; only of its mailbox
}

// byCall are entries of calls of tools by their IDs, of which some providers use one again.
type byCall map[string][]recording.Entry

func (r byCall) add(e recording.Entry) { r[e.Tool.ID] = append(r[e.Tool.ID], e) }

// first is the entry of a call; done says that it is over, and the next one with its ID is another.
func (s speaker) first(r byCall, id string, done bool) (recording.Entry, bool) {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	all := r[id]
	if len(all) == 0 {
		return recording.Entry{}, false
	}
	if done && len(all) > 1 {
		r[id] = all[1:]
	}
	return all[0], true
}

// turn is something that is let through when everything before it was, or a step of the log.
type turn struct {
	n    int // in the order
	ms   int64
	what string
	of   task.ID // of what only keeps the order: its task or agent. It is passed over if it does not come
	step step    // that comes by itself; zero: it is let through
	gone bool    // it has come, or its agent was interrupted before; guarded by the player's mu
}

// step is a change of a task, as it comes by itself in a replay.
type step struct {
	task task.ID
	verb task.Verb
}

// stepOf returns the step that an event is; zero: a replay has it at another time, or not at all.
func (p *Player) stepOf(e *task.Event) step {
	switch e.Verb {
	case task.Create, task.Begin, task.Rest, task.Wake, task.Background, task.RequestStop, task.Complete, task.Fail,
		task.Stop, task.Resume, task.Reparent:
		return step{cmp.Or(p.main(e.Task.ID), "main"), e.Verb}
	}
	return step{}
}

// said is what a task tells its owner.
type said struct {
	message task.Message
	turn    *turn
}

// letter is what the messages of one agent to another have in common.
type letter struct {
	to   task.ID
	from task.ID // or a name
	kind task.MessageKind
}

func (p *Player) letter(m task.Message) letter {
	return letter{p.main(m.To), p.main(task.ID(m.From)), m.Kind}
}

// end is how a run of a task that is no agent has ended.
type end struct {
	rec  task.Record
	text string // its answer, where that is no output
	turn *turn  // nil: somebody has ended it
}

// New prepares a recording.
func New(c Config) *Player {
	p := &Player{c: c, names: recording.NamesOf(c.Recording.Head), begin: time.Now(), byAgent: map[task.ID]*part{},
		ends: map[task.ID][]*end{}, made: map[string]task.ID{}, outputs: map[task.ID]recording.Entry{},
		told: map[task.ID][]said{}, sent: map[letter][]*turn{}, begun: map[task.ID]bool{}, placed: map[int]*turn{},
		came: map[step]int{}, astray: map[task.ID]bool{}, passed: make(chan struct{}),
		runs: map[task.ID]int{}, starts: map[string]int{}, live: c.Until > 0}
	type placed struct {
		after task.Seq
		late  bool // behind what else has the same number
		turn  *turn
	}
	var all []placed
	starts, kinds := map[string]int{}, map[task.ID]task.Kind{}
	for _, e := range c.Recording.Entries {
		if e.Kind == recording.Event {
			kinds[e.Event.Task.ID] = e.Event.Task.Kind
		}
	}
	begun := c.Recording.Head.Created
	orders := func(e recording.Entry, format string, v ...any) {
		t := &turn{ms: e.MS, what: fmt.Sprintf(format, v...), of: cmp.Or(p.main(e.Agent), "main")}
		p.placed[e.N] = t
		all = append(all, placed{e.After, true, t})
	}
	for _, e := range c.Recording.Until(c.Until) {
		a := p.part(e.Agent)
		switch e.Kind {
		case recording.Agent:
			a.tools, a.deferred, a.window = e.Tools, e.Deferred, e.Window
		case recording.Call:
			for len(a.calls) < e.Call { // calls that overlap end in any order
				a.calls, a.turns = append(a.calls, recording.Entry{}), append(a.turns, nil)
			}
			a.calls[e.Call-1] = e
			if e.Failure == nil || !e.Failure.Interrupted {
				t := &turn{ms: e.MS, what: fmt.Sprintf("answer %d of the model to agent %s", e.Call, p.called(e.Agent))}
				a.turns[e.Call-1] = t
				all = append(all, placed{e.After, true, t})
			}
		case recording.Gate:
			a.gates.add(e)
			orders(e, "the decision on call %s of agent %s", e.Tool.ID, p.called(e.Agent))
		case recording.Tool:
			a.results.add(e)
		case recording.Mail:
			a.mail = append(a.mail, e)
		case recording.Found:
			if was, again := a.found[e.Turn]; again {
				p.placed[was.N].gone = true
			}
			a.found[e.Turn] = e
			orders(e, "the end of turn %d of agent %s", e.Turn, p.called(e.Agent))
		case recording.Reminder:
			a.reminders = append(a.reminders, e)
		case recording.Stop:
			a.stops = append(a.stops, e)
		case recording.Batch:
			a.batches = append(a.batches, e)
		case recording.Told:
			if k, ok := kinds[e.Task]; !ok || !played(k) {
				continue
			}
			t := &turn{ms: e.MS, what: fmt.Sprintf("a message of task %s", e.Task)}
			p.told[e.Task] = append(p.told[e.Task], said{*e.Message, t})
			all = append(all, placed{e.Message.Seq, false, t})
		case recording.Sent:
			t := &turn{ms: e.MS, what: fmt.Sprintf("a message of %s to %s", e.Message.From, p.called(e.Message.To))}
			k := p.letter(*e.Message)
			p.sent[k] = append(p.sent[k], t)
			if e.Message.Seq > 0 { // what it causes may come before it is noted
				e.After = min(e.After, e.Message.Seq-1)
			}
			all = append(all, placed{e.After, true, t})
		case recording.Text:
			a.texts[e.What] = append(a.texts[e.What], e)
		case recording.Command:
			p.commands = append(p.commands, e)
		case recording.Worktree:
			if e.Tree != nil {
				a.trees = append(a.trees, e)
			} else {
				a.left = append(a.left, e)
			}
		case recording.Output:
			p.outputs[e.Task] = e
		case recording.Event:
			r := e.Event.Task
			if e.Event.Verb == task.Create {
				p.made[startKey(starts, p.main(r.Parent), r.Kind, r.ToolUseID, r.Key)] = r.ID
			}
			if e.Event.Verb == task.Begin {
				p.begun[r.ID] = true
			}
			t := &turn{ms: e.Event.At.Sub(begun).Milliseconds(), step: p.stepOf(e.Event)}
			if r.Status.Terminal() && played(r.Kind) && e.Event.Verb != task.MarkSeen {
				x := &end{rec: r, text: strings.Join(e.Texts, "")}
				if endsItself(r.Cause) {
					t.what, t.step = fmt.Sprintf("the end of task %s", r.ID), step{}
					x.turn = t
				}
				p.ends[r.ID] = append(p.ends[r.ID], x)
			}
			if t.of = t.step.task; t.what != "" || t.of != "" {
				all = append(all, placed{e.Event.Seq, false, t})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b placed) int {
		switch {
		case a.after != b.after:
			return int(a.after - b.after)
		case a.late != b.late && b.late:
			return -1
		case a.late != b.late:
			return 1
		}
		return 0
	})
	for i, one := range all {
		one.turn.n = i
		p.order = append(p.order, one.turn)
	}
	return p
}

func (p *Player) part(id task.ID) *part {
	id = p.main(id)
	a := p.byAgent[id]
	if a == nil {
		a = &part{sure: map[int64]int{}, found: map[int]recording.Entry{}, gates: byCall{}, results: byCall{},
			texts: map[string][]recording.Entry{}, read: map[string]int{}}
		p.byAgent[id] = a
	}
	return a
}

// main is empty for the main agent of the recording and of the replay, which have different IDs.
func (p *Player) main(id task.ID) task.ID {
	if id == p.c.Recording.Head.Session || id == p.c.Session {
		return ""
	}
	return id
}

// called is an agent as people read of it.
func (p *Player) called(id task.ID) string {
	if p.main(id) == "" {
		return "main"
	}
	return string(id)
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

// startKey names a start: the how manieth it is of its parent, kind, call and key.
func startKey(seen map[string]int, parent task.ID, k task.Kind, call, key string) string {
	name := strings.Join([]string{string(parent), string(k), call, key}, "\x00")
	seen[name]++
	return fmt.Sprint(name, "\x00", seen[name])
}

// diverge ends the replay.
func (p *Player) diverge(format string, v ...any) error {
	err := &Divergence{Text: fmt.Sprintf(format, v...)}
	p.mu.Lock()
	first := p.diverged == nil
	if first {
		p.diverged = err
	}
	p.mu.Unlock()
	if first && p.c.Diverged != nil {
		p.c.Diverged(err)
	}
	return err
}

// Err returns where the replay has left the recording.
func (p *Player) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.diverged
}

// Missing names the first thing that was recorded and has not happened; empty: nothing is missing.
func (p *Player) Missing() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range p.order[p.next:] {
		if t.of == "" {
			return t.what
		}
	}
	return ""
}

// await waits until it is the turn of t, and for its time.
func (p *Player) await(ctx context.Context, t *turn) error {
	for last, since := -1, time.Now(); ; {
		grown := p.grown()
		p.follow(ctx)
		p.mu.Lock()
		next, passed, err := p.next, p.passed, p.diverged
		p.mu.Unlock()
		switch {
		case err != nil:
			return err
		case next > t.n && t.of != "":
			return nil // it was passed over
		case next > t.n:
			return p.diverge("%s came twice", t.what)
		case next != last:
			last, since = next, time.Now()
		}
		if next == t.n {
			break
		}
		if err := p.pause(ctx, passed, grown, since, next, t.what); err != nil {
			return err
		}
	}
	if p.c.Speed <= 0 {
		return nil
	}
	timer := time.NewTimer(time.Until(p.due(t)))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// let waits until it is the turn of t, and lets through what comes behind it.
func (p *Player) let(ctx context.Context, t *turn) error {
	if t == nil {
		return nil
	}
	err := p.await(ctx, t)
	p.mu.Lock()
	defer p.mu.Unlock()
	t.gone = true
	p.goOn(p.next)
	return err
}

// follow reads the log, and lets through what waits for its steps. A log that cannot be read has none: they are
// passed over.
func (p *Player) follow(ctx context.Context) {
	p.reading.Lock()
	defer p.reading.Unlock()
	p.mu.Lock()
	log := p.log
	p.mu.Unlock()
	if log == nil {
		return
	}
	events, _ := log.Since(context.WithoutCancel(ctx), p.read)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range events {
		p.read = e.Seq
		if s := p.stepOf(&e); s.verb != "" {
			p.came[s]++
		}
	}
	p.goOn(p.next)
}

// goOn lets through what comes at n of the order, behind the steps that have come and what is astray. The caller
// holds mu.
func (p *Player) goOn(n int) {
	for ; n < len(p.order); n++ {
		t := p.order[n]
		if t.step.verb != "" && p.came[t.step] > 0 {
			p.came[t.step]--
		} else if !t.gone && !p.astray[t.of] {
			break
		}
	}
	if n != p.next {
		p.next = n
		close(p.passed)
		p.passed = make(chan struct{})
	}
}

// pause waits until something is let through or the log has grown. Where nothing was let through since long, the next
// is missing.
func (p *Player) pause(
	ctx context.Context, passed, grown <-chan struct{}, since time.Time, next int, what string,
) error {
	patience, missing, of := p.patience(), "nothing", task.ID("")
	if next < len(p.order) {
		if missing, of = p.order[next].what, p.order[next].of; of != "" {
			patience -= p.c.Patience * 7 / 8 // those who wait for messages give up at the half
		}
	}
	timer := time.NewTimer(time.Until(since.Add(patience)))
	defer timer.Stop()
	select {
	case <-passed:
		return nil
	case <-grown:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
	}
	if of == "" {
		return p.diverge("%s was recorded next, and has not come; %s waits", missing, what)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.astray[of] = true
	p.goOn(p.next)
	return nil
}

// patience is how long something is waited for: until the next is due, and then some time.
func (p *Player) patience() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.c.Speed <= 0 || p.next >= len(p.order) {
		return p.c.Patience
	}
	return p.c.Patience + max(0, time.Until(p.due(p.order[p.next])))
}

// due is when something happens at the speed of the replay.
func (p *Player) due(t *turn) time.Time {
	return p.begin.Add(time.Duration(float64(t.ms) / p.c.Speed * float64(time.Millisecond)))
}

// pass lets through what comes behind t.
func (p *Player) pass(t *turn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next == t.n {
		p.goOn(t.n + 1)
	}
}

// Model returns the model that answers as recorded, and behind the end of what is played asks next.
func (p *Player) Model(_ string, next agent.Model) agent.Model { return model{p, next} }

// Models are the names of all models that the recording asks.
func (p *Player) Models() map[string]agent.Model {
	out := map[string]agent.Model{}
	for _, e := range p.c.Recording.Entries {
		if e.Kind == recording.Call {
			out[e.Request.Name] = model{p, nil}
		}
	}
	return out
}

type model struct {
	p    *Player
	next agent.Model // nil: everything is played
}

func (m model) Reply(ctx context.Context, req *agent.Request, on func(agent.Part)) (*agent.Reply, error) {
	p := m.p
	id := task.ID(req.AgentID)
	p.mu.Lock()
	a := p.byAgent[id]
	if a == nil && p.live {
		p.mu.Unlock()
		return m.next.Reply(ctx, req, on)
	}
	if a == nil {
		p.mu.Unlock()
		return nil, told(p.diverge("agent %s calls its model, and was not recorded", p.called(id)))
	}
	n, before := a.called, a.messages
	a.called++
	if req.Purpose == "" {
		a.messages = len(req.Messages)
	}
	p.mu.Unlock()
	if n >= len(a.calls) || a.calls[n].Request == nil {
		if p.live {
			return m.next.Reply(ctx, req, on)
		}
		return nil, told(p.diverge("agent %s makes model call %d, and %d were recorded", p.called(id), n+1, len(a.calls)))
	}
	e := a.calls[n]
	// A run that goes on live has the settings of today, of which its requests tell.
	if was, is := e.Request, p.c.Names.Request(e.Request.Name, req, before); was.Digest != is.Digest && !p.live {
		return nil, told(p.diverge("model call %d of agent %s has digest %s, recorded was %s: %s", n+1, p.called(id), is.Digest,
			was.Digest, first(was, is)))
	}
	if a.turns[n] == nil {
		<-ctx.Done() // as it was recorded
		return nil, context.Cause(ctx)
	}
	if err := p.await(ctx, a.turns[n]); err != nil {
		return nil, told(err)
	}
	if err := p.stream(ctx, e, on); err != nil {
		return nil, err
	}
	p.pass(a.turns[n])
	if e.Failure != nil {
		return nil, failed(e.Failure)
	}
	return e.Reply, nil
}

// told is an error as models return them.
func told(err error) error {
	var d *Divergence
	if errors.As(err, &d) {
		return &agent.ModelError{Kind: "replay", Text: err.Error(), Err: err}
	}
	return err
}

// first says where two requests differ.
func first(was, is *recording.Request) string {
	switch {
	case was.Label != is.Label:
		return fmt.Sprintf("it is of agent type %q instead of %q", is.Label, was.Label)
	case was.Count != is.Count:
		return fmt.Sprintf("it has %d messages instead of %d", is.Count, was.Count)
	}
	for i := range min(len(was.New), len(is.New)) {
		a, b := was.New[i], is.New[i]
		if a == b {
			continue
		}
		at := 0
		for at < len(a) && at < len(b) && a[at] == b[at] {
			at++
		}
		at = max(0, at-20)
		return fmt.Sprintf("its message says %q instead of %q", excerpt.Line(strings.ToValidUTF8(b[at:], ""), 100),
			excerpt.Line(strings.ToValidUTF8(a[at:], ""), 100))
	}
	return "its tools are others"
}

// stream tells the parts of a reply as they came.
func (p *Player) stream(ctx context.Context, e recording.Entry, on func(agent.Part)) error {
	begin := time.Now()
	for _, c := range e.Chunks {
		if p.c.Speed > 0 && len(e.Chunks) > 1 {
			if wait := time.Until(begin.Add(time.Duration(float64(c.MS-e.Chunks[0].MS) / p.c.Speed * 1e6))); wait > 0 {
				timer := time.NewTimer(wait)
				select {
				case <-timer.C:
				case <-ctx.Done():
					timer.Stop()
					return context.Cause(ctx)
				}
			}
		}
		if on != nil {
			on(agent.Part{Kind: c.Kind, Index: c.Index, Text: c.Text, ID: c.ID, Name: c.Name, Block: c.Block, Usage: c.Usage})
		}
	}
	return nil
}

func failed(f *recording.Failure) error {
	if f.Cut {
		return &agent.CutError{Whole: f.Whole, Usage: f.Usage, Err: errors.New(f.Text)}
	}
	return &agent.ModelError{Status: f.Status, Kind: f.Kind, Text: f.Text, Until: f.Until, At: f.At}
}

func output(r *recording.Result) agent.Output {
	out := agent.Output{Text: r.Text, Images: r.Images, IsError: r.IsError, EndTurn: r.EndTurn}
	if r.Structured != nil {
		out.Structured = r.Structured
	}
	return out
}
