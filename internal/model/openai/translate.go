package openai

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/drover-dev/drover/agent"
)

// maxCallID is the longest ID of a call that OpenAI takes back.
const maxCallID = 40

// errorMark begins the result of a call that went wrong: this wire has no field
// for it.
const errorMark = "[error] "

// parts of a message, sorted by their form in the request.
type parts struct {
	texts   []string
	images  []string // URLs
	calls   []agent.Block
	results []result
}

// result is the result of a call.
type result struct{ id, text string }

// sortOut sorts the blocks of a message. It leaves out thoughts: no server of these
// APIs needs them back. Pictures in results go to the next message, since a result is
// text.
func sortOut(blocks []agent.Block) (p parts) {
	for _, b := range blocks {
		switch b.Type {
		case "text":
			p.texts = append(p.texts, b.Text)
		case "image":
			p.addImage(b)
		case "tool_use":
			p.calls = append(p.calls, b)
		case "tool_result":
			text := p.resultText(b)
			if b.IsError {
				text = errorMark + text
			}
			p.results = append(p.results, result{callID(b.ToolUseID), text})
		case "thinking", "redacted_thinking":
		default:
			p.texts = append(p.texts, "["+b.Type+" left out: this provider does not take it]")
		}
	}
	return p
}

// resultText returns the text of a result, whose content is a string or blocks.
func (p *parts) resultText(b agent.Block) string {
	var text string
	if len(b.Content) == 0 || json.Unmarshal(b.Content, &text) == nil {
		return text
	}
	var blocks []agent.Block
	if json.Unmarshal(b.Content, &blocks) != nil {
		return string(b.Content)
	}
	var lines []string
	for _, in := range blocks {
		switch in.Type {
		case "text":
			lines = append(lines, in.Text)
		case "image":
			p.addImage(in)
			lines = append(lines, "[the picture follows]")
		}
	}
	return strings.Join(lines, "\n")
}

// addImage takes a picture as the URL that it has or that holds it.
func (p *parts) addImage(b agent.Block) {
	var source struct {
		Type      string `json:"type"`
		MediaType string `json:"media_type"`
		Data      string `json:"data"`
		URL       string `json:"url"`
	}
	_ = json.Unmarshal(b.Source, &source) // an unreadable source counts as no picture, below
	switch {
	case source.Type == "base64" && source.Data != "":
		p.images = append(p.images, "data:"+source.MediaType+";base64,"+source.Data)
	case source.URL != "":
		p.images = append(p.images, source.URL)
	default:
		p.texts = append(p.texts, "[image left out: it cannot be read]")
	}
}

// callID makes an ID short enough, the same for a call and its result.
func callID(id string) string {
	if len(id) <= maxCallID {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return "call_" + hex.EncodeToString(sum[:12])
}

// arguments returns the input of a call as text.
func arguments(b agent.Block) string {
	if len(b.Input) == 0 {
		return "{}"
	}
	return string(b.Input)
}

// reasoning is the parameter of that name in the Responses API.
type reasoning struct {
	Effort string `json:"effort"`
}

// effort returns the reasoning effort for both APIs (reasoning_effort, reasoning.effort): none,
// low, medium, high or xhigh; empty: it is not sent.
func effort(t agent.Thinking) string {
	switch e := t.Nearest(); {
	case t.Tokens < 0:
		return "none"
	case e == "max":
		return "xhigh"
	default:
		return e
	}
}

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
