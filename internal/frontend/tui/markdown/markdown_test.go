package markdown

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"

	"github.com/drover-dev/drover/internal/frontend/tui/theme"
)

const sample = `# A heading

Some *emphasis*, **strong**, ` + "`code`" + ` and a [link](https://example.com/x), long enough to be wrapped at a width.

- one
- two
  - nested
- three

1. first
2. second

> quoted text
> of two lines

` + "```go\nfunc main() {\n\t// a comment\n\n\tprintln(\"text\", 42)\n}\n```" + `

| name | count |
|------|-------|
| a    | 1     |
| bb   | 22    |

The end.
`

// plain is the text of lines without their styles.
func plain(lines []string) string {
	return ansi.Strip(strings.Join(lines, "\n"))
}

func TestRender(t *testing.T) {
	got := plain(Render(theme.New(), strings.ReplaceAll(sample, "\t", "    "), 40))
	want := `A heading

Some emphasis, strong, code and a link
(https://example.com/x), long enough to
be wrapped at a width.

• one
• two
  • nested
• three

1. first
2. second

│ quoted text of two lines

  func main() {
      // a comment

      println("text", 42)
  }

name │ count
─────┼──────
a    │ 1
bb   │ 22

The end.`
	if got != want {
		t.Errorf("drawn\n%s\nwant\n%s", got, want)
	}
}

// A cell is a text, also where it would begin a block elsewhere.
func TestCells(t *testing.T) {
	for _, cell := range []string{"-", "*", "+", "1.", "2)", ">", "#", "# x", "---", "```", "[a]: b", "- x", "> x", "1. x", "=", "**b** -"} {
		got := plain(Render(theme.New(), "| of | is |\n|----|----|\n| a | "+cell+" |\n", 40))
		if want := "a  │ " + strings.ReplaceAll(cell, "**", ""); !strings.HasSuffix(got, "\n"+want) {
			t.Errorf("the cell %q is drawn as\n%s", cell, got)
		}
	}
}

// No line is wider than asked for, whatever the text; and none carries its style on.
func TestWidth(t *testing.T) {
	texts := []string{sample, strings.Repeat("x", 300), strings.Repeat("漢字", 80), "```\n" + strings.Repeat("y", 200) + "\n```",
		"> > > > > > > > > > deep", strings.Repeat("- ", 30) + "deep", "| " + strings.Repeat("wide ", 40) + " | b |\n|---|---|\n| c | d |",
		"**" + strings.Repeat("bold words ", 30) + "**"}
	for i, text := range texts {
		for _, width := range []int{16, 40, 120} {
			for _, line := range Render(theme.New(), text, width) {
				if w := ansi.StringWidth(line); w > width {
					t.Errorf("text %d at %d: %d columns in %q", i, width, w, line)
				}
				if n := strings.LastIndex(line, "\x1b["); n >= 0 && !strings.HasPrefix(line[n:], "\x1b[m") && !strings.HasPrefix(line[n:], "\x1b[0m") {
					t.Errorf("text %d at %d: the style goes on behind %q", i, width, line)
				}
			}
		}
	}
}

// A text that comes in pieces ends as the same lines as the whole, however it is cut.
func TestStream(t *testing.T) {
	for seed := range uint64(30) {
		random := rand.New(rand.NewPCG(seed, 1))
		s := NewStream(theme.New(), 40)
		for n := 0; n < len(sample); {
			n = min(len(sample), n+1+random.IntN(20))
			s.Lines(sample[:n])
		}
		if got, want := plain(s.Lines(sample)), plain(Render(theme.New(), sample, 40)); got != want {
			t.Fatalf("seed %d: drawn\n%s\nwant\n%s", seed, got, want)
		}
	}
}

// What lies before the last boundary is not drawn again with each piece.
func TestStreamWork(t *testing.T) {
	var text strings.Builder
	s := NewStream(theme.New(), 80)
	for i := range 500 {
		for word := range strings.FieldsSeq(fmt.Sprintf("This is paragraph %d of a long answer, which comes word by word.", i)) {
			text.WriteString(word + " ")
			s.Lines(text.String())
		}
		text.WriteString("\n\n")
	}
	if most := 15 * text.Len(); s.Work > most {
		t.Errorf("%d bytes were drawn for a text of %d, want at most %d", s.Work, text.Len(), most)
	}
}

// Colours change nothing of the text.
func FuzzHighlight(f *testing.F) {
	f.Add("go", "func f() { return \"x\" } // y")
	f.Add("sql", "select 'a' -- b")
	f.Add("c", "/* open")
	f.Fuzz(func(t *testing.T, name, source string) {
		if !utf8.ValidString(source) || strings.ContainsAny(source, "\x1b\r\t") || ansi.Strip(source) != source {
			t.Skip("not printable")
		}
		if got := ansi.Strip(Highlight(theme.New(), name, source)); got != source {
			t.Errorf("%q became %q", source, got)
		}
	})
}
