package tui

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/frontend/tui/input"
	"github.com/drover-dev/drover/internal/frontend/tui/panel"
	"github.com/drover-dev/drover/internal/frontend/tui/printable"
	"github.com/drover-dev/drover/internal/frontend/tui/transcript"
	"github.com/drover-dev/drover/internal/model/modelinfo"
	"github.com/drover-dev/drover/internal/platform/figures"
	"github.com/drover-dev/drover/internal/project/todo"
)

// The least terminal that is drawn for. On a smaller one the UI says so.
const (
	leastWidth  = 30
	leastHeight = 8
)

// hintAfter is when the key is shown that moves a command to the background.
const hintAfter = 2 * time.Second

// frame is a screen as it is put together: lines, and the cursor.
type frame struct {
	lines  []string
	cursor *tea.Cursor
}

// View implements [tea.Model].
func (m *Model) View() tea.View {
	f := m.screenFrame()
	for i, line := range f.lines {
		f.lines[i] = printable.Guard(line)
	}
	v := tea.NewView(strings.Join(f.lines, "\n"))
	v.AltScreen, v.ReportFocus = true, true
	v.Cursor = f.cursor
	if m.mouse {
		v.MouseMode = tea.MouseModeCellMotion
	}
	v.WindowTitle = m.title()
	return v
}

// title returns the title of the window.
func (m *Model) title() string {
	name := cmp.Or(printable.Line(m.info.Title, 40), "drover")
	switch {
	case m.ask != nil:
		return "? " + name
	case m.busy():
		return "● " + name
	}
	return name
}

func (m *Model) screenFrame() frame {
	if m.width < leastWidth || m.height < leastHeight {
		return frame{lines: []string{ansi.Truncate("Make the window larger.", max(1, m.width), "")}}
	}
	switch m.screen {
	case panelScreen:
		return m.panelFrame()
	case zoomScreen:
		return m.zoomFrame()
	case pageScreen:
		return m.pageFrame()
	case pickerScreen:
		return m.pickerFrame()
	case inboxScreen:
		return m.inboxFrame()
	case rewindScreen:
		return m.rewindFrame()
	case setupScreen:
		return m.setupFrame()
	}
	return m.chatFrame()
}

// editorWidth is how wide the text of the editor is.
func (m *Model) editorWidth() int { return m.width - 3 }

// chatFrame draws the conversation above the editor.
func (m *Model) chatFrame() frame {
	bottom, cursor := m.bottom()
	room := max(0, m.height-len(bottom))
	lines := m.talkLines(room)
	return frame{append(lines, bottom...), below(cursor, len(lines))}
}

// talkHeight is how many lines of the conversation are shown.
func (m *Model) talkHeight() int {
	bottom, _ := m.bottom()
	return max(1, m.height-len(bottom))
}

// talkLines are the conversation in exactly room lines.
func (m *Model) talkLines(room int) []string {
	rows := m.window.Rows(m.talk, m.drawer, m.width, room)
	lines := make([]string, 0, m.height)
	if len(m.talk.Blocks) == 0 && room > 0 {
		lines = append(lines, m.welcome(room)...)
	}
	for _, r := range rows {
		line := r.Text
		if r.Block != 0 && r.Block == m.window.Selected {
			line = m.theme.Accent.Render("▌") + ansi.TruncateLeft(line, 1, "")
		}
		lines = append(lines, line)
	}
	for len(lines) < room {
		lines = append(lines, "")
	}
	if m.window.Scrolled && room > 2 {
		note := " more below · ctrl+end follows "
		lines[room-1] = m.theme.Selected.Render(ansi.Truncate(note, m.width, ""))
	}
	return lines[:room]
}

