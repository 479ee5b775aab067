package script

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"text/template"

	"github.com/drover-dev/drover/agent"
)

const maxTextBytes = 1 << 20

// text is a text that may hold actions in {{ }}.
type text struct {
	plain string
	tmpl  *template.Template // nil: plain is all
}

func newText(s string) (*text, error) {
	if !strings.Contains(s, "{{") {
		return &text{plain: s}, nil
	}
	t, err := template.New("text").Funcs((*view)(nil).funcs()).Parse(s)
	if err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "template: ") + " (write {{\"{{\"}} for two braces)")
	}
	return &text{plain: s, tmpl: t}, nil
}

func (t *text) render(v *view) (string, error) {
	if t.tmpl == nil {
		return t.plain, nil
	}
	// The functions of a template belong to one conversation.
	own, err := t.tmpl.Clone()
	if err != nil {
		return "", err
	}
	var out bounded
	if err := own.Funcs(v.funcs()).Execute(&out, nil); err != nil {
		return "", err
	}
	return out.String(), nil
}

// bounded is a builder with a size limit.
type bounded struct{ strings.Builder }

func (b *bounded) Write(p []byte) (int, error) {
	if b.Len()+len(p) > maxTextBytes {
		return 0, errors.New("the text grows over 1 MiB")
	}
	return b.Builder.Write(p)
}

// value is the input of a call: ready bytes where nothing in it is computed.
type value struct {
	ready json.RawMessage
	tree  any // maps, lists, *text and plain values
}

func newValue(in map[string]any) (value, error) {
	tree, computed, err := compile(in)
	if err != nil {
		return value{}, err
	}
	if computed {
		return value{tree: tree}, nil
	}
	ready, err := json.Marshal(in)
	return value{ready: ready}, err
}

func compile(v any) (tree any, computed bool, err error) {
	switch v := v.(type) {
	case string:
		t, err := newText(v)
		if err != nil || t.tmpl == nil {
			return v, false, err
		}
		return t, true, nil
	case map[string]any:
		out := map[string]any{}
		for k, e := range v {
			c, is, err := compile(e)
			if err != nil {
				return nil, false, fmt.Errorf("%s: %w", k, err)
			}
			out[k], computed = c, computed || is
		}
		return out, computed, nil
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			c, is, err := compile(e)
			if err != nil {
				return nil, false, fmt.Errorf("[%d]: %w", i, err)
			}
			out[i], computed = c, computed || is
		}
		return out, computed, nil
	}
	return v, false, nil
}

func (v value) render(on *view) (json.RawMessage, error) {
	if v.ready != nil {
		return v.ready, nil
	}
	plain, err := fill(v.tree, on)
	if err != nil {
		return nil, err
	}
	return json.Marshal(plain)
}

func fill(v any, on *view) (any, error) {
	var err error
	switch v := v.(type) {
	case *text:
		return v.render(on)
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			if out[k], err = fill(e, on); err != nil {
				return nil, err
			}
		}
		return out, nil
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			if out[i], err = fill(e, on); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	return v, nil
}

// view gives a template access to a conversation.
type view struct {
	req      *agent.Request
	messages []agent.Message
	turn     int // answers so far
}

func (v *view) funcs() template.FuncMap {
	return template.FuncMap{
		"last": v.last, "prompt": v.prompt, "result": v.result, "find": v.find, "has": v.has,
		"turn":     func() int { return v.turn },
		"agent":    func() string { return v.req.Agent },
		"agent_id": func() string { return v.req.AgentID },
	}
}

// last returns the text of all messages to the model since its last answer.
func (v *view) last() (string, error) { return lastText(v.messages) }

func lastText(messages []agent.Message) (string, error) {
	from := len(messages)
	for from > 0 && messages[from-1].Role() == agent.User {
		from--
	}
	var all []string
	for _, m := range messages[from:] {
		told, err := texts(m)
		if err != nil {
			return "", err
		}
		all = append(all, told...)
	}
	return strings.Join(all, "\n"), nil
}

// prompt returns the first prompt of the agent.
func (v *view) prompt() (string, error) { return firstPrompt(v.messages) }

func firstPrompt(messages []agent.Message) (string, error) {
	for _, m := range messages {
		if m.Role() != agent.User {
			continue
		}
		blocks, err := m.Blocks()
		if err != nil {
			return "", err
		}
		var asked []string
		for _, b := range blocks {
			if b.Type == "text" && !added(b.Text) {
				asked = append(asked, b.Text)
			}
		}
		if len(asked) > 0 {
			return strings.Join(asked, "\n"), nil
		}
	}
	return "", nil
}

