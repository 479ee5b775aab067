package tui

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/frontend/tui/input"
	"github.com/drover-dev/drover/internal/frontend/tui/panel"
	"github.com/drover-dev/drover/internal/frontend/tui/theme"
	"github.com/drover-dev/drover/internal/frontend/tui/transcript"
	"github.com/drover-dev/drover/internal/project/todo"
	"github.com/drover-dev/drover/task"
)

// screen names the part of the UI that has the keys.
type screen int

const (
	chatScreen screen = iota
	panelScreen
	zoomScreen
	leaveScreen
	pickerScreen
	inboxScreen
	pageScreen
	rewindScreen
	setupScreen
)

// Model is all that the UI knows. Only [Model.Update] changes it, on one goroutine.
type Model struct {
	o        Options
	l        *listener
	theme    theme.Theme
	bindings []Binding

	width, height int
	begun         time.Time
	now           time.Time // of the last message

	conn    Connection
	epoch   int // of the connection; news of an earlier one is passed over
	deaf    context.CancelFunc
	info    control.Info
	joining bool         // a connection is being made
	lost    string       // why the connection ended; empty: it has not
	losses  int          // hosts that ended before the first piece
	onJoin  *input.Draft // a prompt that waits for the connection; nil: none

	talk   *transcript.State
	drawer *transcript.Drawer
	window transcript.Window
	main   task.Record // of the main agent, if it is a task
	state  control.State
	told   int64 // completions that were shown

	editor         input.Editor
	search         *input.Search // nil: none
	complete       completion
	attach         attaching
	queue          []input.Draft // prompts that wait for the end of the turn
	sent           string        // a prompt that was sent, while no turn has begun; empty: none
	sentAt         time.Time
	breaks         bool // the turn that it begins is to be interrupted
	halted         bool // the turn was interrupted here: what waits goes back to the editor
	notification   string
	notificationAt time.Time
	leaving        time.Time // when ctrl+c was pressed last for nothing

	ask   *asking // the question that is shown; nil: none
	open  []task.Question
	later map[string]bool // by ID: put off

	tasks  *panel.State
	zoom   zoomed
	screen screen
	field  *message    // a text for a task is typed; nil: none
	sendTo task.Record // the task, in the list of tasks
	choice int         // in the dialog of leaving
	picker picking
	back   rewinding
	inbox  inbox
	page   page
	setup  setup

	offered []control.Command // by the session; nil: they are not known yet

	todos     todo.List
	showTodos bool

	mouse    bool // it is used
	pulse    pulse
	away     bool // the window has no focus
	frame    int  // of the spinner
	ticking  bool // a tick is on its way
	follows  task.ID
	escaped  time.Time  // esc was pressed, and there was nothing to leave
	promoted task.ID    // moved to the background by the last ctrl+b
	live     panel.Tail // the output of the command that the agent waits for
	farewell string
	discards bool // what waits is not to be sent
}

func newModel(o Options, l *listener) *Model {
	m := &Model{
		o: o, l: l, theme: theme.New(), begun: o.Now(), now: o.Now(), width: 80, height: 24,
		talk: &transcript.State{}, tasks: panel.New(), editor: input.New(o.History), later: map[string]bool{},
		showTodos: true,
	}
	m.mouse = o.Mouse
	var unknown []string
	if m.bindings, unknown = bindingsWith(o.Keys); len(unknown) > 0 {
		m.say(fmt.Sprintf("terminal.keys: nothing is called %s; see docs/terminal.md", strings.Join(unknown, ", ")))
	}
	m.drawer = transcript.NewDrawer(m.theme)
	switch {
	case o.TasksOnly:
		m.screen = panelScreen
	case o.SetUp != nil:
		m.screen = setupScreen
		m.setup.menu(o.SetUp)
	}
	return m
}

// Init implements [tea.Model].
func (m *Model) Init() tea.Cmd {
	if !m.o.TasksOnly {
		m.followWaiting(hintPace)
	}
	return tea.Batch(m.begin(), m.readWaiting())
}

// begin reaches the session, unless that waits for a choice or a prompt, and gives it the prompt that is there.
func (m *Model) begin() tea.Cmd {
	if m.screen == setupScreen {
		return m.lookForServers()
	}
	if m.o.Choose {
		return m.openPicker()
	}
	if m.o.Prompt != "" {
		return m.prompt(input.Draft{Text: m.o.Prompt})
	}
	if m.o.Later {
		return nil
	}
	m.joining = true
	return m.connect(m.o.Connect)
}

// tick moves the spinner and the clocks.
type tick struct{}

// notificationFor is how long a notification stays.
const notificationFor = 6 * time.Second

