package openai

import (
	"encoding/json"
	"strings"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/model/modelwire"
)

// answer is the part of an answer that both APIs make in the same way. The text
// of a block is gathered in a builder of its own, so that the work grows with
// the length of the answer and not with its square.
type answer struct {
	on        func(agent.Part)
	reply     agent.Reply
	begun     bool // something of the message has come
	refused   bool // the model said why it will not answer
	delivered bool // content was handed on: no further try
	counted   bool // the usage has come
	whole     []agent.Block
	next      int // index of the next block
}

// block is an unfinished block.
type block struct {
	kind  agent.PartKind // TextPart, ThinkingPart or InputPart
	index int
	text  strings.Builder // of its text, its thinking or its input

	id, name string // of a call
	told     int    // bytes of the input that were handed on; -1: the call itself was not
}

func (a *answer) open(kind agent.PartKind) *block {
	b := &block{kind: kind, index: a.next}
	if kind == agent.InputPart {
		b.told = -1
	}
	a.next++
	return b
}

// grow adds to a block and hands it on. A call is handed on once its name is
// known.
func (a *answer) grow(b *block, text string) {
	b.text.WriteString(text)
	switch {
	case b.kind == agent.InputPart:
		if b.name != "" {
			a.tell(b)
		}
	case text != "":
		a.hand(agent.Part{Kind: b.kind, Index: b.index, Text: text})
	}
}

// tell delivers the new text of a block.
func (a *answer) tell(b *block) {
	if b.told < 0 {
		b.told = 0
		a.hand(agent.Part{Kind: agent.ToolPart, Index: b.index, ID: b.id, Name: b.name})
	}
	if more := b.text.String()[b.told:]; more != "" {
		b.told += len(more)
		a.hand(agent.Part{Kind: agent.InputPart, Index: b.index, Text: more})
	}
}

// close makes a whole block of an unfinished one. It drops an empty one.
func (a *answer) close(b *block) {
	var made agent.Block
	switch {
	case b.kind == agent.InputPart:
		a.tell(b)
		made = agent.Block{Type: "tool_use", ID: b.id, Name: b.name, Input: modelwire.ToolInput(b.text.String())}
	case b.text.Len() == 0:
		return
	case b.kind == agent.ThinkingPart:
		made = agent.Block{Type: "thinking", Thinking: b.text.String()}
	default:
		made = agent.TextBlock(b.text.String())
	}
	a.whole = append(a.whole, made)
	a.hand(agent.Part{Kind: agent.BlockPart, Index: b.index, Block: &made})
}

func (a *answer) hand(p agent.Part) {
	a.delivered = true
	a.on(p)
}

// calls reports whether a whole block calls a tool.
func (a *answer) calls() bool {
	for _, b := range a.whole {
		if b.Type == "tool_use" {
			return true
		}
	}
	return false
}

// ended returns the stop reason of an answer that came to its own end.
func (a *answer) ended() string {
	switch {
	case a.refused:
		return "refusal"
	case a.calls():
		return "tool_use"
	}
	return "end_turn"
}

// named keeps the first ID and model of the stream.
func (a *answer) named(id, model string) {
	if a.reply.ID == "" {
		a.reply.ID = id
	}
	if model != "" {
		a.reply.Model = model
	}
}

func (a *answer) finish(model string) *agent.Reply {
	a.reply.Blocks = a.whole
	if a.reply.Model == "" {
		a.reply.Model = model
	}
	return &a.reply
}

// Partial implements [modelwire.Decoder].
func (a *answer) Partial() modelwire.Partial {
	return modelwire.Partial{Whole: a.whole, Usage: a.reply.Usage, Begun: a.begun, Counted: a.counted,
		Delivered: a.delivered}
}

// count converts the counts of a server, whose input includes tokens from the
// cache. Impossible numbers become zero.
func count(input, cached, output int64) agent.Usage {
	input = max(0, input)
	cached = min(max(0, cached), input)
	return agent.Usage{InputTokens: input - cached, CacheReadTokens: cached, OutputTokens: max(0, output)}
}

// loose is text where some servers send a list of parts, or the object that the text should hold.
type loose string

func (l *loose) UnmarshalJSON(raw []byte) error {
	var s string
	var parts []struct{ Text string }
	switch {
	case json.Unmarshal(raw, &s) == nil:
	case json.Unmarshal(raw, &parts) == nil:
		for _, p := range parts {
			s += p.Text
		}
	default:
		s = string(raw)
	}
	*l = loose(s)
	return nil
}
