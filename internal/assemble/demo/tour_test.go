package demo

import (
	"bytes"
	"strconv"
	"strings"
	"testing"
)

// What files and commands hold is shown without its power over a terminal.
func TestTour(t *testing.T) {
	for _, colour := range []bool{false, true} {
		t.Run(strconv.FormatBool(colour), func(t *testing.T) {
			var out bytes.Buffer
			p := newTour(Config{Out: &out, Colour: colour}, "")
			p.notification("<task-notification>\n<summary>a \x1b[2J&lt;b&gt;</summary>\n<result>c\x1b]0;d\x07\ne</result>\n</task-notification>")
			if got := strings.Count(out.String(), "\x1b[2m"); (got > 0) != colour {
				t.Errorf("%d coloured places", got)
			}
			if s := out.String(); strings.Contains(s, "\x1b[2J") || strings.Contains(s, "\x07") || !strings.Contains(s, "a <b>\n") || !strings.Contains(s, "result: c e\n") {
				t.Errorf("%q", s)
			}
		})
	}
}

// Lines for a terminal are broken between words, and lose nothing.
func TestFold(t *testing.T) {
	text := "one two " + strings.Repeat("x", 30) + " thrée four five"
	for width, want := range map[int]string{
		0: text, 19: text,
		20: "one two " + strings.Repeat("x", 30) + "\nthrée four five",
		30: "one two\n" + strings.Repeat("x", 30) + "\nthrée four five",
		39: "one two " + strings.Repeat("x", 30) + "\nthrée four five",
	} {
		if got := fold(text, width); got != want {
			t.Errorf("in %d columns: %q, want %q", width, got, want)
		}
	}
}
