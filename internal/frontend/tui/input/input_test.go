package input

import (
	"slices"
	"strings"
	"testing"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"
	"pgregory.net/rapid"
)

// at is an editor with a text and the cursor at the bar.
func at(text string) Editor {
	before, behind, _ := strings.Cut(text, "|")
	e := New(nil).Insert(before + behind)
	return e.to(len(before))
}

func (e Editor) with() string { return e.Before() + "|" + e.Behind() }

func TestEditing(t *testing.T) {
	for _, c := range []struct {
		name, from, want string
		do               func(Editor) Editor
	}{
		{"insert", "ab|c", "abx|c", func(e Editor) Editor { return e.Insert("x") }},
		{"backspace", "ab|c", "a|c", Editor.Backspace},
		{"backspace-cluster", "a👩\u200d💻|c", "a|c", Editor.Backspace},
		{"backspace-line", "a\n|c", "a|c", Editor.Backspace},
		{"backspace-begin", "|c", "|c", Editor.Backspace},
		{"delete", "a|bc", "a|c", Editor.Delete},
		{"word", "one two|", "one |", Editor.DeleteWord},
		{"word-right", "one |two three", "one | three", Editor.DeleteWordRight},
		{"to-home", "a\nbc|d", "a\n|d", Editor.DeleteToHome},
		{"to-end", "a|b\nc", "a|\nc", Editor.DeleteToEnd},
		{"to-end-joins", "a|\nc", "a|c", Editor.DeleteToEnd},
		{"yank", "one two|", "one two|", func(e Editor) Editor { return e.DeleteWord().Yank() }},
		{"undo", "one|", "one|", func(e Editor) Editor { return e.DeleteWord().Undo() }},
		{"left-cluster", "a👩\u200d💻|", "a|👩\u200d💻", Editor.Left},
		{"word-left", "one two|", "one |two", Editor.WordLeft},
		{"home", "a\nbc|d", "a\n|bcd", Editor.Home},
		{"end", "a|b\nc", "ab|\nc", Editor.End},
		{"up", "abc\nde|f", "ab|c\ndef", func(e Editor) Editor { e, _ = e.Up(20); return e }},
		{"down", "ab|c\ndef", "abc\nde|f", func(e Editor) Editor { e, _ = e.Down(20); return e }},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.do(at(c.from)).with(); got != c.want {
				t.Errorf("%q became %q, want %q", c.from, got, c.want)
			}
		})
	}
}

// However it is edited, the text can be shown: rows are no wider than the screen, the
// cursor is in them, and nothing of it is alive.
func TestShown(t *testing.T) {
	moves := []func(Editor) Editor{Editor.Left, Editor.Right, Editor.Home, Editor.End, Editor.WordLeft, Editor.WordRight,
		Editor.Backspace, Editor.Delete, Editor.DeleteWord, Editor.DeleteToEnd, Editor.Yank, Editor.Undo,
		func(e Editor) Editor { e, _ = e.Up(12); return e }, func(e Editor) Editor { e, _ = e.Down(12); return e }}
	rapid.Check(t, func(t *rapid.T) {
		e := New(nil)
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "types") {
				e = e.Paste(rapid.SampledFrom([]string{"a", " ", "\n", "漢", "👩\u200d💻", "word ", "\x1b[2J", "e\u0301", strings.Repeat("long\n", 20)}).Draw(t, "text"))
			} else {
				e = rapid.SampledFrom(moves).Draw(t, "move")(e)
			}
			if strings.ContainsRune(e.Value(), '\x1b') {
				t.Fatalf("alive: %q", e.Value())
			}
			lines, y, x := e.View(12, 4, lipgloss.NewStyle())
			if len(lines) > 4 || y < 0 || y >= len(lines) || x < 0 || x >= 12 {
				t.Fatalf("cursor %d,%d in %q", y, x, lines)
			}
			for _, line := range lines {
				if ansi.StringWidth(line) > 12 {
					t.Fatalf("too wide: %q", line)
				}
			}
		}
	})
}

// What was pasted counts whole, is one character for the keys, and cannot be forged.
func TestChip(t *testing.T) {
	big := strings.Repeat("line\n", 100)
	e := New(nil).Insert("see ").Paste(big).Insert(" twice")
	if got := e.Value(); got != "see "+big+" twice" {
		t.Errorf("%d bytes", len(got))
	}
	for range len(" twice") + 1 {
		e = e.Backspace()
	}
	if e.Value() != "see " {
		t.Errorf("left %q", e.Value())
	}
	if got := e.Undo().Value(); got != "see "+big {
		t.Errorf("undone to %d bytes", len(got))
	}
	if got := New(nil).Paste(big).Insert(string(firstChip)).Value(); strings.Count(got, "line") != 100 {
		t.Errorf("a chip was forged: %d bytes", len(got))
	}
}

func TestRank(t *testing.T) {
	files := []string{"cmd/main.go", "internal/parse.go", "parse_test.go", "docs/sparse.md", "README.md"}
	if got, want := Rank(files, "par", 3), []string{"parse_test.go", "internal/parse.go", "docs/sparse.md"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := Rank(files, "cmg", 3); !slices.Equal(got, []string{"cmd/main.go"}) {
		t.Errorf("%q", got)
	}
}
