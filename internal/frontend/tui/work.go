package tui

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/frontend/tui/input"
	"github.com/drover-dev/drover/internal/frontend/tui/panel"
	"github.com/drover-dev/drover/internal/frontend/tui/printable"
	"github.com/drover-dev/drover/internal/project/todo"
	"github.com/drover-dev/drover/task"
)

// effect is the result of a command. It changes the model, on the goroutine of [Model.Update].
type effect func() tea.Cmd

// run makes a command of work, whose context ends with the UI. A nil effect changes nothing.
func (m *Model) run(work func(context.Context) effect) tea.Cmd {
	l := m.l
	return func() tea.Msg {
		if !l.enter() {
			return nil
		}
		defer l.group.Done()
		if e := work(l.ctx); e != nil {
			return e
		}
		return nil
	}
}

// read makes a command that reads something, and hands it to the model.
func read[T any](m *Model, from func(context.Context) (T, error), take func(T, error) tea.Cmd) tea.Cmd {
	return m.run(func(ctx context.Context) effect {
		v, err := from(ctx)
		return func() tea.Cmd { return take(v, err) }
	})
}

// ask is [read] from the session.
func ask[T any](m *Model, from func(context.Context, control.API) (T, error), take func(T, error) tea.Cmd) tea.Cmd {
	api := m.conn.API
	if api == nil {
		return nil
	}
	return read(m, func(ctx context.Context) (T, error) { return from(ctx, api) }, take)
}

// do makes a command of an action at the session. It tells the user the result, or that what is not done; an empty
// result is not told.
func (m *Model) do(what string, act func(context.Context, control.API) (result string, err error)) tea.Cmd {
	return ask(m, act, func(result string, err error) tea.Cmd {
		switch {
		case err != nil:
			m.tell(what + ": " + errorText(err))
		case result != "":
			m.tell(result)
		}
		return nil
	})
}

// tell tells the user something where they look.
func (m *Model) tell(text string) {
	if m.screen == panelScreen {
		m.tasks.Note(text)
		return
	}
	m.say(text)
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return printable.Line(err.Error(), 500)
}

// connect reaches a session.
func (m *Model) connect(how func(context.Context) (Connection, error)) tea.Cmd {
	return m.run(func(ctx context.Context) effect {
		c, err := how(ctx)
		if err == nil && ctx.Err() != nil { // the UI has ended and will not release it
			c.Release()
			return nil
		}
		return func() tea.Cmd { return m.joined(c, err) }
	})
}

// reach connects to the session, unless that is under way.
func (m *Model) reach() tea.Cmd {
	if m.joining {
		return nil
	}
	m.joining = true
	return m.connect(m.o.Connect)
}

// prompt gives the agent something to do.
func (m *Model) prompt(d input.Draft) tea.Cmd {
	if !m.connected() {
		m.onJoin = &d
		return m.reach()
	}
	m.sent, m.sentAt = d.Text, m.now
	m.window.Follow()
	record := m.o.Record
	return ask(m, func(ctx context.Context, api control.API) (struct{}, error) {
		if text := d.Typed(); record != nil && text != "" {
			_ = record(text) // a failure costs only the history
		}
		return struct{}{}, api.Prompt(ctx, promptOf(d))
	}, func(_ struct{}, err error) tea.Cmd {
		if err == nil {
			return nil
		}
		m.sent = ""
		if m.editor.Empty() {
			m.editor = m.editor.Put(d)
		} else {
			m.queue = append([]input.Draft{d}, m.queue...)
		}
		m.tell("the prompt was not taken: " + errorText(err))
		return nil
	})
}

// interrupt breaks off the turn, or the turn that is about to begin.
func (m *Model) interrupt() tea.Cmd {
	m.halted = true
	if !m.talk.Busy {
		m.breaks = true
		return nil
	}
	return m.interruptTurn()
}

func (m *Model) interruptTurn() tea.Cmd {
	m.halted = true
	id := string(m.info.Session)
	return m.do("the turn was not interrupted", func(ctx context.Context, api control.API) (string, error) {
		_, err := api.Interrupt(ctx, id)
		return "", err
	})
}

