package transcript

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/drover-dev/drover/internal/frontend/tui/printable"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/platform/figures"
	"github.com/drover-dev/drover/task"
)

// Lines prints a conversation as lines that never change, for screen readers, simple terminals and pipes. It prints no
// escape sequences. One goroutine uses it.
type Lines struct {
	w   io.Writer
	now func() time.Time
	own []string // prompts that the user typed on this terminal, where they are visible already

	begun  int64   // the newest block that was begun
	calls  []int64 // the begun calls without a result
	answer int64   // the block of the text being printed
	bytes  int     // of that text, printed or held
	held   string  // the end of that text: a line that has not ended
	mid    bool    // the last printed line has not ended
	err    error   // of the writer
}

// NewLines returns a printer. It prints to w, and reads the clock for deadlines of questions.
func NewLines(w io.Writer, now func() time.Time) *Lines { return &Lines{w: w, now: now} }

// Own keeps the next prompt with this text from being printed: the user has typed it on the terminal.
func (l *Lines) Own(prompt string) { l.own = append(l.own, prompt) }

// Limits of the part of an earlier conversation that [Lines.Past] prints.
const (
	pastTurns  = 3
	pastBlocks = 60
)

// Past prints the end of the conversation before the stream was opened: at most three turns and sixty blocks.
func (l *Lines) Past(s *State, session task.ID) error {
	from, turns := len(s.Blocks), 0
	for from > 0 && turns < pastTurns && len(s.Blocks)-from < pastBlocks {
		if from--; s.Blocks[from].Kind == Prompt {
			turns++
		}
	}
	if from > 0 {
		l.begun = s.Blocks[from-1].ID
		l.print(bracketed(fmt.Sprintf("earlier messages are omitted: see `drover logs --messages %s`", session)))
	}
	return l.Show(s)
}

// Show prints what the last applied piece has changed.
func (l *Lines) Show(s *State) error {
	l.calls = slices.DeleteFunc(l.calls, func(id int64) bool {
		b := s.block(id)
		if b != nil && b.Done {
			l.print(resultText(b))
		}
		return b == nil || b.Done
	})
	if b := s.block(l.answer); b != nil {
		l.grow(b)
	}
	for i := max(0, s.index(l.begun)+1); i < len(s.Blocks); i++ {
		b := &s.Blocks[i]
		l.begun = b.ID
		l.begin(b)
	}
	return l.err
}

func (l *Lines) begin(b *Block) {
	switch b.Kind {
	case Answer:
		l.freshLine()
		l.answer, l.bytes = b.ID, 0
		l.grow(b)
	case Prompt:
		if i := slices.Index(l.own, b.Text); i >= 0 {
			l.own = slices.Delete(l.own, i, i+1)
			return
		}
		l.print("> " + strings.ReplaceAll(printable.Block(b.Text), "\n", "\n> ") + "\n")
	case Call:
		l.print(fmt.Sprintf("[%s %s]\n", printable.Line(b.Tool, 60), printable.Line(b.Text, lineChars)))
		if b.Done {
			l.print(resultText(b))
			return
		}
		l.calls = append(l.calls, b.ID)
	case Note:
		l.print(bracketed(b.Text))
	case Mail:
		l.print(bracketed("mail: " + b.Text))
	case Task:
		l.print(bracketed(string(b.Record.ID) + " " + taskText(b)))
	case Failure:
		l.print(bracketed(failureText(b)))
	case Complete:
		l.print("[Task complete]\n" + printable.Block(b.Text) + "\n")
	}
}

// grow prints the complete lines that were added to an answer.
func (l *Lines) grow(b *Block) {
	l.held += b.Text[l.bytes:]
	l.bytes = len(b.Text)
	if end := strings.LastIndexByte(l.held, '\n') + 1; end > 0 {
		l.write(excerpt.Plain(l.held[:end]))
		l.held = l.held[end:]
	}
}

// Held reports whether part of a line waits for its end.
func (l *Lines) Held() bool { return l.held != "" }

// Flush prints the part of a line that waits for its end.
func (l *Lines) Flush() error {
	text := l.held
	l.held = ""
	l.write(excerpt.Plain(text))
	return l.err
}

// Print prints whole lines after the conversation. The text must be printable.
func (l *Lines) Print(text string) error {
	l.print(text)
	return l.err
}

// Note prints a note of the program itself.
func (l *Lines) Note(text string) error { return l.Print(bracketed(text)) }

// print prints whole lines, from the beginning of a line on.
func (l *Lines) print(text string) {
	l.freshLine()
	l.write(text)
}

func (l *Lines) freshLine() {
	if _ = l.Flush(); l.mid { // write keeps the error
		l.write("\n")
	}
}

func (l *Lines) write(text string) {
	if text == "" || l.err != nil {
		return
	}
	l.mid = !strings.HasSuffix(text, "\n")
	_, l.err = io.WriteString(l.w, text)
}

// lineChars bounds a call or a result on one line.
const lineChars = 300

func bracketed(text string) string { return "[" + printable.Line(text, 1000) + "]\n" }

// resultText is the first line of a result and the number of its other lines.
func resultText(b *Block) string {
	text := strings.TrimSpace(printable.Block(cmp.Or(b.Result, b.Failed)))
	first, rest, more := strings.Cut(text, "\n")
	if text == "" {
		first = "(no output)"
	}
	if first = printable.Line(first, lineChars); more {
		first += fmt.Sprintf(" (and %s)", figures.Several(strings.Count(rest, "\n")+1, "more line"))
	}
	return "[= " + first + "]\n"
}

// Question prints a question and the commands that answer it.
func (l *Lines) Question(q task.Question) error {
	var b strings.Builder
	id := printable.Line(q.ID, 40)
	fmt.Fprintf(&b, "? %s  %s  %s (%s)", id, printable.Line(excerpt.Exact(q.Title("")), 100),
		printable.Line(string(q.Task), 40), excerpt.ExactLine(q.Agent))
	if !q.Until.IsZero() {
		fmt.Fprintf(&b, ", denied in %s", figures.Span(q.Until.Sub(l.now())))
	}
	b.WriteString("\n")
	if q.Reason != "" {
		fmt.Fprintf(&b, "  why: %s\n", printable.Line(excerpt.Exact(q.Reason), 2000))
	}
	for line := range strings.Lines(excerpt.Call(q.Input, q.Hidden)) {
		b.WriteString("  " + line)
	}
	if q.Hidden > 0 {
		fmt.Fprintf(&b, "  (%d bytes of the input are hidden: `drover approvals show %s` shows all of it)\n", q.Hidden, id)
	}
	how := "/allow " + id
	switch q.Kind {
	case task.Choice:
		how = "/answer " + id + " TEXT"
	case task.Form:
		how = "/answer " + id + " JSON"
	}
	fmt.Fprintf(&b, "  %s, or /deny %s [REASON]\n", how, id)
	if q.Suggest != "" {
		fmt.Fprintf(&b, "  /allow %s always %s\n", id, AddsRule(q.Suggest))
	}
	return l.Print(b.String())
}

// AddsRule says what permanent permission changes.
func AddsRule(rule string) string {
	return "adds the rule " + excerpt.ExactLine(rule) + " to .drover/settings.local.json"
}
