package demo

import (
	"cmp"
	"context"
	"fmt"
	"html"
	"io"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/task"
)

// tour prints what happens, a line each. Its methods may be called by several
// goroutines.
type tour struct {
	out    io.Writer
	colour bool
	width  int // columns of the terminal; 0: lines are not broken
	begun  time.Time

	// Set before the first conversation begins.
	session task.ID
	since   func(context.Context, task.Seq) ([]task.Event, error)

	mu    sync.Mutex
	last  task.Seq
	known map[task.ID]task.Record
	quiet bool // the main agent's words are the answer, which is printed apart
	said  string
	err   error
}

func newTour(out io.Writer, colour bool) *tour {
	return &tour{out: out, colour: colour, begun: time.Now(), known: map[task.ID]task.Record{}}
}

// follow prints what tasks do until ctx ends.
func (t *tour) follow(ctx context.Context, grown func() <-chan struct{}) {
	for {
		more := grown() // before looking, so that nothing falls between
		t.mu.Lock()
		t.pull()
		t.mu.Unlock()
		select {
		case <-more:
		case <-ctx.Done():
			return
		}
	}
}

// final says whether the next answer is the last one.
func (t *tour) final(is bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.quiet = is
}

// printf prints without a time in front.
func (t *tour) printf(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.write(fmt.Sprintf(format, args...))
}

// write keeps the first error: the tour goes on to its orderly end even when
// nobody reads any more.
func (t *tour) write(text string) {
	if t.err == nil {
		_, t.err = io.WriteString(t.out, text)
	}
}

// The colours, as the numbers of SGR.
const (
	faint  = "2"
	red    = "31"
	green  = "32"
	yellow = "33"
	cyan   = "36"
)

func (t *tour) paint(colour, text string) string {
	if !t.colour {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// line prints who did what, and when.
func (t *tour) line(colour, who, format string, args ...any) {
	at := fmt.Sprintf("%5.1fs", time.Since(t.begun).Seconds())
	text := fold(excerpt.Line(fmt.Sprintf(format, args...), 240), t.width-tourMargin)
	t.write(t.paint(faint, at) + "  " + t.paint(colour, fmt.Sprintf("%-11s", excerpt.Line(who, 11))) + "  " +
		strings.ReplaceAll(text, "\n", "\n"+strings.Repeat(" ", tourMargin)) + "\n")
}

// tourMargin is what stands before the text of a line.
const tourMargin = 6 + 2 + 11 + 2

// narrowest is the least width in which text is broken at all.
const narrowest = 20

// fold breaks text between words. A word that is too long is left to the terminal.
func fold(text string, width int) string {
	if width < narrowest {
		return text
	}
	var b strings.Builder
	room := width
	for i, word := range strings.Split(text, " ") {
		long := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case long+1 > room && long <= width:
			b.WriteByte('\n')
			room = width
		default:
			b.WriteByte(' ')
			room--
		}
		b.WriteString(word)
		room -= long
	}
	return b.String()
}

// pull prints all task events there are.
func (t *tour) pull() {
	for {
		// What a stop did is told after the stop has ended everybody's context.
		events, err := t.since(context.Background(), t.last)
		if err != nil || len(events) == 0 {
			return // closing reports what is wrong with the log
		}
		for _, e := range events {
			t.last = e.Seq
			if e.Task.ID != t.session {
				t.task(e.Task)
			}
		}
	}
}

func (t *tour) task(r task.Record) {
	was, known := t.known[r.ID]
	t.known[r.ID] = r
	who := cmp.Or(r.Name, string(r.ID))
	if !known {
		t.line(yellow, who, "started: %s", begun(r))
	}
	if now := stage(r); now != "" && now != stage(was) {
		t.line(faint, who, "%s", now)
	}
	if !r.Status.Terminal() || was.Status.Terminal() {
		return
	}
	colour := map[task.Status]string{task.Completed: green, task.Failed: red, task.Killed: red}[r.Status]
	t.line(colour, who, "%s: %s", r.Status, cause(r))
}

// begun says what was started.
func begun(r task.Record) string {
	switch traits := r.Traits(); {
	case traits.Work == task.ByCommand:
		return r.Command
	case r.Team == nil && traits.Work == task.ByAgent:
		return r.AgentType + " agent: " + r.Prompt
	case r.Prompt != "":
		return r.Noun() + ": " + r.Prompt
	}
	return cmp.Or(r.Description, r.Command)
}

// stage is where work stands that is neither a command nor an agent of this process.
func stage(r task.Record) string {
	switch p := r.Progress; {
	case p == nil || r.Status.Terminal():
		return ""
	case p.MCPTask != nil:
		return p.MCPTask.Message
	default:
		return p.Phase
	}
}

// agent prints what happens in a conversation: of the main agent what it says
// and is told, of others what they look at.
func (t *tour) agent(from task.ID, e agent.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e.Kind == agent.PartEvent {
		return
	}
	t.pull()
	who, main := "main", from == t.session
	if !main {
		who = cmp.Or(t.known[from].Name, string(from))
	}
	switch {
	case main && e.Kind == agent.PromptEvent:
		t.line(cyan, "you", "%s", e.Prompt[0].Text)
	case main && e.Kind == agent.MailEvent:
		for _, l := range e.Mail {
			t.notification(l.Text)
		}
	case main && e.Kind == agent.BlockEvent && e.Block.Type == "text" && !t.quiet:
		if t.said != e.Block.Text { // what it says to each notification need not be read twice
			t.line(cyan, who, "%s", e.Block.Text)
		}
		t.said = e.Block.Text
	case e.Kind == agent.ToolStartEvent && (!main || e.Call.Name == "TaskStop"):
		t.line(faint, who, "%s %s", e.Call.Name, e.Call.Input)
	case main && e.Kind == agent.ToolDoneEvent && (e.Call.Name == "TaskStop" || e.Output.IsError):
		t.line(faint, who, "%s", e.Output.Text)
	}
}

// notification shows the parts of a notification or message that a person wants to read.
func (t *tour) notification(text string) {
	if head, rest, ok := strings.Cut(text, "<agent-message from=\""); ok && head == "" {
		from, _, _ := strings.Cut(rest, "\"")
		_, said, _ := strings.Cut(rest, ">\n")
		said, _, _ = strings.Cut(said, "</agent-message>")
		t.line(yellow, "message", "of %s: %s", from, html.UnescapeString(said))
		return
	}
	if event := element(text, "event"); event != "" {
		t.line(yellow, "event", "%s", event)
		return
	}
	t.line(yellow, "notified", "%s", element(text, "summary"))
	for _, name := range []string{"result", "output-tail"} {
		if part := strings.TrimSpace(element(text, name)); part != "" {
			t.line(faint, "", "%s: %s", name, part)
		}
	}
}

// element is the text of an element of a notification.
func element(text, name string) string {
	_, rest, _ := strings.Cut(text, "<"+name+">")
	part, _, _ := strings.Cut(rest, "</"+name+">")
	return html.UnescapeString(part)
}
