package excerpt

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// reserved returns the elements by which a model tells the program's text from the text that it reads.
func reserved() []string {
	return []string{"system-reminder", "task-notification", "agent-message", "hook-context", "waiting-prompt"}
}

// Element puts text of unknown origin into an element of a prompt, which it cannot close.
// attributes are names and values in turn.
func Element(name, text string, attributes ...string) string {
	var b strings.Builder
	b.WriteString("<" + name)
	quote := strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;", "\n", " ", "\t", " ")
	for pair := range slices.Chunk(attributes, 2) {
		b.WriteString(" " + pair[0] + `="` + quote.Replace(Visible(pair[1])) + `"`)
	}
	b.WriteString(">\n" + Inert(text, name) + "\n</" + name + ">")
	return b.String()
}

// Inert returns text without tags of the reserved elements and of the elements in within: the
// bracket of each becomes &lt;. Other tags stay. A tag counts with any spacing and case,
// and with letters of other scripts in place of its own, which may look alike.
// Inert(Inert(s)) == Inert(s).
func Inert(text string, within ...string) string {
	var out strings.Builder
	done := 0
	for at, r := range text {
		if !strings.ContainsRune("<＜‹〈﹤", r) {
			continue
		}
		inside := text[at+utf8.RuneLen(r):]
		opens := func(name string) bool { return tagOf(inside, name) }
		if slices.ContainsFunc(reserved(), opens) || slices.ContainsFunc(within, opens) {
			out.WriteString(text[done:at] + "&lt;")
			done = len(text) - len(inside)
		}
	}
	return out.String() + text[done:]
}

// tagOf reports whether the inside of a tag begins with the name of an element, or with text that
// a reader may take for it.
func tagOf(inside, name string) bool {
	inside = inside[:min(len(inside), 200)] // the work is linear
	blank := func(r rune) bool { return unicode.IsSpace(r) || hidden(r) }
	inside = strings.TrimLeftFunc(inside, func(r rune) bool { return blank(r) || r == '/' || r == '\\' || r == '／' })
	joins := func(r rune) bool { return blank(r) || r == '_' || unicode.Is(unicode.Pd, r) }
	for i, want := range strings.ReplaceAll(name, "-", "") {
		if i > 0 {
			inside = strings.TrimLeftFunc(inside, joins)
		}
		r, size := utf8.DecodeRuneInString(inside)
		if unicode.ToLower(r) != want && (r <= unicode.MaxASCII || !unicode.IsLetter(r)) {
			return false
		}
		inside = inside[size:]
	}
	next, _ := utf8.DecodeRuneInString(inside)
	return !unicode.IsLetter(next) && !unicode.IsDigit(next) && next != '-' && next != '_'
}