// welcome fills an empty conversation.
func (m *Model) welcome(room int) []string {
	t := m.theme
	where := printable.Line(m.o.Folder, m.width-4)
	lines := []string{
		"", t.Bold.Render("  Drover") + t.Dim.Render(" "+printable.Line(m.o.Version, 30)), t.Dim.Render("  " + where), "",
	}
	if n := m.elsewhere(); n > 0 {
		note := fmt.Sprintf("  %s in other sessions: /inbox shows what", map[bool]string{true: "1 thing needs you",
			false: fmt.Sprintf("%d things need you", n)}[n == 1])
		lines = append(lines, t.Warning.Render(ansi.Truncate(note, m.width, "…")), "")
	}
	switch {
	case m.joining:
		lines = append(lines, t.Dim.Render("  starting the session …"))
	case m.lost != "":
	default:
		for _, hint := range []string{
			"Drover runs commands and agents in the background and tells you when they finish.",
			"@file names a file · /help lists commands · ? lists keys",
			"Closing this window leaves tasks running; `drover attach` brings you back.",
		} {
			lines = append(lines, wrapped(hint, m.width-4, "  ", t.Dim.Render)...)
		}
	}
	return lines[:min(len(lines), room)]
}

// bottom draws the lines below the conversation. The cursor is relative to them.
func (m *Model) bottom() ([]string, *tea.Cursor) {
	t := m.theme
	var lines []string
	if list := m.todoLines(); len(list) > 0 {
		lines = append(lines, list...)
	}
	lines = append(lines, m.activity()...)
	for i, d := range m.queue {
		if i == 3 && len(m.queue) > 4 {
			lines = append(lines, t.Dim.Render(fmt.Sprintf("  … %d more queued", len(m.queue)-i)))
			break
		}
		lines = append(lines, t.Dim.Render(ansi.Truncate("  queued: "+printable.Line(d.Text, 300), m.width, "…")))
	}
	if m.lost != "" {
		lines = append(lines, wrapped("✗ "+m.lost, m.width-1, "", t.Bad.Render)...)
		lines = append(lines, t.Dim.Render("  Your next prompt starts it again; ctrl+d leaves."))
	}
	if m.notification != "" {
		lines = append(lines, wrapped(printable.Block(m.notification), m.width-1, "", t.Warning.Render)...)
	}
	if why := m.blind(); why != "" {
		lines = append(lines, wrapped(why, m.width-1, "", t.Warning.Render)...)
	}
	switch {
	case m.screen == leaveScreen:
		return append(lines, m.leaveLines()...), nil
	case m.ask != nil:
		more, cursor := m.askLines(len(lines))
		return append(lines, more...), below(cursor, len(lines))
	}
	lines = append(lines, t.Rule.Render(strings.Repeat("─", m.width)))
	most := max(1, min(m.height/3, 12))
	if m.search != nil {
		found, ok := m.search.Found()
		mark := "search: "
		if !ok && m.search.Query != "" {
			mark = "no such prompt: "
		}
		head := mark + printable.Line(m.search.Query, 100)
		lines = append(lines, t.Prompt.Render(ansi.Truncate(head, m.width, "…")))
		cursor := tea.NewCursor(min(m.width-1, ansi.StringWidth(head)), len(lines)-1)
		for line := range strings.SplitSeq(printable.Block(printable.Typed(found)), "\n") {
			if len(lines) > most+4 {
				break
			}
			lines = append(lines, "  "+ansi.Truncate(line, m.width-3, "…"))
		}
		return append(lines, m.status()), cursor
	}
	text, cursor := m.typedLines(m.editor, most)
	if m.editor.Empty() {
		text[0] += t.Dim.Render(m.placeholder())
	}
	cursor = below(cursor, len(lines))
	lines = append(lines, text...)
	lines = append(lines, t.Rule.Render(strings.Repeat("─", m.width)))
	lines = append(lines, m.completionLines()...)
	return append(lines, m.status()), cursor
}

func (m *Model) placeholder() string {
	switch {
	case m.busy():
		return ansi.Truncate("Type the next prompt: it is sent when the agent is done", m.width-3, "…")
	case len(m.talk.Blocks) == 0:
		return ansi.Truncate("Ask Drover to do something", m.width-3, "…")
	}
	return ""
}

// spinner are the frames of what moves.
const spinner = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"

