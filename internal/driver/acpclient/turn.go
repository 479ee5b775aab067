package acpclient

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	acp "github.com/coder/acp-go-sdk"

	"github.com/drover-dev/drover/agent"
)

// Bounds of the record of a turn.
const (
	maxAnswer  = 512 << 10 // bytes of the last message
	maxWork    = 64 << 10  // bytes of the earlier messages and of the calls
	maxTools   = 2000      // calls of tools that are followed
	maxResult  = 8 << 10   // bytes of the result of a call
	maxHistory = 32 << 10  // bytes of the conversation before a new session
)

// errDied means that the process ended in a turn. The cause of its life says why.
var errDied = errors.New("it died")

// Reply takes one turn: it sends the messages since the last reply, and returns the last message of the agent.
func (a *Agent) Reply(ctx context.Context, req *agent.Request, on func(agent.Part)) (*agent.Reply, error) {
	if on == nil {
		on = func(agent.Part) {}
	}
	again := ""
	for {
		c, err := a.connected(ctx)
		if err != nil {
			return nil, err
		}
		content, err := a.prompt(req.Messages, again)
		if err != nil {
			return nil, err
		}
		reply, err := a.take(ctx, c, content, on)
		if !errors.Is(err, errDied) || ctx.Err() != nil {
			return reply, err
		}
		why := context.Cause(c.life)
		goesOn := c.continues() != ""
		a.drop(ctx, c)
		if a.restarts >= maxRestarts || !goesOn {
			if goesOn {
				return nil, fmt.Errorf("agent %s: %w (it was started again %d times)", a.o.Name, why, a.restarts)
			}
			return nil, fmt.Errorf("agent %s: %w (it cannot continue its session, so it is not started again)", a.o.Name, why)
		}
		a.restarts++
		a.say("%s: %v; started again, %d of %d", a.o.Name, why, a.restarts, maxRestarts)
		again = "Your process ended while you worked on the following, and was started again. " +
			"Look at what is done already, and go on from there.\n\n"
	}
}

// prompt is the content of the next session/prompt.
func (a *Agent) prompt(messages []agent.Message, again string) ([]any, error) {
	from := 0
	for i, m := range messages {
		if m.Role() == agent.Assistant {
			from = i + 1
		}
	}
	a.mu.Lock()
	fresh := a.fresh
	a.mu.Unlock()
	var before []string
	if fresh {
		if text := strings.TrimSpace(a.o.Instructions); text != "" {
			before = append(before, text)
		}
		if text := history(messages[:from]); text != "" {
			before = append(before, text)
		}
	}
	if again != "" {
		before = append(before, strings.TrimSpace(again))
	}
	var content []any
	if len(before) > 0 {
		content = append(content, textContent(strings.Join(before, "\n\n")))
	}
	for _, m := range messages[from:] {
		all, err := m.Blocks()
		if err != nil {
			return nil, err
		}
		for _, b := range all {
			switch b.Type {
			case "text":
				content = append(content, textContent(b.Text))
			case "image":
				if image := imageContent(b.Source); image != nil {
					content = append(content, image)
				}
			}
		}
	}
	return content, nil
}

func textContent(text string) any { return map[string]any{"type": "text", "text": text} }

func imageContent(source json.RawMessage) any {
	var s struct {
		Type      string `json:"type"`
		MediaType string `json:"media_type"`
		Data      string `json:"data"`
	}
	if json.Unmarshal(source, &s) != nil || s.Type != "base64" {
		return nil
	}
	if _, err := base64.StdEncoding.DecodeString(s.Data); err != nil {
		return nil
	}
	return map[string]any{"type": "image", "mimeType": s.MediaType, "data": s.Data}
}

// history is the end of an earlier conversation, for a session that does not know it.
func history(messages []agent.Message) string {
	var parts []string
	size := 0
	for i := len(messages) - 1; i >= 0 && size < maxHistory; i-- {
		all, err := messages[i].Blocks()
		if err != nil {
			continue
		}
		var text strings.Builder
		for _, b := range all {
			if b.Type == "text" {
				text.WriteString(b.Text + "\n")
			}
		}
		one := strings.TrimSpace(text.String())
		if room := maxHistory - size; len(one) > room {
			one = "…" + strings.ToValidUTF8(one[len(one)-room:], "")
		}
		if one == "" {
			continue
		}
		who := "You were told"
		if messages[i].Role() == agent.Assistant {
			who = "You answered"
		}
		size += len(one)
		parts = append([]string{who + ":\n" + one}, parts...)
	}
	if len(parts) == 0 {
		return ""
	}
	return "This goes on from an earlier conversation, of which this is the end:\n\n" + strings.Join(parts, "\n\n")
}

// turn is one session/prompt.
type turn struct {
	ctx   context.Context // of the agent's requests in it
	parts chan agent.Part // to the goroutine of Reply

	mu    sync.Mutex // guards the fields below
	index int        // of the block of text
	msg   string     // ID of its message
	kind  agent.PartKind
	text  strings.Builder // of the last message
	work  strings.Builder // earlier messages and calls
	tools map[string]*tool
	plan  string

	denied string // the reason of the newest denial
}

