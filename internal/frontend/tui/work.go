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
	"github.com/drover-dev/drover/task"
)

// do makes a command of work at the session. The context ends with the UI.
func (m *Model) do(work func(context.Context, control.API) tea.Msg) tea.Cmd {
	api, l := m.conn.API, m.l
	if api == nil {
		return nil
	}
	return func() tea.Msg {
		if !l.enter() {
			return nil
		}
		defer l.group.Done()
		return work(l.ctx, api)
	}
}

// What commands answer with.
type (
	joined struct {
		c   Connection
		err error
	}
	// failed names the action that failed. A prompt returns to the editor.
	failed struct {
		what   string
		err    error
		prompt *input.Draft // nil: none
	}
	noted      struct{ text string }
	configured struct{ set control.Settings }
	listed     struct{ list []task.Record }
	printed    struct {
		id    task.ID
		chunk control.Chunk
		fresh bool
		err   error
		to    screen
	}
	messages struct {
		id   task.ID
		list control.Messages
		err  error
	}
	stopped struct {
		receipt task.Receipt
		err     error
		quits   bool
	}
	wholeQuestion struct {
		id   string
		list control.Approvals
		err  error
	}
	decided struct {
		id  string
		err error
	}
	filesRead struct {
		list []string
		err  error
	}
	commandsRead struct {
		list []control.Command
		err  error
	}
	todosRead struct {
		list []Todo
		err  error
	}
	sessionsRead struct {
		list []Conversation
		err  error
	}
)

