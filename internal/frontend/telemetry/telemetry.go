package telemetry

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/task"
)

const (
	queueLength  = 4096
	contentBytes = 16 << 10        // of one text in an attribute
	lastEvents   = time.Second     // in which the last events of the log are read
	flushLimit   = 2 * time.Second // in which the last spans are sent before the process ends
)

// Config configures an [Exporter].
type Config struct {
	Mode     string // the setting telemetry.mode
	Endpoint string // the setting telemetry.endpoint; the variables of OpenTelemetry have precedence
	Content  bool   // export prompts, answers, and calls with their results
	Env      func(string) string
	Version  string
	Tell     func(text string) // reports problems, each once
}

// Exporter follows one session. The zero value and nil export nothing.
type Exporter struct {
	cfg Config

	queue chan moment
	stop  chan struct{}  // closed after the last event; then run empties the queue
	reads sync.WaitGroup // follow
	work  sync.WaitGroup // run
	end   context.CancelFunc
	fold  *fold
	out   *provider

	mu      sync.Mutex
	heard   map[task.ID]bool // agents whose reply has begun
	dropped int64
	seq     task.Seq // the last event read from the log
	want    task.Seq // the event that Ended waits for
	wanted  chan struct{}
}

// New returns the exporter that the setting and the variables ask for, or nil.
func New(cfg Config) *Exporter {
	traces, problems := Wanted(cfg.Mode, cfg.Env)
	for _, p := range problems {
		cfg.Tell("telemetry: " + p)
	}
	if !traces {
		return nil
	}
	if strings.EqualFold(cfg.Env("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"), "true") {
		cfg.Content = true
	}
	return &Exporter{cfg: cfg, queue: make(chan moment, queueLength), stop: make(chan struct{}),
		heard: map[task.ID]bool{}}
}

// Session is the session to export.
type Session interface {
	control.API
	// Price returns the cost of a call of a model in US dollars, if the price is known.
	Price(model string, u agent.Usage) (usd float64, known bool)
}

// Open begins to follow a session until Close. It does not wait for a collector.
func (x *Exporter) Open(s Session) {
	if x == nil {
		return
	}
	ctx, end := context.WithCancel(context.Background())
	x.end = end
	info, err := s.Info(ctx)
	if err != nil {
		x.tell(err)
		return
	}
	if x.out, err = x.provide(ctx, info); err != nil {
		x.tell(err)
		return
	}
	state, err := s.State(ctx, control.StateRequest{})
	if err != nil {
		x.tell(err)
		return
	}
	x.seq = state.Seq
	x.fold = newFold(x.cfg, x.out, s, info)
	x.reads.Go(func() { x.follow(ctx, s, state.Seq) })
	x.work.Go(func() { x.run(ctx) })
}

// Agent queues an event of an agent. It never blocks.
func (x *Exporter) Agent(from task.ID, e agent.Event) {
	if x == nil {
		return
	}
	m := moment{at: time.Now(), from: from, kind: e.Kind}
	switch e.Kind {
	case agent.PartEvent:
		if !x.begins(from, e.Part.Kind) {
			return
		}
		m.part = e.Part.Kind
	case agent.BlockEvent, agent.ToolProgressEvent:
		return
	default:
		x.mu.Lock()
		delete(x.heard, from) // the reply has ended, or a new one follows
		x.mu.Unlock()
		x.describe(&m, e)
	}
	select {
	case x.queue <- m:
	default:
		x.mu.Lock()
		x.dropped++
		x.mu.Unlock()
	}
}

