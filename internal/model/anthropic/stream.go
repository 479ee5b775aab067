package anthropic

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/model/modelwire"
)

// stream puts one answer together from its events. The text of a block is
// gathered in a builder of its own, so that the work grows with the length of
// the answer and not with its square.
type stream struct {
	on       func(agent.Part)
	usedName string

	reply     agent.Reply
	begun     bool // the head of the message has come
	stopped   bool // its end has come
	delivered bool // content was handed on: no further try
	counted   bool // the provider has sent its token counts
	whole     []placed
	open      map[int]*open // blocks that have begun and not ended
}

// placed is a whole block. Blocks have always ended in the order they began in; the
// place is kept in case they do not.
type placed struct {
	index int
	block agent.Block
}

// open is an unfinished block.
type open struct {
	block agent.Block
	text  strings.Builder // of its text, thinking or input
	sign  strings.Builder // of its signature
}

// event holds the fields of all events that matter.
type event struct {
	Type    string `json:"type"`
	Index   int    `json:"index"`
	Message *struct {
		ID    string `json:"id"`
		Model string `json:"model"`
		Usage usage  `json:"usage"`
	} `json:"message"`
	ContentBlock *agent.Block `json:"content_block"`
	Delta        struct {
		Type        string `json:"type"`
		Text        string `json:"text"`
		Thinking    string `json:"thinking"`
		Signature   string `json:"signature"`
		PartialJSON string `json:"partial_json"`
		StopReason  string `json:"stop_reason"`
	} `json:"delta"`
	Usage *usage          `json:"usage"`
	Error json.RawMessage `json:"error"`
}

// usage tells absent numbers from zeros: the last event repeats some of them.
type usage struct {
	Input      *int64 `json:"input_tokens"`
	Output     *int64 `json:"output_tokens"`
	CacheRead  *int64 `json:"cache_read_input_tokens"`
	CacheWrite *int64 `json:"cache_creation_input_tokens"`
	Written    struct {
		Hour *int64 `json:"ephemeral_1h_input_tokens"`
	} `json:"cache_creation"`
}

// into reports whether there was any figure.
func (u usage) into(to *agent.Usage) (told bool) {
	for _, f := range [...]struct {
		from *int64
		to   *int64
	}{{u.Input, &to.InputTokens}, {u.Output, &to.OutputTokens}, {u.CacheRead, &to.CacheReadTokens},
		{u.CacheWrite, &to.CacheWriteTokens}, {u.Written.Hour, &to.HourWriteTokens}} {
		if f.from != nil {
			*f.to, told = max(0, *f.from), true
		}
	}
	return told
}

// Take implements [modelwire.Decoder].
func (s *stream) Take(from *modelwire.Event) (modelwire.State, error) {
	var e event
	if err := json.Unmarshal(from.Data, &e); err != nil {
		return modelwire.More, &modelwire.BadFormat{Text: "an event is no JSON: " + err.Error()}
	}
	if e.Type == "" {
		e.Type = string(from.Name)
	}
	switch e.Type {
	case "message_start":
		if s.begun || e.Message == nil {
			return modelwire.More, &modelwire.BadFormat{Text: "a message that begins twice or without a head"}
		}
		s.begun = true
		s.reply.ID, s.reply.Model = e.Message.ID, e.Message.Model
		s.count(&e.Message.Usage)
	case "content_block_start":
		return modelwire.More, s.start(&e)
	case "content_block_delta":
		if b := s.open[e.Index]; b != nil {
			s.grow(b, &e)
			return modelwire.More, nil
		}
		return modelwire.More, &modelwire.BadFormat{Text: fmt.Sprintf("a part of block %d, which is not open", e.Index)}
	case "content_block_stop":
		if b := s.open[e.Index]; b != nil {
			s.close(b, e.Index)
		}
	case "message_delta":
		if e.Delta.StopReason != "" {
			s.reply.StopReason = e.Delta.StopReason
		}
		s.count(e.Usage)
	case "message":
		return s.take(from.Data)
	case "message_stop":
		s.stopped = true
		return modelwire.Done, nil
	case "error":
		if refused, ok := modelwire.ParseRefusal(from.Data); ok && len(e.Error) > 0 {
			return modelwire.More, refused
		}
		return modelwire.More, &modelwire.BadFormat{Text: "an error event without an error"}
	}
	return modelwire.More, nil // pings, and additions of later versions of the API
}

func (s *stream) count(u *usage) {
	if u != nil && u.into(&s.reply.Usage) {
		s.counted = true
	}
}

