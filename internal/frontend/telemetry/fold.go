package telemetry

import (
	"context"
	"fmt"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/log"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/semconv/v1.41.0/genaiconv"
	"go.opentelemetry.io/otel/trace"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/task"
)

// moment is what is known of an event: of an agent, or of a task.
type moment struct {
	at      time.Time
	from    task.ID
	kind    agent.EventKind
	part    agent.PartKind
	id      string // of a call or a reply
	name    string // of a tool or a model
	failed  bool
	problem string // error.type; empty: none
	reason  string // why a reply, a turn or a summary was
	usage   agent.Usage
	took    time.Duration
	turns   int
	calls   int
	denied  []denied
	input   string // content
	text    string // content

	event *task.Event // of the log; nil: of an agent
}

type denied struct{ id, tool string }

// fold makes spans, measurements and records of moments. One goroutine uses it.
type fold struct {
	cfg     Config
	out     *providers
	session Session
	id      task.ID
	root    context.Context // with the span of the session
	span    trace.Span
	tasks   map[task.ID]*run
	turns   map[task.ID]*turn
	m       instruments
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
	began       time.Time
	since       time.Time // a reply is waited for since then; zero: none is
	first       time.Time // it began to come in; zero: not yet
	retries     int
	open        int              // calls that run
	calls       map[string]*call // of this turn, by ID; ended ones too, whose tasks may begin later in the log
	over        bool
}

type call struct {
	tool  string
	ctx   context.Context
	span  trace.Span
	began time.Time
	done  bool
}

type instruments struct {
	tokens   genaiconv.ClientTokenUsage
	duration genaiconv.ClientOperationDuration
	first    genaiconv.ClientOperationTimeToFirstChunk
	tool     metric.Float64Histogram
	task     metric.Float64Histogram
	live     metric.Int64UpDownCounter
	cost     metric.Float64Counter
	dropped  metric.Int64Counter
}

