// Package recorder writes down a run of a session: what models, tools and rules answered, what
// agents read, what tasks printed, and the log.
//
// A [Recorder] stands around the loops of all agents and changes nothing in them. It writes as
// things happen; what cannot be written is an error of Close, and hinders nobody before.
package recorder

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/engine/spool"
	"github.com/drover-dev/drover/internal/replay/recording"
	"github.com/drover-dev/drover/task"
)

// Log is the log of a session.
type Log interface {
	Newest() task.Seq
	Since(ctx context.Context, after task.Seq) ([]task.Event, error)
	Answer(ctx context.Context, r task.Record) (string, error)
}

// Recorder records one session. Its methods may be called by several goroutines.
type Recorder struct {
	begin time.Time
	main  task.ID
	names recording.Names
	hide  func([]byte) []byte // nil: nothing is hidden

	mu     sync.Mutex
	w      *recording.Writer
	log    Log // nil: the session is not open yet
	agents map[task.ID]*speaker
	err    error
}

// speaker is how far one agent has come. It is guarded by the recorder's mu.
type speaker struct {
	calls    int
	turns    int
	inTurn   bool // the last of them has not ended
	works    bool // a task of the agent was at work after it
	messages int  // of the last request that was no summary
}

// New writes the head of a recording to w. hide replaces secrets in a text or line; nil: there are none.
func New(w io.Writer, h recording.Head, hide func([]byte) []byte) *Recorder {
	return &Recorder{begin: time.Now(), main: h.Session, names: recording.NamesOf(h).Hiding(hide), hide: hide,
		w: recording.NewWriter(w, h, hide), agents: map[task.ID]*speaker{}}
}

// Open gives the recorder the log of the session.
func (r *Recorder) Open(log Log) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log = log
}

func (r *Recorder) speaker(id task.ID) *speaker {
	s := r.agents[id]
	if s == nil {
		s = &speaker{}
		r.agents[id] = s
	}
	return s
}

// add writes an entry. The caller holds mu.
func (r *Recorder) add(e recording.Entry) {
	e.MS = time.Since(r.begin).Milliseconds()
	if r.log != nil {
		e.After = r.log.Newest()
	}
	r.w.Add(e)
}

func (r *Recorder) note(e recording.Entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.add(e)
}

// Model records the calls of a model.
func (r *Recorder) Model(name string, m agent.Model) agent.Model { return &model{r, name, m} }

type model struct {
	r    *Recorder
	name string
	next agent.Model
}

func (m *model) Reply(ctx context.Context, req *agent.Request, on func(agent.Part)) (*agent.Reply, error) {
	r, id := m.r, task.ID(req.AgentID)
	if id == "" {
		id = r.main
	}
	r.mu.Lock()
	s := r.speaker(id)
	s.calls++
	e := recording.Entry{Kind: recording.Call, Agent: id, Call: s.calls,
		Request: r.names.Request(m.name, req, s.messages)}
	if req.Purpose == "" {
		s.messages = len(req.Messages)
	}
	r.mu.Unlock()
	begin := time.Now()
	reply, err := m.next.Reply(ctx, req, func(p agent.Part) {
		if keeps(p.Kind) {
			e.Chunks = append(e.Chunks, recording.Chunk{MS: time.Since(begin).Milliseconds(), Kind: p.Kind, Index: p.Index,
				Text: p.Text, ID: p.ID, Name: p.Name, Block: p.Block, Usage: p.Usage})
		}
		if on != nil {
			on(p)
		}
	})
	e.Reply = reply
	if err != nil {
		e.Failure = failure(ctx, err)
	}
	r.note(e)
	return reply, err
}

// keeps reports whether a part of the kind is recorded: what the reply consists of.
func keeps(k agent.PartKind) bool {
	switch k {
	case agent.TextPart, agent.ThinkingPart, agent.ToolPart, agent.InputPart, agent.BlockPart, agent.VoidPart,
		agent.IntentPart:
		return true
	}
	return false
}

func failure(ctx context.Context, err error) *recording.Failure {
	f := &recording.Failure{Text: err.Error(), Interrupted: ctx.Err() != nil}
	var cut *agent.CutError
	var told *agent.ModelError
	if errors.As(err, &cut) {
		f.Cut, f.Whole, f.Usage = true, cut.Whole, cut.Usage
		if cut.Err != nil { // a replay says again that the answer was cut off
			f.Text = cut.Err.Error()
		}
	}
	if errors.As(err, &told) {
		f.Status, f.Kind, f.Text, f.Until, f.At = told.Status, told.Kind, told.Text, told.Until, told.At
	}
	return f
}

