package openai

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
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
