package replay

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/internal/engine/spool"
	"github.com/drover-dev/drover/internal/engine/supervise"
	"github.com/drover-dev/drover/internal/session/environment"
	"github.com/drover-dev/drover/task"
)

// Recorder is the [environment.Seam] of a session that is recorded. It writes as things happen and changes nothing;
// what cannot be written is an error of Close. Its methods may be called by several goroutines.
type Recorder struct {
	begin time.Time
	main  task.ID
	names Names
	hide  func([]byte) []byte // nil: nothing is hidden
	next  environment.Seam

	mu      sync.Mutex
	w       *Writer
	log     environment.Log // nil: the session is not open yet
	agents  map[task.ID]*calls
	running map[*Entry]bool // calls of tools that were allowed and have not ended
	outputs []task.Record   // the first record of each task that prints
}

// calls is how far the calls of one agent's model have come.
type calls struct {
	n        int
	messages int // of the last request that was no summary
}

// NewRecorder writes the head of a recording to w. hide replaces secrets in a line or an output; nil: there
// are none. next is the seam of the session without the recorder.
func NewRecorder(w io.Writer, h Head, hide func([]byte) []byte, next environment.Seam) *Recorder {
	return &Recorder{begin: time.Now(), main: h.Session, names: NamesOf(h).Hiding(hide), hide: hide, next: next,
		w: NewWriter(w, h, hide), agents: map[task.ID]*calls{}, running: map[*Entry]bool{}}
}

// now is the present moment. The caller holds mu.
func (r *Recorder) now() Point {
	p := Point{MS: time.Since(r.begin).Milliseconds()}
	if r.log != nil {
		p.After = r.log.Reached()
	}
	return p
}

func (r *Recorder) add(e Entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	e.MS, e.After = now.MS, now.After
	r.w.Add(e)
}

func (r *Recorder) Agent(id task.ID, c *agent.Config) {
	r.next.Agent(id, c)
	e := Entry{Kind: AgentEntry, Agent: id, Deferred: c.Deferred}
	for _, t := range c.Tools {
		e.Tools = append(e.Tools, t.Spec())
	}
	if c.Compaction != nil {
		e.Window = &Window{Tokens: c.Compaction.Window, Share: c.Compaction.Share}
	}
	r.add(e)
	next := c.Port
	if next == nil {
		next = agent.Direct{}
	}
	c.Port = &recorded{r: r, id: id, next: next, decided: map[string]*Entry{}}
}

func (r *Recorder) Texts(ctx context.Context, id task.ID, what string, get func() ([]string, error)) ([]string, error) {
	texts, err := r.next.Texts(ctx, id, what, get)
	r.texts(id, what, texts, err)
	return texts, err
}

func (r *Recorder) texts(id task.ID, what string, texts []string, err error) {
	e := Entry{Kind: TextEntry, Agent: id, What: what, Texts: texts}
	if err != nil {
		e.Texts, e.Failure = nil, &Failure{Text: err.Error()}
	}
	r.add(e)
}

func (r *Recorder) Prepare(d task.Driver, spec task.Spec) supervise.Prepared {
	return r.next.Prepare(d, spec)
}

// recorded is the [agent.Port] of one agent.
type recorded struct {
	r    *Recorder
	id   task.ID
	next agent.Port

	mu      sync.Mutex
	decided map[string]*Entry // by call; guarded by mu
}

