package agentsdk

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/task"
)

const (
	mailKind     = "task-notification"
	interruption = "[The turn was interrupted.]"
)

// turn is the state of the main agent's turn.
type turn struct {
	shown   bool // system/init is written
	replied bool
	origin  string // the cause of the turn; empty: a prompt
	inTools bool   // the last reply called tools

	asked time.Time // the earliest begin of the current call of the model
	api   time.Duration
}

// voice is the source of lines and the state of its current reply.
type voice struct {
	origin
	model string
	reply reply
}

// speaker is the voice of a subagent.
func speaker(r task.Record) voice {
	v := voice{model: r.Model, origin: origin{AgentID: r.ID, SubagentType: r.AgentType, TaskDescription: describe(r)}}
	if r.ToolUseID != "" {
		v.ParentToolUseID = &r.ToolUseID
	}
	return v
}

func (s *Stream) onMain(e agent.Event) {
	now := time.Now()
	if e.Kind == agent.TurnStartEvent {
		s.turn, s.main.model = turn{asked: now}, s.o.Model
		return
	}
	if !s.turn.shown {
		// Woken for mail that was delivered already: not a turn.
		if e.Kind == agent.TurnDoneEvent && errors.Is(e.Err, agent.ErrNothing) {
			return
		}
		s.turn.shown = true
		s.state("running")
		s.init()
	}
	switch e.Kind {
	case agent.MailEvent:
		if !s.turn.replied && len(e.Mail) > 0 {
			s.turn.origin = e.Mail[0].Origin
			if s.turn.origin == "" {
				s.turn.origin = mailKind
			}
		}
	case agent.PromptEvent:
		s.turn.origin = ""
		s.began()
	case agent.BlockEvent:
		s.turn.replied = true
	case agent.ReplyDoneEvent:
		s.turn.api += now.Sub(s.turn.asked)
		s.turn.inTools = slices.ContainsFunc(e.Reply.Blocks, func(b agent.Block) bool { return b.Type == "tool_use" })
		s.spent(e.Reply.Model, e.Reply.Usage)
	case agent.PartEvent:
		s.void(s.main.model, e.Part)
	}
	if e.Kind == agent.PartEvent {
		s.turn.inTools = false
	} else if e.Kind != agent.BlockEvent {
		s.turn.asked = now
	}
	s.say(&s.main, e)
	switch {
	case e.Kind == agent.CompactStartEvent:
		compacting := "compacting"
		s.status(&compacting)
		s.note("the conversation is too long and is being summarized")
	case e.Kind == agent.CompactEvent:
		s.compacted(e)
	case e.Kind == agent.TurnDoneEvent && e.Result != nil:
		s.refusals(e.Result.Denials)
		s.result(*e.Result, e.Err)
		s.answered()
		s.state("idle")
		s.turn = turn{}
	}
}

// Beside prints a turn without a call of the model.
func (s *Stream) Beside(r agent.TurnResult, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pull()
	if !s.turn.shown {
		s.state("running")
		s.init()
	}
	s.began()
	s.result(r, err)
	s.answered()
	s.state("idle")
	s.turn = turn{}
}

func (s *Stream) status(now *string) {
	s.line(statusLine{head: system("status"), Status: now, stamp: s.stamp()})
}

// compacted prints that the conversation continues from a summary, or why not.
func (s *Stream) compacted(e agent.Event) {
	s.status(nil)
	if e.Compaction != nil {
		s.spent(s.main.model, e.Compaction.Usage)
	}
	if e.Err != nil || e.Compaction == nil {
		s.note("summarizing the conversation failed: %v", e.Err)
		return
	}
	s.line(compactLine{
		head:    system("compact_boundary"),
		Compact: compaction{Trigger: compactTrigger(e.Compaction.Trigger), Before: e.Compaction.Before}, stamp: s.stamp(),
	})
}

func (s *Stream) onSubagent(t *entry, e agent.Event) {
	if t.rec.Depth <= 1 {
		s.say(&t.voice, e)
	}
	switch e.Kind {
	case agent.TurnStartEvent:
		t.voice.model = t.rec.Model
	case agent.ReplyDoneEvent:
		u := e.Reply.Usage
		if n := u.InputTokens + u.CacheReadTokens + u.CacheWriteTokens; n > 0 {
			t.context = n
		}
		t.output += u.OutputTokens
		s.spent(e.Reply.Model, u)
	case agent.PartEvent:
		s.void(t.voice.model, e.Part)
	case agent.ToolDoneEvent:
		s.progress(t, e.Call.Name)
	case agent.TurnDoneEvent:
		if e.Result != nil {
			s.refusals(e.Result.Denials)
		}
	}
}

// say prints a piece of a conversation.
func (s *Stream) say(v *voice, e agent.Event) {
	switch e.Kind {
	case agent.MailEvent:
		for _, l := range e.Mail {
			s.user(v, agent.TextBlock(l.Text), nil, true)
		}
	case agent.PartEvent:
		s.part(v, e.Part)
	case agent.BlockEvent:
		s.line(assistantLine{
			Type: "assistant",
			Message: message{
				ID: e.ReplyID, Type: "message", Role: "assistant", Model: e.Model,
				Content: []any{apiBlock(e.Block)}, Usage: usageOf(e.Usage),
			},
			origin: v.origin, Timestamp: time.Now().UTC(), stamp: s.stamp(),
		})
	case agent.ReplyDoneEvent:
		s.parts(v, v.reply.done(e.Reply))
	case agent.ToolDoneEvent:
		s.user(v, agent.ToolResultBlock(e.Call.ID, e.Output.Text, e.Output.IsError), structured(e.Output.Structured), false)
	case agent.TurnDoneEvent:
		v.reply = reply{}
		if e.Result != nil && e.Result.Reason == "interrupted" {
			s.user(v, agent.TextBlock(interruption), nil, true)
		}
	}
}

