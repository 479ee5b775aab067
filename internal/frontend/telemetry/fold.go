package telemetry

import (
	"context"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/task"
)

// moment is the exported part of an event of an agent or of a task.
type moment struct {
	at      time.Time
	from    task.ID
	kind    agent.EventKind
	part    agent.PartKind
	id      string // of a call or a reply
	name    string // of a tool or a model
	failed  bool
	problem string // error.type; empty if nothing failed
	reason  string // why a reply or a turn ended, or why a conversation was compacted
	usage   agent.Usage
	took    time.Duration
	turns   int
	calls   int
	denied  []denied
	input   string // content
	text    string // content

	event *task.Event // an event of the log; nil for one of an agent
}

type denied struct{ id, tool string }

// fold turns moments into spans. One goroutine uses it.
type fold struct {
	cfg     Config
	out     trace.Tracer
	session Session
	id      task.ID
	root    context.Context // with the span of the session
	span    trace.Span
	tasks   map[task.ID]*run
	turns   map[task.ID]*turn
}

// run is a task that has not ended.
type run struct {
	task.Record
	ctx  context.Context
	span trace.Span
}

// turn is one turn of an agent.
type turn struct {
	name, model string
	ctx         context.Context
	span        trace.Span

	since   time.Time // when the agent began to wait for a reply; zero while it waits for none
	first   time.Time // when the first part of the reply arrived; zero before that
	retries int
	open    int              // number of running calls
	calls   map[string]*call // by ID, also ended ones: their tasks may begin later in the log
	over    bool
}

type call struct {
	ctx  context.Context
	span trace.Span
	done bool
}

func newFold(cfg Config, out trace.Tracer, s Session, info control.Info) *fold {
	f := &fold{cfg: cfg, out: out, session: s, id: info.Session, tasks: map[task.ID]*run{}, turns: map[task.ID]*turn{}}
	root := context.Background()
	if !info.Detached { // a detached host inherits its variables from the program that started it
		root = propagation.TraceContext{}.Extract(root, propagation.MapCarrier{
			"traceparent": cfg.Env("TRACEPARENT"), "tracestate": cfg.Env("TRACESTATE")})
	}
	attrs := []attribute.KeyValue{semconv.GenAIConversationID(string(info.Session)),
		attribute.String("drover.session.role", info.Role), attribute.Bool("drover.session.detached", info.Detached)}
	if cfg.Content {
		attrs = append(attrs, attribute.String("drover.session.folder", clip(info.Project)))
	}
	f.root, f.span = out.Start(root, "drover.session", trace.WithAttributes(attrs...))
	return f
}

func (f *fold) take(ctx context.Context, m moment) {
	if m.event != nil {
		f.logged(*m.event)
		return
	}
	t := f.turns[m.from]
	if m.kind == agent.TurnStartEvent {
		if t != nil {
			f.endTurn(t, m.at)
		}
		f.turns[m.from] = f.begin(ctx, m)
		return
	}
	if t == nil || t.over && m.kind != agent.CompactEvent {
		return
	}
	switch m.kind {
	case agent.PromptEvent:
		if m.text != "" {
			t.span.SetAttributes(attribute.String(string(semconv.GenAIInputMessagesKey), m.text))
		}
		t.wait(m.at)
	case agent.MailEvent, agent.BlockedEvent:
		t.wait(m.at)
	case agent.PartEvent:
		t.part(m)
	case agent.ReplyDoneEvent:
		f.replied(t, m)
	case agent.ToolStartEvent:
		f.called(t, m)
	case agent.ToolDoneEvent:
		f.answered(t, m)
	case agent.CompactStartEvent:
		t.since = time.Time{}
	case agent.CompactEvent:
		f.summarized(t, m)
	case agent.TurnDoneEvent:
		f.turnDone(t, m)
	}
}

func (f *fold) isMain(id task.ID) bool { return id == "" || id == f.id }

