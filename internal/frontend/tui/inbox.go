package tui

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/drover-dev/drover/internal/api/attention"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/frontend/tui/input"
	"github.com/drover-dev/drover/internal/frontend/tui/printable"
	"github.com/drover-dev/drover/internal/platform/figures"
	"github.com/drover-dev/drover/task"
)

// Everywhere are the sessions of all projects. All functions are set, or none.
type Everywhere struct {
	// Attention lists what needs the user in all of them.
	Attention func(context.Context) (Waiting, error)
	// Follow calls changed when that list may be another, at most once in each pace; 0: at
	// once. It returns when ctx ends.
	Follow func(ctx context.Context, pace time.Duration, changed func())
	// Reach connects to a live one.
	Reach func(context.Context, task.ID) (Connection, error)
	// MarkSeen records that the user knows how tasks of one have ended.
	MarkSeen func(ctx context.Context, session task.ID, refs []string) error
}

// Waiting is what needs the user, with the sessions that it is of.
type Waiting struct {
	List     control.Attention
	Sessions map[task.ID]control.Info
}

// inbox is what needs the user in all sessions.
type inbox struct {
	now     Waiting
	known   bool // it was read
	reading bool
	again   bool // something has changed while it was read
	err     string
	key     string // of the item that is chosen
	at      int
	armed   string // the item whose task is stopped at the next x
	stop    context.CancelFunc
}

func itemKey(i control.AttentionItem) string {
	return strings.Join([]string{string(i.Session), i.ID, string(i.Run), string(i.Kind)}, " ")
}

// readWaiting reads what needs the user everywhere.
func (m *Model) readWaiting() tea.Cmd {
	switch {
	case m.o.Everywhere.Attention == nil:
		return nil
	case m.inbox.reading:
		m.inbox.again = true
		return nil
	}
	m.inbox.reading = true
	return read(m, m.o.Everywhere.Attention, m.waiting)
}

// waiting takes in what needs the user everywhere.
func (m *Model) waiting(now Waiting, err error) tea.Cmd {
	b := &m.inbox
	b.reading = false
	if b.err = errorText(err); err == nil {
		b.now, b.known = now, true
	}
	if i := slices.IndexFunc(b.now.List.Items, func(i control.AttentionItem) bool { return itemKey(i) == b.key }); i >= 0 {
		b.at = i
	} else {
		if b.key != "" && m.field != nil {
			m.say("that was done elsewhere")
		}
		m.field = nil
		m.chooseItem(b.at)
	}
	asked := func(i control.AttentionItem) bool {
		return m.ask != nil && i.Request != nil && i.ID == m.ask.question.ID
	}
	if m.ask != nil && m.ask.session != "" && !m.ask.waiting && !slices.ContainsFunc(b.now.List.Items, asked) {
		m.ask = nil
		m.say("the question was answered elsewhere, or nobody waits for it any more")
	}
	if b.again {
		b.again = false
		return m.readWaiting()
	}
	return nil
}

// chooseItem chooses the item at a place, or the nearest.
func (m *Model) chooseItem(at int) {
	b := &m.inbox
	items := b.now.List.Items
	b.at, b.key, b.armed = max(0, min(at, len(items)-1)), "", ""
	if len(items) > 0 {
		b.key = itemKey(items[b.at])
	}
}

func (m *Model) chosenItem() (control.AttentionItem, bool) {
	if items := m.inbox.now.List.Items; m.inbox.at < len(items) {
		return items[m.inbox.at], true
	}
	return control.AttentionItem{}, false
}

// elsewhere is how much needs the user in other sessions.
func (m *Model) elsewhere() (n int) {
	for _, i := range m.inbox.now.List.Items {
		if i.Session != m.info.Session {
			n++
		}
	}
	return n
}

// openInbox shows what needs the user everywhere, and follows it while it is shown.
func (m *Model) openInbox() tea.Cmd {
	if m.o.Everywhere.Attention == nil {
		m.say("other sessions cannot be reached from here")
		return nil
	}
	m.screen, m.ask = inboxScreen, nil
	m.chooseItem(0)
	m.followWaiting(0)
	return m.readWaiting()
}