func (m *Model) spin() string {
	frames := []rune(spinner)
	return string(frames[m.frame%len(frames)])
}

// activity is what the agent and its team do now.
func (m *Model) activity() []string {
	t := m.theme
	var lines []string
	if m.busy() {
		since := m.talk.Since
		if m.sent != "" {
			since = m.sentAt
		}
		text := m.spin() + " " + m.doing() + " · " + figures.Span(m.now.Sub(since)) + " · esc interrupts"
		if r := m.tasks.Summary().Foreground; r.ID != "" && m.now.Sub(r.CreateTime) >= cmp.Or(m.o.HintAfter, hintAfter) {
			text += " · " + keyOf(m.bindings, "background") + ": to the background"
		}
		lines = append(lines, t.Accent.Render(ansi.Truncate(text, m.width, "…")))
		lines = append(lines, m.liveOutput()...)
	}
	return append(lines, m.team()...)
}

// liveOutput is the end of what the command prints that the agent waits for.
func (m *Model) liveOutput() []string {
	if m.live.Task == "" || m.live.Task != m.tasks.Summary().Foreground.ID {
		return nil
	}
	out := m.live.Lines
	out = out[max(0, len(out)-liveLines):]
	lines := make([]string, 0, len(out))
	for _, line := range out {
		lines = append(lines, m.theme.Dim.Render(ansi.Truncate("  │ "+line, m.width, "…")))
	}
	return lines
}

// doing is what the main agent does, in a few words.
func (m *Model) doing() string {
	switch {
	case len(m.open) > 0:
		return "needs your answer"
	case m.sent != "":
		return "sending"
	}
	for _, d := range m.todos.Items {
		if d.Status == todo.InProgress && (d.Owner == "" || d.Owner == "main") {
			return printable.Line(d.Title(), 60)
		}
	}
	if n := len(m.talk.Blocks); n > 0 {
		switch b := m.talk.Blocks[n-1]; {
		case b.Kind == transcript.Call && !b.Done:
			return printable.Line(b.Tool, 40) + " runs"
		case b.Kind == transcript.Answer:
			return "writing"
		case b.Kind == transcript.Thinking:
			return "thinking"
		}
	}
	return "working"
}

// mostMates bounds the rows of teammates below the spinner.
const mostMates = 6

// team is a row for each teammate, in a colour of its own.
func (m *Model) team() []string {
	var lines []string
	mates := m.tasks.Summary().Mates
	for i, r := range mates {
		if i == mostMates {
			lines = append(lines, m.theme.Dim.Render(fmt.Sprintf("  … %d more", len(mates)-i)))
			break
		}
		mark, what := "●", "working"
		if r.Idle {
			mark, what = "○", r.Activity()
		}
		if p := r.Progress; p != nil && !r.Idle {
			switch {
			case p.Message != "":
				what = p.Message
			case p.LastActivity != nil:
				what = p.LastActivity.ToolName
			}
		}
		tree := map[bool]string{true: "└ ", false: "├ "}[i == len(mates)-1]
		name := printable.Line(cmp.Or(r.Name, string(r.ID)), 30)
		line := m.theme.Rule.Render(tree) + m.theme.Member(i).Render(mark+" "+name) + " " +
			m.theme.Dim.Render(printable.Line(what, 100))
		lines = append(lines, ansi.Truncate(line, m.width, "…"))
	}
	return lines
}

