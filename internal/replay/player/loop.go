package player

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/replay/recording"
	"github.com/drover-dev/drover/task"
)

// real reports whether a tool works on the session alone, and runs: what it starts is played. All
// others hand back what was recorded.
func real(tool string) bool {
	switch tool {
	case "Agent", "Bash", "Monitor", "TaskStop", "TaskOutput", "SendMessage", "read_agent", "Workflow", "TaskCreate",
		"TaskUpdate", "StructuredOutput", "report_intent", task.ExitPlanMode:
		return true
	}
	return false
}

// Loop lets an agent be answered as recorded.
func (p *Player) Loop(id task.ID, c *agent.Config) {
	p.mu.Lock()
	a := p.byAgent[p.main(id)]
	p.mu.Unlock()
	if a == nil && p.live {
		return
	}
	if a == nil {
		_ = p.diverge("agent %s begins, and was not recorded", p.called(id))
		return
	}
	who := speaker{p, a, id}
	c.Tools, c.Deferred = who.tools(c.Tools), a.deferred
	if c.Compaction != nil && a.window != nil { // as it was, also where the settings of today have another
		c.Compaction = recording.Compacting(c.Compaction, func(what string, get func() (string, error)) (string, error) {
			have, err := get()
			return p.Text(id, what, have, err)
		})
		c.Compaction.Window, c.Compaction.Share = a.window.Tokens, a.window.Share
	}
	c.Gate = gate{who, c.Gate}
	c.Hooks = hooks{who, c.Hooks}
	if c.Reminders != nil {
		c.Reminders = reminders{who, c.Reminders}
	}
	next := c.On
	c.On = func(e agent.Event) {
		who.heard(e)
		if next != nil {
			next(e)
		}
	}
	if c.Mail != nil {
		c.Mail = &mail{speaker: who, next: c.Mail}
	}
}

// speaker is one agent of the replay.
type speaker struct {
	p  *Player
	a  *part
	id task.ID
}

// heard keeps whether the agent is in a turn.
func (s speaker) heard(e agent.Event) {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	switch e.Kind {
	case agent.TurnStartEvent:
		s.a.begun++
		s.a.inTurn = true
	case agent.TurnDoneEvent:
		s.a.inTurn = false
	}
}

func (s speaker) tools(have []agent.Tool) []agent.Tool {
	byName := map[string]agent.Tool{}
	for _, t := range have {
		byName[t.Spec().Name] = t
	}
	var out []agent.Tool
	for _, spec := range s.a.tools {
		t := byName[spec.Name]
		_, forwards := t.(agent.Forwarder)
		if t != nil && (forwards || real(spec.Name)) {
			out = append(out, t)
			continue
		}
		a := answered{speaker: s, spec: spec, next: t}
		if x, ok := t.(agent.Parallel); ok {
			a.parallel = x.Parallel()
		}
		if x, ok := t.(agent.Aliased); ok {
			a.aliases = x.Aliases()
		}
		out = append(out, a)
	}
	return out
}

// answered is a tool that hands back what was recorded.
type answered struct {
	speaker
	spec     agent.ToolSpec
	next     agent.Tool // nil: it is not there any more
	parallel bool
	aliases  []string
}

func (t answered) Spec() agent.ToolSpec { return t.spec }
func (t answered) Parallel() bool       { return t.parallel }
func (t answered) Aliases() []string    { return t.aliases }

func (t answered) Call(ctx context.Context, c agent.Call) (agent.Output, error) {
	e, recorded := t.first(t.a.results, c.ID, false)
	switch {
	case !t.p.live:
	case !recorded && t.next == nil:
		return agent.Refuse("this tool was there when the run was recorded, and is not there now"), nil
	case !recorded:
		return t.next.Call(ctx, c)
	case t.next != nil && edits(t.spec.Name) && !e.Output.IsError:
		if out, err := t.next.Call(ctx, c); err != nil || out.IsError {
			return out, t.p.diverge("%s of agent %s cannot be done again (replay in a folder with the files as they were): %s",
				c.Name, t.p.called(t.id), excerpt.Line(out.Text, 200))
		}
	}
	return t.result(c)
}