// hintPace is how often what needs the user elsewhere is read at most while the inbox is not
// shown.
const hintPace = 10 * time.Second

// followWaiting follows what needs the user everywhere, at a pace.
func (m *Model) followWaiting(pace time.Duration) {
	follow, send := m.o.Everywhere.Follow, m.l.send
	if m.inbox.stop != nil {
		m.inbox.stop()
		m.inbox.stop = nil
	}
	if follow == nil || m.l.deaf {
		return
	}
	ctx, stop := context.WithCancel(m.l.ctx)
	m.inbox.stop = stop
	m.l.start(func() { follow(ctx, pace, func() { send(effect(m.readWaiting)) }) })
}

func (m *Model) closeInbox() tea.Cmd {
	m.followWaiting(hintPace)
	m.field, m.ask, m.screen = nil, nil, chatScreen
	m.questions(m.open)
	return m.readWaiting()
}

// inboxKey takes in a key of the inbox.
func (m *Model) inboxKey(msg tea.KeyPressMsg) tea.Cmd {
	b := &m.inbox
	if m.ask != nil {
		switch key := msg.String(); {
		case key == "esc" && !m.ask.takesText():
			m.ask = nil
			return nil
		case key == "ctrl+c" || key == "ctrl+d":
			m.ask = nil
			return nil
		}
		cmd, _ := m.questionKey(msg)
		return cmd
	}
	if m.field != nil {
		return m.fieldKey(msg)
	}
	item, ok := m.chosenItem()
	switch key := msg.String(); key {
	case "esc", "q", "ctrl+c", "ctrl+d", "alt+i":
		return m.closeInbox()
	case "up", "k", "shift+tab":
		m.chooseItem(b.at - 1)
	case "down", "j", "tab":
		m.chooseItem(b.at + 1)
	case "home", "g":
		m.chooseItem(0)
	case "end", "G":
		m.chooseItem(len(b.now.List.Items) - 1)
	case "enter", "space":
		if ok {
			return m.actOnItem(item)
		}
	case "x":
		if !ok || !stoppable(item) {
			return nil
		}
		if b.armed != b.key {
			b.armed = b.key
			return nil
		}
		b.armed = ""
		return m.doItem(item, "stopped", func(ctx context.Context, api control.API) error {
			_, err := api.Stop(ctx, control.StopRequest{Refs: []string{string(item.Task)}, Actor: task.ByUser})
			return err
		})
	}
	return nil
}

// stoppable reports whether stopping its task makes an item go.
func stoppable(i control.AttentionItem) bool {
	return i.Task != "" && i.Request == nil && !i.Past() && i.Kind != attention.Blocked
}

// typed reports whether an item goes by a text that is sent to its task.
func typed(i control.AttentionItem) bool {
	return i.Request == nil && i.Task != "" && slices.ContainsFunc(i.Answer, func(a string) bool {
		return strings.HasPrefix(a, "drover send ")
	})
}

// actOnItem does what an item needs: it shows its question, takes a text for its task, or
// marks the end of its task as seen.
func (m *Model) actOnItem(i control.AttentionItem) tea.Cmd {
	switch {
	case i.Request != nil:
		m.ask = newAsking(*i.Request)
		m.ask.calm = calmRounds // the user has chosen it
		m.ask.session = i.Session
		if m.ask.question.Hidden > 0 {
			return m.needsWhole()
		}
	case i.Past():
		seen := m.o.Everywhere.MarkSeen
		return read(m, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, seen(ctx, i.Session, []string{string(i.Task)})
		}, m.itemGone(i, "seen"))
	case typed(i):
		env := m.o.Env
		m.field = &message{editor: input.New(nil), send: func(text string) tea.Cmd {
			return m.doItem(i, "sent", func(ctx context.Context, api control.API) error {
				_, err := api.Send(ctx, control.SendRequest{Ref: string(i.Task), Text: text, Env: env})
				return err
			})
		}}
	case stoppable(i):
		m.say("nothing can be typed to it: x stops it")
	default:
		m.say("this goes when its cause is gone: see " + strings.Join(i.Answer, ", "))
	}
	return nil
}

