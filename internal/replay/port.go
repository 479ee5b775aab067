package replay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/task"
)

// works reports whether a tool works on the session alone. It runs, and what it starts is played; all others
// return what was recorded.
func works(tool string) bool {
	switch tool {
	case "Agent", "Bash", "Monitor", "TaskStop", "TaskOutput", "SendMessage", "read_agent", "Workflow", "TaskCreate",
		"TaskUpdate", "StructuredOutput", "report_intent", task.ExitPlanMode:
		return true
	}
	return false
}

// edits reports whether a tool changes files, which a run that continues live needs.
func edits(tool string) bool { return tool == "Write" || tool == "Edit" }

func (p *Player) Agent(id task.ID, c *agent.Config) {
	a := p.known(id)
	if a == nil {
		if !p.live {
			_ = p.diverge("agent %s begins, and was not recorded", p.called(id))
		}
		return
	}
	c.Port = &port{p, a, id}
	c.Tools, c.Deferred = a.offer(c.Tools), a.deferred
	if c.Compaction != nil && a.window != nil { // as it was, also where the settings of today have another
		own := *c.Compaction
		own.Window, own.Share = a.window.Tokens, a.window.Share
		c.Compaction = &own
	}
}

// offer returns the tools that the agent had. Of one that is not there any more only the results are.
func (a *part) offer(have []agent.Tool) []agent.Tool {
	out := make([]agent.Tool, len(a.specs))
	for i, spec := range a.specs {
		out[i] = gone{spec}
		if n := slices.IndexFunc(have, func(t agent.Tool) bool { return t.Spec().Name == spec.Name }); n >= 0 {
			out[i] = have[n]
		}
	}
	return out
}

// gone is a tool that was there when the run was recorded.
type gone struct{ spec agent.ToolSpec }

func (t gone) Spec() agent.ToolSpec { return t.spec }
func (gone) Call(context.Context, agent.Call) (agent.Output, error) {
	return agent.Refuse("this tool was there when the run was recorded, and is not there now"), nil
}

// port is an [agent.Port] that gives one agent what came from outside in the recording.
type port struct {
	p  *Player
	a  *part
	id task.ID
}