// Loop stands around the loop of an agent.
func (r *Recorder) Loop(id task.ID, c *agent.Config) {
	e := recording.Entry{Kind: recording.Agent, Agent: id, Deferred: c.Deferred}
	for _, t := range c.Tools {
		e.Tools = append(e.Tools, t.Spec())
	}
	if c.Compaction != nil {
		e.Window = &recording.Window{Tokens: c.Compaction.Window, Share: c.Compaction.Share}
		c.Compaction = recording.Compacting(c.Compaction, func(what string, get func() (string, error)) (string, error) {
			return r.Text(id, what, get)
		})
	}
	r.note(e)
	around := around{r, id}
	if c.Gate != nil {
		c.Gate = gate{around, c.Gate}
	}
	if c.Hooks != nil {
		c.Hooks = hooks{around, c.Hooks}
	}
	if c.Reminders != nil {
		c.Reminders = reminders{around, c.Reminders}
	}
	if c.Mail != nil {
		c.Mail = mail{around, c.Mail}
	}
	next := c.On
	c.On = func(e agent.Event) {
		switch e.Kind {
		case agent.TurnStartEvent:
			around.turn(true)
		case agent.TurnDoneEvent:
			around.turn(false)
		case agent.MailEvent:
			around.mail(e.Mail)
		}
		if next != nil {
			next(e)
		}
	}
}

type around struct {
	r  *Recorder
	id task.ID
}

func (a around) mail(mail []agent.MailMessage) {
	e := recording.Entry{Kind: recording.Mail, Agent: a.id, Texts: texts(mail)}
	a.r.mu.Lock()
	defer a.r.mu.Unlock()
	s := a.r.speaker(a.id)
	e.Call, e.Turn = s.calls, s.turns
	a.r.add(e)
}

func (a around) turn(begins bool) {
	a.r.mu.Lock()
	defer a.r.mu.Unlock()
	s := a.r.speaker(a.id)
	if s.inTurn = begins; begins {
		s.turns++
	}
}

// mail records whether an agent finds mail between two turns: without any it rests. What it reads
// in a turn is an event.
type mail struct {
	around
	next agent.Mail
}

func (m mail) Take(ctx context.Context) ([]agent.MailMessage, error) {
	found, err := m.next.Take(ctx)
	m.r.mu.Lock()
	defer m.r.mu.Unlock()
	if s := m.r.speaker(m.id); err == nil && !s.inTurn {
		m.r.add(recording.Entry{Kind: recording.Found, Agent: m.id, Turn: s.turns, Works: s.works,
			Texts: texts(found)})
	}
	return found, err
}

// Works keeps whether a task of an agent is at work after its turn. It is noted with the mail that the agent finds.
func (r *Recorder) Works(id task.ID, works bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.speaker(id).works = works
}

func (m mail) Ack(ctx context.Context, messages []agent.MailMessage) error {
	return m.next.Ack(ctx, messages)
}

func texts(mail []agent.MailMessage) (out []string) {
	for _, m := range mail {
		out = append(out, m.Text)
	}
	return out
}

type gate struct {
	around
	next agent.Gate
}

func (g gate) Check(ctx context.Context, c agent.Call) (agent.Decision, error) {
	d, err := g.next.Check(ctx, c)
	if err == nil {
		g.r.note(recording.Entry{Kind: recording.Gate, Agent: g.id, Tool: &c, Decision: &d})
	}
	return d, err
}

type hooks struct {
	around
	next agent.Hooks
}

func (h hooks) Called(ctx context.Context, c agent.Call, out agent.Output, took time.Duration) agent.Output {
	out = h.next.Called(ctx, c, out, took)
	res := &recording.Result{Text: out.Text, Images: out.Images, IsError: out.IsError, EndTurn: out.EndTurn}
	if out.Structured != nil {
		if raw, err := json.Marshal(out.Structured); err == nil { // else it is kept as text only
			res.Structured = raw
		}
	}
	h.r.note(recording.Entry{Kind: recording.Tool, Agent: h.id, Tool: &c, Output: res})
	return out
}

func (h hooks) Batch(ctx context.Context, done []agent.Done) string {
	text := h.next.Batch(ctx, done)
	h.r.note(recording.Entry{Kind: recording.Batch, Agent: h.id, Texts: []string{text}})
	return text
}

