package transcript

import (
	"fmt"
	"strings"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/drover-dev/drover/internal/frontend/tui/markdown"
	"github.com/drover-dev/drover/internal/frontend/tui/printable"
	"github.com/drover-dev/drover/internal/frontend/tui/theme"
	"github.com/drover-dev/drover/internal/platform/figures"
	"github.com/drover-dev/drover/task"
)

// Drawer draws blocks. It keeps its drawings, so that a block is drawn again only
// when it has changed or the width has.
type Drawer struct {
	theme theme.Theme
	width int
	kept  map[int64]*drawn
	uses  int // of kept, to forget the drawings used longest ago

	// Drawn counts the blocks that were drawn, for tests.
	Drawn int
}

// drawn is a block as it was drawn.
type drawn struct {
	rev    int
	used   int
	lines  []string
	stream *markdown.Stream // of what an agent writes
}

// maxKept bounds how many blocks are kept drawn.
const maxKept = 2000

// NewDrawer makes a drawer.
func NewDrawer(t theme.Theme) *Drawer { return &Drawer{theme: t, kept: map[int64]*drawn{}} }

// Lines draws a block at a width. The result is not to be changed.
func (d *Drawer) Lines(b *Block, width int) []string {
	if width != d.width {
		d.width = width
		clear(d.kept)
	}
	d.uses++
	k := d.kept[b.ID]
	if k != nil && k.rev == b.Rev {
		k.used = d.uses
		return k.lines
	}
	if k == nil {
		if len(d.kept) >= maxKept {
			d.forget()
		}
		k = &drawn{}
		d.kept[b.ID] = k
	}
	k.rev, k.used = b.Rev, d.uses
	k.lines = d.draw(b, k)
	d.Drawn++
	return k.lines
}

// Reset forgets all drawings, as for another conversation.
func (d *Drawer) Reset() { clear(d.kept) }

// forget drops the drawings that were used longest ago.
func (d *Drawer) forget() {
	for id, k := range d.kept {
		if d.uses-k.used > maxKept/4 {
			delete(d.kept, id)
		}
	}
	if len(d.kept) >= maxKept {
		clear(d.kept)
	}
}

// gutter is how far texts are indented.
const gutter = 2

func (d *Drawer) draw(b *Block, k *drawn) []string {
	width := max(markdown.Least, d.width-gutter)
	t := d.theme
	switch b.Kind {
	case Prompt:
		return marked(t.Prompt.Render("> "), wrap(printable.Block(b.Text)+cut(b.Cut), width, t.Bold))
	case Answer:
		if k.stream == nil {
			k.stream = markdown.NewStream(t, width)
		}
		lines := k.stream.Lines(printable.Prose(b.Text))
		if b.Cut > 0 {
			lines = append(lines[:len(lines):len(lines)], t.Dim.Render(strings.TrimSpace(cut(b.Cut))))
		}
		return marked("● ", lines)
	case Thinking:
		return d.thinking(b, width)
	case Call:
		return d.call(b, width)
	case Mail:
		head, _, more := strings.Cut(strings.TrimSpace(printable.Block(b.Text)), "\n")
		if b.Open {
			return marked(t.Accent.Render("✉ "), wrap(printable.Block(b.Text)+cut(b.Cut), width, t.Dim))
		}
		if more {
			head += " …"
		}
		return []string{t.Accent.Render("✉ ") + t.Dim.Render(fit(head, width))}
	case Failure:
		return marked(t.Bad.Render("✗ "), wrap(failureText(b), width, t.Bad))
	case Complete:
		return marked(t.Good.Render("✓ "),
			append([]string{t.Good.Bold(true).Render("Task complete")},
				markdown.Render(t, printable.Prose(b.Text), width)...))
	case Task:
		return []string{d.task(b, width)}
	case Turn:
		return []string{strings.Repeat(" ", gutter) + t.Dim.Render(fit(turnText(b), width))}
	case Output:
		return wrap(printable.Block(b.Text), d.width, t.Plain)
	}
	return marked(t.Dim.Render("· "), wrap(printable.Block(b.Text), width, t.Dim))
}

func (d *Drawer) thinking(b *Block, width int) []string {
	text := strings.TrimSpace(printable.Block(printable.Prose(b.Text)))
	if b.Open {
		return marked(d.theme.Dim.Render("∴ "), wrap(text, width, d.theme.Quote))
	}
	lines := strings.Count(text, "\n") + 1
	head := "Thinking"
	if last := text[strings.LastIndexByte(text, '\n')+1:]; last != "" {
		head += " · " + last
	}
	if lines > 1 {
		head += fmt.Sprintf(" (%d lines)", lines)
	}
	return []string{d.theme.Dim.Render("∴ ") + d.theme.Quote.Render(fit(head, width))}
}

