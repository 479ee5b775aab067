package script

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/drover-dev/drover/agent"
)

// maxPlaces bounds the conversations that are remembered. Forgetting one costs
// a replay.
const maxPlaces = 4096

// Model answers by a script. It may be used by any number of loops at the same
// time.
type Model struct {
	path   string            // never changes
	agents map[string][]turn // never changes

	mu     sync.Mutex
	places map[place]*state // guarded by mu
}

// place names a conversation.
type place struct{ session, id, label string }

// state is the position of a conversation in its script. It is computed from the messages
// of a request, which hold every earlier answer, so a script continues at the right turn
// in another process too; the state only spares the next request the messages that were
// looked at already. Messages do not show failures: after a restart the failures
// just before the next answer come again.
type state struct {
	mu       sync.Mutex
	messages int   // looked at
	answers  int   // among them
	used     []int // how often each turn was used
	first    int   // turns before it are used up
}

func (m *Model) state(req *agent.Request, turns int) *state {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := place{req.SessionID, req.AgentID, req.Agent}
	s := m.places[key]
	if s == nil {
		if len(m.places) >= maxPlaces {
			clear(m.places)
		}
		s = &state{used: make([]int, turns)}
		m.places[key] = s
	}
	return s
}

// turns returns the turns for the caller's label, or the turns for any label.
func (m *Model) turns(label string) ([]turn, bool) {
	if label == "" {
		label = "main"
	}
	turns, ok := m.agents[label]
	if !ok {
		turns, ok = m.agents["*"]
	}
	return turns, ok
}

// Reply answers with the first turn of the caller's list that is not used up and
// whose condition holds. All errors except the cause of ctx are an [agent.ModelError]
// or an [agent.CutError].
func (m *Model) Reply(ctx context.Context, req *agent.Request, on func(agent.Part)) (*agent.Reply, error) {
	if on == nil {
		on = func(agent.Part) {}
	}
	turns, ok := m.turns(req.Agent)
	if !ok {
		return nil, m.fault(req, fmt.Errorf(`there are no turns for it; add some, or an agent "*" for any`))
	}
	s := m.state(req, len(turns))
	retries := 0
	for {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		n, answers, err := s.next(turns, req.Messages)
		if err != nil {
			return nil, m.fault(req, err)
		}
		t := &turns[n]
		if err := pause(ctx, time.Duration(t.Delay)); err != nil {
			return nil, err
		}
		if t.Error == nil {
			a := answer{turn: t, view: view{req: req, messages: req.Messages, turn: answers}, on: on}
			reply, err := a.give(ctx)
			var told *agent.CutError
			if err == nil || ctx.Err() != nil || errors.As(err, &told) {
				return reply, err
			}
			return nil, m.fault(req, fmt.Errorf("turn %d: %w", n, err))
		}
		why := agent.ModelError{Status: t.Error.Status, Kind: kind(t.Error.Type), Text: t.Error.Message}
		if t.Error.RetryAfter == 0 {
			return nil, &why
		}
		retries++
		on(agent.Part{Kind: agent.RetryPart, Retry: agent.Retry{Attempt: retries, Most: retries,
			After: time.Duration(t.Error.RetryAfter), Why: why}})
		if err := pause(ctx, time.Duration(t.Error.RetryAfter)); err != nil {
			return nil, err
		}
	}
}

func (m *Model) fault(req *agent.Request, err error) error {
	label := req.Agent
	if label == "" {
		label = "main"
	}
	return &agent.ModelError{Kind: "script", Text: fmt.Sprintf("script %s: agent %q: %v", m.path, label, err), Err: err}
}

// kind returns our word for the type of an error in the API.
func kind(wire string) string {
	switch wire {
	case "authentication_error", "permission_error":
		return "auth"
	}
	return strings.TrimSuffix(wire, "_error")
}

// next chooses the turn that answers the messages. A turn that fails is used up at once;
// an answer is used up when a later request shows it, so that an interrupted call
// gets the same answer again.
func (s *state) next(turns []turn, messages []agent.Message) (n, answers int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(messages) < s.messages { // not the conversation that we know
		s.messages, s.answers, s.first = 0, 0, 0
		clear(s.used)
	}
	for ; s.messages < len(messages); s.messages++ {
		if messages[s.messages].Role() != agent.Assistant {
			continue
		}
		n, err := s.choose(turns, messages[:s.messages], true)
		if err != nil {
			return 0, 0, err
		}
		if n < len(turns) {
			s.use(turns, n)
		}
		s.answers++
	}
	n, err = s.choose(turns, messages, false)
	if err != nil {
		return 0, 0, err
	}
	if n == len(turns) {
		return 0, 0, fmt.Errorf("it has no turn %d for answer %d, or none whose condition holds; add a turn, or repeat: -1 "+
			"to the last one", n, s.answers)
	}
	if turns[n].fails() {
		s.use(turns, n)
	}
	return n, s.answers, nil
}

