package agent

import (
	"encoding/json"
	"slices"
)

// maxDepth is how deep a value may nest that is read without the decoder.
const maxDepth = 2000

// outline is the blocks of a message with nothing in them but Type, ID and
// ToolUseID. A conversation is resumed by looking at these of each message;
// decoding them all would cost several times the reading of the file.
func outline(m Message) ([]Block, error) {
	if blocks, ok := scanMessage(m.raw); ok {
		return blocks, nil
	}
	blocks, err := m.Blocks()
	for i, b := range blocks {
		blocks[i] = Block{Type: b.Type, ID: b.ID, ToolUseID: b.ToolUseID}
	}
	return blocks, err
}

// scanMessage reads a message as this package writes it, once and without
// copies. It is not ok for anything that is unusual or not valid JSON; then the
// decoder decides.
func scanMessage(raw []byte) (blocks []Block, ok bool) {
	s := scanner{b: raw}
	if !s.eat(`{"role":"user","content":[`) && !s.eat(`{"role":"assistant","content":[`) {
		return nil, false
	}
	for !s.eat("]") {
		if len(blocks) > 0 && !s.eat(",") {
			return nil, false
		}
		b, ok := s.block()
		if !ok {
			return nil, false
		}
		blocks = append(blocks, b)
	}
	return blocks, s.eat("}") && s.i == len(raw)
}

type scanner struct {
	b []byte
	i int
}

func (s *scanner) eat(text string) bool {
	if len(s.b)-s.i < len(text) || string(s.b[s.i:s.i+len(text)]) != text {
		return false
	}
	s.i += len(text)
	return true
}

func (s *scanner) block() (b Block, ok bool) {
	if !s.eat("{") {
		return b, false
	}
	for n := 0; !s.eat("}"); n++ {
		if n > 0 && !s.eat(",") {
			return b, false
		}
		key, ok := s.text()
		if !ok || !s.eat(":") {
			return b, false
		}
		switch string(key) {
		case "type", "id", "tool_use_id", "text", "thinking", "signature", "data", "name":
			v, ok := s.text()
			if !ok || slices.Contains(v, '\\') && (string(key) == "type" || string(key) == "id" || string(key) == "tool_use_id") {
				return b, false
			}
			switch string(key) {
			case "type":
				b.Type = string(v)
			case "id":
				b.ID = string(v)
			case "tool_use_id":
				b.ToolUseID = string(v)
			}
		case "is_error":
			if !s.eat("true") && !s.eat("false") {
				return b, false
			}
		case "input", "content", "source":
			if !s.value(0) {
				return b, false
			}
		default:
			return b, false
		}
	}
	return b, true
}

// text is a string without its quotes, its escapes left as they are.
func (s *scanner) text() ([]byte, bool) {
	if !s.eat(`"`) {
		return nil, false
	}
	start, b := s.i, s.b
	for i := start; i < len(b); { // over locals: most of the time of a resume is spent here
		c := b[i]
		if c >= ' ' && c != '"' && c != '\\' {
			i++
			continue
		}
		s.i = i
		if c == '"' {
			s.i++
			return b[start:i], true
		}
		if c < ' ' || !s.escape() {
			return nil, false
		}
		i = s.i
	}
	return nil, false
}

func (s *scanner) escape() bool {
	s.i++ // the backslash
	if s.i >= len(s.b) {
		return false
	}
	switch s.b[s.i] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.i++
		return true
	case 'u':
		end := s.i + 5
		if end > len(s.b) {
			return false
		}
		ok := json.Valid([]byte(`"\` + string(s.b[s.i:end]) + `"`))
		s.i = end
		return ok
	}
	return false
}

func (s *scanner) value(depth int) bool {
	if s.i >= len(s.b) || depth > maxDepth {
		return false
	}
	switch s.b[s.i] {
	case '"':
		_, ok := s.text()
		return ok
	case '{':
		s.i++
		for n := 0; !s.eat("}"); n++ {
			if n > 0 && !s.eat(",") {
				return false
			}
			if _, ok := s.text(); !ok || !s.eat(":") || !s.value(depth+1) {
				return false
			}
		}
		return true
	case '[':
		s.i++
		for n := 0; !s.eat("]"); n++ {
			if n > 0 && !s.eat(",") || !s.value(depth+1) {
				return false
			}
		}
		return true
	}
	start := s.i
	for s.i < len(s.b) && s.b[s.i] != ',' && s.b[s.i] != '}' && s.b[s.i] != ']' {
		s.i++
	}
	return json.Valid(s.b[start:s.i])
}
