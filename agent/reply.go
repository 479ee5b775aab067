package agent

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	maxInputBytes = 1 << 20 // of one call
	maxLevels     = 1000    // of nesting in it

	interruptedMark = "[This answer was interrupted here.]"
)

// pending is a call of a reply, before it is decided.
type pending struct {
	Call
	refused string // not empty: not to be run, and why
}

// StopError says that the last reply of a turn was ended before it was complete,
// though not by a failure. Its text is in the result and in the conversation, and
// the next turn may go on from there.
type StopError struct {
	Reason string // max_tokens, refusal or model_context_window_exceeded
}

func (e *StopError) Error() string {
	switch e.Reason {
	case "max_tokens":
		return "the answer is not complete: it was cut at the length that an answer may have (let it go on, or ask for less at once)"
	case "refusal":
		return "the model refused to answer (ask in other words, or choose another model)"
	}
	return "the answer is not complete: it filled the window of the model (let it go on after a summary, or choose a model with a larger window)"
}

// whole says that a reply with this stop reason came to its end, so that the
// calls in it are what the model wanted.
func whole(stopReason string) bool {
	return stopReason != "max_tokens" && stopReason != "refusal" && stopReason != "model_context_window_exceeded"
}

// accept makes a reply fit for the history: blocks that the wire would refuse
// go, IDs become unique, inputs become objects. A call that cannot be run stays,
// with the reason.
func accept(reply *Reply, ids map[string]struct{}, tools *toolbox) (calls []pending) {
	var blocks []Block
	type same struct{ id, name, input string }
	once := map[same]bool{}
	for _, b := range reply.Blocks {
		switch b.Type {
		case "text":
			if strings.TrimSpace(b.Text) != "" {
				blocks = append(blocks, TextBlock(b.Text))
			}
		case "thinking":
			blocks = append(blocks, Block{Type: b.Type, Thinking: b.Thinking, Signature: b.Signature})
		case "redacted_thinking":
			blocks = append(blocks, Block{Type: b.Type, Data: b.Data})
		case "tool_use":
			key := same{b.ID, b.Name, string(b.Input)}
			if b.ID != "" && once[key] {
				continue // the same call told twice is one call
			}
			once[key] = true
			p := pending{Call: Call{Name: b.Name, Input: b.Input}}
			if p.Input, p.refused = checkInput(b.Input); p.refused == "" && whole(reply.StopReason) {
				p.Call, p.refused = tools.forward(p.Call)
			}
			if p.refused == "" && !whole(reply.StopReason) {
				p.refused = "not run: your answer was stopped (" + reply.StopReason + ") before it was complete; send the call again, in smaller parts if it was too long"
			}
			p.ID = b.ID
			unique(&p.ID, ids)
			calls = append(calls, p)
			blocks = append(blocks, Block{Type: b.Type, ID: p.ID, Name: wireName(p.Name), Input: p.Input})
		}
	}
	said := func(b Block) bool { return b.Type == "text" || b.Type == "tool_use" }
	if !slices.ContainsFunc(blocks, said) {
		blocks = append(blocks, TextBlock(emptyAnswer))
	}
	reply.Blocks = blocks
	return calls
}

// checkInput returns the input as an object, and why the call cannot be run if
// it is none.
func checkInput(in json.RawMessage) (json.RawMessage, string) {
	empty := json.RawMessage("{}")
	switch {
	case len(in) == 0:
		return empty, ""
	case len(in) > maxInputBytes:
		return empty, "not run: the input of a call may have at most 1 MiB"
	case !isObject(in):
		return empty, "not run: the input must be a JSON object of at most 1,000 levels, not " + excerpt(string(in), 200)
	}
	return in, ""
}

// isObject says whether in is one JSON object that can be encoded again inside
// a message: the encoder has a limit of levels too.
func isObject(in json.RawMessage) bool {
	in = bytes.TrimLeft(in, " \t\r\n")
	return len(in) > 0 && in[0] == '{' && depth(in) <= maxLevels && utf8.Valid(in) && json.Valid(in)
}

// depth is how deep brackets nest.
func depth(in []byte) (deepest int) {
	level, quoted, escaped := 0, false, false
	for _, c := range in {
		switch {
		case escaped:
			escaped = false
		case quoted:
			escaped = c == '\\'
			quoted = c != '"'
		case c == '"':
			quoted = true
		case c == '{' || c == '[':
			level++
			deepest = max(deepest, level)
		case c == '}' || c == ']':
			level--
		}
	}
	return deepest
}

// wireName is a name that may stand in a request, whatever the model made up.
func wireName(name string) string {
	if goodName(name) {
		return name
	}
	name = strings.Map(func(r rune) rune {
		if inName(r) {
			return r
		}
		return '_'
	}, name)
	return cmp.Or(name[:min(len(name), 128)], "unknown")
}

// excerpt keeps the head and the tail of a text of more than limit bytes, and
// counts the middle.
func excerpt(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	head, tail := limit/2, len(text)-limit/2
	for head > 0 && !utf8.RuneStart(text[head]) {
		head--
	}
	for tail < len(text) && !utf8.RuneStart(text[tail]) {
		tail++
	}
	return text[:head] + "\n[… " + itoa(tail-head) + " bytes left out …]\n" + text[tail:]
}

func itoa(n int) string { return string(encode(n)) }

// partial gathers the text of a reply as it comes in, for the case that the
// user breaks it off.
type partial struct {
	texts map[int]*strings.Builder
	done  map[int]string
}

func (p *partial) take(part Part) {
	switch part.Kind {
	case VoidPart:
		*p = partial{}
	case TextPart:
		if p.texts == nil {
			p.texts = map[int]*strings.Builder{}
		}
		if p.texts[part.Index] == nil {
			p.texts[part.Index] = &strings.Builder{}
		}
		p.texts[part.Index].WriteString(part.Text)
	case BlockPart:
		if part.Block != nil && part.Block.Type == "text" {
			if p.done == nil {
				p.done = map[int]string{}
			}
			p.done[part.Index] = part.Block.Text
			delete(p.texts, part.Index)
		}
	}
}

// blocks is the text that had come when err ended the reply, with the mark at
// its end; nothing if no text had come. Calls are left out: none of them may
// run, and a call in the history wants a result.
func (p *partial) blocks(err error, mark string) []Block {
	var out []Block
	add := func(text string) {
		if strings.TrimSpace(text) != "" {
			out = append(out, TextBlock(text))
		}
	}
	indexes := map[int]string{}
	for i, b := range p.texts {
		indexes[i] = b.String()
	}
	for i, text := range p.done {
		indexes[i] = text
	}
	if cut := (*CutError)(nil); len(indexes) == 0 && errors.As(err, &cut) {
		for _, b := range cut.Whole {
			if b.Type == "text" {
				add(b.Text)
			}
		}
	}
	order := make([]int, 0, len(indexes))
	for i := range indexes {
		order = append(order, i)
	}
	slices.Sort(order)
	for _, i := range order {
		add(indexes[i])
	}
	if len(out) > 0 {
		out = append(out, TextBlock(mark))
	}
	return out
}

// spoken is the text of a reply: its text blocks, a line apart.
func spoken(blocks []Block) string {
	var texts []string
	for _, b := range blocks {
		if b.Type == "text" && b.Text != emptyAnswer {
			texts = append(texts, b.Text)
		}
	}
	return strings.Join(texts, "\n")
}
