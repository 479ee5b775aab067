package conversation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/platform/picture"
)

// Run answers prompts and mail until ctx ends.
func (c *Conversation) Run(ctx context.Context) {
	for ctx.Err() == nil {
		s, changed := c.State()
		mailed := c.cfg.Box.Mailed()
		ended, grown := c.others(s)
		if r, ok := c.look(ctx); ok {
			c.turn(r)
			continue
		}
		select {
		case <-changed:
		case <-mailed:
		case <-ended:
		case <-grown:
		case <-ctx.Done():
		}
	}
}

// others returns channels that are closed when a due reminder may have become possible.
func (c *Conversation) others(s State) (ended, grown <-chan struct{}) {
	if !s.ReminderDue() {
		return nil, nil
	}
	return c.session.Changed(), c.session.NextCommit()
}

// turning is a turn that is running. It has a context of its own, which ends with the context of
// Run until the turn is moved.
type turning struct {
	Trigger
	loop   *agent.Loop
	agent  agent.Config
	ctx    context.Context
	cancel context.CancelCauseFunc
	free   func() bool   // the context does not end with the context of Run any more
	gone   chan struct{} // closed when the turn is moved
	done   chan struct{} // closed when it has ended

	moving sync.Mutex // held while the turn is moved, and while it ends
	ended  bool       // guarded by moving
	moved  *MovedTurn // guarded by moving; nil: it is a turn of the conversation

	res agent.TurnResult // set before done is closed
	err error
}

// look begins a turn if there is something to answer.
func (c *Conversation) look(ctx context.Context) (*turning, bool) {
	s, _ := c.State()
	found := Event{Verb: Look, Alone: s.ReminderDue() && c.session.Alone()}
	found.Mail, _ = c.Mail(ctx) // after Alone: the notification is in the mailbox before the task has ended
	c.mu.Lock()
	defer c.mu.Unlock()
	effects, err := c.step(found)
	if err != nil {
		return nil, false
	}
	r := &turning{loop: c.loop, agent: c.agent, gone: make(chan struct{}), done: make(chan struct{})}
	r.ctx, r.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	r.free = context.AfterFunc(ctx, func() { r.cancel(context.Cause(ctx)) })
	c.cancel, c.turning = r.cancel, r
	c.driver = nil
	if c.state.Most > 0 {
		c.driver = c.cfg.Autopilot
	}
	c.driver.begin()
	c.cfg.Structured.begin()
	for _, one := range effects {
		if begun, ok := one.(BeginTurn); ok {
			r.Trigger = begun.Trigger
		}
	}
	return r, true
}

// turn runs a turn until it has ended, or is moved.
func (c *Conversation) turn(r *turning) {
	if c.cfg.Begin != nil {
		c.cfg.Begin(r.Origin)
	}
	_, shown, _ := picture.Split(r.Prompt.Text)
	prompt := texts(shown)
	if r.Origin == AutopilotOrigin {
		prompt = texts("<system-reminder>\n" + strings.TrimSpace(autopilotReminder) + "\n</system-reminder>")
	}
	c.beside = false
	c.catchUp()
	c.cfg.Feed.begin(prompt, r.Origin)
	go func() { // waited for here, or by its [MovedTurn]
		defer close(r.done)
		r.res, r.err = c.answer(r, prompt)
		r.moving.Lock()
		defer r.moving.Unlock()
		r.ended = true
	}()
	select {
	case <-r.gone:
	case <-r.done:
	}
	r.moving.Lock()
	moved := r.moved
	r.moving.Unlock()
	if moved != nil {
		c.left(r, moved)
		return
	}
	c.over(r)
	r.free()
	r.cancel(nil)
}