// say shows a notification above the editor.
func (m *Model) say(text string) { m.notification, m.notificationAt = text, m.now }

// Update implements [tea.Model].
func (m *Model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	m.now = m.o.Now()
	beat := m.pulse.beat(msg)
	if _, ok := msg.(quiet); ok {
		return m, beat
	}
	var cmd tea.Cmd
	answers := m.search == nil && m.ask != nil && m.ask.armed()
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case tea.KeyPressMsg:
		cmd = m.key(msg)
	case tea.PasteMsg:
		cmd = m.paste(msg.Content)
	case tea.MouseWheelMsg:
		cmd = m.wheel(msg)
	case tea.MouseClickMsg:
		cmd = m.click(msg)
	case tea.FocusMsg:
		m.away = false
		cmd = m.readWaiting()
	case tea.BlurMsg:
		m.away = true
	case calm: // of guard
	case tick:
		m.ticking = false
		m.frame++
		cmd = m.beat()
	case news:
		cmd = m.hear(msg)
	case effect:
		cmd = msg()
	}
	if m.notification != "" && m.now.Sub(m.notificationAt) > notificationFor {
		m.notification = ""
	}
	return m, tea.Batch(cmd, m.guard(msg, answers), m.clock(), beat)
}

// clock schedules a tick if the screen changes with time: fast for a spinner, slow for
// clocks, and none otherwise.
func (m *Model) clock() tea.Cmd {
	var every time.Duration
	switch {
	case m.ticking:
		return nil
	case m.busy() && m.screen == chatScreen || m.joining || m.screen == setupScreen && m.setup.waits():
		every = 150 * time.Millisecond
	case m.ask != nil && (m.screen == chatScreen || m.screen == inboxScreen), m.notification != "",
		m.screen == panelScreen && m.tasks.Ticks(m.now), m.screen == zoomScreen, m.busy():
		every = time.Second
	default:
		return nil
	}
	m.ticking = true
	return tea.Tick(every, func(time.Time) tea.Msg { return tick{} })
}

// beat reads the listing at a tick: it has facts that events lack, such as the last sign
// of life of an agent.
func (m *Model) beat() tea.Cmd {
	if m.screen == panelScreen && m.frame%2 == 0 && m.connected() {
		return m.list()
	}
	if m.connected() {
		return m.followForeground()
	}
	return nil
}

// busy reports whether the agent is at work, or about to be.
func (m *Model) busy() bool { return m.talk.Busy || m.sent != "" }

func (m *Model) connected() bool { return m.conn.API != nil && m.lost == "" }

// hear applies the news of the session.
func (m *Model) hear(n news) tea.Cmd {
	if n.epoch != m.epoch {
		return nil
	}
	var cmds []tea.Cmd
	for _, p := range n.pieces {
		before := m.talk.Turns
		m.talk.Apply(p)
		// A turn that began before the stream was opened is missing from Turns, and may
		// still answer the prompt that was sent.
		if m.talk.Turns != before || p.Kind == control.BeginPiece && !p.At.Before(m.sentAt) {
			m.sent = ""
			if m.breaks {
				m.breaks = false
				cmds = append(cmds, m.interruptTurn())
			}
		}
		if p.Kind == control.EndPiece && p.N > m.talk.Until {
			cmds = append(cmds, m.turnEnded(), m.callTurn(p.Error != ""), m.readWaiting())
		}
		if p.Kind == control.ResultPiece && strings.HasPrefix(p.Tool, "Task") {
			cmds = append(cmds, m.readTodos())
		}
	}
	for _, e := range n.events {
		cmds = append(cmds, m.happened(e))
	}
	if n.questions != nil {
		had := m.ask
		m.questions(n.questions.Questions)
		if m.ask != nil && m.ask != had {
			cmds = append(cmds, m.call("Drover asks you something"))
		}
	}
	if n.state != nil {
		before := m.state
		m.state = *n.state
		cmds = append(cmds, m.callState(before))
		if c := m.state.Completed; c != nil && c.N > m.told {
			m.told = c.N
		}
	}
	if n.lost != nil {
		cmds = append(cmds, m.hostGone(n.lost))
	}
	return tea.Batch(cmds...)
}

// call alerts a user who looks at another window: by a bell, and by a desktop notification
// where the terminal has them. The text is ours.
func (m *Model) call(text string) tea.Cmd {
	switch {
	case !m.away || m.o.Notify == "off" || m.o.Loud.Next(m.now).After(m.now):
		return nil
	case m.o.Notify == "bell":
		return tea.Raw("\a")
	case m.env("TERM") == "xterm-kitty", m.env("KITTY_WINDOW_ID") != "":
		return tea.Raw("\a\x1b]99;;" + text + "\x1b\\")
	case strings.HasPrefix(m.env("TERM"), "rxvt"), m.env("VTE_VERSION") != "":
		return tea.Raw("\a\x1b]777;notify;Drover;" + text + "\x1b\\")
	}
	return tea.Raw("\a\x1b]9;" + text + "\x1b\\")
}