// The steps of histograms that the conventions advise.
func seconds() metric.Float64HistogramOption {
	return metric.WithExplicitBucketBoundaries(
		0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
}

func newInstruments(m metric.Meter, tell func(error)) (i instruments) {
	var errs [8]error
	i.tokens, errs[0] = genaiconv.NewClientTokenUsage(m, metric.WithExplicitBucketBoundaries(
		1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864))
	i.duration, errs[1] = genaiconv.NewClientOperationDuration(m, seconds())
	i.first, errs[2] = genaiconv.NewClientOperationTimeToFirstChunk(m, seconds())
	i.tool, errs[3] = m.Float64Histogram("drover.tool.duration", metric.WithUnit("s"), seconds(),
		metric.WithDescription("Duration of calls of tools."))
	i.task, errs[4] = m.Float64Histogram("drover.task.duration", metric.WithUnit("s"),
		metric.WithExplicitBucketBoundaries(0.01, 0.1, 1, 10, 60, 300, 1800, 7200, 43200),
		metric.WithDescription("Duration of tasks that have ended."))
	i.live, errs[5] = m.Int64UpDownCounter("drover.task.live", metric.WithUnit("{task}"),
		metric.WithDescription("Tasks that have not ended."))
	i.cost, errs[6] = m.Float64Counter("drover.cost", metric.WithUnit("{USD}"),
		metric.WithDescription("Cost of calls of models by the table of prices."))
	i.dropped, errs[7] = m.Int64Counter("drover.telemetry.dropped", metric.WithUnit("{event}"),
		metric.WithDescription("Events that the exporter had no room for."))
	for _, err := range errs {
		if err != nil {
			tell(err)
		}
	}
	return i
}

func newFold(cfg Config, out *providers, s Session, info control.Info) *fold {
	f := &fold{cfg: cfg, out: out, session: s, id: info.Session, tasks: map[task.ID]*run{}, turns: map[task.ID]*turn{},
		m: newInstruments(out.meter, out.tell)}
	root := context.Background()
	if !info.Detached { // the variables of a detached host are those of whoever started it
		root = propagation.TraceContext{}.Extract(root, propagation.MapCarrier{
			"traceparent": cfg.Env("TRACEPARENT"), "tracestate": cfg.Env("TRACESTATE")})
	}
	attrs := []attribute.KeyValue{semconv.GenAIConversationID(string(info.Session)),
		attribute.String("drover.session.role", info.Role), attribute.Bool("drover.session.detached", info.Detached)}
	if cfg.Content {
		attrs = append(attrs, attribute.String("drover.session.folder", clip(info.Project)))
	}
	f.root, f.span = out.tracer.Start(root, "drover.session", trace.WithAttributes(attrs...))
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

// begin is the begin of a turn of an agent.
func (f *fold) begin(ctx context.Context, m moment) *turn {
	t := &turn{name: "main", began: m.at, since: m.at, calls: map[string]*call{}}
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
		attrs = append(attrs, provider(t.model), semconv.GenAIRequestModel(t.model))
	}
	t.ctx, t.span = f.out.tracer.Start(parent, "invoke_agent "+t.name, trace.WithTimestamp(m.at),
		trace.WithAttributes(attrs...))
	return t
}

// wait says that a reply is waited for from now on.
func (t *turn) wait(at time.Time) { t.since, t.first, t.retries = at, time.Time{}, 0 }

func (t *turn) part(m moment) {
	switch {
	case m.part == agent.RetryPart || m.part == agent.FallbackPart:
		t.retries++
	case t.first.IsZero():
		t.first = m.at
	}
}

// replied makes the span of a call of a model whose reply is there.
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

// chat makes the span of one call of a model, and measures it.
func (f *fold) chat(t *turn, m moment, since time.Time, attrs []attribute.KeyValue) {
	if since.IsZero() { // its begin was dropped
		since = m.at
	}
	response := clean(m.name, 200)
	model := t.model
	if model == "" {
		model = response
	}
	by := provider(model)
	attrs = append(attrs, semconv.GenAIOperationNameChat, by, semconv.GenAIRequestModel(model),
		semconv.GenAIAgentName(t.name), semconv.GenAIConversationID(string(f.id)), semconv.GenAIRequestStream(true))
	attrs = append(attrs, tokens(m.usage)...)
	if t.retries > 0 {
		attrs = append(attrs, attribute.Int("drover.retries", t.retries))
	}
	of := []attribute.KeyValue{semconv.GenAIRequestModel(model)}
	if response != "" {
		of = append(of, semconv.GenAIResponseModel(response))
	}
	if usd, known := f.session.Price(m.name, m.usage); known && m.usage != (agent.Usage{}) {
		attrs = append(attrs, attribute.Float64("drover.cost_usd", usd))
		f.m.cost.Add(t.ctx, usd, metric.WithAttributes(append(of, by)...))
	}
	if !t.first.IsZero() && !t.first.Before(since) {
		attrs = append(attrs, semconv.GenAIResponseTimeToFirstChunk(t.first.Sub(since).Seconds()))
	}
	ctx, span := f.out.tracer.Start(t.ctx, "chat "+model, trace.WithTimestamp(since),
		trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attrs...))
	fail(span, m.problem)
	span.End(trace.WithTimestamp(m.at))

	name := genaiconv.ProviderNameAttr(by.Value.AsString())
	if m.problem != "" {
		of = append(of, semconv.ErrorTypeKey.String(m.problem))
	}
	f.m.duration.Record(ctx, m.at.Sub(since).Seconds(), genaiconv.OperationNameChat, name, of...)
	if m.problem != "" {
		return
	}
	if !t.first.IsZero() && !t.first.Before(since) {
		f.m.first.Record(ctx, t.first.Sub(since).Seconds(), genaiconv.OperationNameChat, name, of...)
	}
	f.m.tokens.Record(ctx, input(m.usage), genaiconv.OperationNameChat, name, genaiconv.TokenTypeInput, of...)
	f.m.tokens.Record(ctx, m.usage.OutputTokens, genaiconv.OperationNameChat, name, genaiconv.TokenTypeOutput, of...)
}

// called is the begin of a call of a tool.
func (f *fold) called(t *turn, m moment) {
	tool := clean(m.name, 200)
	attrs := []attribute.KeyValue{semconv.GenAIOperationNameExecuteTool, semconv.GenAIToolName(tool),
		semconv.GenAIToolCallID(clean(m.id, 200)), semconv.GenAIToolType("function"),
		semconv.GenAIAgentName(t.name), semconv.GenAIConversationID(string(f.id))}
	if m.input != "" {
		attrs = append(attrs, attribute.String(string(semconv.GenAIToolCallArgumentsKey), m.input))
	}
	c := &call{tool: tool, began: m.at}
	c.ctx, c.span = f.out.tracer.Start(t.ctx, "execute_tool "+tool, trace.WithTimestamp(m.at),
		trace.WithAttributes(attrs...))
	t.calls[m.id] = c
	t.open++
}

// answered is the end of a call, or of one that did not run.
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
	// tasks may still begin below it; what it said is not kept for them
	c.ctx = trace.ContextWithSpanContext(context.Background(), c.span.SpanContext())
	attrs := []attribute.KeyValue{semconv.GenAIToolName(c.tool)}
	if wrong != "" {
		attrs = append(attrs, semconv.ErrorTypeKey.String(wrong))
	}
	f.m.tool.Record(c.ctx, at.Sub(c.began).Seconds(), metric.WithAttributes(attrs...))
}

// summarized is the call of a model that made a conversation shorter.
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
		f.record(t.ctx, m.at, log.SeverityInfo, "drover.call.denied", "a call of a tool was denied",
			semconv.GenAIToolName(clean(d.tool, 200)), semconv.GenAIToolCallID(clean(d.id, 200)))
	}
	if m.problem != "" && m.reason != "interrupted" {
		fail(t.span, m.problem)
		attrs := []attribute.KeyValue{semconv.ErrorTypeKey.String(m.problem), semconv.GenAIAgentName(t.name)}
		if m.text != "" {
			attrs = append(attrs, semconv.ExceptionMessage(m.text))
		}
		f.record(t.ctx, m.at, log.SeverityError, "drover.turn.failed", "a turn of agent "+t.name+" failed", attrs...)
	}
	f.endTurn(t, m.at)
}

