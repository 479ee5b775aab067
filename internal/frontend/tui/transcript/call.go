package transcript

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/aymanbagabas/go-udiff"
	"github.com/charmbracelet/x/ansi"

	"github.com/drover-dev/drover/internal/frontend/tui/printable"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/platform/figures"
)

// How much of a call is shown before it is opened.
const (
	diffLines   = 14
	resultLines = 3
	openLines   = 400 // of an open result
)

// call draws a call of a tool: a line, its changes as a diff, and its result.
func (d *Drawer) call(b *Block, width int) []string {
	t := d.theme
	mark := t.Accent.Render("◌ ")
	switch {
	case b.Failed != "":
		mark = t.Bad.Render("✗ ")
	case b.Done:
		mark = t.Good.Render("● ")
	}
	name := printable.Line(b.Tool, 60)
	fields := arguments(b.Text)
	head := mark + t.Bold.Render(name)
	if what := summary(fields, b.Text); what != "" {
		head += " " + fit(what, width-ansi.StringWidth(name)-1)
	}
	lines := []string{head}
	before, after, isEdit := edit(fields)
	switch {
	case isEdit:
		lines = append(lines, d.diff(before, after, width, b.Open)...)
	case b.Open:
		lines = append(lines, d.input(b, width)...)
	}
	return append(lines, d.result(b, width, isEdit)...)
}

// input shows all arguments of a call.
func (d *Drawer) input(b *Block, width int) []string {
	raw := json.RawMessage(b.Text)
	if b.Cut > 0 || !json.Valid(raw) {
		raw, _ = json.Marshal(b.Text)
	}
	text := strings.TrimRight(excerpt.Call(raw, b.Cut), "\n")
	return limited(indent(wrap(printable.Tabs(text), width-2, d.theme.Dim)), openLines)
}

// result draws the answer of a tool.
func (d *Drawer) result(b *Block, width int, short bool) []string {
	t := d.theme
	if !b.Done {
		return nil
	}
	text := flushLeft(printable.Tabs(printable.Block(b.Result)))
	if text == "" && b.Failed == "" {
		return []string{t.Dim.Render("  └ (no output)")}
	}
	if b.Failed != "" && !b.Open {
		return d.failure(b, text, width, short)
	}
	all := strings.Split(text, "\n")
	if b.Open {
		lines := wrap(text, width-2, t.Plain)
		if b.ResultCut > 0 {
			lines = append(lines, t.Dim.Render(fmt.Sprintf("… %d more bytes", b.ResultCut)))
		}
		return limited(framed(lines, t.Dim.Render("└ ")), openLines)
	}
	shown := all[:min(len(all), resultLines)]
	if short = short || startsTask(all); short {
		shown = all[:1]
	}
	var lines []string
	for _, line := range shown {
		lines = append(lines, t.Dim.Render(fit(line, width-2)))
	}
	if n := len(all) - len(shown); n > 0 && !short {
		lines = append(lines, t.Dim.Render(fmt.Sprintf("… %s (ctrl+o)", figures.Several(n, "more line"))))
	} else if b.ResultCut > 0 && !short {
		lines = append(lines, t.Dim.Render(fmt.Sprintf("… %d more bytes", b.ResultCut)))
	}
	return framed(lines, t.Dim.Render("└ "))
}

// flushLeft removes empty lines around a text, and the blanks that all its lines begin with.
func flushLeft(text string) string {
	lines := strings.Split(strings.Trim(strings.TrimRight(text, " \n"), "\n"), "\n")
	margin := -1
	for _, line := range lines {
		if rest := strings.TrimLeft(line, " "); rest != "" && (margin < 0 || len(line)-len(rest) < margin) {
			margin = len(line) - len(rest)
		}
	}
	for i, line := range lines {
		lines[i] = line[min(len(line), max(0, margin)):]
	}
	return strings.Join(lines, "\n")
}

// startsTask reports whether a result only says that a task runs, with where to find it: the
// task has a line of its own.
func startsTask(result []string) bool {
	return slices.ContainsFunc(result[:min(len(result), resultLines)], func(line string) bool {
		return strings.HasPrefix(line, "Task ID: ") || strings.HasPrefix(line, "Agent ID: ")
	})
}

func framed(lines []string, mark string) []string {
	out := make([]string, len(lines))
	for i, line := range lines {
		if out[i] = "    " + line; i == 0 {
			out[i] = "  " + mark + line
		}
	}
	return out
}

func indent(lines []string) []string {
	out := make([]string, len(lines))
	for i, line := range lines {
		out[i] = "    " + line
	}
	return out
}

// limited bounds the lines of a block.
func limited(lines []string, most int) []string {
	if len(lines) <= most {
		return lines
	}
	return append(lines[:most:most], fmt.Sprintf("    … %s", figures.Several(len(lines)-most, "more line")))
}