// begins reports whether a part of a reply is exported: the first part and the retries are.
func (x *Exporter) begins(from task.ID, kind agent.PartKind) bool {
	switch kind {
	case agent.RetryPart, agent.FallbackPart:
		return true
	case agent.VoidPart:
		return false
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	was := x.heard[from]
	x.heard[from] = true
	return !was
}

// describe copies the exported fields of an event.
func (x *Exporter) describe(m *moment, e agent.Event) {
	m.took = e.Duration
	switch e.Kind {
	case agent.ToolStartEvent, agent.ToolDoneEvent:
		m.id, m.name, m.failed = e.Call.ID, e.Call.Name, e.Output.IsError
		if x.cfg.Content {
			m.input, m.text = clip(string(e.Call.Input)), clip(e.Output.Text)
		}
	case agent.ReplyDoneEvent:
		if r := e.Reply; r != nil {
			m.id, m.name, m.reason, m.usage = r.ID, r.Model, r.StopReason, r.Usage
			if x.cfg.Content {
				m.text = said("assistant", r.Blocks, r.StopReason)
			}
		}
	case agent.PromptEvent:
		if x.cfg.Content {
			m.text = said("user", e.Prompt, "")
		}
	case agent.CompactEvent:
		if e.Compaction != nil {
			m.usage, m.reason = e.Compaction.Usage, e.Compaction.Trigger
		}
		m.problem = problem(e.Err)
	case agent.TurnDoneEvent:
		m.problem = problem(e.Err)
		if r := e.Result; r != nil {
			m.reason, m.usage, m.turns, m.calls = r.Reason, r.Usage, r.Turns, r.ToolUses
			for _, d := range r.Denials {
				m.denied = append(m.denied, denied{d.ToolUseID, d.Name})
			}
		}
		if x.cfg.Content && e.Err != nil {
			m.text = clip(e.Err.Error())
		}
	}
}

// follow reads the log of the session.
func (x *Exporter) follow(ctx context.Context, s Session, after task.Seq) {
	for e, err := range s.Events(ctx, after) {
		if err != nil {
			break
		}
		m := moment{at: e.At, from: e.Task.ID, event: &e}
		select {
		case x.queue <- m:
		default:
			select { // a full queue may delay it: it only reads a file
			case x.queue <- m:
			case <-ctx.Done():
				return
			}
		}
		x.mu.Lock()
		x.seq = e.Seq
		if x.wanted != nil && x.seq >= x.want {
			close(x.wanted)
			x.wanted = nil
		}
		x.mu.Unlock()
	}
}

// run turns the queue into spans until Close.
func (x *Exporter) run(ctx context.Context) {
	for {
		select {
		case m := <-x.queue:
			x.fold.take(ctx, m)
		case <-x.stop:
			for {
				select {
				case m := <-x.queue:
					x.fold.take(ctx, m)
				default:
					x.fold.close(x.lost())
					return
				}
			}
		}
	}
}

func (x *Exporter) lost() int64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.dropped
}

// Ended waits until the event last, the newest of the log, was read, for at most a second. The caller then closes the
// log.
func (x *Exporter) Ended(last task.Seq) {
	if x == nil || x.fold == nil {
		return
	}
	x.mu.Lock()
	if x.seq >= last {
		x.mu.Unlock()
		return
	}
	wanted := make(chan struct{})
	x.want, x.wanted = last, wanted
	x.mu.Unlock()
	timer := time.NewTimer(lastEvents)
	defer timer.Stop()
	select {
	case <-wanted:
	case <-timer.C:
	}
}

// Close sends the remaining spans, for at most two seconds. The session must be closed.
func (x *Exporter) Close() {
	if x == nil || x.end == nil {
		return
	}
	x.end()
	x.reads.Wait()
	close(x.stop)
	x.work.Wait()
	if x.out == nil {
		return
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), flushLimit, errors.New("the collector takes too long"))
	defer cancel()
	x.out.flush(ctx)
	if x.fold != nil {
		x.fold.span.End()
	}
	x.out.close(ctx)
}

func (x *Exporter) tell(err error) {
	x.cfg.Tell("telemetry: " + err.Error())
}

func clip(s string) string { return clean(s, contentBytes) }

// clean returns at most n bytes of a text as valid UTF-8: a collector refuses a request that has one invalid string.
func clean(s string, n int) string {
	if len(s) > n {
		s = s[:n]
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// problem returns the error.type of an error.
func problem(err error) string {
	if err == nil {
		return ""
	}
	if m := (*agent.ModelError)(nil); errors.As(err, &m) {
		return m.Kind
	}
	return "_OTHER"
}

// said encodes a message for the attributes gen_ai.input.messages and gen_ai.output.messages.
func said(role string, blocks []agent.Block, finish string) string {
	type part struct {
		Type      string          `json:"type"`
		Content   string          `json:"content,omitempty"`
		ID        string          `json:"id,omitempty"`
		Name      string          `json:"name,omitempty"`
		Arguments json.RawMessage `json:"arguments,omitempty"`
	}
	var parts []part
	left := contentBytes
	for _, b := range blocks {
		if left <= 0 {
			break
		}
		switch b.Type {
		case "text":
			text := clean(b.Text, left)
			left -= len(text)
			parts = append(parts, part{Type: "text", Content: text})
		case "tool_use":
			if left -= len(b.Input); left > 0 {
				parts = append(parts, part{Type: "tool_call", ID: b.ID, Name: b.Name, Arguments: b.Input})
			}
		}
	}
	raw, err := json.Marshal([]any{struct {
		Role   string `json:"role"`
		Parts  []part `json:"parts"`
		Finish string `json:"finish_reason,omitempty"`
	}{role, parts, finish}})
	if err != nil {
		return ""
	}
	return string(raw)
}
