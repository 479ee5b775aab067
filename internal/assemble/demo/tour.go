package demo

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"path/filepath"
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
	out         io.Writer
	colour      bool
	width       int    // columns of the terminal; 0: lines are not broken
	dir, folder string // all of the tour, and the project in it
	env, keeper []string
	version     string
	begun       time.Time

	turns chan struct{} // one for each turn of the main agent that ended

	// Set before the conversation begins.
	session task.ID
	since   func(context.Context, task.Seq) ([]task.Event, error)

	mu    sync.Mutex
	last  task.Seq
	known map[task.ID]task.Record
	said  map[string]bool // texts of the main agent
	err   error
}

func newTour(c Config, dir string) *tour {
	return &tour{out: c.Out, colour: c.Colour, width: c.Width,
		dir: dir, folder: filepath.Join(dir, "shop"), env: surroundings(c, dir),
		keeper: c.Keeper, version: c.Version, begun: time.Now(), turns: make(chan struct{}, 100),
		known: map[task.ID]task.Record{}, said: map[string]bool{}}
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

// printf prints without a time in front.
func (t *tour) printf(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.write(fmt.Sprintf(format, args...))
}

// write keeps the first error: the tour continues to its orderly end even when
// its output is closed.
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

// tourMargin begins each line.
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
		// The outcome of a stop is printed after the stop has ended all contexts.
		events, err := t.since(context.Background(), t.last)
		if err != nil || len(events) == 0 {
			return // closing reports the fault of the log
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
	if r.Traits().Work == task.ByCommand && !r.Backgrounded {
		return // its agent's call is printed
	}
	who := cmp.Or(r.Name, string(r.ID))
	if !known {
		t.line(yellow, who, "started: %s", begun(r))
	}
	if !r.Status.Terminal() || was.Status.Terminal() {
		return
	}
	colour := map[task.Status]string{task.Completed: green, task.Failed: red, task.Killed: red}[r.Status]
	t.line(colour, who, "%s: %s", r.Status, cause(r))
}

// cause says why a task ended.
func cause(r task.Record) string {
	switch {
	case r.Cause == nil:
		return "-"
	case r.Cause.Actor != task.ByItself:
		return fmt.Sprintf("%s by %s", r.Cause.Reason, r.Cause.Actor)
	case r.ExitCode != nil && *r.ExitCode > 0:
		return fmt.Sprintf("exit code %d", *r.ExitCode)
	}
	return string(r.Cause.Reason)
}

// begun prints a task that was started.
func begun(r task.Record) string {
	if r.Traits().Work == task.ByCommand {
		return r.Command
	}
	return r.AgentType + " agent: " + r.Prompt
}

// agent prints the events of a conversation: the words of the main agent and its
// mail, and the reading of other agents.
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
	case main && e.Kind == agent.TurnDoneEvent:
		t.turns <- struct{}{}
	case main && e.Kind == agent.PromptEvent:
		t.line(cyan, "you", "%s", e.Prompt[0].Text)
	case main && e.Kind == agent.MailEvent:
		for _, l := range e.Mail {
			t.notification(l.Text)
		}
	case main && e.Kind == agent.BlockEvent && e.Block.Type == "text":
		if !t.said[e.Block.Text] { // it says to several results that it waits
			t.line(cyan, who, "%s", e.Block.Text)
		}
		t.said[e.Block.Text] = true
	case e.Kind == agent.ToolStartEvent && (!main || e.Call.Name == "TaskStop"):
		t.line(faint, who, "%s %s", e.Call.Name, subject(e.Call.Input))
	case main && e.Kind == agent.ToolDoneEvent && (e.Call.Name == "TaskStop" || e.Output.IsError):
		t.line(faint, who, "%s", e.Output.Text)
	}
}

// subject is the part of a call's input that a person wants to read.
func subject(input json.RawMessage) string {
	var in struct {
		Command string `json:"command"`
		File    string `json:"file_path"`
		Task    string `json:"task_id"`
	}
	_ = json.Unmarshal(input, &in) // of the script
	return cmp.Or(in.Command, in.File, in.Task)
}

// notification shows the parts of a notification or message that a person wants to read.
func (t *tour) notification(text string) {
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