// failure draws the error of a call, and below it the end of its output.
func (d *Drawer) failure(b *Block, text string, width int, short bool) []string {
	t := d.theme
	lines := []string{t.Bad.Render(fit(printable.Line(b.Failed, 400), width-2))}
	var rest []string
	for line := range strings.SplitSeq(text, "\n") {
		if line = strings.TrimSpace(line); line != "" && !strings.Contains(b.Failed, line) && line != "(no output)" {
			rest = append(rest, line)
		}
	}
	if b.ResultCut > 0 { // its end is missing
		rest = rest[:min(len(rest), resultLines-1)]
	}
	from := max(0, len(rest)-resultLines+1)
	if short {
		from = len(rest)
	}
	for _, line := range rest[from:] {
		lines = append(lines, t.Dim.Render(fit(line, width-2)))
	}
	if b.ResultCut > 0 && !short {
		lines = append(lines, t.Dim.Render(fmt.Sprintf("… %d more bytes", b.ResultCut)))
	} else if from > 0 && !short {
		lines = append(lines, t.Dim.Render(fmt.Sprintf("… %s before (ctrl+o)", figures.Several(from, "line"))))
	}
	return framed(lines, t.Dim.Render("└ "))
}

// arguments returns the fields of the input of a call; nil if it is not an object.
func arguments(input string) map[string]any {
	var fields map[string]any
	dec := json.NewDecoder(strings.NewReader(input))
	dec.UseNumber()
	if dec.Decode(&fields) != nil {
		return nil
	}
	return fields
}

// About describes a call in one line.
func About(input string) string { return summary(arguments(input), input) }

// summary describes a call in one line.
func summary(fields map[string]any, input string) string {
	if fields == nil {
		return printable.Line(input, 300)
	}
	for _, name := range []string{"command", "file_path", "notebook_path", "path", "pattern", "url", "query",
		"description", "subject", "question", "prompt", "task_id", "name", "skill", "to", "message", "intent"} {
		if text, ok := fields[name].(string); ok && strings.TrimSpace(text) != "" {
			return printable.Line(text, 300)
		}
	}
	if list, ok := fields["questions"].([]any); ok && len(list) > 0 {
		if first, ok := list[0].(map[string]any); ok {
			if text, ok := first["question"].(string); ok {
				return printable.Line(text, 300)
			}
		}
	}
	if len(fields) == 0 {
		return ""
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(fields) != nil {
		return ""
	}
	return printable.Line(b.String(), 300)
}

// edit finds the text that a call replaces in a file, or writes to one, by the names of its
// arguments.
func edit(fields map[string]any) (before, after string, ok bool) {
	file, named := fields["file_path"].(string)
	if !named || file == "" {
		return "", "", false
	}
	from, replaces := fields["old_string"].(string)
	to, by := fields["new_string"].(string)
	if replaces && by {
		return from, to, true
	}
	content, writes := fields["content"].(string)
	return "", content, writes
}

// diff shows the lines that go and come, and those around them.
func (d *Drawer) diff(before, after string, width int, open bool) []string {
	most := diffLines
	if open {
		most = openLines
	}
	var lines []string
	hidden := 0
	for _, line := range difference(before, after) {
		if len(lines) == most {
			hidden++
			continue
		}
		text := fit(line.mark+" "+printable.Exact(line.text), width-2)
		switch line.mark {
		case "+":
			text = d.theme.Added.Render(text)
		case "-":
			text = d.theme.Removed.Render(text)
		case "~":
			text = d.theme.Hunk.Render("⋯")
		default:
			text = d.theme.Dim.Render(text)
		}
		lines = append(lines, text)
	}
	if hidden > 0 {
		lines = append(lines, d.theme.Dim.Render(fmt.Sprintf("… %s (ctrl+o)", figures.Several(hidden, "more line"))))
	}
	return indent(lines)
}

type diffLine struct {
	mark string // + - or a blank; ~ separates two places
	text string
}

// difference returns the lines of a diff with some context.
func difference(before, after string) []diffLine {
	if before == "" {
		var out []diffLine
		for line := range strings.SplitSeq(strings.TrimSuffix(after, "\n"), "\n") {
			out = append(out, diffLine{"+", line})
		}
		return out
	}
	end := func(s string) string {
		if s != "" && !strings.HasSuffix(s, "\n") {
			return s + "\n"
		}
		return s
	}
	before, after = end(before), end(after)
	unified, err := udiff.ToUnifiedDiff("a", "b", before, udiff.Strings(before, after), udiff.DefaultContextLines)
	if err != nil {
		return []diffLine{{"~", ""}}
	}
	var out []diffLine
	for i, hunk := range unified.Hunks {
		if i > 0 {
			out = append(out, diffLine{"~", ""})
		}
		for _, line := range hunk.Lines {
			mark := map[udiff.OpKind]string{udiff.Insert: "+", udiff.Delete: "-", udiff.Equal: " "}[line.Kind]
			out = append(out, diffLine{mark, strings.TrimSuffix(line.Content, "\n")})
		}
	}
	return out
}
