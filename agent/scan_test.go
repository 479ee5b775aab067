package agent

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// What the quick reader accepts is valid, and reads as the decoder reads it.
func FuzzScanMessage(f *testing.F) {
	f.Add([]byte(`{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":"x\u00e4\n","is_error":true}]}`))
	f.Add([]byte(`{"role":"assistant","content":[{"type":"text","text":"hi"},{"type":"tool_use","id":"a","name":"T","input":{"a":[1,-2.5e3,null,{}],"b":true}}]}`))
	f.Add([]byte(`{"role":"user","content":[]}`))
	f.Add([]byte(`{"role":"user","content":[{"type":"text","text":"\x"}]}`))
	f.Add([]byte(`{"role":"user","content":[{"type":"text","text":"a"},]}`))
	f.Add([]byte(`{"role":"user","content":[{"type":"image","source":01}]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		s := scanner{b: raw, keep: true}
		role, ok := s.message()
		if !ok {
			return
		}
		got := s.blocks
		if !json.Valid(raw) {
			t.Fatalf("accepted %q", raw)
		}
		var m Message
		if err := m.UnmarshalJSON(raw); err != nil || m.role != role {
			t.Fatalf("role %q, decoder %q: %v", role, m.role, err)
		}
		if s.ascii() && (!utf8.Valid(raw) || regexp.MustCompile(`[^\x00-\x7f]|\\u`).Match(raw)) {
			t.Fatalf("%q is taken for plain ASCII", raw)
		}
		want, err := m.Blocks()
		if err != nil || len(want) != len(got) {
			t.Fatalf("%d blocks, decoder %d: %v", len(got), len(want), err)
		}
		for i, b := range want {
			if (b.Type == "tool_use" || b.Type == "tool_result") && !s.paired {
				t.Fatalf("block %d is %+v and overlooked", i, b)
			}
			if b.Type != got[i].Type || b.ID != got[i].ID || b.ToolUseID != got[i].ToolUseID {
				t.Fatalf("block %d is %+v, decoder %+v", i, got[i], b)
			}
		}
	})
}

func TestScanReadsWhatIsWritten(t *testing.T) {
	m := NewMessage(Assistant, TextBlock("a\n\"b\" ü \u2028"), Block{Type: "tool_use", ID: "x", Name: "T", Input: json.RawMessage(`{"n":1}`)})
	s := scanner{b: m.Encoded(), keep: true}
	role, ok := s.message()
	if !ok || role != Assistant || len(s.blocks) != 2 || s.blocks[1].ID != "x" || !s.paired {
		t.Errorf("%+v, %v", s.blocks, ok)
	}
}

// The bytes that end or bend a text are found wherever they stand.
func TestScanFindsEveryByte(t *testing.T) {
	for c := range 256 {
		for at := range 20 {
			text := bytes.Repeat([]byte("x"), 20)
			text[at] = byte(c)
			s := scanner{b: []byte(`"` + string(text) + `"`)}
			_, ok := s.text()
			if want := json.Valid(s.b); (ok && s.i == len(s.b)) != want {
				t.Fatalf("byte %#x at %d: ok %v, valid %v", c, at, ok, want)
			}
		}
	}
	for n := range 20 {
		s := scanner{b: []byte(`"` + strings.Repeat("x", n) + `"`)}
		if v, ok := s.text(); !ok || len(v) != n {
			t.Errorf("a text of %d: %q, %v", n, v, ok)
		}
	}
}

// A message with a long text has the same form as any other, wherever its pieces end.
func TestLongText(t *testing.T) {
	for _, unit := range []string{"a", "é", "€\n", "😀", "\xff", "a\xf0\x9f\x98", "<&>\u2028\x00\""} {
		text := strings.Repeat(unit, longTextBytes/len(unit)+7)
		for shift := range 4 {
			blocks := []Block{{Type: "thinking", Thinking: "t"}, TextBlock("xyz"[:shift] + text), {Type: "tool_use", ID: "1", Name: "N", Input: json.RawMessage("{}")}, TextBlock(text)}
			want := encode(struct {
				Role    Role    `json:"role"`
				Content []Block `json:"content"`
			}{Assistant, blocks})
			if got := NewMessage(Assistant, blocks...).raw; !bytes.Equal(got, want) {
				t.Errorf("%q shifted by %d: %d bytes, not %d, or others", unit, shift, len(got), len(want))
			}
		}
	}
}