// failureText says why a turn ended early.
func failureText(b *Block) string {
	if strings.HasSuffix(b.Text, "interrupted") || strings.HasSuffix(b.Text, "interrupted by the user") {
		return "Interrupted"
	}
	return "The turn failed: " + printable.Block(b.Text)
}

// turnText describes the duration of a turn and the tasks that it left running.
func turnText(b *Block) string {
	text := figures.Span(b.EndAt.Sub(b.At))
	switch {
	case b.Running == 1:
		text += " · 1 task still runs"
	case b.Running > 1:
		text += fmt.Sprintf(" · %d tasks still run", b.Running)
	}
	return text
}

// task draws a change of a task on one line.
func (d *Drawer) task(b *Block, width int) string {
	r, t := b.Record, d.theme
	mark := t.Accent
	switch {
	case b.Verb != task.Complete && b.Verb != task.Fail && b.Verb != task.Stop:
	case r.Status == task.Completed:
		mark = t.Good
	case r.Status == task.Failed:
		mark = t.Bad
	default:
		mark = t.Warning
	}
	return mark.Render("◆ ") + fit(taskText(b), width-ansi.StringWidth(string(r.ID))-2) + "  " +
		t.Dim.Render(printable.Line(string(r.ID), 20))
}

// taskText describes a change of a task.
func taskText(b *Block) string {
	r := b.Record
	who := printable.Line(Title(r), 80)
	switch b.Verb {
	case task.Create:
		return who + " started"
	case task.Resume, task.Thaw:
		return who + " resumed"
	case task.Background:
		return who + " runs in the background"
	case task.Park:
		until, why, _ := r.ParkedUntil(b.At)
		return who + " is parked until " + task.Clock(until, b.At) + ": " + printable.Line(why, 200)
	case task.Unpark:
		return who + " is woken"
	case task.Pause:
		return who + " is paused"
	}
	text := fmt.Sprintf("%s %s after %s", who, printable.Line(string(r.Status), 20), figures.Span(r.Duration(b.At)))
	if why := Ending(r); why != "" {
		text += ": " + why
	}
	return text
}

// Title is what people know a task by.
func Title(r task.Record) string {
	what := ""
	for _, text := range []string{r.Description, r.Command, r.Prompt} {
		if text = strings.TrimSpace(text); text != "" {
			what, _, _ = strings.Cut(text, "\n")
			break
		}
	}
	switch noun := r.Traits().Noun; {
	case r.Name != "" && what != "" && r.Name == r.AgentType:
		return what // agents without a name of their own go by their type
	case r.Name != "" && what != "":
		return r.Name + ": " + what
	case r.Name != "":
		return r.Name
	case what != "":
		return what
	default:
		return noun
	}
}

// Ending says why a task did not end well; empty: it did.
func Ending(r task.Record) string {
	if why := r.Why(); why != "" || r.Status != task.Failed || r.ExitCode == nil {
		return printable.Line(why, 200)
	}
	return fmt.Sprintf("exit code %d", *r.ExitCode)
}

// cut says that bytes are missing.
func cut(n int) string {
	if n <= 0 {
		return ""
	}
	return fmt.Sprintf("\n… %d more bytes: drover logs --messages shows them", n)
}

// marked puts a mark before the first line and indents the others.
func marked(mark string, lines []string) []string {
	if len(lines) == 0 {
		return []string{mark}
	}
	out := make([]string, len(lines))
	for i, line := range lines {
		switch {
		case i == 0:
			out[i] = mark + line
		case line != "":
			out[i] = "  " + line
		}
	}
	return out
}

// wrap breaks a text into lines, each with the style.
func wrap(text string, width int, style lipgloss.Style) []string {
	var out []string
	for line := range strings.SplitSeq(text, "\n") {
		for part := range strings.SplitSeq(ansi.Wrap(line, max(1, width), ""), "\n") {
			if part = strings.TrimRight(part, " "); part != "" {
				part = style.Render(part)
			}
			out = append(out, part)
		}
	}
	return out
}

// fit cuts a line.
func fit(line string, width int) string { return ansi.Truncate(line, max(1, width), "…") }