// begin starts the span of a turn of an agent.
func (f *fold) begin(ctx context.Context, m moment) *turn {
	t := &turn{name: "main", since: m.at, calls: map[string]*call{}}
	parent := f.root
	if f.isMain(m.from) {
		if s, err := f.session.State(ctx, control.StateRequest{}); err == nil && s.Settings != nil {
			t.model = s.Settings.Model
		}
	} else {
		r := f.tasks[m.from]
		if r == nil { // the log is read a little later
			if rec, err := f.session.Get(ctx, string(m.from)); err == nil {
				r = f.start(rec, m.at)
			}
		}
		t.name = "agent"
		if r != nil {
			parent, t.name, t.model = r.ctx, r.AgentType, r.Model
		}
	}
	t.name, t.model = clean(t.name, 200), clean(t.model, 200)
	attrs := []attribute.KeyValue{semconv.GenAIOperationNameInvokeAgent, semconv.GenAIAgentName(t.name),
		semconv.GenAIConversationID(string(f.id))}
	if m.from != "" {
		attrs = append(attrs, semconv.GenAIAgentID(string(m.from)))
	}
	if t.model != "" {
		attrs = append(attrs, vendor(t.model), semconv.GenAIRequestModel(t.model))
	}
	t.ctx, t.span = f.out.Start(parent, "invoke_agent "+t.name, trace.WithTimestamp(m.at),
		trace.WithAttributes(attrs...))
	return t
}

// wait records that the agent waits for a reply.
func (t *turn) wait(at time.Time) { t.since, t.first, t.retries = at, time.Time{}, 0 }

func (t *turn) part(m moment) {
	switch {
	case m.part == agent.RetryPart || m.part == agent.FallbackPart:
		t.retries++
	case t.first.IsZero():
		t.first = m.at
	}
}

// replied makes the span of a call of a model that was answered.
func (f *fold) replied(t *turn, m moment) {
	attrs := []attribute.KeyValue{semconv.GenAIResponseModel(clean(m.name, 200))}
	if m.id != "" {
		attrs = append(attrs, semconv.GenAIResponseID(clean(m.id, 200)))
	}
	if m.reason != "" {
		attrs = append(attrs, semconv.GenAIResponseFinishReasons(clean(m.reason, 200)))
	}
	if m.text != "" {
		attrs = append(attrs, attribute.String(string(semconv.GenAIOutputMessagesKey), m.text))
	}
	f.chat(t, m, t.since, attrs)
	t.since = time.Time{}
}

// chat makes the span of one call of a model.
func (f *fold) chat(t *turn, m moment, since time.Time, attrs []attribute.KeyValue) {
	if since.IsZero() { // its begin was dropped
		since = m.at
	}
	response := clean(m.name, 200)
	model := t.model
	if model == "" {
		model = response
	}
	attrs = append(attrs, semconv.GenAIOperationNameChat, vendor(model), semconv.GenAIRequestModel(model),
		semconv.GenAIAgentName(t.name), semconv.GenAIConversationID(string(f.id)), semconv.GenAIRequestStream(true))
	attrs = append(attrs, tokens(m.usage)...)
	if t.retries > 0 {
		attrs = append(attrs, attribute.Int("drover.retries", t.retries))
	}
	if usd, known := f.session.Price(m.name, m.usage); known && m.usage != (agent.Usage{}) {
		attrs = append(attrs, attribute.Float64("drover.cost_usd", usd))
	}
	if !t.first.IsZero() && !t.first.Before(since) {
		attrs = append(attrs, semconv.GenAIResponseTimeToFirstChunk(t.first.Sub(since).Seconds()))
	}
	_, span := f.out.Start(t.ctx, "chat "+model, trace.WithTimestamp(since),
		trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attrs...))
	fail(span, m.problem)
	span.End(trace.WithTimestamp(m.at))
}

// called starts the span of a call of a tool.
func (f *fold) called(t *turn, m moment) {
	tool := clean(m.name, 200)
	attrs := []attribute.KeyValue{semconv.GenAIOperationNameExecuteTool, semconv.GenAIToolName(tool),
		semconv.GenAIToolCallID(clean(m.id, 200)), semconv.GenAIToolType("function"),
		semconv.GenAIAgentName(t.name), semconv.GenAIConversationID(string(f.id))}
	if m.input != "" {
		attrs = append(attrs, attribute.String(string(semconv.GenAIToolCallArgumentsKey), m.input))
	}
	c := &call{}
	c.ctx, c.span = f.out.Start(t.ctx, "execute_tool "+tool, trace.WithTimestamp(m.at),
		trace.WithAttributes(attrs...))
	t.calls[m.id] = c
	t.open++
}

// answered ends the span of a call, which may have been refused.
func (f *fold) answered(t *turn, m moment) {
	if c := t.calls[m.id]; c != nil && !c.done {
		if m.text != "" {
			c.span.SetAttributes(attribute.String(string(semconv.GenAIToolCallResultKey), m.text))
		}
		wrong := ""
		if m.failed {
			wrong = "tool_error"
		}
		f.endCall(t, c, m.at, wrong)
	}
	if t.open == 0 && t.since.IsZero() {
		t.wait(m.at)
	}
}