// status is the line at the bottom: what the agent is on the left, what runs on the right.
func (m *Model) status() string {
	t := m.theme
	var left []string
	set := m.settings()
	if set.Model != "" {
		left = append(left, printable.Line(modelinfo.Title(set.Model), 40))
	}
	if set.Mode != "" {
		left = append(left, printable.Line(set.Mode, 20))
	}
	if set.SessionMode == autopilotMode {
		left = append(left, "autopilot")
	}
	if e := set.Thinking.Effort; e != "" {
		left = append(left, "effort "+printable.Line(e, 10))
	}
	if n := m.contextTokens(); n > 0 && set.Window > 0 {
		left = append(left, fmt.Sprintf("%s of %s context (%d%%)", figures.Count(n), figures.Count(set.Window),
			n*100/set.Window))
	} else if n > 0 {
		left = append(left, figures.Count(n)+" tokens")
	}
	if c := panel.Cost(m.main); c != "" {
		left = append(left, c)
	}
	if len(left) == 0 {
		left = append(left, printable.Line(m.session(), 30))
	}
	var right []string
	if n := len(m.open); n > 0 && m.ask == nil {
		right = append(right, t.Warning.Render(fmt.Sprintf("? %s · ctrl+g", figures.Several(n, "question"))))
	}
	if n := m.elsewhere(); n > 0 {
		right = append(right, t.Warning.Render(fmt.Sprintf("✉ %d in other sessions · alt+i", n)))
	}
	if pill := m.pill(); pill != "" {
		right = append(right, t.Accent.Render(pill))
	} else {
		right = append(right, t.Dim.Render("? keys"))
	}
	end := strings.Join(right, "  ")
	room := m.width - ansi.StringWidth(end) - 1
	start := ansi.Truncate(strings.Join(left, " · "), max(0, room), "…")
	gap := strings.Repeat(" ", max(1, m.width-ansi.StringWidth(start)-ansi.StringWidth(end)))
	return ansi.Truncate(t.Dim.Render(start)+gap+end, m.width, "…")
}

// settings are what the main agent works with, as far as it is known.
func (m *Model) settings() control.Settings {
	if m.state.Settings != nil {
		return *m.state.Settings
	}
	return control.Settings{Model: m.main.Model, Mode: m.main.Mode}
}

// contextTokens is how many tokens the main agent has used.
func (m *Model) contextTokens() int64 {
	if p := m.main.Progress; p != nil && p.TokenCount > 0 {
		return p.TokenCount
	}
	if u := m.main.Usage; u != nil {
		return u.TotalTokens
	}
	return 0
}

// pill is what runs in the background, and the key that shows it. Nothing is counted that
// the tree of the team shows already.
func (m *Model) pill() string {
	sum := m.tasks.Summary()
	switch {
	case sum.Pill == "" || sum.TeamOnly:
		return ""
	}
	hint := " · Shift+Down"
	if sum.Needs {
		hint = " · ↓ to view"
	}
	if ansi.StringWidth(sum.Pill+hint) > m.width-2 {
		hint = "" // what runs is said in full
	}
	return sum.Pill + hint
}

// todoLines are the to-dos that are open.
func (m *Model) todoLines() []string {
	if !m.showTodos || len(m.todos.Items) == 0 {
		return nil
	}
	open, done := 0, 0
	for _, d := range m.todos.Items {
		if d.Status == todo.Completed {
			done++
		} else {
			open++
		}
	}
	if open == 0 {
		return nil
	}
	t := m.theme
	lines := []string{t.Bold.Render(fmt.Sprintf("To-dos · %d of %d done", done, open+done))}
	most := max(2, m.height/6)
	for _, d := range m.todos.Items {
		if d.Status == todo.Completed {
			continue
		}
		if len(lines) > most {
			lines = append(lines, t.Dim.Render(fmt.Sprintf("  … %d more (alt+t hides them)", open-most)))
			break
		}
		mark, style := "☐ ", t.Plain
		if d.Status == todo.InProgress {
			mark, style = "▶ ", t.Accent
		}
		line := mark + printable.Line(d.Title(), 200)
		if d.Owner != "" {
			line += " (" + printable.Line(d.Owner, 30) + ")"
		}
		if waits := m.waits(d); waits != "" {
			line, style = line+" after "+printable.Line(waits, 60), t.Dim
		}
		lines = append(lines, style.Render(ansi.Truncate("  "+line, m.width, "…")))
	}
	return lines
}

// waits names the open to-dos that a to-do waits for.
func (m *Model) waits(d todo.Item) string {
	var list []string
	for _, id := range m.todos.Waits(d) {
		list = append(list, id.String())
	}
	return strings.Join(list, ", ")
}

