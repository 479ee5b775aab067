package excerpt

import (
	"strings"
	"testing"
	"unicode/utf8"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTail(t *testing.T) {
	const path = "/tmp/b12345678.output"
	header := "[Truncated. Full output: " + path + "]\n\n"
	h := len(header)
	for _, c := range []struct {
		name  string
		text  string
		limit int
		want  string
		cut   bool
	}{
		{"below", strings.Repeat("a", 99), 100, strings.Repeat("a", 99), false},
		{"equal", strings.Repeat("a", 100), 100, strings.Repeat("a", 100), false},
		{"above", strings.Repeat("a", 90) + strings.Repeat("z", 11), 100, header + strings.Repeat("a", 100-h-11) + strings.Repeat("z", 11), true},
		{"codepoints", strings.Repeat("ä", 100), 100, strings.Repeat("ä", 100), false},
		{"wide", strings.Repeat("語", 101), 100, header + strings.Repeat("語", 100-h), true},
		{"header", strings.Repeat("a", h+1), h, header, true},
		{"small", strings.Repeat("a", 50), 10, "[Truncated", true},
		{"zero", "a", 0, "", true},
		{"negative", "a", -5, "", true},
		{"empty", "", 0, "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, cut := Tail(c.text, c.limit, path)
			if got != c.want || cut != c.cut {
				t.Errorf("Tail = %q, %v; want %q, %v", got, cut, c.want, c.cut)
			}
		})
	}
}

func TestPlain(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"ascii", "a\tb\nc", "a\tb\nc"},
		{"colour", "\x1b[1;31mred\x1b[0m", "red"},
		{"clear", "\x1b[2J\x1b[Hhi\x1bc", "hi"},
		{"title", "\x1b]0;pwned\x07ok", "ok"},
		{"clipboard", "\x1b]52;c;ZXZpbA==\x1b\\ok", "ok"},
		{"link", "\x1b]8;;http://x\x1b\\text\x1b]8;;\x1b\\", "text"},
		{"unended", "\x1b]0;never ends\nstill seen", "\nstill seen"},
		{"dcs", "\x1bPq#0\x1b\\ok", "ok"},
		{"eightbit", "a\u009b31mb\u009d0;t\u009cc", "abc"},
		{"rawbyte", "a\x9b31mb", "a\ufffd31mb"},
		{"charset", "\x1b(Bx", "x"},
		{"paste", "\x1b[201~rm", "rm"},
		{"lone", "end\x1b", "end"},
		{"nested", "\x1b\x1b[31mx", "x"},
		{"crlf", "a\r\nb\r\n", "a\nb\n"},
		{"progress", "10%\r20%\r100%\ndone", "100%\ndone"},
		{"redraw", "10%\r\x1b[K\n", "10%\n"},
		{"overstrike", "N\bNA\bA", "NA"},
		{"backtoofar", "a\n\b\bb", "a\nb"},
		{"nul", "a\x00b", "a<U+0000>b"},
		{"bell", "a\x07", "a<U+0007>"},
		{"bidi", "a\u202eb", "a<U+202E>b"},
		{"zerowidth", "a\u200bb\ufeff", "a<U+200B>b<U+FEFF>"},
		{"tags", "a\U000e0041", "a<U+E0041>"},
		{"separator", "a\u2028b", "a<U+2028>b"},
		{"invalid", "a\xffb", "a\ufffdb"},
		{"unicode", "grün 語 🙂", "grün 語 🙂"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := Plain(c.in); got != c.want {
				t.Errorf("Plain(%q) = %q, want %q", c.in, got, c.want)
			}
		})
	}
}

func TestVisible(t *testing.T) {
	if got, want := Visible("a\x1b[31m\rb\u200b\xff"), "a<U+001B>[31m<U+000D>b<U+200B>\ufffd"; got != want {
		t.Errorf("Visible = %q, want %q", got, want)
	}
}

func TestLine(t *testing.T) {
	if got, want := Line(" a\n\x1b[31mb  c", 80), "a b c"; got != want {
		t.Errorf("Line = %q, want %q", got, want)
	}
	if got, want := Line("äöüäöü", 4), "äöü…"; got != want {
		t.Errorf("Line = %q, want %q", got, want)
	}
}

// TestFolding holds a million redraws in the time of one pass.
func TestFolding(t *testing.T) {
	if got := Plain(strings.Repeat("50%\r", 1_000_000) + "100%\n"); got != "100%\n" {
		t.Errorf("Plain of redraws = %.40q", got)
	}
}

func FuzzPlain(f *testing.F) {
	for _, s := range []string{"", "a\x1b[31m", "\x1b]0;t\x07", "\u009b1m", "a\rb\b\n", "\xff\xc2\x9c", "\u202e"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		once := Plain(s)
		if again := Plain(once); again != once {
			t.Fatalf("not idempotent: %q then %q", once, again)
		}
		if seen := Visible(once); seen != once {
			t.Fatalf("something hidden is left: %q", once)
		}
		if !utf8.ValidString(once) {
			t.Fatalf("invalid UTF-8: %q", once)
		}
		if strings.ContainsAny(once, "\x1b\r\b\x00") {
			t.Fatalf("live control: %q", once)
		}
	})
}

func FuzzTail(f *testing.F) {
	f.Add("hello", 3, "/p")
	f.Add(strings.Repeat("語", 60), 50, "/p")
	f.Add("\xe4\xb8", 1, "")
	f.Fuzz(func(t *testing.T, s string, limit int, path string) {
		got, cut := Tail(s, limit, path)
		n := utf8.RuneCountInString(s)
		switch {
		case cut != (n > limit):
			t.Fatalf("%d code points, limit %d, cut %v", n, limit, cut)
		case !cut && got != s:
			t.Fatalf("changed without a cut: %q", got)
		case cut && utf8.RuneCountInString(got) != max(limit, 0):
			t.Fatalf("%d code points, want %d", utf8.RuneCountInString(got), limit)
		case utf8.ValidString(s) && utf8.ValidString(path) && !utf8.ValidString(got):
			t.Fatalf("a code point was split: %q", got)
		}
	})
}
