package steer

import (
	"strings"
	"testing"

	"github.com/drover-dev/drover/internal/frontend/cli/console"
)

func TestMessage(t *testing.T) {
	for _, c := range []struct {
		words, keys []string
		stdin, want string
		bad         bool
	}{
		{words: []string{"hello"}, want: "hello"},
		{words: []string{"hello"}, keys: []string{"Enter", "ctrl-c"}, want: "hello\r\x03"},
		{keys: []string{"up", "down", "esc", "tab", "ctrl-z", "space"}, want: "\x1b[A\x1b[B\x1b\t\x1a "},
		{words: []string{"-"}, stdin: "secret\n", want: "secret"},
		{words: []string{"-"}, stdin: "two\nlines\n", keys: []string{"enter"}, want: "two\nlines\r"},
		{words: []string{"-"}, stdin: strings.Repeat("x", maxTyped+1), bad: true},
		{keys: []string{"ctrl-1"}, bad: true},
		{keys: []string{"ctrl-ab"}, bad: true},
		{keys: []string{""}, bad: true},
		{bad: true},
	} {
		a := &app{console.Console{Stdin: strings.NewReader(c.stdin)}}
		if got, err := a.message(c.words, c.keys); got != c.want || (err != nil) != c.bad {
			t.Errorf("%q and %q: %.40q, %v", c.words, c.keys, got, err)
		}
	}
}