func (s *port) Reply(
	ctx context.Context, req *agent.Request, on func(agent.Part), ask func(func(agent.Part)) (*agent.Reply, error),
) (*agent.Reply, error) {
	p, a := s.p, s.a
	p.play.Lock()
	n, before := a.called, a.messages
	a.called++
	if req.Purpose == "" {
		a.messages = len(req.Messages)
	}
	p.play.Unlock()
	if n >= len(a.calls) || a.calls[n].Request == nil {
		if p.live {
			return ask(on)
		}
		return nil, refused(p.diverge("agent %s makes model call %d, and %d were recorded", p.called(s.id), n+1,
			len(a.calls)))
	}
	e := a.calls[n]
	// A run that continues live uses the settings of today, as its requests show.
	if was, is := e.Request, p.c.Names.Request(req, before); was.Digest != is.Digest && !p.live {
		return nil, refused(p.diverge("model call %d of agent %s has digest %s, recorded was %s: %s", n+1, p.called(s.id),
			is.Digest, was.Digest, difference(was, is)))
	}
	t := a.turns[e.N]
	if t == nil { // it was interrupted
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	if err := p.await(ctx, t); err != nil {
		return nil, refused(err)
	}
	if err := p.stream(ctx, e.Chunks, on); err != nil {
		return nil, err
	}
	p.pass(t)
	if f := e.Failure; f != nil && f.Cut {
		return nil, &agent.CutError{Whole: f.Whole, Usage: f.Usage, Err: errors.New(f.Text)}
	} else if f != nil {
		return nil, &agent.ModelError{Status: f.Status, Kind: f.Kind, Text: f.Text, Until: f.Until, At: f.At}
	}
	return e.Reply, nil
}

// refused is an error as models return them.
func refused(err error) error {
	if _, ok := errors.AsType[*Divergence](err); ok {
		return &agent.ModelError{Kind: "replay", Text: err.Error(), Err: err}
	}
	return err
}

// difference says where two requests differ.
func difference(was, is *Request) string {
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

// stream gives the parts of a reply as they came.
func (p *Player) stream(ctx context.Context, chunks []Chunk, on func(agent.Part)) error {
	begin := time.Now()
	for _, c := range chunks {
		if p.speed > 0 && len(chunks) > 1 {
			err := sleep(ctx, begin.Add(time.Duration(float64(c.MS-chunks[0].MS)/p.speed*float64(time.Millisecond))))
			if err != nil {
				return err
			}
		}
		on(agent.Part{Kind: c.Kind, Index: c.Index, Text: c.Text, ID: c.ID, Name: c.Name, Block: c.Block, Usage: c.Usage})
	}
	return nil
}

// call is the recorded call of a tool; over: the next one with its ID is another.
func (s *port) call(id string, over bool) (e Entry, ok bool) {
	s.p.play.Lock()
	defer s.p.play.Unlock()
	all := s.a.tools[id]
	if len(all) == 0 {
		return e, false
	}
	if over {
		s.a.tools[id] = all[1:]
	}
	return all[0], true
}

// Check implements [agent.Port]: it decides as recorded, and asks nobody.
func (s *port) Check(ctx context.Context, c agent.Call, decide func() (agent.Decision, error)) (agent.Decision, error) {
	e, ok := s.call(c.ID, false)
	if !ok && s.p.live {
		return decide()
	}
	if !ok {
		return agent.Decision{}, s.p.diverge("agent %s calls %s (%s), and that was not recorded", s.p.called(s.id),
			c.Name, c.ID)
	}
	if e.Output == nil {
		_, _ = s.call(c.ID, true)
	}
	if err := s.p.let(ctx, s.a.turns[e.N]); err != nil {
		return agent.Decision{}, err
	}
	switch f := e.Failure; {
	case f != nil && f.Interrupted, e.Output == nil && e.Decision != nil && e.Decision.Allow:
		<-ctx.Done()
		return agent.Decision{}, context.Cause(ctx)
	case f != nil:
		return agent.Decision{}, errors.New(f.Text)
	}
	d := *e.Decision
	if string(d.Input) == "null" { // the input was not replaced
		d.Input = nil
	}
	return d, nil
}

func (s *port) Run(
	_ context.Context, tool string, c agent.Call, run func() (agent.Output, error), after func(agent.Output) agent.Output,
) (agent.Output, error) {
	e, ok := s.call(c.ID, true)
	switch {
	case !ok: // in a run that continues live
		out, err := run()
		return after(out), err
	case works(tool):
		if _, err := run(); err != nil {
			return agent.Refuse(err.Error()), err
		}
	case s.p.live && edits(tool) && !e.Output.IsError:
		if out, err := run(); err != nil || out.IsError {
			return out, s.p.diverge("%s of agent %s cannot be done again (replay in a folder with the files as they were): %s",
				c.Name, s.p.called(s.id), excerpt.Line(out.Text, 200))
		}
	}
	out := agent.Output{Text: e.Output.Text, Images: e.Output.Images, IsError: e.Output.IsError,
		EndTurn: e.Output.EndTurn}
	if e.Output.Structured != nil {
		out.Structured = e.Output.Structured
	}
	return out, nil
}

func (s *port) Texts(ctx context.Context, what string, get func() ([]string, error)) ([]string, error) {
	return s.p.Texts(ctx, s.id, what, get)
}

// Take implements [agent.Port]: it returns what the agent found then, once it has come, and nothing else.
func (s *port) Take(ctx context.Context, take func() ([]agent.MailMessage, error)) ([]agent.MailMessage, error) {
	p, a := s.p, s.a
	p.play.Lock()
	if len(a.looks) == 0 {
		p.play.Unlock()
		return s.beyond(ctx, take)
	}
	e := a.looks[0]
	a.looks = a.looks[1:]
	p.play.Unlock()
	for {
		more := p.changed()
		have, err := take()
		if err != nil {
			return nil, err
		}
		found, missing := s.match(have, e.Texts)
		if missing == "" {
			return found, p.let(ctx, a.turns[e.N])
		}
		select {
		case <-more:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(p.waits() / 2): // before those who wait for this agent give up
			return nil, p.diverge("agent %s waits for a message that does not come: %q; what has come: %q", p.called(s.id),
				excerpt.Line(p.names.Text(missing), 600), excerpt.Line(s.all(have), 600))
		}
	}
}

// beyond is a look that was not recorded: the agent ended before it, or continues live.
func (s *port) beyond(ctx context.Context, take func() ([]agent.MailMessage, error)) ([]agent.MailMessage, error) {
	if s.p.live {
		return take()
	}
	if err := sleep(ctx, time.Now().Add(s.p.waits())); err != nil {
		return nil, err
	}
	return nil, s.p.diverge("agent %s looks into its mailbox once more than recorded", s.p.called(s.id))
}

// match returns the messages with the wanted texts, as they were recorded, and the first text that is missing.
func (s *port) match(have []agent.MailMessage, wanted []string) (found []agent.MailMessage, missing string) {
	left := slices.Clone(have)
	for _, w := range wanted {
		text := s.p.names.Text(w)
		i := slices.IndexFunc(left, func(m agent.MailMessage) bool { return s.p.c.Names.Text(m.Text) == text })
		if i < 0 {
			return nil, w
		}
		m := left[i]
		m.Text = w
		found, left = append(found, m), slices.Delete(left, i, i+1)
	}
	return found, ""
}

// all are the texts of messages, for people.
func (s *port) all(have []agent.MailMessage) string {
	var texts []string
	for _, m := range have {
		texts = append(texts, s.p.c.Names.Text(m.Text))
	}
	return strings.Join(texts, " ")
}