// completionLines draw the completions.
func (m *Model) completionLines() []string {
	c := m.complete
	if c.sort == input.NoCompletion {
		return nil
	}
	if len(c.options) == 0 {
		if c.reading {
			return []string{m.theme.Dim.Render("  reading the files …")}
		}
		return nil
	}
	about := map[string]string{}
	mark := "@"
	if c.sort == input.Command {
		mark = "/"
		for _, k := range commands() {
			about[k.name] = k.does
		}
		for _, k := range m.offered {
			if about[k.Name] == "" {
				about[k.Name] = printable.Line(k.Description, 200)
			}
		}
	}
	var lines []string
	for i, o := range c.options {
		line := "  " + mark + printable.Line(o, 200)
		if a := about[o]; a != "" {
			line = fmt.Sprintf("%-16s %s", line, a)
		}
		line = ansi.Truncate(line, m.width-1, "…")
		if i == c.at {
			line = m.theme.Selected.Render(line)
		} else {
			line = m.theme.Dim.Render(line)
		}
		lines = append(lines, line)
	}
	return lines
}

// askLines draw the question below that many other lines.
func (m *Model) askLines(above int) ([]string, *tea.Cursor) {
	a, t := m.ask, m.theme
	q := a.question
	who := cmp.Or(q.Agent, string(q.Task))
	head := printable.Line(printable.Exact(q.Title(m.o.Folder)), 120)
	if a.changed != nil {
		head += " (changed by you)"
	}
	if len(a.parts) > 0 {
		head = printable.Line(a.parts[a.part].Header, 60)
		if len(a.parts) > 1 {
			head += fmt.Sprintf(" (%d of %d)", a.part+1, len(a.parts))
		}
	}
	if who != "" && who != "main" {
		head += " · " + printable.Line(who, 60)
	}
	if !q.Until.IsZero() {
		head += " · denied in " + figures.Span(q.Until.Sub(m.now).Truncate(time.Second))
	}
	if n := len(m.open); n > 1 {
		head += fmt.Sprintf(" · %d questions", n)
	}
	lines := []string{
		t.Warning.Render(strings.Repeat("─", m.width)),
		t.Warning.Bold(true).Render(ansi.Truncate("? "+head, m.width, "…")),
	}
	if q.Reason != "" && len(a.parts) == 0 && a.plan == nil {
		lines = append(lines, wrapped("why: "+printable.Exact(q.Reason), m.width-2, "  ", t.Dim.Render)...)
	}
	var foot []string
	var cursor *tea.Cursor
	for i, c := range a.options {
		mark := "  "
		if a.several() && i < len(a.marked) {
			mark = map[bool]string{true: "[x] ", false: "[ ] "}[a.marked[i]]
		}
		line := fmt.Sprintf("%d. %s%s", i+1, strings.TrimLeft(mark, " "), c.label)
		style, lead := t.Plain, "  "
		if i == a.at {
			style, lead = t.Accent, "❯ "
		}
		if c.about != "" {
			line += " · " + printable.Line(c.about, 600)
		}
		for k, part := range strings.Split(ansi.Wrap(line, m.width-5, ""), "\n") {
			if k > 0 {
				lead = "     "
			}
			foot = append(foot, style.Render(lead+part))
		}
	}
	if a.problem != "" {
		foot = append(foot, wrapped(a.problem, m.width-1, "  ", t.Bad.Render)...)
	}
	keys := "enter answers · esc later"
	if a.canChange() {
		keys += " · tab edits"
	}
	switch {
	case a.waiting || !a.armed():
		keys = "…"
	case a.edit != nil:
		keys = "enter shows the changed call · esc back"
		if len(a.edit.fields) > 1 {
			keys = "tab the next field · " + keys
		}
		text, y, x := a.editor.View(m.editorWidth(), max(4, m.height/3), t.Plain)
		name := printable.Line(printable.Exact(a.edit.fields[a.edit.at].name), 40)
		foot = append(foot, t.Prompt.Render("edit "+name+":"))
		cursor = tea.NewCursor(x+2, len(foot)+y)
		for _, line := range text {
			foot = append(foot, "  "+line)
		}
	case a.typing:
		keys = "enter sends · esc back"
		text, at := m.typedLines(a.editor, 4)
		foot, cursor = append(foot, text...), below(at, len(foot))
	case a.several():
		keys = "space marks · " + keys
	}
	body, styled := m.askBody()
	if a.plan != nil && a.plan.complete && !a.takesText() && keys != "…" {
		keys += map[bool]string{false: " · s shows the source", true: " · s shows Markdown"}[a.plan.source]
	}
	room := max(1, m.height-above-len(lines)-len(foot)-2)
	a.page, a.last = max(1, room-1), max(0, len(body)-room)
	if n := a.last; n > 0 {
		from := min(a.scroll, n)
		keys = fmt.Sprintf("lines %d to %d of %d, pgup and pgdown · ", from+1, from+room, len(body)) + keys
		body = body[from : from+room]
	}
	for _, line := range body {
		if styled {
			line = "  " + line
		} else {
			line = m.callLine(line)
		}
		lines = append(lines, line)
	}
	cursor = below(cursor, len(lines))
	lines = append(lines, foot...)
	return append(lines, t.Dim.Render(ansi.Truncate(keys, m.width, "…"))), cursor
}

