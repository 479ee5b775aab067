package steer

import (
	"fmt"
	"strings"

	"github.com/drover-dev/drover/internal/frontend/cli/console"
)

// maxTyped is more than a terminal takes at once.
const maxTyped = 64 << 10

// key is a key with a name, as a terminal of the kind that most programs know
// sends it.
type key struct{ name, sends string }

func keysByName() []key {
	return []key{
		{"enter", "\r"}, {"tab", "\t"}, {"esc", "\x1b"}, {"space", " "}, {"backspace", "\x7f"}, {"delete", "\x1b[3~"},
		{"up", "\x1b[A"}, {"down", "\x1b[B"}, {"right", "\x1b[C"}, {"left", "\x1b[D"},
		{"home", "\x1b[H"}, {"end", "\x1b[F"}, {"pageup", "\x1b[5~"}, {"pagedown", "\x1b[6~"}, {"ctrl-\\", "\x1c"},
	}
}

func keyNames() string {
	var names []string
	for _, k := range keysByName() {
		names = append(names, k.name)
	}
	return strings.Join(names, ", ")
}

// keys is what the keys of these names send.
func keys(names []string) (string, error) {
	var out strings.Builder
	for _, name := range names {
		sends, ok := keyNamed(strings.ToLower(strings.TrimSpace(name)))
		if !ok {
			return "", console.Usage(fmt.Sprintf("unknown key %.40q", name), "use "+keyNames()+" or ctrl-a to ctrl-z")
		}
		out.WriteString(sends)
	}
	return out.String(), nil
}

func keyNamed(name string) (string, bool) {
	for _, k := range keysByName() {
		if k.name == name {
			return k.sends, true
		}
	}
	letter, ok := strings.CutPrefix(name, "ctrl-")
	if !ok || len(letter) != 1 || letter[0] < 'a' || letter[0] > 'z' {
		return "", false
	}
	return string(rune(letter[0] - 'a' + 1)), true
}

// message returns the text to send: a word, or stdin for -, and then the keys.
func (a *app) message(words, named []string) (string, error) {
	if len(words) == 0 && len(named) == 0 {
		return "", console.Usage("no message given", "usage: drover send REF MESSAGE")
	}
	typed, err := keys(named)
	if err != nil || len(words) == 0 {
		return typed, err
	}
	if words[0] != "-" {
		return words[0] + typed, nil
	}
	text, err := a.ReadFile("-", maxTyped)
	if err != nil {
		return "", console.Usage("read the message: "+err.Error(), "write a long one to a file and send the path")
	}
	return strings.TrimSuffix(string(text), "\n") + typed, nil
}