// background moves what the agent waits for to the background: all commands and agents, and
// without one, or pressed again, the turn itself.
func (m *Model) background() tea.Cmd {
	sum := m.tasks.Summary()
	switch r := sum.Foreground; {
	case r.ID != "" && r.ID != m.promoted:
		m.promoted = r.ID
		return m.promote(sum.Waits...)
	case !m.talk.Busy:
		m.say("nothing to move to the background: the agent is in no turn")
		return nil
	}
	return m.moveTurn()
}

// moveTurn moves the turn that is running to the background.
func (m *Model) moveTurn() tea.Cmd {
	id := string(m.info.Session)
	return m.do("the turn was not moved to the background", func(ctx context.Context, api control.API) (string, error) {
		r, err := api.Promote(ctx, id)
		return fmt.Sprintf("the turn runs in the background now, as %s", r.ID), err
	})
}

func (m *Model) promote(list ...task.Record) tea.Cmd {
	return m.do("not moved to the background", func(ctx context.Context, api control.API) (string, error) {
		var moved []string
		for _, r := range list {
			if _, err := api.Promote(ctx, string(r.ID)); err != nil {
				return "", fmt.Errorf("%s: %w", r.ID, err)
			}
			moved = append(moved, string(r.ID))
		}
		return "in the background now: " + strings.Join(moved, ", "), nil
	})
}

// stop stops tasks with everything below them.
func (m *Model) stop(quits bool, refs ...string) tea.Cmd {
	return ask(m, func(ctx context.Context, api control.API) (task.Receipt, error) {
		return api.Stop(ctx, control.StopRequest{Refs: refs, Actor: task.ByUser})
	}, func(r task.Receipt, err error) tea.Cmd {
		switch {
		case err != nil:
			m.farewell = ""
			m.tell("stop: " + errorText(err))
			if quits {
				m.screen = chatScreen
			}
		case quits:
			m.farewell = receiptText(r)
			return tea.Quit
		default:
			m.tell(receiptText(r))
		}
		return nil
	})
}

// receiptText is a receipt for people.
func receiptText(r task.Receipt) string {
	var lines []string
	for _, s := range r.Stopped {
		line := fmt.Sprintf("%s %s after %s", s.ID, s.Status, time.Duration(s.EndedAfterMS)*time.Millisecond)
		for _, g := range s.Signals {
			line += ", " + g.Signal
		}
		lines = append(lines, line)
	}
	for _, s := range r.Survivors {
		lines = append(lines, fmt.Sprintf("still there: process %d, %s: %s", s.PID, printable.Line(s.Command, 60), s.Why))
	}
	if len(lines) == 0 {
		return "nothing was running"
	}
	if len(r.Survivors) == 0 {
		lines[len(lines)-1] += "; nothing of it is left"
	}
	return strings.Join(lines, "\n")
}

// list reads all tasks that live.
func (m *Model) list() tea.Cmd {
	return ask(m, func(ctx context.Context, api control.API) (control.Page, error) {
		return api.List(ctx, control.ListRequest{Limit: mostNews})
	}, func(page control.Page, err error) tea.Cmd {
		if err != nil {
			return nil // the stream of the conversation reports it
		}
		m.tasks.Load(page.Tasks, m.now)
		return m.followChosen()
	})
}

// act does what the user wants in the panel: pause, resume, retry.
func (m *Model) act(what string, r task.Record, f func(context.Context, control.API) error) tea.Cmd {
	what = fmt.Sprintf("%s %s", what, r.ID)
	return m.do(what, func(ctx context.Context, api control.API) (string, error) { return what + ": done", f(ctx, api) })
}

// message sends a text to a task.
func (m *Model) message(to task.Record, text string) tea.Cmd {
	env := m.o.Env
	return m.act("send to", to, func(ctx context.Context, api control.API) error {
		_, err := api.Send(ctx, control.SendRequest{Ref: string(to.ID), Text: text, Env: env})
		return err
	})
}

// outputBytes is how much of an output is read at once.
const outputBytes = 64 << 10

// followChosen reads what the chosen task prints, if it does not already.
func (m *Model) followChosen() tea.Cmd {
	r, ok := m.tasks.Chosen(m.now)
	if !ok || m.screen != panelScreen || m.follows == r.ID {
		return nil
	}
	m.follows = r.ID
	return m.read(printed{r.ID, true, panelScreen}, control.OutputRequest{Tail: 100, Max: outputBytes})
}