func (f *fold) endCall(t *turn, c *call, at time.Time, wrong string) {
	fail(c.span, wrong)
	c.span.End(trace.WithTimestamp(at))
	c.done = true
	t.open--
	// Tasks may still begin below the call: they need its identity, not its content.
	c.ctx = trace.ContextWithSpanContext(context.Background(), c.span.SpanContext())
}

// summarized makes the span of the call of a model that compacted a conversation.
func (f *fold) summarized(t *turn, m moment) {
	m.name = t.model
	if m.usage != (agent.Usage{}) || m.problem != "" {
		f.chat(t, m, m.at.Add(-m.took), []attribute.KeyValue{attribute.String("drover.compaction", m.reason)})
	}
	t.wait(m.at)
}

func (f *fold) turnDone(t *turn, m moment) {
	if !t.since.IsZero() && m.problem != "" && m.problem != "_OTHER" { // the model could not answer
		f.chat(t, moment{at: m.at, name: t.model, problem: m.problem}, t.since, nil)
	}
	t.span.SetAttributes(append(tokens(m.usage), attribute.String("drover.turn.reason", clean(m.reason, 200)),
		attribute.Int("drover.turn.replies", m.turns), attribute.Int("drover.turn.calls", m.calls))...)
	for _, d := range m.denied {
		t.span.AddEvent("drover.call.denied", trace.WithTimestamp(m.at), trace.WithAttributes(
			semconv.GenAIToolName(clean(d.tool, 200)), semconv.GenAIToolCallID(clean(d.id, 200))))
	}
	if m.problem != "" && m.reason != "interrupted" {
		fail(t.span, m.problem)
		if m.text != "" {
			t.span.SetAttributes(semconv.ExceptionMessage(m.text))
		}
	}
	f.endTurn(t, m.at)
}

// endTurn ends a turn and its open calls. The turn is kept until the next one: its tasks may begin later in the log.
func (f *fold) endTurn(t *turn, at time.Time) {
	if t.over {
		return
	}
	for _, c := range t.calls {
		if !c.done {
			f.endCall(t, c, at, "")
		}
	}
	t.span.End(trace.WithTimestamp(at))
	t.over = true
}

// logged takes an event of the session's log.
func (f *fold) logged(e task.Event) {
	rec := e.Task
	if rec.IsConversation() {
		return // its turns are directly below the session
	}
	ended := e.Verb == task.Complete || e.Verb == task.Fail || e.Verb == task.Stop
	r := f.tasks[rec.ID]
	switch {
	case r == nil && (ended || !rec.Status.Terminal()):
		r = f.start(rec, e.At)
	case r == nil:
		return
	}
	r.Record = rec
	switch {
	case ended:
		f.finish(r, e.At)
	case e.Verb == task.Ask && len(rec.Questions) > 0:
		q := rec.Questions[len(rec.Questions)-1]
		r.span.AddEvent("drover.question.opened", trace.WithTimestamp(e.At),
			trace.WithAttributes(semconv.GenAIToolName(clean(q.Tool, 200))))
	case e.Verb == task.Park:
		r.span.AddEvent("drover.task.parked", trace.WithTimestamp(e.At))
	}
}

// start starts the span of a task.
func (f *fold) start(rec task.Record, at time.Time) *run {
	if rec.StartTime != nil {
		at = *rec.StartTime
	}
	if rec.CreateTime.Before(at) && rec.Resumes == 0 {
		at = rec.CreateTime
	}
	attrs := []attribute.KeyValue{attribute.String("drover.task.id", string(rec.ID)),
		attribute.String("drover.task.kind", string(rec.Kind)), semconv.GenAIConversationID(string(f.id))}
	if rec.AgentType != "" {
		attrs = append(attrs, semconv.GenAIAgentName(clean(rec.AgentType, 200)))
	}
	if f.cfg.Content {
		attrs = append(attrs, attribute.String("drover.task.description", clip(rec.Description)))
		if rec.Command != "" {
			attrs = append(attrs, semconv.ProcessCommandLine(clip(rec.Command)))
		}
	}
	r := &run{Record: rec}
	r.ctx, r.span = f.out.Start(f.above(rec), "task "+clean(string(rec.Kind), 100), trace.WithTimestamp(at),
		trace.WithAttributes(attrs...))
	f.tasks[rec.ID] = r
	return r
}

// above returns the parent of a task's span: the call that started it, the turn of its parent, its parent, or the
// session.
func (f *fold) above(rec task.Record) context.Context {
	t := f.turns[rec.Parent]
	if t == nil && f.isMain(rec.Parent) {
		if t = f.turns[f.id]; t == nil {
			t = f.turns[""]
		}
	}
	if t != nil && rec.ToolUseID != "" {
		if c := t.calls[rec.ToolUseID]; c != nil {
			return c.ctx
		}
	}
	if r := f.tasks[rec.Parent]; r != nil {
		return r.ctx
	}
	return f.root
}

