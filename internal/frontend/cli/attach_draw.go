package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/drover-dev/drover/internal/frontend/cli/console"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/task"
)

// canvas draws what is shown as lines. Nothing of it is alive on a terminal.
type canvas struct {
	w    io.Writer
	text console.Printer // what an agent writes
	mid  bool            // the last line has not ended
	now  func() time.Time
}

func newCanvas(w io.Writer, now func() time.Time) *canvas {
	c := &canvas{w: w, now: now}
	c.text = console.Printer{W: c, Plain: true}
	return c
}

// Write takes what the printer has made harmless.
func (c *canvas) Write(p []byte) (int, error) {
	if len(p) > 0 {
		c.mid = p[len(p)-1] != '\n'
	}
	return c.w.Write(p)
}

// held reports whether there is text that waits for the end of its line.
func (c *canvas) held() bool { return len(c.text.Held) > 0 }

// flush shows such text.
func (c *canvas) flush() error { return c.text.Flush() }

// draw draws what is new.
func (c *canvas) draw(list ...shown) error {
	for _, s := range list {
		if s.kind == showText {
			if err := c.text.Print([]byte(s.text)); err != nil {
				return err
			}
			continue
		}
		if err := c.fresh(); err != nil {
			return err
		}
		if _, err := io.WriteString(c, c.lines(s)); err != nil {
			return err
		}
	}
	return nil
}

// fresh begins a new line, if the last has not ended.
func (c *canvas) fresh() error {
	err := c.flush()
	if err == nil && c.mid {
		_, err = io.WriteString(c, "\n")
	}
	return err
}

// lines are the whole lines for everything but text.
func (c *canvas) lines(s shown) string {
	switch s.kind {
	case showPrompt:
		return quoted(strings.TrimRight(excerpt.Plain(s.text), "\n")) + "\n"
	case showCall:
		return fmt.Sprintf("[%s %s]\n", console.Cell(s.tool, 60), excerpt.Line(s.text, console.PartChars))
	case showResult:
		return resultLine(s.text)
	case showTask:
		return "[" + taskLine(s) + "]\n"
	case showQuestion:
		return questionLines(s.question, c.now())
	}
	return "[" + excerpt.Line(s.text, 1000) + "]\n"
}

func quoted(text string) string { return "> " + strings.ReplaceAll(text, "\n", "\n> ") }

// resultLine is the first line of a result, and how many there are.
func resultLine(text string) string {
	text = strings.TrimSpace(excerpt.Plain(text))
	first, rest, more := strings.Cut(text, "\n")
	if text == "" {
		first = "(nothing)"
	}
	if first = excerpt.Line(first, console.PartChars); more {
		first += fmt.Sprintf(" (and %s)", console.Plural(strings.Count(rest, "\n")+1, "more line"))
	}
	return "[= " + first + "]\n"
}

// taskLine says in a line what has happened to a task.
func taskLine(s shown) string {
	r := s.task
	who := console.Cell(string(r.ID), 40)
	if r.Name != "" {
		who += " " + console.Cell(r.Name, console.NameChars)
	}
	switch s.verb {
	case task.Create:
		return fmt.Sprintf("%s started: %s %s", who, console.Cell(r.Word(), 30), excerpt.Line(console.Work(r), 100))
	case task.Resume:
		return who + " goes on"
	case task.Background:
		return who + " is moved to the background"
	case task.Pause:
		return who + " is paused"
	case task.Thaw:
		return who + " goes on after a pause"
	case task.Park:
		until, why, _ := r.ParkedUntil(time.Now())
		return who + " is parked until " + task.Clock(until, time.Now()) + ": " + excerpt.Line(why, 200)
	case task.Unpark:
		return who + " is woken"
	case task.Rest:
		if r.WaitsFor != "" {
			return who + " " + r.Activity()
		}
		return who + " waits for a message"
	case task.Wake:
		return who + " is at work again"
	case task.RequestStop:
		return who + " is being stopped"
	}
	text := fmt.Sprintf("%s %s after %s", who, console.Cell(string(r.Status), 20), console.Span(r.Duration(time.Time{})))
	if how := console.Ending(r); how != "-" && r.Status != task.Completed {
		text += ": " + how
	}
	return text
}

// questionLines show all there is of a question, and how it is answered here.
func questionLines(q task.Question, now time.Time) string {
	var b strings.Builder
	fmt.Fprintf(&b, "? %s  %s asks for %s", console.Cell(q.ID, 40), console.Asker(q), console.ExactCell(q.Tool, 60))
	b.WriteString(console.QuestionBody(q, now))
	how := map[task.QuestionKind]string{task.Choice: "/answer " + q.ID + " TEXT",
		task.Form: "/answer " + q.ID + " JSON"}[q.Kind]
	if how == "" {
		how = "/allow " + q.ID
	}
	fmt.Fprintf(&b, "  %s, or /deny %s [REASON]\n", excerpt.Line(how, 100), console.Cell(q.ID, 40))
	if q.Suggest != "" {
		fmt.Fprintf(&b, "  /allow %s always also %s\n", console.Cell(q.ID, 40), console.Written(q.Suggest))
	}
	return b.String()
}