// choose returns the index of the first remaining turn whose condition holds, or the
// number of turns without one. A given answer did not fail, and the failures before
// it are over.
func (s *state) choose(turns []turn, messages []agent.Message, given bool) (int, error) {
	told, asked, known := "", "", false
	for n := s.first; n < len(turns); n++ {
		t := &turns[n]
		if u := t.uses(); u >= 0 && s.used[n] >= u {
			continue
		}
		if t.When != nil {
			if !known {
				var err error
				if told, err = lastText(messages); err != nil {
					return 0, err
				}
				if asked, err = firstPrompt(messages); err != nil {
					return 0, err
				}
				known = true
			}
			if !strings.Contains(told, t.When.LastContains) || !strings.Contains(asked, t.When.PromptContains) {
				continue
			}
		}
		if given && t.fails() {
			if u := t.uses(); u >= 0 {
				s.used[n] = u
			}
			continue
		}
		return n, nil
	}
	return len(turns), nil
}

func (s *state) use(turns []turn, n int) {
	s.used[n]++
	for s.first < len(turns) {
		if u := turns[s.first].uses(); u < 0 || s.used[s.first] < u {
			break
		}
		s.first++
	}
}

// answer is one turn that is being sent.
type answer struct {
	*turn
	view
	on     func(agent.Part)
	blocks []agent.Block
	bytes  int
}

func (a *answer) give(ctx context.Context) (*agent.Reply, error) {
	thinking, err := a.thinking.render(&a.view)
	if err != nil {
		return nil, fmt.Errorf("thinking: %w", err)
	}
	text, err := a.text.render(&a.view)
	if err != nil {
		return nil, fmt.Errorf("text: %w", err)
	}
	if thinking != "" {
		if err := a.say(ctx, agent.ThinkingPart, thinking); err != nil {
			return nil, err
		}
		a.end(agent.Block{Type: "thinking", Thinking: thinking, Signature: "script"})
	}
	if text != "" {
		if err := a.say(ctx, agent.TextPart, text); err != nil {
			return nil, err
		}
		if !a.Cut {
			a.end(agent.TextBlock(text))
		}
	}
	if a.Cut {
		return nil, &agent.CutError{Whole: a.blocks, Usage: a.usage(), Err: errors.New("the script says so")}
	}
	for i, u := range a.Tools {
		input, err := u.input.render(&a.view)
		if err != nil {
			return nil, fmt.Errorf("tools[%d] (%s): %w", i, u.Name, err)
		}
		id := u.ID
		if id == "" {
			id = a.id("toolu", i)
		}
		a.on(agent.Part{Kind: agent.ToolPart, Index: len(a.blocks), ID: id, Name: u.Name})
		if err := a.say(ctx, agent.InputPart, string(input)); err != nil {
			return nil, err
		}
		a.end(agent.Block{Type: "tool_use", ID: id, Name: u.Name, Input: input})
	}
	stop := a.StopReason
	switch {
	case stop != "":
	case len(a.Tools) > 0:
		stop = "tool_use"
	default:
		stop = "end_turn"
	}
	return &agent.Reply{ID: a.id("msg", 0), Model: a.model(), Blocks: a.blocks, StopReason: stop, Usage: a.usage()}, nil
}

// say sends a text in parts.
func (a *answer) say(ctx context.Context, kind agent.PartKind, text string) error {
	a.bytes += len(text)
	for text != "" {
		n := len(text)
		if a.Chunk > 0 {
			count := 0
			for i := range text {
				if count == a.Chunk {
					n = i
					break
				}
				count++
			}
		}
		a.on(agent.Part{Kind: kind, Index: len(a.blocks), Text: text[:n]})
		text = text[n:]
		if err := pause(ctx, time.Duration(a.ChunkDelay)); err != nil {
			return err
		}
	}
	return nil
}

func (a *answer) end(b agent.Block) {
	a.on(agent.Part{Kind: agent.BlockPart, Index: len(a.blocks), Block: &b})
	a.blocks = append(a.blocks, b)
}

// id returns an ID that is the same in every run of the script.
func (a *answer) id(prefix string, i int) string {
	who := a.req.AgentID
	if who == "" {
		who = "main"
	}
	return fmt.Sprintf("%s_%s_%d_%d", prefix, strings.Map(forID, who), a.view.turn, i)
}

// forID replaces a character that an ID of a call cannot hold.
func forID(r rune) rune {
	if r == '-' || r < utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsDigit(r)) {
		return r
	}
	return '_'
}

func (a *answer) model() string {
	if a.req.Model != "" {
		return a.req.Model
	}
	return "script"
}

// usage returns the usage of the turn, or an estimate of four bytes a token.
func (a *answer) usage() agent.Usage {
	if u := a.turn.Usage; u != nil {
		return agent.Usage{InputTokens: u.Input, OutputTokens: u.Output, CacheReadTokens: u.CacheRead,
			CacheWriteTokens: u.CacheWrite}
	}
	in := len(a.req.System)
	for _, m := range a.messages {
		in += len(m.Encoded())
	}
	return agent.Usage{InputTokens: int64(in/4 + 1), OutputTokens: int64(a.bytes/4 + 1)}
}

// pause waits, or returns the cause of ctx.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