// endTurn ends a turn with what is open in it. It is kept until the next: its tasks may begin later in the log.
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

// logged is an event of the log of the session.
func (f *fold) logged(e task.Event) {
	rec := e.Task
	if rec.IsConversation() {
		return // its turns are below the session
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
		f.record(r.ctx, e.At, log.SeverityInfo, "drover.question.opened", "a question waits for an answer",
			semconv.GenAIToolName(clean(q.Tool, 200)), attribute.String("drover.task.id", string(rec.ID)))
	case e.Verb == task.Park:
		f.record(r.ctx, e.At, log.SeverityWarn, "drover.task.parked", "a usage limit parks the task",
			attribute.String("drover.task.id", string(rec.ID)))
	}
}

// start makes the span of a task.
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
	r.ctx, r.span = f.out.tracer.Start(f.above(rec), "task "+clean(string(rec.Kind), 100), trace.WithTimestamp(at),
		trace.WithAttributes(attrs...))
	f.tasks[rec.ID] = r
	f.m.live.Add(r.ctx, 1, kindOf(rec))
	return r
}

func kindOf(rec task.Record) metric.MeasurementOption {
	return metric.WithAttributes(attribute.String("drover.task.kind", clean(string(rec.Kind), 100)))
}

// above is the span below which a task is: the call that started it, the turn of its parent, its parent, or the
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
	status := string(r.Status)
	attrs := []attribute.KeyValue{attribute.String("drover.task.status", status),
		attribute.Bool("drover.task.background", r.Backgrounded)}
	if r.Cause != nil {
		attrs = append(attrs, attribute.String("drover.task.cause", string(r.Cause.Actor)+"/"+string(r.Cause.Reason)))
	}
	if r.ExitCode != nil {
		attrs = append(attrs, semconv.ProcessExitCode(*r.ExitCode))
	}
	if r.StartTime != nil {
		attrs = append(attrs, attribute.Float64("drover.task.queued_s", max(0, r.StartTime.Sub(r.CreateTime).Seconds())))
		f.m.task.Record(r.ctx, at.Sub(*r.StartTime).Seconds(), kindOf(r.Record),
			metric.WithAttributes(attribute.String("drover.task.status", status)))
	}
	if u := r.Usage; u != nil && u.CostUSD != nil {
		attrs = append(attrs, attribute.Float64("drover.cost_usd", *u.CostUSD))
	}
	level := log.SeverityInfo
	switch r.Status {
	case task.Failed:
		level = log.SeverityError
		fail(r.span, "failed")
		if f.cfg.Content && r.Error != "" {
			attrs = append(attrs, semconv.ExceptionMessage(clip(r.Error)))
		}
	case task.Killed:
		level = log.SeverityWarn
	}
	r.span.SetAttributes(attrs...)
	r.span.End(trace.WithTimestamp(at))
	attrs = append(attrs, attribute.String("drover.task.id", string(r.ID)),
		attribute.String("drover.task.kind", string(r.Kind)))
	f.record(r.ctx, at, level, "drover.task.ended", fmt.Sprintf("task %s (%s) is %s", r.ID, r.Kind, status), attrs...)
	f.m.live.Add(r.ctx, -1, kindOf(r.Record))
	delete(f.tasks, r.ID)
	if t := f.turns[r.ID]; t != nil {
		f.endTurn(t, at)
		delete(f.turns, r.ID)
	}
}

// close ends what is open. A task whose end was not seen goes on without this host, or its end was missed.
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
		f.m.dropped.Add(f.root, dropped)
		f.span.SetAttributes(attribute.Int64("drover.telemetry.dropped", dropped))
	}
	f.span.End(trace.WithTimestamp(now))
}

func (f *fold) record(ctx context.Context, at time.Time, level log.Severity, name, text string,
	attrs ...attribute.KeyValue,
) {
	var r log.Record
	r.SetEventName(name)
	r.SetTimestamp(at)
	r.SetObservedTimestamp(time.Now())
	r.SetSeverity(level)
	r.SetSeverityText(level.String())
	r.SetBody(attribute.StringValue(text))
	r.AddAttributes(attrs...)
	f.out.logger.Emit(ctx, r)
}

func fail(span trace.Span, problem string) {
	if problem == "" {
		return
	}
	span.SetAttributes(semconv.ErrorTypeKey.String(problem))
	span.SetStatus(codes.Error, problem)
}

// input is what the conventions count as input: with what was read from the cache and written to it.
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

// provider is the vendor of a model, as its name tells.
func provider(model string) attribute.KeyValue {
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
