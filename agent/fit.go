package agent

import (
	"fmt"
	"slices"
	"strings"
)

const (
	leftOut       = "[left out: the conversation is too long]"
	leastMessage  = 128  // bytes; no message of use has fewer
	shortBytes    = 2000 // that are kept of a long text
	shortestBytes = 200
)

// fit makes a conversation short enough to be summed up, by the same rule each
// time: first the oldest results of calls lose their text, then the oldest of
// everything that is long, and then the oldest messages go. Calls and their
// results stay together. It returns what it was given if that has at most limit
// bytes.
func fit(all []Message, limit int) []Message {
	size := bytesOf(all)
	if size <= limit {
		return all
	}
	whole := len(all)
	all = slices.Clone(newest(all, max(limit/leastMessage, 1), whole))
	for pass, shorten := range []func(Block) Block{emptied, shortened(shortBytes), shortened(shortestBytes)} {
		size = bytesOf(all)
		for i := 0; i < len(all) && size > limit; i++ {
			if pass == 0 && all[i].plain {
				continue // it has no results
			}
			if m, ok := each(all[i], shorten); ok {
				size += len(m.raw) - len(all[i].raw)
				all[i] = m
			}
		}
	}
	for n := len(all) / 2; n > 0 && bytesOf(all) > limit; n /= 2 {
		all = newest(all, n, whole)
	}
	return all
}

func bytesOf(messages []Message) (n int) {
	for _, m := range messages {
		n += len(m.raw)
	}
	return n
}

// newest keeps at most n messages at the end, from one of the user on if there
// is one, and says how many of the whole are missing.
func newest(all []Message, n, whole int) []Message {
	if len(all) <= n {
		return all
	}
	kept := all[len(all)-n:]
	if i := slices.IndexFunc(kept, func(m Message) bool { return m.role == User }); i > 0 {
		kept = kept[i:]
	}
	blocks := []Block{
		TextBlock(fmt.Sprintf("[%d earlier messages left out: the conversation is too long]", whole-len(kept))),
	}
	if kept[0].role == User {
		if first, err := kept[0].Blocks(); err == nil {
			blocks = append(blocks, asked(first)...) // the calls of its results are gone
		}
		kept = kept[1:]
	}
	return append([]Message{NewMessage(User, blocks...)}, kept...)
}

// each changes the blocks of a message, and says whether that made it shorter.
func each(m Message, change func(Block) Block) (Message, bool) {
	blocks, err := m.Blocks()
	if err != nil {
		return m, false
	}
	for i := range blocks {
		blocks[i] = change(blocks[i])
	}
	short := NewMessage(m.role, blocks...)
	return short, len(short.raw) < len(m.raw)
}

func emptied(b Block) Block {
	if b.Type == "tool_result" && len(b.Content) > len(leftOut) {
		return ToolResultBlock(b.ToolUseID, leftOut, b.IsError)
	}
	return b
}

func shortened(limit int) func(Block) Block {
	return func(b Block) Block {
		switch {
		case b.Type == "text":
			b.Text = excerpt(b.Text, limit)
		case b.Type == "thinking" || b.Type == "redacted_thinking" || b.Type == "image":
			return TextBlock(leftOut)
		case b.Type == "tool_use" && len(b.Input) > limit:
			b.Input = encode(struct {
				Input string `json:"input"`
			}{excerpt(string(b.Input), limit)})
		case b.Type == "tool_result" && len(b.Content) > limit:
			return ToolResultBlock(b.ToolUseID, leftOut, b.IsError)
		}
		return b
	}
}

// asked is a user's blocks without the results of calls.
func asked(blocks []Block) []Block {
	return slices.DeleteFunc(blocks, func(b Block) bool { return b.Type == "tool_result" })
}

// unanswered is what the last message asks of the model beside giving it
// results and an earlier summary.
func unanswered(messages []Message) ([]Block, error) {
	if len(messages) == 0 || messages[len(messages)-1].role != User {
		return nil, nil
	}
	blocks, err := messages[len(messages)-1].Blocks()
	if len(blocks) > 0 && strings.HasPrefix(blocks[0].Text, strings.TrimSpace(compactedPreface)) {
		blocks = blocks[1:]
	}
	return asked(blocks), err
}
