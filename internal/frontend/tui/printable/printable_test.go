package printable

import (
	"strings"
	"testing"
)

func TestGuard(t *testing.T) {
	for in, want := range map[string]string{
		"plain":               "plain",
		"\x1b[1;31mred\x1b[m": "\x1b[1;31mred\x1b[m",
		"\x1b[2Jgone":         "[2Jgone",
		"\x1b]0;title\x07x":   "]0;titlex",
		"\u009b31mx\u202ey":   "31mxy",
		"tab\tand\r":          "taband",
		"\x1b[38:2::1:2:3mtrue\x1b[0m 漢字 👩\u200d💻": "\x1b[38:2::1:2:3mtrue\x1b[0m 漢字 👩\u200d💻",
	} {
		if got := Guard(in); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}

func TestTabs(t *testing.T) {
	if got := Tabs("a\tb\n\tc"); got != "a   b\n    c" {
		t.Errorf("%q", got)
	}
}

// Whatever enters by the door, the guard at the exit has nothing to take away.
func FuzzDoor(f *testing.F) {
	f.Add("\x1b[31mred\x1b[0m\r\nnext\u202e")
	f.Add("\x1bP+q\x1b\\\u009d0;x\u009c")
	f.Fuzz(func(t *testing.T, s string) {
		for name, out := range map[string]string{"block": Block(s), "line": Line(s, 80), "prose": Prose(s), "exact": Exact(s),
			"typed": Typed(s)} {
			for line := range strings.SplitSeq(strings.ReplaceAll(out, "\t", " "), "\n") {
				if Guard(line) != line {
					t.Errorf("%s of %q lets %q through", name, s, line)
				}
				if strings.Contains(line, "\x1b") {
					t.Errorf("%s of %q lets a colour through: %q", name, s, line)
				}
			}
		}
	})
}