// over takes in the end of a turn.
func (c *Conversation) over(r *turning) {
	res, err := r.res, r.err
	if err == nil {
		res, err = c.cfg.Structured.ended(c.driving().answered(res), nil)
	}
	c.catchUp()
	c.cfg.Feed.end(res, err, c.session.Running())
	turn := Turn{Origin: r.Origin, Result: res, Err: err, Beside: c.beside}
	if c.cfg.Done != nil {
		c.cfg.Done(turn)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cancel, c.turning, c.last = nil, nil, turn
	finished := c.beside || res.Reason == "tool_end" || res.Reason == "gate_end"
	_, _ = c.step(Event{Verb: EndTurn, At: time.Now(), Failure: failure(r.ctx, err), Finished: finished})
}

// answer lets hooks see a prompt before the model does.
func (c *Conversation) answer(r *turning, prompt []agent.Block) (agent.TurnResult, error) {
	ctx, t := r.ctx, r.Trigger
	if !c.started {
		c.started, c.opening = true, c.cfg.Hooks.Start(ctx)
	}
	added, typed := "", ""
	var images []agent.Block
	if t.Origin == "" {
		var err error
		if prompt, typed, images, err = c.withImages(&t); err != nil {
			return c.aside(ctx, t, agent.TurnResult{Reason: "refused"}, err)
		}
		if keep, ok := compactCommand(t.Prompt.Text); ok {
			res, err := compact(ctx, r.loop, keep)
			return c.aside(ctx, t, res, err)
		}
		answer, instead, ok, err := c.cfg.Hooks.Command(ctx, t.Prompt.Text)
		if err != nil {
			return c.aside(ctx, t, agent.TurnResult{Reason: "refused"}, err)
		}
		if ok {
			if instead == "" {
				return c.aside(ctx, t, agent.TurnResult{Reason: "end_turn", StopReason: "end_turn", Text: answer}, nil)
			}
			prompt, typed = texts(instead), t.Prompt.Text
		}
		if added, err = c.cfg.Hooks.Prompt(ctx, prompt[0].Text); err != nil {
			return c.aside(ctx, t, agent.TurnResult{Reason: "blocked"}, &BlockedError{err})
		}
	}
	before := append(texts(c.opening), texts(added)...)
	c.opening = ""
	if err := c.offer(r); err != nil {
		return agent.TurnResult{Reason: "error"}, err
	}
	res, err := r.loop.Answer(ctx, agent.Prompt{Seq: int64(t.Prompt.Seq), Before: append(before, images...),
		Blocks: prompt,
		User:   t.Origin == "", Typed: typed})
	var limit *agent.LimitError
	if err != nil && ctx.Err() == nil && !errors.As(err, &limit) {
		c.cfg.Hooks.Failed(ctx, err, res.Text)
	}
	return res, err
}

// withImages takes the images off the end of a prompt: t has its text alone then.
func (c *Conversation) withImages(t *Trigger) (prompt []agent.Block, typed string, images []agent.Block, err error) {
	text, shown, refs := picture.Split(t.Prompt.Text)
	if len(refs) == 0 || c.cfg.Image == nil {
		return texts(t.Prompt.Text), "", nil, nil
	}
	for _, ref := range refs {
		source, err := c.cfg.Image(ref.Sum)
		if err != nil {
			return nil, "", nil, fmt.Errorf("the prompt was not sent: %w", err)
		}
		images = append(images, agent.TextBlock(ref.Label), agent.Block{Type: "image", Source: source})
	}
	t.Prompt.Text = text
	if text == "" {
		text = shown
	}
	return texts(text), shown, images, nil
}

// offer gives the agent the tool that ends the work in turns on autopilot, and only then.
func (c *Conversation) offer(r *turning) error {
	driver := c.driving()
	if c.cfg.Autopilot == nil || c.offered == (driver != nil) {
		return nil
	}
	tools := r.agent.Tools
	if driver != nil {
		tools = append(slices.Clip(tools), driver.Tool())
	}
	if err := r.loop.SetTools(tools); err != nil {
		return err
	}
	c.offered = driver != nil
	return nil
}

// aside answers a prompt that the model does not read.
func (c *Conversation) aside(
	ctx context.Context, t Trigger, res agent.TurnResult, err error,
) (agent.TurnResult, error) {
	c.beside = true
	return res, errors.Join(err, c.withdraw(ctx, t.Prompt.Seq))
}

// compactCommand parses the prompt that requests a summary of the conversation, with what it
// should keep.
func compactCommand(prompt string) (instructions string, ok bool) {
	rest, ok := strings.CutPrefix(strings.TrimSpace(prompt), "/compact")
	if r, _ := utf8.DecodeRuneInString(rest); !ok || rest != "" && !unicode.IsSpace(r) {
		return "", false
	}
	return strings.TrimSpace(rest), true
}

// compact makes the conversation shorter because the user wants it.
func compact(ctx context.Context, loop *agent.Loop, instructions string) (agent.TurnResult, error) {
	if err := loop.Compact(ctx, instructions); err != nil {
		return agent.TurnResult{Reason: "error"}, fmt.Errorf("sum up the conversation: %w", err)
	}
	return agent.TurnResult{Reason: "end_turn", StopReason: "end_turn", Text: "The conversation was summed up."}, nil
}

func texts(text string) []agent.Block {
	if text == "" {
		return nil
	}
	return []agent.Block{agent.TextBlock(text)}
}