// edits reports whether a tool changes files, which a run that goes on live needs.
func edits(tool string) bool { return tool == "Write" || tool == "Edit" }

// result is what a call has handed back.
func (s speaker) result(c agent.Call) (agent.Output, error) {
	e, ok := s.first(s.a.results, c.ID, false)
	if !ok {
		err := s.p.diverge("agent %s has run %s (%s), and that was not recorded", s.p.called(s.id), c.Name, c.ID)
		return agent.Refuse(err.Error()), nil
	}
	return output(e.Output), nil
}

// gate decides as recorded. Nobody is asked.
type gate struct {
	speaker
	next agent.Gate
}

func (g gate) Check(ctx context.Context, c agent.Call) (agent.Decision, error) {
	e, ok := g.first(g.a.gates, c.ID, true)
	if !ok && g.p.live && g.next != nil {
		return g.next.Check(ctx, c)
	}
	if !ok {
		err := g.p.diverge("agent %s calls %s (%s), and that was not recorded", g.p.called(g.id), c.Name, c.ID)
		return agent.Decision{Reason: err.Error()}, nil
	}
	if err := g.p.let(ctx, g.p.placed[e.N]); err != nil {
		return agent.Decision{Reason: err.Error()}, err
	}
	d := *e.Decision
	if string(d.Input) == "null" { // the input was not replaced
		d.Input = nil
	}
	return d, nil
}

// hooks say what was recorded. None of the user's runs.
type hooks struct {
	speaker
	next agent.Hooks // nil: none
}

func (h hooks) Called(ctx context.Context, c agent.Call, out agent.Output, took time.Duration) agent.Output {
	e, ok := h.first(h.a.results, c.ID, true)
	if h.next != nil && !(ok && h.p.live) { // hooks that are live ran when it was recorded
		said := h.next.Called(ctx, c, out, took)
		if h.p.live {
			return said
		}
	}
	if !ok {
		return out // it was interrupted when it was recorded
	}
	return output(e.Output)
}

func (h hooks) Batch(ctx context.Context, done []agent.Done) string {
	if h.next != nil && (!h.p.live || left(h.p, h.a.batches, &h.a.batched) == 0) {
		said := h.next.Batch(ctx, done)
		if h.p.live {
			return said
		}
	}
	return text(h.p, h.a.batches, &h.a.batched)
}

func (h hooks) Stop(ctx context.Context, res agent.TurnResult, blocked int) string {
	if h.next != nil && (!h.p.live || left(h.p, h.a.stops, &h.a.stopped) == 0) {
		said := h.next.Stop(ctx, res, blocked)
		if h.p.live {
			return said
		}
	}
	return text(h.p, h.a.stops, &h.a.stopped)
}

// left is how many of entries have not been told.
func left(p *Player, entries []recording.Entry, next *int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(entries) - *next
}

// text returns the text of the next of entries.
func text(p *Player, entries []recording.Entry, next *int) string {
	if texts := texts(p, entries, next); len(texts) > 0 {
		return texts[0]
	}
	return ""
}

func texts(p *Player, entries []recording.Entry, next *int) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if *next >= len(entries) {
		return nil
	}
	*next++
	return entries[*next-1].Texts
}

type reminders struct {
	speaker
	next agent.Reminders
}

func (r reminders) Due(ctx context.Context, fresh bool) []string {
	if r.p.live && left(r.p, r.a.reminders, &r.a.reminded) == 0 {
		return r.next.Due(ctx, fresh)
	}
	return texts(r.p, r.a.reminders, &r.a.reminded)
}

func (r reminders) Forgotten() { r.next.Forgotten() }

// mail hands an agent what it read then, when it has come, and nothing that it read later.
type mail struct {
	speaker
	next agent.Mail
}