// take sends a prompt and follows the turn to its end.
func (a *Agent) take(ctx context.Context, c *conn, content []any, on func(agent.Part)) (*agent.Reply, error) {
	asked, over := context.WithCancelCause(c.life)
	defer over(nil)
	t := &turn{ctx: asked, parts: make(chan agent.Part), tools: map[string]*tool{}}
	c.turnBytes.Store(0)
	c.turn.Store(t)
	type answer struct {
		got prompted
		err error
	}
	answers := make(chan answer, 1)
	waiting, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	var asking sync.WaitGroup
	asking.Go(func() {
		var a answer
		a.err = c.rpc.Ask(waiting, acp.AgentMethodSessionPrompt,
			map[string]any{"sessionId": c.session, "prompt": content}, &a.got)
		answers <- a
	})
	defer asking.Wait()
	defer giveUp()
	defer c.turn.CompareAndSwap(t, nil)
	defer over(errors.New("the turn is over"))
	stop, late := ctx.Done(), (<-chan struct{})(nil)
	for {
		select {
		case p := <-t.parts:
			on(p)
		case got := <-answers:
			return a.finish(ctx, c, t, got.got, got.err, on)
		case <-stop:
			stop = nil
			over(context.Cause(ctx)) // cancels the questions of the turn
			c.rpc.Notify(acp.AgentMethodSessionCancel, map[string]any{"sessionId": c.session})
			patience, done := context.WithTimeout(context.Background(), a.cancelTime(ctx))
			defer done()
			late = patience.Done()
		case <-late:
			a.drop(ctx, c) // later updates would belong to no turn
			return nil, &agent.CutError{Whole: t.blocks(), Err: context.Cause(ctx)}
		case <-c.life.Done():
			select { // an answer before the end counts
			case got := <-answers:
				if got.err == nil {
					return a.finish(ctx, c, t, got.got, nil, on)
				}
			case <-time.After(drainWait):
			}
			if ctx.Err() != nil {
				return nil, &agent.CutError{Whole: t.blocks(), Err: context.Cause(ctx)}
			}
			return nil, errDied
		}
	}
}

// finish makes a reply of the answer to a prompt.
func (a *Agent) finish(
	ctx context.Context, c *conn, t *turn, got prompted, err error, on func(agent.Part),
) (*agent.Reply, error) {
	t.mu.Lock()
	open, denied := t.unfinished(), t.denied
	t.mu.Unlock()
	for _, p := range open {
		on(p)
	}
	usage := a.usage(got)
	switch {
	case ctx.Err() != nil:
		return nil, &agent.CutError{Whole: t.blocks(), Usage: usage, Err: context.Cause(ctx)}
	case err != nil && c.gone():
		return nil, errDied
	case err != nil:
		if refusedWith(err, codeAuth) {
			err = a.loginError(c.init.AuthMethods)
		}
		return nil, fmt.Errorf("agent %s: %w", a.o.Name, err)
	}
	a.mu.Lock()
	a.fresh = false
	a.mu.Unlock()
	switch got.StopReason {
	case "end_turn", "max_tokens", "refusal":
		return &agent.Reply{Model: a.o.Model, Blocks: t.blocks(), StopReason: got.StopReason, Usage: usage}, nil
	case "max_turn_requests":
		return nil, &agent.LimitError{Limit: "max_turns",
			Text: "agent " + a.o.Name + " stopped at its own limit of requests in a turn (continue it with a message)"}
	case "cancelled":
		if denied != "" { // some agents end their turn after a denial, to wait for the user
			return nil, fmt.Errorf("agent %s ended its turn: %s (continue it with a message)", a.o.Name, denied)
		}
		return nil, fmt.Errorf("agent %s reported a cancelled turn that was not cancelled", a.o.Name)
	}
	return nil, fmt.Errorf("agent %s ended its turn with the reason %.60q, which the protocol does not know",
		a.o.Name, got.StopReason)
}

// usage is the reported usage of the turn, or the size of the context.
func (a *Agent) usage(got prompted) agent.Usage {
	a.mu.Lock()
	defer a.mu.Unlock()
	if u := got.Usage; u != nil {
		a.counted = true
		return agent.Usage{InputTokens: max(0, u.Input), OutputTokens: max(0, u.Output),
			CacheReadTokens: max(0, u.CachedRead), CacheWriteTokens: max(0, u.CachedWrite)}
	}
	return agent.Usage{InputTokens: a.used}
}

// send passes parts to the goroutine of Reply.
func (t *turn) send(c *conn, parts ...agent.Part) {
	for _, p := range parts {
		select {
		case t.parts <- p:
		case <-t.ctx.Done():
			return
		case <-c.life.Done():
			return
		}
	}
}

// blocks returns the earlier messages and calls as a thought, and the last message.
func (t *turn) blocks() []agent.Block {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []agent.Block
	if work := strings.TrimSpace(t.work.String()); work != "" {
		out = append(out, agent.Block{Type: "thinking", Thinking: work})
	}
	if text := strings.TrimSpace(t.text.String()); text != "" {
		out = append(out, agent.TextBlock(text))
	}
	return out
}

// did adds to the thought of blocks. The caller holds mu.
func (t *turn) did(text string) {
	if room := maxWork - t.work.Len(); room > 0 && strings.TrimSpace(text) != "" {
		t.work.WriteString(strings.ToValidUTF8(text[:min(len(text), room)], "") + "\n")
	}
}

// cut ends the current message. The caller holds mu.
func (t *turn) cut() {
	t.did(t.text.String())
	t.text.Reset()
	t.index++
}

var _ agent.Model = (*Agent)(nil)
