package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

const (
	clearShare   = 4    // a part of the window: as much as old results must fill before they go
	clearRecent  = 20   // messages at the end whose results stay
	clearLeast   = 2000 // bytes of a result that is worth it
	clearedBegin = "[This result was cleared"
)

// Clearing takes the text of old results of calls out of requests. It is done in rare large steps:
// a provider has to read again what follows the first of them. The transcript keeps them, and a
// conversation that is opened again is cleared up to the same message.
type Clearing struct {
	// Keep stores a result that goes, and returns how the model can read it again, as a
	// sentence. It must say the same each time: a conversation that is opened again is cleared
	// again. An error lets the result stay.
	Keep func(ctx context.Context, c Call, text string) (how string, err error)
}

// aged is how far a conversation is cleared.
type aged struct {
	from  int // the first message that is not cleared
	to    int // the first that is too recent, or was not there yet
	bytes int // of the results between them
}

// step counts the messages that are old by now, and returns those whose results go: all up to the
// last that filled a part of the window. That depends on the messages only, and not on when it is asked.
func (a *aged) step(messages []Message, part int) (from, to int) {
	from, to = a.from, a.from
	for ; a.to < len(messages)-clearRecent; a.to++ {
		if m := messages[a.to]; m.role == User && !m.plain {
			a.bytes += resultBytes(m)
		}
		if a.bytes >= part {
			to, a.bytes = a.to+1, 0
		}
	}
	a.from = to
	return from, to
}

// resultBytes is the size of the results in a message that are worth it.
func resultBytes(m Message) (n int) {
	if len(m.raw) < clearLeast {
		return 0
	}
	blocks, err := m.Blocks()
	if err != nil {
		return 0
	}
	for _, b := range blocks {
		if b.Type == "tool_result" && len(b.Content) >= clearLeast {
			n += len(b.Content)
		}
	}
	return n
}

// clearOld clears old results once they fill a quarter of the window. It reports whether any went.
// No call is open.
func (t *turn) clearOld(ctx context.Context) bool {
	c := t.cfg.Clearing
	if c == nil || c.Keep == nil {
		return false
	}
	window := t.cfg.Compaction.window()
	if w := t.settings().Window; w > 0 {
		window = w
	}
	messages := t.Messages()
	from, to := t.aged.step(messages, int(window/clearShare*bytesPerToken))
	if from == to {
		return false
	}
	short, n := slices.Clone(messages[from:to]), 0
	calls := map[string]Call{}
	for i, m := range messages[max(from-1, 0):to] { // a result may be the first, and its call before it
		switch {
		case m.plain:
			continue
		case m.role == Assistant:
			note(calls, m)
			continue
		}
		m, ok := each(m, func(b Block) Block { return t.cleared(ctx, c, calls[b.ToolUseID], b) })
		if at := max(from-1, 0) + i - from; ok && at >= 0 {
			short[at], n = m, n+1
		}
	}
	if n == 0 {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.messages = slices.Concat(t.messages[:from], short, t.messages[to:])
	t.size = bytesOf(t.messages)
	return true
}

// note adds the calls of a message.
func note(calls map[string]Call, m Message) {
	blocks, err := m.Blocks()
	if err != nil {
		return
	}
	for _, b := range blocks {
		if b.Type == "tool_use" {
			calls[b.ID] = Call{ID: b.ID, Name: b.Name, Input: b.Input}
		}
	}
}

// cleared is a result without its text, or the block as it is.
func (t *turn) cleared(ctx context.Context, c *Clearing, call Call, b Block) Block {
	if b.Type != "tool_result" || len(b.Content) < clearLeast || call.ID == "" {
		return b
	}
	text, ok := onlyText(b)
	if !ok || strings.HasPrefix(text, clearedBegin) {
		return b
	}
	how, err := "", error(nil)
	t.guard("who keeps old results", func() { how, err = c.Keep(ctx, call, text) })
	if err != nil || how == "" {
		return b
	}
	short := fmt.Sprintf("%s after a while: %d bytes. %s]", clearedBegin, len(text), how)
	return ToolResultBlock(b.ToolUseID, short, b.IsError)
}

// onlyText returns the text of a result that holds nothing else, no image for example.
func onlyText(b Block) (string, bool) {
	var parts []Block
	if json.Unmarshal(b.Content, &parts) == nil &&
		slices.ContainsFunc(parts, func(p Block) bool { return p.Type != "text" }) {
		return "", false
	}
	return resultText(b), true
}