func (h hooks) Stop(ctx context.Context, res agent.TurnResult, blocked int) string {
	text := h.next.Stop(ctx, res, blocked)
	h.r.note(recording.Entry{Kind: recording.Stop, Agent: h.id, Texts: []string{text}})
	return text
}

type reminders struct {
	around
	next agent.Reminders
}

func (m reminders) Due(ctx context.Context, start bool) []string {
	texts := m.next.Due(ctx, start)
	m.r.note(recording.Entry{Kind: recording.Reminder, Agent: m.id, Texts: texts})
	return texts
}

func (m reminders) Forgotten() { m.next.Forgotten() }

// Text records what an agent reads from outside.
func (r *Recorder) Text(id task.ID, what string, get func() (string, error)) (string, error) {
	text, err := get()
	e := recording.Entry{Kind: recording.Text, Agent: id, What: what}
	if e.Texts = []string{text}; err != nil {
		e.Texts, e.Failure = nil, &recording.Failure{Text: err.Error()}
	}
	r.note(e)
	return text, err
}

// Command records what a prompt has become; nil: its first word is no command.
func (r *Recorder) Command(expand func() (*string, []agent.Call, error)) (*string, error) {
	text, calls, err := expand()
	e := recording.Entry{Kind: recording.Command, Agent: r.main, Calls: calls}
	switch {
	case err != nil:
		e.Failure = &recording.Failure{Text: err.Error()}
	case text != nil:
		e.Texts = []string{*text}
	}
	r.note(e)
	return text, err
}

// Checkout records the worktree of an agent.
func (r *Recorder) Checkout(id task.ID, t recording.Tree) {
	r.note(recording.Entry{Kind: recording.Worktree, Agent: id, Tree: &t})
}

// Left records what is left of a worktree.
func (r *Recorder) Left(id task.ID, w *task.Worktree) {
	r.note(recording.Entry{Kind: recording.Worktree, Agent: id, Left: w})
}

// Told records a message of a task to its owner.
func (r *Recorder) Told(m task.Message) {
	r.note(recording.Entry{Kind: recording.Told, Task: task.ID(m.From), Message: &m})
}

// Sent records a message of an agent. It is noted before anything that it causes: post runs with mu held.
func (r *Recorder) Sent(m task.Message, post func() (task.Seq, error)) (seq task.Seq, err error) {
	if m.Kind == task.Prompt || m.Kind == task.Stalled { // a replay is prompted anew, and its clock is another
		return post()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if m.Seq, err = post(); err == nil {
		r.add(recording.Entry{Kind: recording.Sent, Message: &m})
	}
	return m.Seq, err
}

// Ended writes down the log up to an event, and the outputs of tasks.
func (r *Recorder) Ended(last task.Seq) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.log == nil {
		return
	}
	after, files := task.Seq(0), map[task.ID]string{}
	var order []task.ID
	for after < last {
		events, err := r.log.Since(context.Background(), after)
		if err != nil {
			r.err = errors.Join(r.err, err)
			break
		}
		if len(events) == 0 {
			break
		}
		for _, e := range events {
			after = e.Seq
			id := e.Task.ID
			if _, known := files[id]; !known && !e.Task.Kind.IsAgent() {
				files[id] = e.Task.OutputFile
				order = append(order, id)
			}
			line := recording.Entry{Kind: recording.Event, Event: &e}
			if e.Task.Status.Terminal() && !e.Task.Kind.IsAgent() {
				text, err := r.log.Answer(context.Background(), e.Task)
				r.err = errors.Join(r.err, err)
				if text != "" { // else its output is its answer
					line.Texts = []string{text}
				}
			}
			r.add(line)
		}
	}
	for _, id := range order {
		e := recording.Entry{Kind: recording.Output, Task: id}
		if e.Data, e.Cut = read(files[id]); len(e.Data) == 0 {
			continue
		}
		if r.hide != nil { // in the file it is in base64
			e.Data = r.hide(e.Data)
		}
		r.add(e)
	}
}

// read returns the begin of an output, and whether more was left out. One that is gone is empty.
func read(path string) (data []byte, more bool) {
	for int64(len(data)) < recording.MaxOutput {
		part, next, err := spool.ReadAt(path, int64(len(data)), 1<<20, true)
		if err != nil || next == int64(len(data)) {
			return data, false
		}
		data = append(data, part...)
	}
	return data[:recording.MaxOutput], true
}

// Close completes the recording.
func (r *Recorder) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return errors.Join(r.err, r.w.Close())
}
