package markdown

import (
	"fmt"
	"strings"

	"charm.land/lipgloss/v2"
	"charm.land/lipgloss/v2/table"
	"github.com/charmbracelet/x/ansi"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"

	"github.com/drover-dev/drover/internal/frontend/tui/printable"
	"github.com/drover-dev/drover/internal/frontend/tui/theme"
)

// maxDepth bounds how deep lists and quotations are indented.
const maxDepth = 8

// Render draws a whole text as lines of at most width columns.
func Render(t theme.Theme, source string, width int) []string {
	if strings.TrimSpace(source) == "" {
		return nil
	}
	d := drawer{theme: t, source: []byte(source)}
	return d.blocks(newParser().Parse(text.NewReader(d.source)), max(Least, width), 0)
}

// newParser reads Markdown. HTML is text here, and tables are found in paragraphs: the
// extensions of goldmark cost 2 ms before main.
func newParser() parser.Parser {
	return parser.NewParser(
		inlineParsers(),
		parser.WithBlockParsers(
			util.Prioritized(parser.NewSetextHeadingParser(), 100),
			util.Prioritized(parser.NewThematicBreakParser(), 200),
			util.Prioritized(parser.NewListParser(), 300),
			util.Prioritized(parser.NewListItemParser(), 400),
			util.Prioritized(parser.NewCodeBlockParser(), 500),
			util.Prioritized(parser.NewATXHeadingParser(), 600),
			util.Prioritized(parser.NewFencedCodeBlockParser(), 700),
			util.Prioritized(parser.NewBlockquoteParser(), 800),
			util.Prioritized(parser.NewParagraphParser(), 1000),
		),
		parser.WithParagraphTransformers(util.Prioritized(parser.LinkReferenceParagraphTransformer, 100)),
	)
}

// newCellParser reads a cell of a table, which holds no blocks: a dash is a dash there.
func newCellParser() parser.Parser {
	return parser.NewParser(inlineParsers(),
		parser.WithBlockParsers(util.Prioritized(parser.NewParagraphParser(), 1000)))
}

func inlineParsers() parser.Option {
	return parser.WithInlineParsers(
		util.Prioritized(parser.NewCodeSpanParser(), 100),
		util.Prioritized(parser.NewLinkParser(), 200),
		util.Prioritized(parser.NewAutoLinkParser(), 300),
		util.Prioritized(parser.NewEmphasisParser(), 500),
	)
}

// drawer draws one source.
type drawer struct {
	theme  theme.Theme
	source []byte
}

// blocks draws the children of a node, with empty lines between them.
func (d drawer) blocks(n ast.Node, width, depth int) []string {
	var lines []string
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		more := d.block(c, width, depth)
		if len(more) == 0 {
			continue
		}
		if len(lines) > 0 && c.Kind() != ast.KindTextBlock && !d.tight(c) {
			lines = append(lines, "")
		}
		lines = append(lines, more...)
	}
	return lines
}

// tight reports whether a block follows the one before it without an empty line.
func (d drawer) tight(n ast.Node) bool {
	list, ok := n.Parent().(*ast.List)
	if ok {
		return list.IsTight
	}
	if n.Kind() == ast.KindList { // within an item
		_, ok = n.Parent().(*ast.ListItem)
		return ok
	}
	return false
}

func (d drawer) block(n ast.Node, width, depth int) []string {
	switch n := n.(type) {
	case *ast.Heading:
		return wrap(d.inline(n, d.theme.Heading), width)
	case *ast.Paragraph, *ast.TextBlock:
		if rows := tableRows(d.text(n)); rows != nil {
			return d.table(rows, width)
		}
		return wrap(d.inline(n, d.theme.Plain), width)
	case *ast.FencedCodeBlock:
		return d.code(string(n.Language(d.source)), d.text(n), width)
	case *ast.CodeBlock:
		return d.code("", d.text(n), width)
	case *ast.ThematicBreak:
		return []string{d.theme.Rule.Render(strings.Repeat("─", min(width, 40)))}
	case *ast.Blockquote:
		return d.indented(n, d.theme.Rule.Render("│")+" ", d.theme.Rule.Render("│")+" ", 2, width, depth)
	case *ast.List:
		return d.list(n, width, depth)
	}
	return wrap(d.inline(n, d.theme.Plain), width)
}

func (d drawer) list(n *ast.List, width, depth int) []string {
	var lines []string
	number := n.Start
	for item := n.FirstChild(); item != nil; item = item.NextSibling() {
		bullet := "• "
		if n.IsOrdered() {
			bullet = fmt.Sprintf("%d. ", number)
			number++
		}
		if len(lines) > 0 && !n.IsTight {
			lines = append(lines, "")
		}
		wide := ansi.StringWidth(bullet)
		lines = append(
			lines,
			d.indented(item, d.theme.Accent.Render(bullet), strings.Repeat(" ", wide), wide, width, depth)...)
	}
	return lines
}

// indented draws the children of a node after a mark.
func (d drawer) indented(n ast.Node, first, next string, wide, width, depth int) []string {
	if depth >= maxDepth || width-wide < Least/2 {
		first, next, wide = "", "", 0
	}
	lines := d.blocks(n, width-wide, depth+1)
	if len(lines) == 0 {
		lines = []string{""}
	}
	for i, line := range lines {
		if mark := next; i == 0 {
			lines[i] = first + line
		} else if line != "" || strings.TrimSpace(ansi.Strip(mark)) != "" {
			lines[i] = mark + line
		}
	}
	return lines
}

