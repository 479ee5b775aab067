package agent

import (
	"cmp"
	"fmt"
	"slices"
)

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
