package agent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"unicode/utf8"
)

// Role is who speaks.
type Role string

// The roles.
const (
	User      Role = "user"
	Assistant Role = "assistant"
)

// Block is one part of a message. The form is that of the Messages API
// (anthropic-version 2023-06-01), which is also the form in transcripts.
type Block struct {
	Type string `json:"type"` // text, thinking, redacted_thinking, tool_use, tool_result, image

	Text string `json:"text,omitempty"` // text

	Thinking  string `json:"thinking,omitempty"`  // thinking
	Signature string `json:"signature,omitempty"` // thinking
	Data      string `json:"data,omitempty"`      // redacted_thinking

	ID    string          `json:"id,omitempty"`    // tool_use
	Name  string          `json:"name,omitempty"`  // tool_use
	Input json.RawMessage `json:"input,omitempty"` // tool_use; always a JSON object

	ToolUseID string          `json:"tool_use_id,omitempty"` // tool_result
	Content   json.RawMessage `json:"content,omitempty"`     // tool_result: a string or blocks
	IsError   bool            `json:"is_error,omitempty"`    // tool_result

	Source json.RawMessage `json:"source,omitempty"` // image
}

// TextBlock makes a text block.
func TextBlock(text string) Block { return Block{Type: "text", Text: text} }

// ToolResultBlock makes the result of a call.
func ToolResultBlock(id, text string, isError bool) Block {
	return Block{Type: "tool_result", ToolUseID: id, Content: encode(text), IsError: isError}
}

// resultBlock is the result of a call with its images.
func resultBlock(id string, out Output) Block {
	if len(out.Images) == 0 {
		return ToolResultBlock(id, out.Text, out.IsError)
	}
	return Block{Type: "tool_result", ToolUseID: id, IsError: out.IsError,
		Content: encode(append([]Block{TextBlock(out.Text)}, out.Images...))}
}

// Message is one message, kept as its encoded bytes: a request is made by
// joining the messages, so a long conversation is never encoded twice. The zero
// Message is not valid.
type Message struct {
	role  Role
	raw   json.RawMessage // {"role":…,"content":[…]}
	plain bool            // known to hold neither calls nor results
}

// NewMessage encodes a message.
func NewMessage(role Role, blocks ...Block) Message {
	var raw json.RawMessage
	if slices.ContainsFunc(blocks, longText) {
		raw = encodeLong(role, blocks)
	} else {
		raw = encode(struct {
			Role    Role    `json:"role"`
			Content []Block `json:"content"`
		}{role, blocks})
	}
	return Message{role: role, raw: raw, plain: !slices.ContainsFunc(blocks, paired)}
}

// A text of more than longTextBytes is encoded piece by piece: the encoder has a buffer of twice
// what it encodes, and copies it.
const (
	longTextBytes = 256 << 10
	longTextPiece = 32 << 10
)

// longText says whether a block is a long text and nothing else.
func longText(b Block) bool {
	return b.Type == "text" && len(b.Text) > longTextBytes && b.Thinking == "" && b.Signature == "" &&
		b.Data == "" && b.ID == "" && b.Name == "" &&
		b.Input == nil && b.ToolUseID == "" && b.Content == nil && !b.IsError &&
		b.Source == nil
}

// encodeLong is the same form as that of a message without long texts.
func encodeLong(role Role, blocks []Block) json.RawMessage {
	size := 0
	for _, b := range blocks {
		size += len(b.Text)
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	raw := slices.Grow(json.RawMessage(nil), size+size/16)
	raw = append(append(append(raw, `{"role":`...), encode(role)...), `,"content":[`...)
	for i, b := range blocks {
		if i > 0 {
			raw = append(raw, ',')
		}
		if !longText(b) {
			raw = append(raw, encode(b)...)
			continue
		}
		raw = append(raw, `{"type":"text","text":"`...)
		for text := b.Text; text != ""; {
			n := min(len(text), longTextPiece)
			for back := 0; n < len(text) && !utf8.RuneStart(text[n]) && back < utf8.UTFMax; back++ {
				n--
			}
			buf.Reset()
			if err := enc.Encode(text[:n]); err != nil {
				panic(fmt.Sprintf("agent: encode a text: %v", err)) // which has a form always
			}
			piece := bytes.TrimRight(buf.Bytes(), "\n")
			raw, text = append(raw, piece[1:len(piece)-1]...), text[n:]
		}
		raw = append(raw, `"}`...)
	}
	return append(raw, `]}`...)
}

// paired says whether a block must have another that answers it or is answered.
func paired(b Block) bool { return b.Type == "tool_use" || b.Type == "tool_result" }

// Role is who speaks.
func (m Message) Role() Role { return m.role }

// Encoded is the message in its wire form. The caller must not change it.
func (m Message) Encoded() json.RawMessage { return m.raw }

// Blocks decodes the parts of the message. Content that is a plain string is
// given as one text block.
func (m Message) Blocks() ([]Block, error) {
	var in struct {
		Content json.RawMessage `json:"content"`
	}
	if err := json.Unmarshal(m.raw, &in); err != nil {
		return nil, fmt.Errorf("decode message: %w", err)
	}
	if c := bytes.TrimSpace(in.Content); len(c) > 0 && c[0] == '"' {
		var text string
		if err := json.Unmarshal(c, &text); err != nil {
			return nil, fmt.Errorf("decode message: %w", err)
		}
		return []Block{TextBlock(text)}, nil
	}
	var blocks []Block
	if err := json.Unmarshal(in.Content, &blocks); err != nil {
		return nil, fmt.Errorf("decode message: %w", err)
	}
	return blocks, nil
}

// MarshalJSON writes the wire form.
func (m Message) MarshalJSON() ([]byte, error) {
	if m.raw == nil {
		return nil, fmt.Errorf("encode message: empty")
	}
	return m.raw, nil
}

// UnmarshalJSON reads the wire form.
func (m *Message) UnmarshalJSON(data []byte) error {
	var in struct {
		Role Role `json:"role"`
	}
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	if in.Role != User && in.Role != Assistant {
		return fmt.Errorf("decode message: role %q", in.Role)
	}
	s := scanner{b: data}
	_, ok := s.message()
	m.role, m.raw, m.plain = in.Role, bytes.Clone(data), ok && !s.paired
	return nil
}

// encode is JSON without HTML escaping, which saves a sixth of the bytes of a
// usual conversation. It panics on values that cannot be encoded, of which
// this package makes none.
func encode(v any) json.RawMessage {
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(fmt.Sprintf("agent: encode %T: %v", v, err))
	}
	return bytes.TrimRight(buf.Bytes(), "\n")
}
