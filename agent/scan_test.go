package agent

import (
	"encoding/json"
	"testing"
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
		got, ok := scanMessage(raw)
		if !ok {
			return
		}
		if !json.Valid(raw) {
			t.Fatalf("accepted %q", raw)
		}
		var m Message
		if err := m.UnmarshalJSON(raw); err != nil {
			t.Fatal(err)
		}
		want, err := m.Blocks()
		if err != nil || len(want) != len(got) {
			t.Fatalf("%d blocks, decoder %d: %v", len(got), len(want), err)
		}
		for i, b := range want {
			if clean := string(encode(b.Type + b.ID + b.ToolUseID)); clean != string(encode(got[i].Type+got[i].ID+got[i].ToolUseID)) {
				t.Fatalf("block %d is %+v, decoder %+v", i, got[i], b)
			}
		}
	})
}

func TestScanReadsWhatIsWritten(t *testing.T) {
	m := NewMessage(Assistant, TextBlock("a\n\"b\" ü \u2028"), Block{Type: "tool_use", ID: "x", Name: "T", Input: json.RawMessage(`{"n":1}`)})
	blocks, ok := scanMessage(m.Encoded())
	if !ok || len(blocks) != 2 || blocks[1].ID != "x" {
		t.Errorf("%+v, %v", blocks, ok)
	}
}