// askBody returns the lines of the call that is asked about; styled says that they are drawn.
func (m *Model) askBody() (lines []string, styled bool) {
	a, width := m.ask, max(8, m.width-3)
	if a.plan != nil {
		if lines := a.plan.view(m.theme, width); lines != nil {
			return lines, true
		}
	}
	lines = strings.Split(ansi.Hardwrap(strings.TrimRight(printable.Tabs(a.body), "\n"), width, true), "\n")
	return lines, a.plan != nil
}

// callLine colours a line of a call: what goes and comes of an edit.
func (m *Model) callLine(line string) string {
	line = "  " + line
	switch {
	case strings.HasPrefix(line, "  +"):
		return m.theme.Added.Render(line)
	case strings.HasPrefix(line, "  -"):
		return m.theme.Removed.Render(line)
	}
	return line
}

// wrapped breaks a text into lines, each after an indent.
func wrapped(text string, width int, indent string, render func(...string) string) []string {
	var out []string
	for line := range strings.SplitSeq(ansi.Wrap(text, max(8, width), ""), "\n") {
		out = append(out, render(indent+line))
	}
	return out
}

// leaveLines are the dialog of leaving.
func (m *Model) leaveLines() []string {
	t := m.theme
	live := m.tasks.Summary().Live
	head := "Leave? These tasks are running:"
	if len(live) == 0 && !m.busy() && len(m.queue) == 0 {
		head = "Leave? No tasks are running."
	}
	lines := []string{t.Warning.Render(strings.Repeat("─", m.width)), t.Bold.Render(head)}
	if m.busy() {
		lines = append(lines, "  The agent is working.")
	}
	if n := len(m.queue); n > 0 {
		lines = append(lines, fmt.Sprintf("  %d prompts are queued: the agent gets them if it is left running.", n))
	}
	for i, r := range live {
		if i == 5 {
			lines = append(lines, t.Dim.Render(fmt.Sprintf("  … %d more", len(live)-i)))
			break
		}
		lines = append(lines, ansi.Truncate("  "+printable.Line(transcript.Title(r), 200)+
			t.Dim.Render("  "+string(r.ID)), m.width, "…"))
	}
	for i, o := range []string{"Leave them running; `drover attach` brings you back", "Stop them and show what was stopped", "Stay"} {
		line := fmt.Sprintf("%d. %s", i+1, o)
		if i == m.choice {
			line = t.Accent.Render("❯ " + line)
		} else {
			line = "  " + line
		}
		lines = append(lines, ansi.Truncate(line, m.width, "…"))
	}
	return append(lines, t.Dim.Render("enter chooses · esc stays"))
}