func (p *recorded) Reply(
	ctx context.Context, req *agent.Request, on func(agent.Part), ask func(func(agent.Part)) (*agent.Reply, error),
) (*agent.Reply, error) {
	r := p.r
	r.mu.Lock()
	of := r.agents[p.id]
	if of == nil {
		of = &calls{}
		r.agents[p.id] = of
	}
	of.n++
	e := Entry{Kind: CallEntry, Agent: p.id, Call: of.n, Request: r.names.Request(req, of.messages)}
	if req.Purpose == "" {
		of.messages = len(req.Messages)
	}
	r.mu.Unlock()
	begin := time.Now()
	reply, err := p.next.Reply(ctx, req, func(part agent.Part) {
		if keeps(part.Kind) {
			e.Chunks = append(e.Chunks, Chunk{MS: time.Since(begin).Milliseconds(), Kind: part.Kind, Index: part.Index,
				Text: part.Text, ID: part.ID, Name: part.Name, Block: part.Block, Usage: part.Usage})
		}
		on(part)
	}, ask)
	e.Reply = reply
	if err != nil {
		e.Reply, e.Failure = nil, failure(ctx, err)
	}
	r.add(e)
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

func failure(ctx context.Context, err error) *Failure {
	f := &Failure{Text: err.Error(), Interrupted: ctx.Err() != nil}
	var cut *agent.CutError
	var failed *agent.ModelError
	if errors.As(err, &cut) {
		f.Cut, f.Whole, f.Usage = true, cut.Whole, cut.Usage
		if cut.Err != nil { // a replay says again that the answer was cut off
			f.Text = cut.Err.Error()
		}
	}
	if errors.As(err, &failed) {
		f.Status, f.Kind, f.Text, f.Until, f.At = failed.Status, failed.Kind, failed.Text, failed.Until, failed.At
	}
	return f
}

func (p *recorded) Check(
	ctx context.Context, c agent.Call, decide func() (agent.Decision, error),
) (agent.Decision, error) {
	d, err := p.next.Check(ctx, c, decide)
	p.r.mu.Lock()
	now := p.r.now()
	e := &Entry{Kind: ToolEntry, Agent: p.id, Tool: &c, Decision: &d, Decided: &now}
	if err == nil && d.Allow {
		p.r.running[e] = true
	}
	p.r.mu.Unlock()
	switch {
	case err != nil:
		e.Decision, e.Failure = nil, failure(ctx, err)
		p.r.add(*e)
	case !d.Allow:
		p.r.add(*e)
	default:
		p.mu.Lock()
		p.decided[c.ID] = e
		p.mu.Unlock()
	}
	return d, err
}

func (p *recorded) Run(
	ctx context.Context, tool string, c agent.Call, run func() (agent.Output, error),
	after func(agent.Output) agent.Output,
) (agent.Output, error) {
	out, err := p.next.Run(ctx, tool, c, run, after)
	p.mu.Lock()
	e := p.decided[c.ID]
	delete(p.decided, c.ID)
	p.mu.Unlock()
	if e == nil {
		return out, err
	}
	p.r.mu.Lock()
	delete(p.r.running, e)
	p.r.mu.Unlock()
	e.Tool = &c
	e.Output = &Result{Text: out.Text, Images: out.Images, IsError: out.IsError, EndTurn: out.EndTurn}
	if out.Structured != nil {
		if raw, err := json.Marshal(out.Structured); err == nil { // else it is kept as text only
			e.Output.Structured = raw
		}
	}
	p.r.add(*e)
	return out, err
}

func (p *recorded) Take(ctx context.Context, take func() ([]agent.MailMessage, error)) ([]agent.MailMessage, error) {
	mail, err := p.next.Take(ctx, take)
	if err != nil {
		return mail, err
	}
	e := Entry{Kind: MailEntry, Agent: p.id}
	for _, m := range mail {
		e.Texts = append(e.Texts, m.Text)
	}
	p.r.add(e)
	return mail, nil
}

func (p *recorded) Texts(ctx context.Context, what string, get func() ([]string, error)) ([]string, error) {
	texts, err := p.next.Texts(ctx, what, get)
	p.r.texts(p.id, what, texts, err)
	return texts, err
}

func (r *Recorder) Log(log environment.Log) supervise.Log {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log = log
	return recordedLog{heard{r.next.Log(log), r.event}, r}
}

// heard is a log with a listener for the changes of tasks that have come into it.
type heard struct {
	supervise.Log
	event func(task.Seq, lifecycle.Entry)
}

func (l heard) Append(ctx context.Context, e lifecycle.Entry) (task.Seq, error) {
	seq, err := l.Log.Append(ctx, e)
	if err == nil {
		l.event(seq, e)
	}
	return seq, err
}

func (l heard) AppendAll(ctx context.Context, entries []lifecycle.Entry) ([]task.Seq, []error) {
	seqs, errs := l.Log.AppendAll(ctx, entries)
	for i, e := range entries {
		if errs[i] == nil {
			l.event(seqs[i], e)
		}
	}
	return seqs, errs
}

// recordedLog notes what becomes durable.
type recordedLog struct {
	heard
	r *Recorder
}

func (l recordedLog) Post(ctx context.Context, m task.Message) (seq task.Seq, err error) {
	m.Seq, err = l.Log.Post(ctx, m)
	if err == nil && m.Kind != task.Prompt && m.Kind != task.Stalled { // a replay has its own prompt and clock
		l.r.add(Entry{Kind: MessageEntry, Message: &m})
	}
	return m.Seq, err
}

func (r *Recorder) event(seq task.Seq, e lifecycle.Entry) {
	line := Entry{Kind: EventEntry, Event: &task.Event{Seq: seq, Verb: e.Verb, At: e.At, Task: e.Task}}
	if e.Answer != "" && !e.Task.Kind.IsAgent() {
		line.Texts = []string{e.Answer}
	}
	r.add(line)
	if e.Verb == task.Create && !e.Task.Kind.IsAgent() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.outputs = append(r.outputs, e.Task)
	}
}

// Close completes the recording of a session that is closed: it adds the calls that have not ended, and the
// outputs of tasks.
func (r *Recorder) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for e := range r.running {
		r.w.Add(*e)
	}
	for _, t := range r.outputs {
		e := Entry{Kind: OutputEntry, Task: t.ID}
		if e.Data, e.Cut = read(t.OutputFile); len(e.Data) == 0 {
			continue
		}
		if r.hide != nil { // in the file it is in base64
			e.Data = r.hide(e.Data)
		}
		r.w.Add(e)
	}
	return r.w.Close()
}

// read returns the begin of an output, and whether more was left out. One that is gone is empty.
func read(path string) (data []byte, more bool) {
	for int64(len(data)) < MaxOutput {
		part, next, err := spool.ReadAt(path, int64(len(data)), 1<<20, true)
		if err != nil || next == int64(len(data)) {
			return data, false
		}
		data = append(data, part...)
	}
	return data[:MaxOutput], true
}