// done applies the answer of a command.
func (m *Model) done(msg tea.Msg) tea.Cmd {
	switch msg := msg.(type) {
	case joined:
		return m.joined(msg)
	case failed:
		if msg.prompt != nil {
			m.sent = ""
			if m.editor.Empty() {
				m.editor = m.editor.Put(*msg.prompt)
			} else {
				m.queue = append([]input.Draft{*msg.prompt}, m.queue...)
			}
		}
		m.tell(fmt.Sprintf("%s: %s", msg.what, errorText(msg.err)))
	case promptsRead:
		m.prompted(msg)
	case forked:
		return m.wentBack(msg)
	case noted:
		m.tell(msg.text)
	case configured:
		m.state.Settings = &msg.set
	case listed:
		m.tasks.Load(msg.list, m.now)
		return m.followChosen()
	case printed:
		return m.output(msg)
	case readOn:
		return msg.read
	case messages:
		m.zoomMessages(msg)
	case stopped:
		return m.receipt(msg)
	case wholeQuestion:
		m.whole(msg)
	case decided:
		m.answered(msg)
		if m.screen == inboxScreen {
			return m.readWaiting()
		}
	case imagesRead:
		return m.attached(msg)
	case filesRead:
		m.complete.files, m.complete.reading, m.complete.readAt = msg.list, false, m.now
		m.completions()
	case commandsRead:
		if msg.err == nil {
			m.offered = msg.list
		}
	case todosRead:
		if msg.err == nil {
			m.todos = msg.list
			if m.screen == pageScreen && m.page.name == "todos" {
				m.buildPage()
			}
		}
	case waitingRead:
		return m.waiting(msg)
	case waitingChanged:
		return m.readWaiting()
	case itemDone:
		return m.itemGone(msg)
	case pageRead:
		m.pageRead(msg)
	case serversFound:
		m.setup.found(msg)
	case accessTried:
		return m.accessTried(msg)
	case sessionsRead:
		m.picker.list, m.picker.err, m.picker.loading = msg.list, errorText(msg.err), false
	}
	return nil
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
	l := m.l
	return func() tea.Msg {
		if !l.enter() {
			return nil
		}
		defer l.group.Done()
		c, err := how(l.ctx)
		if err == nil && l.ctx.Err() != nil { // the UI has ended and will not release it
			c.Release()
			return nil
		}
		return joined{c, err}
	}
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
	return m.do(func(ctx context.Context, api control.API) tea.Msg {
		if text := d.Typed(); record != nil && text != "" {
			_ = record(text) // a failure costs only the history
		}
		if err := api.Prompt(ctx, promptOf(d)); err != nil {
			return failed{"the prompt was not taken", err, &d}
		}
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
	return m.do(func(ctx context.Context, api control.API) tea.Msg {
		if _, err := api.Interrupt(ctx, id); err != nil {
			return failed{"the turn was not interrupted", err, nil}
		}
		return nil
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
	return m.do(func(ctx context.Context, api control.API) tea.Msg {
		r, err := api.Promote(ctx, id)
		if err != nil {
			return failed{"the turn was not moved to the background", err, nil}
		}
		return noted{fmt.Sprintf("the turn runs in the background now, as %s", r.ID)}
	})
}

func (m *Model) promote(list ...task.Record) tea.Cmd {
	return m.do(func(ctx context.Context, api control.API) tea.Msg {
		var moved []string
		for _, r := range list {
			if _, err := api.Promote(ctx, string(r.ID)); err != nil {
				return failed{fmt.Sprintf("%s was not moved to the background", r.ID), err, nil}
			}
			moved = append(moved, string(r.ID))
		}
		return noted{fmt.Sprintf("in the background now: %s", strings.Join(moved, ", "))}
	})
}

// stop stops tasks with everything below them.
func (m *Model) stop(quits bool, refs ...string) tea.Cmd {
	return m.do(func(ctx context.Context, api control.API) tea.Msg {
		receipt, err := api.Stop(ctx, control.StopRequest{Refs: refs, Actor: task.ByUser})
		return stopped{receipt, err, quits}
	})
}

// receipt shows the receipt of a stop.
func (m *Model) receipt(msg stopped) tea.Cmd {
	if msg.err != nil {
		m.farewell = ""
		m.tell("stop: " + errorText(msg.err))
		if msg.quits {
			m.screen = chatScreen
		}
		return nil
	}
	text := receiptText(msg.receipt)
	if msg.quits {
		m.farewell = text
		return tea.Quit
	}
	m.tell(text)
	return nil
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
	return m.do(func(ctx context.Context, api control.API) tea.Msg {
		page, err := api.List(ctx, control.ListRequest{Limit: mostNews})
		if err != nil {
			return nil // the stream of the conversation reports it
		}
		return listed{page.Tasks}
	})
}

// act does what the user wants in the panel: pause, resume, retry.
func (m *Model) act(what string, r task.Record, f func(context.Context, control.API) error) tea.Cmd {
	return m.do(func(ctx context.Context, api control.API) tea.Msg {
		if err := f(ctx, api); err != nil {
			return failed{fmt.Sprintf("%s %s", what, r.ID), err, nil}
		}
		return noted{fmt.Sprintf("%s %s: done", what, r.ID)}
	})
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
	return m.read(r.ID, control.OutputRequest{Ref: string(r.ID), Tail: 100, Max: outputBytes}, true, panelScreen)
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
	return m.read(r.ID, control.OutputRequest{Ref: string(r.ID), Tail: liveLines, Max: outputBytes}, true, chatScreen)
}

const (
	liveAfter = time.Second
	liveLines = 4 // of its output are shown
)

// read reads output; what comes then is asked for when this is shown.
func (m *Model) read(id task.ID, req control.OutputRequest, fresh bool, to screen) tea.Cmd {
	return m.do(func(ctx context.Context, api control.API) tea.Msg {
		chunk, err := api.Output(ctx, req)
		return printed{id, chunk, fresh, err, to}
	})
}

// output adds output of a task.
func (m *Model) output(p printed) tea.Cmd {
	var e *control.Error
	if p.err != nil && (!errors.As(p.err, &e) || !p.fresh) {
		if m.follows == p.id {
			m.follows = ""
		}
		if m.live.Task == p.id {
			m.live = panel.Tail{}
		}
		return nil
	}
	text := printable.Tabs(printableOutput(string(p.chunk.Data)))
	switch {
	case p.to == zoomScreen && m.screen == zoomScreen && m.zoom.record.ID == p.id:
		m.zoom.talk.Print(text, m.now)
	case p.to == panelScreen && m.screen == panelScreen && m.follows == p.id:
		m.tasks.Output(p.id, text, p.fresh, p.chunk.Size)
	case p.to == chatScreen && m.screen == chatScreen && m.live.Task == p.id:
		m.live.Add(p.id, text, p.fresh, p.chunk.Size)
	case p.to == chatScreen && m.live.Task == p.id:
		m.live = panel.Tail{}
		return nil
	default:
		return nil // the user has left the task
	}
	if p.chunk.Ended || p.err != nil {
		return nil
	}
	req, fresh := control.OutputRequest{Ref: string(p.id), Offset: p.chunk.Next, Max: outputBytes, Wait: watchWait}, false
	if p.to != zoomScreen && p.chunk.Size-p.chunk.Next > farBehind { // it floods: only the end counts
		req, fresh = control.OutputRequest{Ref: string(p.id), Tail: 100, Max: outputBytes}, true
	}
	next := readOn{m.read(p.id, req, fresh, p.to)}
	return tea.Tick(readPace, func(time.Time) tea.Msg { return next })
}

const (
	farBehind = 256 << 10
	readPace  = 50 * time.Millisecond
)

// readOn reads the output since the last read.
type readOn struct{ read tea.Cmd }

// printableOutput makes output fit, and keeps whether its last line has ended.
func printableOutput(text string) string {
	out := printable.Block(text)
	if strings.HasSuffix(text, "\n") && out != "" {
		out += "\n"
	}
	return out
}

func (m *Model) readTodos() tea.Cmd {
	l, read, id := m.l, m.o.Todos, m.info.Session
	if read == nil {
		return nil
	}
	return func() tea.Msg {
		if !l.enter() {
			return nil
		}
		defer l.group.Done()
		list, err := read(l.ctx, id)
		return todosRead{list, err}
	}
}

// readCommands reads which commands the session has.
func (m *Model) readCommands() tea.Cmd {
	return m.do(func(ctx context.Context, api control.API) tea.Msg {
		all, err := api.Commands(ctx)
		return commandsRead{all.Commands, err}
	})
}

// session names the attached session for people.
func (m *Model) session() string { return cmp.Or(string(m.info.Session), "a new conversation") }