// text is the source of a block of code.
func (d drawer) text(n ast.Node) string {
	var b strings.Builder
	lines := n.Lines()
	for i := range lines.Len() {
		part := lines.At(i)
		b.Write(part.Value(d.source))
	}
	return printable.Tabs(strings.TrimRight(b.String(), "\n"))
}

// code draws source code, whose lines are broken anywhere where they are too long.
func (d drawer) code(language, source string, width int) []string {
	var lines []string
	for line := range strings.SplitSeq(Highlight(d.theme, language, source), "\n") {
		if line == "" {
			lines = append(lines, "")
			continue
		}
		if ansi.StringWidth(line) <= width-2 {
			lines = append(lines, "  "+line)
			continue
		}
		for _, part := range hard(line, width-2) {
			lines = append(lines, "  "+part)
		}
	}
	return lines
}

// hard breaks a styled line anywhere.
func hard(line string, width int) []string {
	var out []string
	for left, all := 0, ansi.StringWidth(line); left < all; left += width {
		out = append(out, ansi.Cut(line, left, left+width))
	}
	return out
}

// tableRows are the cells of a table, its head first; nil if the text is none: its second
// line must be made of dashes.
func tableRows(source string) [][]string {
	lines := strings.Split(source, "\n")
	if len(lines) < 2 || !strings.Contains(lines[0], "|") || !strings.Contains(lines[1], "-") ||
		strings.Trim(lines[1], "|-: ") != "" {
		return nil
	}
	head := cells(lines[0])
	if len(cells(lines[1])) != len(head) {
		return nil
	}
	rows := [][]string{head}
	for _, line := range lines[2:] {
		row := cells(line)
		rows = append(rows, row[:min(len(row), len(head))])
	}
	return rows
}

// cells are the texts between the bars of a line.
func cells(line string) []string {
	line = strings.TrimSpace(line)
	line = strings.TrimPrefix(line, "|")
	if strings.HasSuffix(line, "|") && !strings.HasSuffix(line, `\|`) {
		line = line[:len(line)-1]
	}
	var out []string
	var cell strings.Builder
	for i := 0; i < len(line); i++ {
		switch {
		case line[i] == '\\' && i+1 < len(line) && line[i+1] == '|':
			cell.WriteByte('|')
			i++
		case line[i] == '|':
			out = append(out, strings.TrimSpace(cell.String()))
			cell.Reset()
		default:
			cell.WriteByte(line[i])
		}
	}
	return append(out, strings.TrimSpace(cell.String()))
}

// table draws a table whose columns are as wide as they need to be, and narrower in
// proportion where that is too much.
func (d drawer) table(source [][]string, width int) []string {
	rows := make([][]string, len(source))
	for i, row := range source {
		base := d.theme.Plain
		if i == 0 {
			base = d.theme.Bold
		}
		for _, cell := range row {
			c := drawer{d.theme, []byte(cell)}
			styled := ""
			if n := newCellParser().Parse(text.NewReader(c.source)).FirstChild(); n != nil {
				styled = c.inline(n, base)
			}
			rows[i] = append(rows[i], styled)
		}
	}
	t := table.New().Border(lipgloss.NormalBorder()).BorderTop(false).BorderBottom(false).BorderLeft(false).
		BorderRight(false).BorderStyle(d.theme.Rule).Headers(rows[0]...).Rows(rows[1:]...).
		StyleFunc(func(_, column int) lipgloss.Style {
			return lipgloss.NewStyle().PaddingLeft(min(column, 1)).PaddingRight(min(len(rows[0])-1-column, 1))
		})
	drawn := t.String()
	if lipgloss.Width(drawn) > width {
		drawn = t.Width(width).String()
	}
	lines := strings.Split(drawn, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " ")
	}
	return lines
}

// inline draws the content of a block as one styled text.
func (d drawer) inline(n ast.Node, style lipgloss.Style) string {
	var b strings.Builder
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		switch c := c.(type) {
		case *ast.Text:
			b.WriteString(render(style, string(util.UnescapePunctuations(c.Segment.Value(d.source)))))
			switch {
			case c.HardLineBreak():
				b.WriteByte('\n')
			case c.SoftLineBreak():
				b.WriteByte(' ')
			}
		case *ast.String:
			b.WriteString(render(style, string(c.Value)))
		case *ast.CodeSpan:
			b.WriteString(render(d.theme.Code, d.plain(c)))
		case *ast.Emphasis:
			if c.Level == 1 {
				b.WriteString(d.inline(c, style.Italic(true)))
			} else {
				b.WriteString(d.inline(c, style.Bold(true)))
			}
		case *ast.Link:
			label, target := d.plain(c), string(c.Destination)
			b.WriteString(render(d.theme.Link, label))
			if target != "" && target != label {
				b.WriteString(render(d.theme.Dim, " ("+target+")"))
			}
		case *ast.Image:
			b.WriteString(render(d.theme.Link, "image "+d.plain(c)) + render(d.theme.Dim, " ("+string(c.Destination)+")"))
		case *ast.AutoLink:
			b.WriteString(render(d.theme.Link, string(c.URL(d.source))))
		default:
			b.WriteString(d.inline(c, style))
		}
	}
	return b.String()
}

// plain returns the text of a node without styles.
func (d drawer) plain(n ast.Node) string {
	var b strings.Builder
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		switch c := c.(type) {
		case *ast.Text:
			b.Write(c.Segment.Value(d.source))
			if c.SoftLineBreak() {
				b.WriteByte(' ')
			}
		case *ast.String:
			b.Write(c.Value)
		default:
			b.WriteString(d.plain(c))
		}
	}
	return b.String()
}

// render styles a text; a style without any effect costs nothing.
func render(style lipgloss.Style, text string) string {
	if text == "" {
		return ""
	}
	return style.Render(text)
}