func (s *Stream) user(v *voice, b agent.Block, result json.RawMessage, synthetic bool) {
	s.line(userLine{
		Type: "user", Message: agent.NewMessage(agent.User, b), ToolUseResult: result, Synthetic: synthetic,
		origin: v.origin, Timestamp: time.Now().UTC(), stamp: s.stamp(),
	})
}

// structured encodes the structured result of a tool. A value that cannot be encoded is left out; the text has it too.
func structured(v any) json.RawMessage {
	if v == nil {
		return nil
	}
	raw, err := encoded(v)
	if err != nil {
		return nil
	}
	return raw
}

func (s *Stream) part(v *voice, p agent.Part) {
	switch {
	case p.Kind == agent.RetryPart:
		s.retry(v, p.Retry)
	case p.Kind == agent.FallbackPart:
		v.model = p.Fallback.To
		s.line(informationalLine{head: system("informational"), Level: "warning", Tag: "model_fallback",
			Content: p.Fallback.String(), From: p.Fallback.From, To: p.Fallback.To, origin: v.origin, stamp: s.stamp()})
		s.warn("%s", excerpt.Line(p.Fallback.String(), 600))
	case p.Kind == agent.VoidPart:
		if v.reply.begun {
			s.line(discardedLine{head: system("partial_message_discarded"), origin: v.origin, stamp: s.stamp()})
		}
		v.reply = reply{}
	case s.o.Partial:
		s.parts(v, v.reply.take(v.model, p))
	}
}

// retry prints that a call of a model is retried.
func (s *Stream) retry(v *voice, r agent.Retry) {
	l := retryLine{
		head: system("api_retry"), Attempt: r.Attempt, Most: r.Most, DelayMS: r.After.Milliseconds(),
		Error: retryWord(r.Why.Kind), Text: r.Why.Text, origin: v.origin, stamp: s.stamp(),
	}
	if r.Why.Status >= 400 {
		l.Status = &r.Why.Status
	}
	s.line(l)
	who := ""
	if v.AgentID != "" {
		who = fmt.Sprintf("agent %s: ", v.AgentID)
	}
	s.warn("%s%s", who, excerpt.Line(r.String(), 600))
}

func (s *Stream) parts(v *voice, events []map[string]any) {
	for _, e := range events {
		s.line(partLine{Type: "stream_event", Event: e, origin: v.origin, stamp: s.stamp()})
	}
}

// void counts the usage of a failed reply.
func (s *Stream) void(model string, p agent.Part) {
	if p.Kind == agent.VoidPart && p.Usage != (agent.Usage{}) {
		s.spent(model, p.Usage)
	}
}

// spent adds to the usage of a model.
func (s *Stream) spent(model string, used agent.Usage) {
	if used == (agent.Usage{}) {
		return
	}
	u := s.usage[model]
	if u == nil {
		u = &modelUsage{}
		if s.o.Limits != nil {
			u.Window, u.Most = s.o.Limits(model)
		}
		s.usage[model] = u
	}
	u.Input += used.InputTokens
	u.Output += used.OutputTokens
	u.CacheRead += used.CacheReadTokens
	u.CacheWrite += used.CacheWriteTokens
	if s.o.Price == nil {
		return
	}
	usd, known := s.o.Price(model, used)
	u.Cost += usd
	u.Partial = u.Partial || !known
}

func (s *Stream) init() {
	s.line(initLine{
		head: system("init"), Cwd: s.o.Cwd, Tools: list(s.o.Tools), MCPServers: list(s.o.MCPServers),
		Model: s.o.Model, PermissionMode: s.o.PermissionMode, SlashCommands: list(s.o.Commands),
		Agents: list(s.o.Agents), Skills: list(s.o.Skills), Plugins: []any{}, OutputStyle: "default",
		WireVersion: s.o.Version, Version: s.o.Version, Capabilities: []string{},
		KeySource: cmp.Or(s.o.KeySource, "none"), Effort: s.o.Effort, stamp: s.stamp(),
	})
	if s.turns == 0 && len(s.o.Live) > 0 {
		s.background() // the reader has not seen them start
	}
}

// list is never null on the wire.
func list[T any](of []T) []T {
	if of == nil {
		return []T{}
	}
	return of
}

func (s *Stream) result(r agent.TurnResult, err error) {
	l := &resultLine{
		head: head{Type: "result"}, IsError: err != nil, answer: r.Text, Structured: r.Structured,
		Turns: r.Turns, DurationMS: r.Duration.Milliseconds(), APIMS: s.turn.api.Milliseconds(),
		Usage: usageOf(r.Usage), ModelUsage: s.usage, Denials: r.Denials, Index: s.turns, Stats: s.stats, stamp: s.stamp(),
	}
	l.Subtype, l.TerminalReason = resultWords(r, err, s.turn.inTools)
	if s.o.Cost != nil {
		usd, known := s.o.Cost()
		l.Cost, l.SessionCost, l.CostPartial = max(0, usd-s.before), &usd, !known
	}
	if r.StopReason != "" {
		l.StopReason = &r.StopReason
	}
	if l.Denials == nil {
		l.Denials = []agent.Denial{}
	}
	if s.turn.origin != "" {
		l.Origin = &resultOrigin{Kind: s.turn.origin}
	}
	empty := strings.TrimSpace(r.Text) == ""
	if err == nil || !empty {
		l.Result = &r.Text
	}
	if err != nil {
		l.Errors = []string{err.Error()}
	} else {
		l.EmptyAnswer = empty
	}
	s.turns++
	s.final = l
	s.line(l)
}