// doItem does something to the task of an item, in the session that it is of.
func (m *Model) doItem(i control.AttentionItem, what string, f func(context.Context, control.API) error) tea.Cmd {
	return askAt(m, i.Session, func(ctx context.Context, api control.API) (struct{}, error) {
		return struct{}{}, f(ctx, api)
	}, m.itemGone(i, what))
}

// askAt is [ask] at the session of an ID.
func askAt[T any](m *Model, id task.ID, from func(context.Context, control.API) (T, error),
	take func(T, error) tea.Cmd) tea.Cmd {
	if id == "" || id == m.info.Session && m.connected() {
		return ask(m, from, take)
	}
	reach := m.o.Everywhere.Reach
	return read(m, func(ctx context.Context) (v T, err error) {
		c, err := reach(ctx, id)
		if err != nil {
			return v, err
		}
		defer c.Release()
		return from(ctx, c.API)
	}, take)
}

// itemGone takes in what became of an action on an item.
func (m *Model) itemGone(i control.AttentionItem, what string) func(struct{}, error) tea.Cmd {
	return func(_ struct{}, err error) tea.Cmd {
		if err != nil {
			m.say(fmt.Sprintf("not %s: %s", what, errorText(err)))
			return m.readWaiting()
		}
		m.say(what)
		m.dropItem(func(other control.AttentionItem) bool { return itemKey(other) == itemKey(i) })
		return m.readWaiting()
	}
}

// dropItem takes items out of the list until it is read again.
func (m *Model) dropItem(gone func(control.AttentionItem) bool) {
	b := &m.inbox
	b.now.List.Items = slices.DeleteFunc(slices.Clone(b.now.List.Items), gone)
	m.chooseItem(b.at)
}

// itemWords are the mark and the word of an item, of at most eight letters.
func itemWords(i control.AttentionItem) (mark, word string) {
	switch i.Kind {
	case attention.Blocked:
		return "!", "blocked"
	case attention.Plan:
		return "◆", "plan"
	case attention.Stalled:
		return "‖", "stalled"
	case attention.Parked:
		return "◌", "parked"
	case attention.Failure:
		return "✗", "failed"
	case attention.Made:
		return "!", "made"
	}
	return "?", "asks"
}

// inboxFrame is what needs the user everywhere.
func (m *Model) inboxFrame() frame {
	t, b := m.theme, &m.inbox
	items := b.now.List.Items
	head := "Inbox · nothing needs you"
	switch {
	case !b.known && b.err == "":
		head = "Inbox · reading …"
	case len(items) > 0:
		head = fmt.Sprintf("Inbox · %d need you", len(items)+b.now.List.More)
	}
	lines := []string{t.Bold.Render(ansi.Truncate(head, m.width, "…"))}
	var foot []string
	var cursor *tea.Cursor
	if m.ask != nil {
		foot, cursor = m.askLines(min(len(items), 3) + 1)
	} else {
		foot, cursor = m.itemLines()
	}
	foot = foot[:min(len(foot), m.height-1)]
	from, each, fits := m.inboxRange(len(foot))
	for k := from; k < min(len(items), from+fits); k++ {
		lines = append(lines, m.itemRow(items[k], k == b.at, each)...)
	}
	for len(lines) < m.height-len(foot) {
		lines = append(lines, "")
	}
	return frame{append(lines, foot...), below(cursor, len(lines))}
}

// inboxRange is which items are shown above a foot: from which on, how many, and in how many
// lines each.
func (m *Model) inboxRange(foot int) (from, each, fits int) {
	n := len(m.inbox.now.List.Items)
	room := m.height - 1 - foot
	each = 2
	if room < 2*n {
		each = 1
	}
	fits = max(0, room/each)
	return max(0, min(m.inbox.at-fits/2, n-fits)), each, fits
}

