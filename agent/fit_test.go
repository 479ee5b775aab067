package agent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// talk is a conversation of n calls with long results, after a long prompt.
func talk(n int) []Message {
	all := []Message{NewMessage(User, TextBlock("prompt "+strings.Repeat("p", 5000)))}
	for i := range n {
		id := fmt.Sprint("c", i)
		all = append(all,
			NewMessage(Assistant, Block{Type: "thinking", Thinking: "hm"}, TextBlock(fmt.Sprint("step ", i)), Block{Type: "tool_use", ID: id, Name: "T", Input: json.RawMessage(`{}`)}),
			NewMessage(User, ToolResultBlock(id, strings.Repeat("r", 5000), false)))
	}
	return all
}

func TestFit(t *testing.T) {
	all := talk(20)
	for _, c := range []struct {
		limit  int
		has    []string // texts that are left
		hasNot []string
	}{
		{bytesOf(all), []string{strings.Repeat("p", 5000), `"c0","content":"rrr`}, []string{leftOut}},
		{60_000, []string{strings.Repeat("p", 5000), leftOut, "step 0", `"c19","content":"rrr`}, []string{`"c0","content":"rrr`}},
		{10_000, []string{"prompt ppp", "step 0", "step 19"}, []string{strings.Repeat("p", 5000), `"c19","content":"rrr`}},
		{1500, []string{"earlier messages left out", "step 19"}, []string{"step 0"}},
		{1, []string{"40 earlier messages left out"}, []string{"step 18"}},
	} {
		got := fit(all, c.limit)
		enc, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		if size := bytesOf(got); size > c.limit && c.limit > 1 {
			t.Errorf("limit %d: %d bytes", c.limit, size)
		}
		for _, text := range c.has {
			if !bytes.Contains(enc, []byte(text)) {
				t.Errorf("limit %d: %.40q is gone", c.limit, text)
			}
		}
		for _, text := range c.hasNot {
			if bytes.Contains(enc, []byte(text)) {
				t.Errorf("limit %d: %.40q is left", c.limit, text)
			}
		}
		if _, added, err := Repair(got); err != nil || len(added) > 0 || got[0].role != User {
			t.Errorf("limit %d: %d messages of it are not valid, %v", c.limit, len(added), err)
		}
		if again, _ := json.Marshal(fit(talk(20), c.limit)); !bytes.Equal(enc, again) {
			t.Errorf("limit %d: not the same each time", c.limit)
		}
	}
	same, _ := json.Marshal(talk(20))
	if now, _ := json.Marshal(all); !bytes.Equal(now, same) {
		t.Error("the conversation itself was changed")
	}
}

// Of what is too much together the largest parts are replaced, and no more than need be; a
// result stays the result of its call, and says that it is none.
func TestFitting(t *testing.T) {
	blocks := []Block{
		ToolResultBlock("a", strings.Repeat("x", 9000), false), ToolResultBlock("b", "small", false), TextBlock(strings.Repeat("y", 20_000)),
		{Type: "image", Source: encode(map[string]string{"data": strings.Repeat("z", 30_000)})}, ToolResultBlock("c", strings.Repeat("x", 8000), false),
	}
	const all = 9000 + 20_000 + 30_000 + 8000 + 1000 // and a bit
	for _, tt := range []struct {
		limit int
		cut   []int
	}{
		{all, nil}, {all - 29_000, []int{3}}, {all - 47_000, []int{3, 2}}, {all - 55_000, []int{3, 2, 0}}, {0, []int{3, 2, 0, 4}},
	} {
		short, cut := fitting(blocks, tt.limit)
		size := len(NewMessage(User, short...).raw)
		if cut != len(tt.cut) || tt.limit > 0 && size > tt.limit+50 {
			t.Errorf("limit %d: %d are cut, want %d, and all have %d bytes", tt.limit, cut, len(tt.cut), size)
		}
		for i, b := range short {
			if (len(encode(b)) != len(encode(blocks[i]))) != slices.Contains(tt.cut, i) {
				t.Errorf("limit %d: block %d is %.100s", tt.limit, i, encode(b))
			}
			if b.ToolUseID != blocks[i].ToolUseID || b.IsError != (b.ToolUseID != "" && slices.Contains(tt.cut, i)) {
				t.Errorf("limit %d: block %d is the result %q, an error %v", tt.limit, i, b.ToolUseID, b.IsError)
			}
		}
	}
	if len(blocks[0].Content) != 9002 {
		t.Error("what was given was changed")
	}
}