// finish ends the span of a task.
func (f *fold) finish(r *run, at time.Time) {
	if r.EndTime != nil {
		at = *r.EndTime
	}
	attrs := []attribute.KeyValue{attribute.String("drover.task.status", string(r.Status)),
		attribute.Bool("drover.task.background", r.Backgrounded)}
	if r.Cause != nil {
		attrs = append(attrs, attribute.String("drover.task.cause", string(r.Cause.Actor)+"/"+string(r.Cause.Reason)))
	}
	if r.ExitCode != nil {
		attrs = append(attrs, semconv.ProcessExitCode(*r.ExitCode))
	}
	if r.StartTime != nil {
		attrs = append(attrs, attribute.Float64("drover.task.queued_s", max(0, r.StartTime.Sub(r.CreateTime).Seconds())))
	}
	if u := r.Usage; u != nil && u.CostUSD != nil {
		attrs = append(attrs, attribute.Float64("drover.cost_usd", *u.CostUSD))
	}
	if r.Status == task.Failed {
		fail(r.span, "failed")
		if f.cfg.Content && r.Error != "" {
			attrs = append(attrs, semconv.ExceptionMessage(clip(r.Error)))
		}
	}
	r.span.SetAttributes(attrs...)
	r.span.End(trace.WithTimestamp(at))
	delete(f.tasks, r.ID)
	if t := f.turns[r.ID]; t != nil {
		f.endTurn(t, at)
		delete(f.turns, r.ID)
	}
}

// close ends the open spans except the one of the session. A task whose end was not seen continues without this host,
// or its end was missed.
func (f *fold) close(dropped int64) {
	now := time.Now()
	for _, t := range f.turns {
		f.endTurn(t, now)
	}
	for _, r := range f.tasks {
		r.span.SetAttributes(attribute.Bool("drover.task.unfinished", true))
		r.span.End(trace.WithTimestamp(now))
	}
	if dropped > 0 {
		f.span.SetAttributes(attribute.Int64("drover.telemetry.dropped", dropped))
	}
}

func fail(span trace.Span, problem string) {
	if problem == "" {
		return
	}
	span.SetAttributes(semconv.ErrorTypeKey.String(problem))
	span.SetStatus(codes.Error, problem)
}

// input counts as the conventions do: with the tokens read from the cache and written to it.
func input(u agent.Usage) int64 { return u.InputTokens + u.CacheReadTokens + u.CacheWriteTokens }

func tokens(u agent.Usage) []attribute.KeyValue {
	if u == (agent.Usage{}) {
		return nil
	}
	return []attribute.KeyValue{
		semconv.GenAIUsageInputTokensKey.Int64(input(u)), semconv.GenAIUsageOutputTokensKey.Int64(u.OutputTokens),
		semconv.GenAIUsageCacheReadInputTokensKey.Int64(u.CacheReadTokens),
		semconv.GenAIUsageCacheCreationInputTokensKey.Int64(u.CacheWriteTokens),
	}
}

// vendor returns the provider of a model, derived from its name.
func vendor(model string) attribute.KeyValue {
	name := model[strings.LastIndex(model, "/")+1:]
	for _, p := range []struct {
		begin string
		is    attribute.KeyValue
	}{
		{"claude", semconv.GenAIProviderNameAnthropic},
		{"sonnet", semconv.GenAIProviderNameAnthropic},
		{"opus", semconv.GenAIProviderNameAnthropic},
		{"haiku", semconv.GenAIProviderNameAnthropic},
		{"gpt", semconv.GenAIProviderNameOpenAI},
		{"o1", semconv.GenAIProviderNameOpenAI},
		{"o3", semconv.GenAIProviderNameOpenAI},
		{"o4", semconv.GenAIProviderNameOpenAI},
		{"gemini", semconv.GenAIProviderNameGCPGemini},
		{"mistral", semconv.GenAIProviderNameMistralAI},
		{"deepseek", semconv.GenAIProviderNameDeepseek},
		{"grok", semconv.GenAIProviderNameXAI},
	} {
		if strings.HasPrefix(name, p.begin) {
			return p.is
		}
	}
	if by, _, found := strings.Cut(model, "/"); found {
		return semconv.GenAIProviderNameKey.String(by)
	}
	return semconv.GenAIProviderNameKey.String("_OTHER")
}