// callTurn calls the user at the end of a turn; in autopilot another one follows, unless
// this one went wrong.
func (m *Model) callTurn(failed bool) tea.Cmd {
	switch {
	case m.settings().SessionMode != autopilotMode:
		return m.call("Drover is done")
	case failed:
		return m.call("Drover has stopped: a turn went wrong")
	}
	return nil
}

// callState calls the user when the agent says that all is done, and in autopilot when
// nothing is left to do without that.
func (m *Model) callState(before control.State) tea.Cmd {
	switch c := m.state.Completed; {
	case c != nil && c.N > m.told && c.Success:
		return m.call("Drover says that all is done")
	case m.settings().SessionMode == autopilotMode && m.state.Idle && before.Version != 0 && !before.Idle:
		return m.call("Drover is idle")
	}
	return nil
}

// autopilotMode is the session mode in which the agent works until everything is done.
const autopilotMode = "autopilot"

// env is the value of a variable of the environment.
func (m *Model) env(name string) string {
	for _, v := range slices.Backward(m.o.Env) {
		if value, ok := strings.CutPrefix(v, name+"="); ok {
			return value
		}
	}
	return ""
}

// happened applies an event of a task. An event without a verb carries the state of a task
// from before.
func (m *Model) happened(e task.Event) tea.Cmd {
	if e.Task.IsConversation() {
		m.main = e.Task
		return nil
	}
	m.tasks.Event(e, m.now)
	var cmds []tea.Cmd
	if m.screen == zoomScreen && m.zoom.record.ID == e.Task.ID {
		m.zoom.record = e.Task
		cmds = append(cmds, m.readZoom())
	}
	if m.screen == panelScreen {
		cmds = append(cmds, m.followChosen())
	}
	return tea.Batch(cmds...)
}

// turnEnded sends the prompt that waits, unless the user has interrupted the turn.
func (m *Model) turnEnded() tea.Cmd {
	if m.halted {
		m.halted = false
		if len(m.queue) > 0 && m.editor.Empty() {
			m.editor = m.editor.Put(m.queue[0])
			for _, d := range m.queue[1:] {
				m.editor = m.editor.Append(d)
			}
			m.queue = nil
			m.say("interrupted; what waited is here for you to edit")
		}
		return nil
	}
	if len(m.queue) == 0 || m.sent != "" {
		return nil
	}
	next := m.queue[0]
	m.queue = m.queue[1:]
	return m.prompt(next)
}

// hostGone handles the loss of the host.
func (m *Model) hostGone(err error) tea.Cmd {
	m.unplug()
	if !m.talk.Opened && control.Refused(err) && m.losses < tries {
		m.losses++
		m.joining = true
		return m.connect(m.o.Connect)
	}
	m.lost = errorText(err)
	m.talk.Busy, m.sent, m.open = false, "", nil
	if m.screen != inboxScreen {
		m.ask = nil
	}
	return nil
}

// unplug lets go of the connection.
func (m *Model) unplug() {
	if m.deaf != nil {
		m.deaf()
		m.deaf = nil
	}
	m.release()
	m.conn = Connection{}
	m.epoch++
}

// joined adopts a connection.
func (m *Model) joined(c Connection, err error) tea.Cmd {
	m.joining = false
	if err != nil {
		m.lost = errorText(err)
		if m.screen == pageScreen && m.page.reading {
			m.page.reading, m.page.err = false, m.lost
		}
		if m.onJoin != nil {
			m.editor, m.onJoin = m.editor.Put(*m.onJoin), nil
		}
		return nil
	}
	if m.deaf != nil {
		m.unplug()
	}
	m.conn, m.info, m.lost = c, c.Info, ""
	m.epoch++
	m.talk, m.window, m.told = &transcript.State{}, transcript.Window{}, 0
	m.main, m.tasks, m.open = task.Record{}, panel.New(), nil
	if m.screen != inboxScreen {
		m.ask = nil
	}
	m.drawer.Reset()
	m.deaf = m.l.attach(m.conn, m.epoch)
	cmds := []tea.Cmd{m.readTodos(), m.readCommands()}
	if m.screen == pageScreen {
		cmds = append(cmds, m.readPage())
	}
	if d := m.onJoin; d != nil {
		m.onJoin = nil
		cmds = append(cmds, m.prompt(*d))
	}
	return tea.Batch(cmds...)
}
