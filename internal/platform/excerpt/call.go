package excerpt

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/idna"

	"github.com/drover-dev/drover/internal/platform/jsonc"
)

// leading returns the fields that describe a call best.
func leading() []string { return []string{"command", "file_path", "notebook_path", "path", "url"} }

// Call shows the input of a call of a tool to a person who decides about it, as
// lines that each end in a newline. Texts are decoded, so that the person sees the
// text that would run, and are shown as by [Exact]; each line of a text of several
// lines follows a bar, so that none can be taken for a line of the question. The
// fields that matter most come first, in any order of the input; repeated names are
// reported. The old and the new text of an edit are shown as removed and added
// lines, and an address with the host that it leads to.
//
// hidden is how many bytes of the input are missing, if it was cut: input is then
// a JSON text that holds the beginning.
func Call(input json.RawMessage, hidden int) string {
	if len(bytes.TrimSpace(input)) == 0 {
		return ""
	}
	var b strings.Builder
	text, cut := asText(input) // or no JSON
	if cut && hidden > 0 {
		text = strings.TrimSuffix(text, fmt.Sprintf("… [%d bytes more]", hidden))
		input = completed(text)
	}
	switch fields, err := jsonc.Members(input); {
	case err == nil:
		showFields(&b, fields)
	case cut:
		showText(&b, "input", text)
	default:
		showValue(&b, "input", input)
	}
	return b.String()
}

// is reports whether a field has the name, in whatever case.
func is(m jsonc.Member, key string) bool { return strings.EqualFold(m.Key, key) }

func asText(raw json.RawMessage) (s string, ok bool) {
	return s, len(raw) > 0 && bytes.TrimSpace(raw)[0] == '"' && json.Unmarshal(raw, &s) == nil
}

func showFields(b *strings.Builder, fields jsonc.Object) {
	if len(fields) == 0 {
		b.WriteString("input: {}\n")
	}
	warnTwice(b, fields)
	names := leading()
	rank := func(m jsonc.Member) int {
		if i := slices.IndexFunc(names, func(name string) bool { return is(m, name) }); i >= 0 {
			return i
		}
		return len(names)
	}
	fields = slices.Clone(fields)
	slices.SortStableFunc(fields, func(x, y jsonc.Member) int { return rank(x) - rank(y) })
	before, after, isEdit := edit(fields)
	for _, m := range fields {
		text, ok := asText(m.Value)
		switch {
		case isEdit && is(m, "new_string"):
		case isEdit && is(m, "old_string"):
			showEdit(b, before, after)
		case ok:
			showText(b, keyName(m.Key), text)
			if is(m, "url") {
				fmt.Fprintf(b, "host: %s\n", host(text))
			}
		default:
			showValue(b, keyName(m.Key), m.Value)
		}
	}
}

// warnTwice reports names that a tool could take for the same.
func warnTwice(b *strings.Builder, fields jsonc.Object) {
	seen := map[string][]string{}
	for _, m := range fields {
		folded := strings.ToLower(m.Key)
		if seen[folded] = append(seen[folded], keyName(m.Key)); len(seen[folded]) == 2 {
			fmt.Fprintf(b, "warning: %s is given more than once: only one of them counts, and all are shown\n",
				strings.Join(seen[folded], " / "))
		}
	}
}

// edit finds the two texts of an edit, if the call has each once.
func edit(fields jsonc.Object) (before, after string, ok bool) {
	n := 0
	for _, m := range fields {
		text, ok := asText(m.Value)
		switch {
		case is(m, "old_string") && ok:
			before, n = text, n+1
		case is(m, "new_string") && ok:
			after, n = text, n+10
		case is(m, "old_string"), is(m, "new_string"):
			n += 100
		}
	}
	return before, after, n == 11
}

// showEdit shows equal lines at both ends with a blank, and between them removed
// lines with a minus and added ones with a plus.
func showEdit(b *strings.Builder, before, after string) {
	x, y := strings.Split(before, "\n"), strings.Split(after, "\n")
	head, tail := 0, 0
	for head < min(len(x), len(y)) && x[head] == y[head] {
		head++
	}
	for tail < min(len(x), len(y))-head && x[len(x)-1-tail] == y[len(y)-1-tail] {
		tail++
	}
	fmt.Fprintf(b, "edit (%s become %s):\n", measure(before), measure(after))
	for _, part := range []struct {
		mark  string
		lines []string
	}{{" ", x[:head]}, {"-", x[head : len(x)-tail]}, {"+", y[head : len(y)-tail]}, {" ", x[len(x)-tail:]}} {
		for _, line := range part.lines {
			b.WriteString(part.mark + " " + Exact(line) + "\n")
		}
	}
}

// wide is the longest text, in bytes, that is shown without its size.
const wide = 300

