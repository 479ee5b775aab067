package openai

import (
	"encoding/json"
	"errors"
	"slices"

	"github.com/drover-dev/drover/agent"
)

// placed adds the place in our messages to an error that names an item of the request.
func (m *Model) placed(err error, req *agent.Request) error {
	told := (*agent.ModelError)(nil)
	if !errors.As(err, &told) || told.At.Message == 0 {
		return err
	}
	item := told.At.Message - 1
	if m.form.system != nil && req.System != "" {
		item--
	}
	at := agent.Spot{Why: told.At.Why}
	for i, msg := range req.Messages {
		blocks, bad := msg.Blocks()
		if bad != nil {
			break
		}
		n := len(m.form.items(blocks, msg.Role()))
		if item >= 0 && item < n {
			at.Message = i + 1
			at.Block, at.Inner = origin(blocks, item, told.At.Block)
			break
		}
		item -= n
	}
	told.At = at
	return err
}

// origin returns the block that a part of an item was made of; 0: one of the images, of which an
// item may have several. All numbers except item count from 1.
func origin(blocks []agent.Block, item, part int) (block, inner int) {
	p := sortOut(blocks)
	of := func(n int, count func(parts) int) (block, left int) {
		for i := range blocks {
			made := count(sortOut(blocks[i : i+1]))
			if n < made {
				return i + 1, n
			}
			n -= made
		}
		return 0, 0
	}
	texts := func(p parts) int { return len(p.texts) }
	images := func(p parts) int { return len(p.images) }
	if item < len(p.results) {
		block, _ = of(item, func(p parts) int { return len(p.results) })
		return block, 0
	}
	if item -= len(p.results); len(p.texts)+len(p.images) > 0 {
		switch at := part - 1 - len(p.texts); {
		case item > 0:
			item--
		case part > 0 && at < 0:
			block, _ = of(part-1, texts)
			return block, 0
		case part > 0:
			block, at = of(at, images)
			if in := []agent.Block(nil); block > 0 && json.Unmarshal(blocks[block-1].Content, &in) == nil { // a result
				blocks = in
				inner, _ = of(at, images)
			}
			return block, inner
		case len(p.images) > 0:
			return 0, 0
		default: // the texts are joined: the longest is the likely one
			longest := slices.MaxFunc(p.texts, func(a, b string) int { return len(a) - len(b) })
			block, _ = of(slices.Index(p.texts, longest), texts)
			return block, 0
		}
	}
	block, _ = of(item, func(p parts) int { return len(p.calls) })
	return block, 0
}