// itemRow draws an item in one line, or in two with its need.
func (m *Model) itemRow(i control.AttentionItem, chosen bool, each int) []string {
	t := m.theme
	mark, word := itemWords(i)
	style := t.Warning
	if k := i.Kind; k == attention.Failure || k == attention.Blocked {
		style = t.Bad
	}
	lead := "  "
	if chosen {
		lead = t.Accent.Render("▸ ")
	}
	end := m.projectOf(i.Session)
	if !i.Since.IsZero() {
		end += "  " + figures.Age(m.now.Sub(i.Since))
	}
	if i.Blocks > 1 {
		end = fmt.Sprintf("%d wait  ", i.Blocks) + end
	}
	what := printable.Line(cmp.Or(i.Name, i.What), 200)
	if i.Name != "" && i.What != "" && m.width >= 80 {
		what += ": " + printable.Line(i.What, 200)
	}
	if each == 1 {
		what += " · " + printable.Line(i.Why, 300)
	}
	left := max(8, m.width-ansi.StringWidth(end)-14)
	what = ansi.Truncate(what, left, "…")
	what += strings.Repeat(" ", max(0, left-ansi.StringWidth(what)))
	head := lead + style.Render(fmt.Sprintf("%s %-8s", mark, word)) + what + "  " + t.Dim.Render(end)
	lines := []string{ansi.Truncate(head, m.width, "…")}
	if each > 1 {
		lines = append(lines, t.Dim.Render(ansi.Truncate("    "+printable.Line(i.Why, 400), m.width, "…")))
	}
	return lines
}

// projectOf is the folder of a session, for people: its last part.
func (m *Model) projectOf(id task.ID) string {
	if id == m.info.Session {
		return "here"
	}
	p := strings.TrimRight(m.inbox.now.Sessions[id].Project, "/")
	return printable.Line(cmp.Or(p[strings.LastIndexByte(p, '/')+1:], string(id)), 20)
}

// itemLines draws the lines below the list: the chosen item, a field, the keys.
func (m *Model) itemLines() ([]string, *tea.Cursor) {
	t, b := m.theme, &m.inbox
	lines := []string{t.Rule.Render(strings.Repeat("─", m.width))}
	i, ok := m.chosenItem()
	keys := "esc back"
	if ok {
		s := b.now.Sessions[i.Session]
		where := strings.Join(slices.DeleteFunc([]string{printable.Line(s.Project, 200), printable.Line(s.Title, 80),
			"session " + printable.Line(string(i.Session), 20), printable.Line(string(i.Task), 20)},
			func(s string) bool { return s == "" }), " · ")
		lines = append(lines, t.Dim.Render(ansi.Truncate(where, m.width, "…")))
		lines = append(lines, wrapped(printable.Exact(i.Why), m.width-2, "  ", t.Plain.Render)...)
		act := ""
		switch {
		case i.Request != nil:
			act = "enter answers · "
		case i.Past():
			act = "enter: seen · "
		case typed(i):
			act = "enter types an answer · "
		}
		if stoppable(i) {
			act += "x stops it · "
		}
		keys = "↑↓ choose · " + act + keys
	}
	for _, note := range []string{b.err, m.notification} {
		if note != "" {
			lines = append(lines, wrapped(printable.Block(note), m.width-2, "  ", t.Warning.Render)...)
		}
	}
	if ok && b.armed == b.key && b.key != "" {
		armed := "press x again to stop it, with everything below it"
		lines = append(lines, wrapped(armed, m.width-2, "  ", t.Warning.Render)...)
	}
	var cursor *tea.Cursor
	if m.field != nil {
		var text []string
		text, cursor = m.typedLines(m.field.editor, 3)
		cursor = below(cursor, len(lines))
		lines = append(lines, text...)
		keys = "enter sends it to the task · esc back"
	}
	return append(lines, t.Dim.Render(ansi.Truncate(keys, m.width, "…"))), cursor
}