// panelFrame are the tasks.
func (m *Model) panelFrame() frame {
	room := m.height
	var foot []string
	var cursor *tea.Cursor
	if m.field != nil {
		foot, cursor = m.typedLines(m.field.editor, 3)
		head := "Send to " + printable.Line(transcript.Title(m.sendTo), m.width-10)
		foot = append([]string{m.theme.Bold.Render(head)}, foot...)
		foot, cursor = append(foot, m.theme.Dim.Render("enter sends · esc back")), below(cursor, 1)
	}
	if m.lost != "" {
		foot = append(foot, m.theme.Bad.Render(ansi.Truncate("✗ "+m.lost, m.width, "…")))
	}
	lines := m.tasks.View(m.theme, m.width, room-len(foot), m.now)
	for len(lines) < room-len(foot) {
		lines = append(lines, "")
	}
	lines = lines[:max(0, room-len(foot))]
	return frame{append(lines, foot...), below(cursor, len(lines))}
}

// zoomHeight is how many lines of a task are shown.
func (m *Model) zoomHeight() int { return max(1, m.height-5) }

// zoomFrame is one task.
func (m *Model) zoomFrame() frame {
	t, z := m.theme, &m.zoom
	r := z.record
	head := fmt.Sprintf("%s · %s · %s", printable.Line(transcript.Title(r), 200), r.Status,
		figures.Span(r.Duration(m.now)))
	if r.AgentType != "" {
		head = printable.Line(r.AgentType, 30) + " · " + head
	}
	lines := []string{t.Bold.Render(ansi.Truncate(printable.Line(head, 400), m.width, "…"))}
	room := m.zoomHeight()
	for _, row := range z.window.Rows(z.talk, z.drawer, m.width, room) {
		lines = append(lines, row.Text)
	}
	if len(z.talk.Blocks) == 0 {
		lines = append(lines, t.Dim.Render(cmp.Or(z.err, "No output yet.")))
	}
	for len(lines) < room+1 {
		lines = append(lines, "")
	}
	note := "pgup and pgdown scroll · ctrl+o opens · ctrl+x stops · esc back"
	if m.notification != "" {
		note = printable.Line(m.notification, 300)
	}
	if !m.zoomTakes() {
		return frame{lines: append(lines, t.Rule.Render(strings.Repeat("─", m.width)),
			t.Dim.Render(ansi.Truncate(note, m.width, "…")))}
	}
	text, cursor := m.typedLines(z.editor, 1)
	lines = append(lines, t.Rule.Render(strings.Repeat("─", m.width)))
	cursor = below(cursor, len(lines))
	lines = append(lines, text...)
	return frame{append(lines, t.Dim.Render(ansi.Truncate("enter sends to this task · "+note, m.width, "…"))), cursor}
}

// pickerFrame are the conversations of the folder.
func (m *Model) pickerFrame() frame {
	t, p := m.theme, m.picker
	head := "Resume: " + printable.Line(p.query, 100)
	found := p.found()
	note := cmp.Or(p.err, "No conversations match.")
	if p.loading {
		note = "Reading …"
	}
	lines := m.menuLines(p.menu, len(found), m.height-4, note, func(i int) string {
		s := found[i]
		state := "ended"
		if s.Live {
			state = cmp.Or(printable.Line(s.Running, 24), "live")
		}
		end := fmt.Sprintf("%s  %s ago  %s  %s", state, figures.Age(m.now.Sub(s.StartTime)),
			printable.Line(filepath.Base(s.Project), 16), printable.Line(string(s.Session), 20))
		return m.apart(cmp.Or(printable.Line(s.Title, 200), "(no title)"), end)
	})
	keys := "↑↓ choose · type to search · enter opens it · esc back"
	if m.epoch == 0 && m.o.Choose {
		keys = "↑↓ choose · type to search · enter opens it · esc leaves"
	}
	return m.framed(append([]string{t.Bold.Render(ansi.Truncate(head, m.width, "…")), ""}, lines...), keys,
		tea.NewCursor(min(m.width-1, ansi.StringWidth(head)), 0))
}
