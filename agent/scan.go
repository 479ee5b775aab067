package agent

import (
	"encoding/binary"
	"encoding/json"
	"math/bits"
	"slices"
	"unicode/utf8"
)

// maxDepth is how deep a value may nest that is read without the decoder.
const maxDepth = 2000

// outline is the blocks of a message with nothing in them but Type, ID and
// ToolUseID. A conversation is resumed by looking at these of each message;
// decoding them all would cost several times the reading of the file.
func outline(m Message) ([]Block, error) {
	s := scanner{b: m.raw, keep: true}
	if _, ok := s.message(); ok {
		return s.blocks, nil
	}
	blocks, err := m.Blocks()
	for i, b := range blocks {
		blocks[i] = Block{Type: b.Type, ID: b.ID, ToolUseID: b.ToolUseID}
	}
	return blocks, err
}

// scanner reads JSON as this package writes it, once and without copies. It is
// not ok with anything that is unusual or not valid; then the decoder decides.
type scanner struct {
	b      []byte
	i      int
	keep   bool    // to gather blocks
	blocks []Block // with nothing but Type, ID and ToolUseID
	paired bool    // there was a block that is not known to be neither a call nor a result
	wide   uint64  // bits of bytes beyond ASCII that were passed
	coded  bool    // there was a \u
}

// message reads a whole message.
func (s *scanner) message() (role Role, ok bool) {
	switch {
	case s.eat(`{"role":"user","content":[`):
		role = User
	case s.eat(`{"role":"assistant","content":[`):
		role = Assistant
	default:
		return "", false
	}
	for n := 0; !s.eat("]"); n++ {
		if n > 0 && !s.eat(",") || !s.block() {
			return "", false
		}
	}
	return role, s.eat("}") && s.i == len(s.b)
}

func (s *scanner) eat(text string) bool {
	if len(s.b)-s.i < len(text) || string(s.b[s.i:s.i+len(text)]) != text {
		return false
	}
	s.i += len(text)
	return true
}

func (s *scanner) block() bool {
	if !s.eat("{") {
		return false
	}
	var kind, id, result []byte
	for n := 0; !s.eat("}"); n++ {
		if n > 0 && !s.eat(",") {
			return false
		}
		key, ok := s.text()
		if !ok || !s.eat(":") {
			return false
		}
		switch string(key) {
		case "text", "thinking", "signature", "data", "name":
			_, ok = s.text()
		case "type":
			kind, ok = s.bare()
		case "id":
			id, ok = s.bare()
		case "tool_use_id":
			result, ok = s.bare()
		case "is_error":
			ok = s.eat("true") || s.eat("false")
		case "input", "content", "source":
			ok = s.value(0)
		default:
			return false
		}
		if !ok {
			return false
		}
	}
	s.paired = s.paired || string(kind) != "text" && string(kind) != "thinking" && string(kind) != "image"
	if s.keep {
		s.blocks = append(s.blocks, Block{Type: string(kind), ID: string(id), ToolUseID: string(result)})
	}
	return true
}

// bare is a text that reads as it is written: without escapes, and without bytes
// that the decoder would replace.
func (s *scanner) bare() ([]byte, bool) {
	v, ok := s.text()
	return v, ok && !slices.Contains(v, '\\') && utf8.Valid(v)
}

// text is a string without its quotes, its escapes left as they are.
func (s *scanner) text() ([]byte, bool) {
	if !s.eat(`"`) {
		return nil, false
	}
	start, b, i, wide := s.i, s.b, s.i, s.wide
	defer func() { s.wide = wide }()
	for { // over locals: most of the time of a resume is spent here
		for ; i+8 <= len(b); i += 8 {
			w := binary.LittleEndian.Uint64(b[i:])
			wide |= w
			if m := special(w); m != 0 {
				i += bits.TrailingZeros64(m) >> 3
				break
			}
		}
		if i >= len(b) {
			return nil, false
		}
		switch c := b[i]; {
		case c == '"':
			s.i = i + 1
			return b[start:i], true
		case c == '\\':
			s.i = i
			if !s.escape() {
				return nil, false
			}
			i = s.i
		case c < ' ':
			return nil, false
		default:
			wide |= uint64(c)
			i++
		}
	}
}

// special marks with its highest bit the first of eight bytes that is a quote, a
// backslash or a control character; marks behind the first may be wrong.
func special(w uint64) uint64 {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	quote, slash := w^'"'*ones, w^'\\'*ones
	return ((w-' '*ones)&^w | (quote-ones)&^quote | (slash-ones)&^slash) & tops
}

// ascii says whether nothing was passed that is beyond ASCII, directly or as
// an escape.
func (s *scanner) ascii() bool { return s.wide&0x8080808080808080 == 0 && !s.coded }

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
		s.coded = true
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
