package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// leftOutBegin begins the text that takes the place of a block.
const leftOutBegin = "[left out: the provider refuses "

// Spot is the part of a request that a provider refuses, counted from 1. The zero Spot is none.
type Spot struct {
	Tool    int    `json:"tool,omitempty"`    // of [Request.Tools]
	Message int    `json:"message,omitempty"` // of [Request.Messages]
	Block   int    `json:"block,omitempty"`   // of the message; 0: it is not said which
	Inner   int    `json:"inner,omitempty"`   // of a block that is a result; 0: it is not said which
	File    bool   `json:"file,omitempty"`    // an image or a document, and it is not said where
	Why     string `json:"why,omitempty"`     // in the words of the provider
}

// leaveOut takes what a provider has refused out of the conversation, for good: a conversation that
// is sent again as it was would be refused for ever. It returns the messages to send instead; ok is
// false if there is nothing more to take out. all: wherever it stands, not only in the newest message.
func (t *turn) leaveOut(messages []Message, at Spot, all bool) (instead []Message, ok bool, err error) {
	if i := at.Tool - 1; i >= 0 {
		if i >= len(t.tools.specs) {
			return nil, false, nil
		}
		name := t.tools.specs[i].Name
		t.tools.specs = slices.Concat(t.tools.specs[:i], t.tools.specs[i+1:])
		note := fmt.Sprintf("the tool %s is left out: the provider refuses it: %s", name, at.Why)
		t.warn(note)
		return messages, true, t.keep(Record{Note: note})
	}
	refused := refusedBlocks(messages, at, all)
	if len(refused) == 0 {
		return nil, false, nil
	}
	r := Record{Note: leftOutBegin[1:] + kindsOf(refused) + ": " + at.Why}
	for _, b := range refused {
		r.LeftOut = append(r.LeftOut, sumOf(b))
	}
	t.warn(r.Note)
	return without(messages, r), true, t.keep(r)
}

// refusedBlocks are the blocks that a spot means and that are not left out yet.
func refusedBlocks(messages []Message, at Spot, all bool) (found []Block) {
	take := func(m Message, which func(i int, b Block) []Block) {
		blocks, err := m.Blocks()
		if err != nil {
			return
		}
		for i, b := range blocks {
			for _, b := range which(i+1, b) {
				if !isLeftOut(b) {
					found = append(found, b)
				}
			}
		}
	}
	files := func(_ int, b Block) []Block { return slices.DeleteFunc(append(inside(b), b), notFile) }
	switch {
	case at.Message > len(messages):
	case at.Message > 0:
		take(messages[at.Message-1], func(i int, b Block) []Block {
			inner := inside(b)
			switch {
			case at.Block == 0:
				return files(i, b)
			case i != at.Block:
				return nil
			case at.Inner > 0 && at.Inner <= len(inner):
				return inner[at.Inner-1 : at.Inner]
			case slices.ContainsFunc(inner, isFile):
				return slices.DeleteFunc(inner, notFile)
			}
			return []Block{b}
		})
	case at.File:
		for _, m := range slices.Backward(messages) {
			if take(m, files); len(found) > 0 && !all {
				break
			}
		}
	}
	return found
}

// isFile reports an image, a document and whatever else is neither said nor called.
func isFile(b Block) bool {
	return !slices.Contains([]string{"text", "thinking", "redacted_thinking", "tool_use", "tool_result"}, b.Type)
}

func notFile(b Block) bool { return !isFile(b) }

// inside are the blocks of a result.
func inside(b Block) (inner []Block) {
	if b.Type == "tool_result" && json.Unmarshal(b.Content, &inner) != nil {
		return nil // it is a text
	}
	return inner
}

// without is the conversation without what a record leaves out. A text takes the place of each
// block; calls and results stay, since each needs the other.
func without(messages []Message, r Record) []Message {
	if len(r.LeftOut) == 0 {
		return messages
	}
	messages = slices.Clone(messages)
	for i, m := range messages {
		blocks, err := m.Blocks()
		if err != nil {
			continue
		}
		if blocks, changed := r.leaveOut(blocks); changed {
			messages[i] = NewMessage(m.role, blocks...)
		}
	}
	return messages
}

func (r Record) leaveOut(blocks []Block) (out []Block, changed bool) {
	for _, b := range blocks {
		switch inner, again := r.leaveOut(inside(b)); {
		case slices.Contains(r.LeftOut, sumOf(b)):
			b, changed = instead(b, "["+r.Note+"]"), true
		case again:
			b.Content, changed = encode(inner), true
		}
		out = append(out, b)
	}
	return out, changed
}

// instead is a block in whose place a text stands.
func instead(b Block, text string) Block {
	switch b.Type {
	case "tool_result":
		return ToolResultBlock(b.ToolUseID, text, b.IsError)
	case "tool_use":
		b.Input = encode(struct {
			LeftOut string `json:"left_out"`
		}{text})
		return b
	}
	return TextBlock(text)
}

func isLeftOut(b Block) bool {
	return strings.HasPrefix(b.Text, leftOutBegin) ||
		strings.HasPrefix(string(b.Content), `"`+leftOutBegin) ||
		strings.HasPrefix(string(b.Input), `{"left_out":"`+leftOutBegin)
}

func kindOf(b Block) string {
	switch b.Type {
	case "tool_result":
		return "result"
	case "tool_use":
		return "input of a call"
	}
	return strings.ReplaceAll(b.Type, "_", " ")
}

// kindsOf names refused blocks, such as: an image.
func kindsOf(blocks []Block) string {
	if len(blocks) > 1 {
		return fmt.Sprintf("%s and %d more", kindsOf(blocks[:1]), len(blocks)-1)
	}
	kind := kindOf(blocks[0])
	if strings.ContainsAny(kind[:1], "aeiou") {
		return "an " + kind
	}
	return "a " + kind
}

// sumOf names a block by its content: a conversation that is summed up, forked or read from its
// file has its blocks in other places.
func sumOf(b Block) string {
	sum := sha256.Sum256(encode(b))
	return hex.EncodeToString(sum[:])
}

// refusedAt is the part of a request that an error names.
func refusedAt(err error) Spot {
	why := (*ModelError)(nil)
	if !errors.As(err, &why) {
		return Spot{}
	}
	return why.At
}