// followForeground reads what the command prints that the agent waits for, once it has run
// for a moment.
func (m *Model) followForeground() tea.Cmd {
	r := m.tasks.Summary().Foreground
	if m.screen != chatScreen || r.ID == "" || m.live.Task == r.ID || r.Traits().Work != task.ByCommand ||
		m.now.Sub(r.CreateTime) < liveAfter {
		return nil
	}
	m.live = panel.Tail{Task: r.ID}
	return m.read(printed{r.ID, true, chatScreen}, control.OutputRequest{Tail: liveLines, Max: outputBytes})
}

const (
	liveAfter = time.Second
	liveLines = 4 // of its output are shown
)

// printed is output of a task for a screen. With fresh, it is all that is known of the output.
type printed struct {
	id    task.ID
	fresh bool
	to    screen
}

// read reads output; what comes then is asked for when this is shown.
func (m *Model) read(p printed, req control.OutputRequest) tea.Cmd {
	req.Ref = string(p.id)
	return ask(m, func(ctx context.Context, api control.API) (control.Chunk, error) { return api.Output(ctx, req) },
		func(c control.Chunk, err error) tea.Cmd { return m.output(p, c, err) })
}

// output adds output of a task.
func (m *Model) output(p printed, c control.Chunk, failed error) tea.Cmd {
	var e *control.Error
	if failed != nil && (!errors.As(failed, &e) || !p.fresh) {
		if m.follows == p.id {
			m.follows = ""
		}
		if m.live.Task == p.id {
			m.live = panel.Tail{}
		}
		return nil
	}
	text := printable.Tabs(printableOutput(string(c.Data)))
	switch {
	case p.to == zoomScreen && m.screen == zoomScreen && m.zoom.record.ID == p.id:
		m.zoom.talk.Print(text, m.now)
	case p.to == panelScreen && m.screen == panelScreen && m.follows == p.id:
		m.tasks.Output(p.id, text, p.fresh, c.Size)
	case p.to == chatScreen && m.screen == chatScreen && m.live.Task == p.id:
		m.live.Add(p.id, text, p.fresh, c.Size)
	case p.to == chatScreen && m.live.Task == p.id:
		m.live = panel.Tail{}
		return nil
	default:
		return nil // the user has left the task
	}
	if c.Ended || failed != nil {
		return nil
	}
	req := control.OutputRequest{Offset: c.Next, Max: outputBytes, Wait: watchWait}
	p.fresh = p.to != zoomScreen && c.Size-c.Next > farBehind
	if p.fresh { // it floods: only the end counts
		req = control.OutputRequest{Tail: 100, Max: outputBytes}
	}
	next := effect(func() tea.Cmd { return m.read(p, req) })
	return tea.Tick(readPace, func(time.Time) tea.Msg { return next })
}

const (
	farBehind = 256 << 10
	readPace  = 50 * time.Millisecond
)

// printableOutput makes output fit, and keeps whether its last line has ended.
func printableOutput(text string) string {
	out := printable.Block(text)
	if strings.HasSuffix(text, "\n") && out != "" {
		out += "\n"
	}
	return out
}

func (m *Model) readTodos() tea.Cmd {
	todos, id := m.o.Todos, m.info.Session
	if todos == nil {
		return nil
	}
	return read(m, func(ctx context.Context) (todo.List, error) { return todos(ctx, id) }, m.takeTodos)
}

func (m *Model) takeTodos(list todo.List, err error) tea.Cmd {
	if err == nil {
		m.todos = list
		if m.screen == pageScreen && m.page.name == "todos" {
			m.buildPage()
		}
	}
	return nil
}

// readCommands reads which commands the session has.
func (m *Model) readCommands() tea.Cmd {
	return ask(m, func(ctx context.Context, api control.API) (control.Commands, error) { return api.Commands(ctx) },
		func(all control.Commands, err error) tea.Cmd {
			if err == nil {
				m.offered = all.Commands
			}
			return nil
		})
}

// session names the attached session for people.
func (m *Model) session() string { return cmp.Or(string(m.info.Session), "a new conversation") }