// added reports whether Drover put a text into a message of the user.
func added(text string) bool {
	text = strings.TrimSpace(text)
	for _, tag := range []string{"<system-reminder>", "<task-notification>", "<hook-context ", "<agent-message "} {
		if strings.HasPrefix(text, tag) {
			return true
		}
	}
	return false
}

// result is the n-th tool result of the conversation, from the end if n is
// negative, or a part of it where the result is JSON.
func (v *view) result(n int, path ...string) (string, error) {
	var all []string
	for _, m := range v.messages {
		if m.Role() != agent.User {
			continue
		}
		blocks, err := m.Blocks()
		if err != nil {
			return "", err
		}
		for _, b := range blocks {
			if b.Type == "tool_result" {
				all = append(all, resultText(b))
			}
		}
	}
	i := n
	if i < 0 {
		i += len(all)
	}
	if i < 0 || i >= len(all) {
		return "", fmt.Errorf("result %d: the conversation has %d tool results so far", n, len(all))
	}
	if len(path) == 0 {
		return all[i], nil
	}
	return dig(all[i], strings.Join(path, "."))
}

func dig(text, path string) (string, error) {
	var v any
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if d.Decode(&v) != nil {
		return "", fmt.Errorf("the result is not JSON, so it has no %q; use find", path)
	}
	for key := range strings.SplitSeq(path, ".") {
		switch at := v.(type) {
		case map[string]any:
			e, ok := at[key]
			if !ok {
				return "", fmt.Errorf("the result has no %q", path)
			}
			v = e
		case []any:
			i, err := strconv.Atoi(key)
			if err != nil || i < 0 || i >= len(at) {
				return "", fmt.Errorf("the result has no %q", path)
			}
			v = at[i]
		default:
			return "", fmt.Errorf("the result has no %q", path)
		}
	}
	if s, ok := v.(string); ok {
		return s, nil
	}
	enc, err := json.Marshal(v)
	return string(enc), err
}

// find returns the match of a pattern's first group, or else of the whole pattern, in a
// text or in the messages to the model; the newest match counts.
func (v *view) find(pattern string, in ...string) (string, error) {
	found, ok, err := v.match(pattern, in)
	if err == nil && !ok {
		where := "the conversation"
		if len(in) > 0 {
			where = "the text"
		}
		err = fmt.Errorf("find: nothing in %s matches %q; ask with has first", where, pattern)
	}
	return found, err
}

// has reports whether find would find something.
func (v *view) has(pattern string, in ...string) (bool, error) {
	_, ok, err := v.match(pattern, in)
	return ok, err
}

func (v *view) match(pattern string, in []string) (found string, ok bool, err error) {
	re, err := regexp.Compile(pattern)
	if err != nil {
		return "", false, err
	}
	if len(in) > 0 {
		found, ok = newest(re, in)
		return found, ok, nil
	}
	for i := len(v.messages) - 1; i >= 0; i-- {
		if v.messages[i].Role() != agent.User {
			continue
		}
		told, err := texts(v.messages[i])
		if err != nil {
			return "", false, err
		}
		if found, ok := newest(re, told); ok {
			return found, true, nil
		}
	}
	return "", false, nil
}

// newest returns the last match in the last text that has one.
func newest(re *regexp.Regexp, texts []string) (string, bool) {
	for i := len(texts) - 1; i >= 0; i-- {
		if all := re.FindAllStringSubmatch(texts[i], -1); all != nil {
			m := all[len(all)-1]
			return m[min(1, len(m)-1)], true
		}
	}
	return "", false
}

// texts returns the texts and tool results of a message, in order.
func texts(m agent.Message) ([]string, error) {
	blocks, err := m.Blocks()
	if err != nil {
		return nil, err
	}
	var out []string
	for _, b := range blocks {
		switch b.Type {
		case "text":
			out = append(out, b.Text)
		case "tool_result":
			out = append(out, resultText(b))
		}
	}
	return out, nil
}

// resultText reads both forms of content: a text, or blocks.
func resultText(b agent.Block) string {
	var s string
	if json.Unmarshal(b.Content, &s) == nil {
		return s
	}
	var blocks []agent.Block
	if json.Unmarshal(b.Content, &blocks) != nil {
		return ""
	}
	var all []string
	for _, in := range blocks {
		if in.Type == "text" {
			all = append(all, in.Text)
		}
	}
	return strings.Join(all, "\n")
}