// take reads a whole message that came at once.
func (s *stream) take(data []byte) (modelwire.State, error) {
	var m struct {
		ID, Model  string
		Content    []agent.Block
		StopReason string `json:"stop_reason"`
		Usage      *usage
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return modelwire.More, &modelwire.BadFormat{Text: "a message that cannot be read: " + err.Error()}
	}
	s.begun, s.stopped = true, true
	s.reply.ID, s.reply.Model, s.reply.StopReason = m.ID, m.Model, m.StopReason
	s.count(m.Usage)
	for i, b := range m.Content {
		if err := s.start(&event{Index: i, ContentBlock: &b}); err != nil {
			return modelwire.More, err
		}
		s.close(s.open[i], i)
	}
	return modelwire.Done, nil
}

func (s *stream) start(e *event) error {
	if !s.begun || e.ContentBlock == nil || s.open[e.Index] != nil {
		return &modelwire.BadFormat{Text: fmt.Sprintf("block %d begins out of order", e.Index)}
	}
	b := &open{block: *e.ContentBlock}
	if s.open == nil {
		s.open = make(map[int]*open)
	}
	s.open[e.Index] = b
	switch b.block.Type {
	case "text":
		s.more(b, agent.TextPart, e.Index, b.block.Text)
	case "thinking":
		b.sign.WriteString(b.block.Signature)
		s.more(b, agent.ThinkingPart, e.Index, b.block.Thinking)
	case "tool_use":
		s.hand(agent.Part{Kind: agent.ToolPart, Index: e.Index, ID: b.block.ID, Name: b.block.Name})
	}
	return nil
}

func (s *stream) grow(b *open, e *event) {
	switch e.Delta.Type {
	case "text_delta":
		s.more(b, agent.TextPart, e.Index, e.Delta.Text)
	case "thinking_delta":
		s.more(b, agent.ThinkingPart, e.Index, e.Delta.Thinking)
	case "input_json_delta":
		s.more(b, agent.InputPart, e.Index, e.Delta.PartialJSON)
	case "signature_delta":
		b.sign.WriteString(e.Delta.Signature)
	}
}

func (s *stream) more(b *open, kind agent.PartKind, index int, text string) {
	if text == "" {
		return
	}
	b.text.WriteString(text)
	s.hand(agent.Part{Kind: kind, Index: index, Text: text})
}

// close makes a whole block of an open one. It leaves out unknown kinds of blocks:
// our requests do not produce them.
func (s *stream) close(b *open, index int) {
	delete(s.open, index)
	block := b.block
	switch block.Type {
	case "text":
		block.Text = b.text.String()
		if block.Text == "" {
			return // the provider refuses empty text when it gets it back
		}
	case "thinking":
		block.Thinking, block.Signature = b.text.String(), b.sign.String()
	case "tool_use":
		block.Input = b.input()
	case "redacted_thinking":
	default:
		return
	}
	s.whole = append(s.whole, placed{index, block})
	s.hand(agent.Part{Kind: agent.BlockPart, Index: index, Block: &block})
}

func (s *stream) hand(p agent.Part) {
	s.delivered = true
	s.on(p)
}

// input returns the joined parts of a call's input, or its first value without parts.
func (b *open) input() json.RawMessage {
	if b.text.Len() == 0 {
		return modelwire.ToolInput(string(b.block.Input))
	}
	return modelwire.ToolInput(b.text.String())
}

// Finish implements [modelwire.Decoder].
func (s *stream) Finish() (*agent.Reply, error) {
	switch {
	case s.stopped && !s.begun:
		return nil, &modelwire.BadFormat{Text: "a message that ends before it begins"}
	case !s.stopped, s.reply.StopReason == "", len(s.open) > 0 && !s.short():
		return nil, io.ErrUnexpectedEOF
	}
	for _, i := range slices.Sorted(maps.Keys(s.open)) {
		s.close(s.open[i], i)
	}
	s.reply.Blocks = s.blocks()
	if s.reply.Model == "" {
		s.reply.Model = s.usedName
	}
	return &s.reply, nil
}

// short reports a stop reason that may follow a block without an end. A call
// of such an answer is not run.
func (s *stream) short() bool {
	return slices.Contains([]string{"max_tokens", "refusal", "model_context_window_exceeded"}, s.reply.StopReason)
}

// Partial implements [modelwire.Decoder].
func (s *stream) Partial() modelwire.Partial {
	return modelwire.Partial{Whole: s.blocks(), Usage: s.reply.Usage, Begun: s.begun, Counted: s.counted,
		Delivered: s.delivered}
}

// blocks returns the whole blocks in their order.
func (s *stream) blocks() []agent.Block {
	out := make([]agent.Block, 0, len(s.whole))
	for _, p := range s.whole {
		out = append(out, p.block)
	}
	return out
}
