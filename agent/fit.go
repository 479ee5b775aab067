package agent

import (
	"cmp"
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

const (
	// maxMessageBytes is what a message may have, encoded: it stands in one line of
	// the transcript, with the numbers of its mail messages.
	maxMessageBytes = maxLineBytes - 1<<20
	// maxPromptBytes leaves room for what a message holds beside a prompt.
	maxPromptBytes = maxMessageBytes / 2
)

// userMessage is a message of the user that can be kept. Where it would be too large
// its largest blocks are shortened, but for the prompt, which is in it already in the
// user's own words.
func (t *turn) userMessage(blocks, prompt []Block) Message {
	m := NewMessage(User, slices.Concat(blocks, prompt)...)
	if len(m.raw) <= maxMessageBytes {
		return m
	}
	short, cut := fitting(blocks, maxMessageBytes-len(NewMessage(User, prompt...).raw))
	t.warn(
		fmt.Sprintf(
			"a message to the model would have had %d bytes, and may have %d: %d of its %d parts were cut, and say so",
			len(m.raw),
			maxMessageBytes,
			cut,
			len(blocks),
		),
	)
	return NewMessage(User, slices.Concat(short, prompt)...)
}

// fitting shortens the largest blocks until all together have at most limit bytes, and
// says how many it has shortened.
func fitting(blocks []Block, limit int) (short []Block, cut int) {
	short = slices.Clone(blocks)
	sizes, order, all := make([]int, len(blocks)), make([]int, len(blocks)), 0
	for i, b := range blocks {
		sizes[i], order[i] = len(encode(b))+1, i
		all += sizes[i]
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(sizes[b], sizes[a]) })
	for _, i := range order {
		if all <= limit {
			break
		}
		b := replaced(blocks[i])
		if n := len(encode(b)) + 1; n < sizes[i] {
			short[i], cut, all = b, cut+1, all-sizes[i]+n
		}
	}
	return short, cut
}

// replaced is what the model is told instead of a block.
func replaced(b Block) Block {
	switch b.Type {
	case "tool_result":
		return ToolResultBlock(
			b.ToolUseID,
			fmt.Sprintf("[left out: this result has %d bytes, and the results of one answer may have %d together; "+
				"the call was carried out: ask for less, or in several answers]", len(b.Content), maxMessageBytes),
			true,
		)
	case "text":
		return TextBlock(excerpt(b.Text, shortBytes))
	}
	return TextBlock(fmt.Sprintf("[left out: %s of %d bytes, for which a message has no room]", b.Type, len(encode(b))))
}

// keepTooLarge keeps the cost of a reply that cannot be kept itself, with a word of it
// in its place, and returns why the turn ends.
func (t *turn) keepTooLarge(reply *Reply, size int) error {
	why := fmt.Sprintf("the answer has %d bytes, and may have %d", size, maxMessageBytes)
	t.res.Text = ""
	err := t.keep(Record{
		Message: NewMessage(Assistant, TextBlock("[left out: "+why+". Nothing that it called was run.]")), Cut: true,
		Usage: &reply.Usage, ReplyID: reply.ID, Model: reply.Model, StopReason: reply.StopReason,
	})
	return cmp.Or(err, fmt.Errorf("keep the answer of the model: %s", why))
}