// showText shows a text after its name, or below it if it has several lines.
func showText(b *strings.Builder, name, text string) {
	if !strings.Contains(text, "\n") && len(text) <= wide {
		fmt.Fprintf(b, "%s: %s\n", name, Exact(text))
		return
	}
	fmt.Fprintf(b, "%s (%s):\n", name, measure(text))
	for line := range strings.SplitSeq(text, "\n") {
		b.WriteString("| " + Exact(line) + "\n")
	}
}

// measure describes the size of a text.
func measure(text string) string {
	n := strings.Count(text, "\n") + 1
	if n == 1 {
		return fmt.Sprintf("1 line, %d bytes", len(text))
	}
	return fmt.Sprintf("%d lines, %d bytes", n, len(text))
}

// showValue shows a value other than text, as JSON, decoded and written anew.
func showValue(b *strings.Builder, name string, raw json.RawMessage) {
	text, ok := rewritten(raw)
	if !ok {
		showText(b, name, string(raw))
		return
	}
	if !strings.Contains(text, "\n") {
		fmt.Fprintf(b, "%s: %s\n", name, text)
		return
	}
	fmt.Fprintf(b, "%s:\n", name)
	for line := range strings.SplitSeq(text, "\n") {
		b.WriteString("| " + line + "\n")
	}
}

// rewritten returns a JSON value in the form with the fewest escapes: only characters
// that need one have it. The order of names and repeated names stay.
func rewritten(raw json.RawMessage) (string, bool) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var plain bytes.Buffer
	e := json.NewEncoder(&plain)
	e.SetEscapeHTML(false)
	var open []*level
	for {
		t, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return "", false
		}
		end := t == json.Delim('}') || t == json.Delim(']')
		if end {
			open = open[:len(open)-1]
		} else if len(open) > 0 {
			plain.WriteString(open[len(open)-1].next())
		}
		if delim, ok := t.(json.Delim); ok {
			plain.WriteString(delim.String())
			if !end {
				open = append(open, &level{object: delim == '{'})
			}
			continue
		}
		if err := e.Encode(t); err != nil {
			return "", false
		}
		plain.Truncate(plain.Len() - 1) // the newline of Encode
	}
	var out bytes.Buffer
	if err := json.Indent(&out, plain.Bytes(), "", "  "); err != nil {
		return "", false
	}
	return string(JSON(out.Bytes())), true
}

// level is an object or an array that is being written.
type level struct {
	object bool
	n      int // tokens so far
}

// next returns the separator before the next token.
func (l *level) next() string {
	l.n++
	switch {
	case l.n == 1:
		return ""
	case l.object && l.n%2 == 0:
		return ":"
	}
	return ","
}

// keyName returns a name for display: an ordinary one unchanged, others escaped.
func keyName(key string) string {
	ordinary := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-'
	}
	if key != "" && len(key) <= 64 && !strings.ContainsFunc(key, func(r rune) bool { return !ordinary(r) }) {
		return key
	}
	data, _ := json.Marshal(key) // a text can always be encoded
	text, _ := rewritten(data)
	return text
}

// host returns the host of an address in the form that is looked up.
func host(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Hostname() == "" {
		return "(none that can be read)"
	}
	name, err := idna.Lookup.ToASCII(u.Hostname())
	if err != nil {
		return Exact(u.Hostname()) + " (no valid name)"
	}
	if port := u.Port(); port != "" {
		name += ":" + port
	}
	return Exact(name)
}

// completed makes an object of the beginning of one: it closes open texts and
// brackets. An incomplete name or escape at the end is lost.
func completed(text string) []byte {
	var open []byte
	var key, inText bool // the next text, or the one at hand, is a name
	good, start := 0, 0  // the end of the last whole value, and the begin of the text at hand
	names := func() bool { return len(open) > 0 && open[len(open)-1] == '}' }
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case inText && c == '\\':
			i++
		case inText && c == '"':
			if inText = false; !key {
				good = i + 1
			}
		case inText:
		case c == '"':
			inText, start = true, i
		case c == '{' || c == '[':
			open = append(open, c+2) // the bracket that closes it
			key, good = c == '{', i+1
		case c == '}' || c == ']':
			if len(open) == 0 || open[len(open)-1] != c {
				return nil
			}
			open, good = open[:len(open)-1], i+1
		case c == ':':
			key = false
		case c == ',':
			key = names()
			good = max(good, i) // a number, true, false or null has ended
		}
	}
	out := []byte(text[:good])
	if inText && !key {
		out = append([]byte(text[:start]), wholeEscapes(text[start:])...)
		out = append(out, '"')
	}
	for i := len(open) - 1; i >= 0; i-- {
		out = append(out, open[i])
	}
	return out
}

// wholeEscapes returns the beginning of a JSON text without a cut escape at its end.
func wholeEscapes(text string) string {
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' {
			continue
		}
		size := 2
		if i+1 < len(text) && text[i+1] == 'u' {
			size = 6
		}
		if i+size > len(text) {
			return text[:i]
		}
		i += size - 1
	}
	return text
}