// wanted are the texts that the agent has read by now in the recording. It waits for the first due
// of them; the others begin its next turn. Between two turns it finds mail where it did then.
func (m *mail) wanted() (all []string, due int) {
	m.p.mu.Lock()
	defer m.p.mu.Unlock()
	entry, known := m.a.found[m.a.begun]
	found := len(entry.Texts) > 0
	for _, e := range m.a.mail {
		switch {
		case e.Call <= m.a.called && e.Turn <= m.a.begun:
			all = append(all, e.Texts...)
			due = len(all)
		case !m.a.inTurn && e.Turn == m.a.begun+1 && (found || !known):
			all = append(all, e.Texts...)
			if found {
				due = len(all)
			}
		}
	}
	return all, due
}

// looked is the place where the agent has looked for mail; nil: in a turn.
func (m *mail) looked() *turn {
	m.p.mu.Lock()
	defer m.p.mu.Unlock()
	if e, known := m.a.found[m.a.begun]; known && !m.a.inTurn {
		return m.p.placed[e.N]
	}
	return nil
}

func (m *mail) Take(ctx context.Context) ([]agent.MailMessage, error) {
	for {
		m.p.mu.Lock()
		behind := m.p.live && m.a.called >= len(m.a.calls)
		m.p.mu.Unlock()
		if behind {
			return m.next.Take(ctx)
		}
		grown := m.p.grown()
		have, err := m.next.Take(ctx)
		if err != nil {
			return nil, err
		}
		wanted, due := m.wanted()
		out, missing := m.match(have, wanted, due)
		if missing == "" {
			return out, m.p.let(ctx, m.looked())
		}
		if err := m.come(ctx, grown, missing, m.others(have)); err != nil {
			return nil, err
		}
	}
}

// match returns those of the messages that are wanted, as they were recorded, and the first text
// that is due and missing.
func (m *mail) match(have []agent.MailMessage, wanted []string, due int) (out []agent.MailMessage, missing string) {
	sure, taken := m.a.sure, make([]bool, len(wanted))
	for _, i := range sure {
		if i < len(taken) {
			taken[i] = true
		}
	}
	for _, one := range have {
		i, known := sure[one.Seq]
		if !known {
			i = m.find(one.Text, wanted, taken)
			if i < 0 {
				continue
			}
			taken[i], sure[one.Seq] = true, i
		}
		if i < len(wanted) {
			one.Text = wanted[i]
			out = append(out, one)
		}
	}
	for i := range due {
		if !taken[i] {
			return nil, wanted[i]
		}
	}
	slices.SortStableFunc(out, func(a, b agent.MailMessage) int { return sure[a.Seq] - sure[b.Seq] })
	return out, ""
}

func (m *mail) find(text string, wanted []string, taken []bool) int {
	text = m.p.c.Names.Text(text)
	for i, w := range wanted {
		if !taken[i] && m.p.names.Text(w) == text {
			return i
		}
	}
	return -1
}

// come waits until more may have come.
func (m *mail) come(ctx context.Context, grown <-chan struct{}, missing, others string) error {
	timer := time.NewTimer(m.p.patience() / 2) // before those who wait for this agent give up
	defer timer.Stop()
	select {
	case <-grown:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return m.p.diverge("agent %s waits for a message that does not come: %q; others that have come: %q",
			m.p.called(m.id), excerpt.Line(m.p.names.Text(missing), 600), excerpt.Line(others, 600))
	}
}

// others are the messages that were not recorded like this, or not yet.
func (m *mail) others(have []agent.MailMessage) string {
	var texts []string
	for _, one := range have {
		if _, known := m.a.sure[one.Seq]; !known {
			texts = append(texts, m.p.c.Names.Text(one.Text))
		}
	}
	return strings.Join(texts, " ")
}

// Works reports whether a task of an agent was at work after its turn; works is what is so now: in a run that goes on
// live, and where nothing was recorded.
func (p *Player) Works(id task.ID, works bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := p.byAgent[p.main(id)]
	if a == nil {
		return works
	}
	if e, known := a.found[a.begun]; known {
		return e.Works
	}
	return works
}

func (m *mail) Ack(ctx context.Context, messages []agent.MailMessage) error {
	return m.next.Ack(ctx, messages)
}
