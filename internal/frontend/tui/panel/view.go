package panel

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/drover-dev/drover/internal/frontend/tui/printable"
	"github.com/drover-dev/drover/internal/frontend/tui/theme"
	"github.com/drover-dev/drover/internal/frontend/tui/transcript"
	"github.com/drover-dev/drover/internal/model/usage"
	"github.com/drover-dev/drover/internal/platform/figures"
	"github.com/drover-dev/drover/task"
)

// silent is from when on it is shown how long nothing was heard of an agent.
const silent = 10 * time.Second

// View draws the panel in at most height lines.
func (s *State) View(t theme.Theme, width, height int, now time.Time) []string {
	rows := s.Rows(now)
	chosen, any := s.Chosen(now)
	live := 0
	for _, r := range rows {
		if !r.Record.Status.Terminal() {
			live++
		}
	}
	head := fmt.Sprintf("Tasks · %d running", live)
	if n := len(rows) - live; n > 0 {
		head += fmt.Sprintf(", %d ended", n)
	}
	if s.All {
		head += " · all"
	}
	lines := []string{t.Bold.Render(ansi.Truncate(head, width, "…"))}
	if !any {
		return append(lines, "", t.Dim.Render("Nothing runs here."), "", s.keys(t, task.Record{}, width))
	}
	_, from, room := s.seen(height, now)
	for i := from; i < min(len(rows), from+room); i++ {
		line := s.row(t, rows[i], width-2, now)
		if rows[i].Record.ID == chosen.ID {
			line = t.Accent.Render("▸ ") + line
		} else {
			line = "  " + line
		}
		lines = append(lines, line)
	}
	if n := len(rows) - from - room; n > 0 {
		lines = append(lines, t.Dim.Render(fmt.Sprintf("  … %d more below", n)))
	}
	lines = append(lines, s.detail(t, chosen, width, height-len(lines)-1, now)...)
	return append(lines, s.keys(t, chosen, width))
}

// seen is the place of the chosen task, the first row that is shown, and how many are.
func (s *State) seen(height int, now time.Time) (at, from, room int) {
	rows := s.Rows(now)
	chosen, _ := s.Chosen(now)
	detail := min(max(5, height/2), height-4)
	room = max(1, height-detail-2)
	for i, r := range rows {
		if r.Record.ID == chosen.ID {
			at = i
		}
	}
	return at, max(0, min(at-room/2, len(rows)-room)), room
}

// Click chooses the task in a line of the screen, again says that it was chosen already;
// ok is false where no task is.
func (s *State) Click(line, height int, now time.Time) (again, ok bool) {
	rows := s.Rows(now)
	at, from, room := s.seen(height, now)
	i := from + line - 1
	if line < 1 || line > room || i >= len(rows) {
		return false, false
	}
	if i == at {
		return true, true
	}
	s.choose(rows[i].Record.ID, now)
	return false, true
}

// row draws a task on a line.
func (s *State) row(t theme.Theme, r Row, width int, now time.Time) string {
	rec := r.Record
	word, mark := stateOf(rec, now)
	style := t.Accent
	switch {
	case rec.AwaitingApproval || rec.Paused || rec.Parked != nil || rec.Status == task.Killed:
		style = t.Warning
	case rec.Status == task.Completed:
		style = t.Good
	case rec.Status == task.Failed:
		style = t.Bad
	}
	tree := ""
	if r.Depth > 0 {
		tree = strings.Repeat("  ", min(r.Depth, 8)-1) + map[bool]string{true: "└ ", false: "├ "}[r.Last]
	}
	var right []string
	if width >= 90 {
		if u := rec.Used(); u != nil && u.TotalTokens > 0 {
			right = append(right, figures.Count(u.TotalTokens)+" tokens")
		}
		if c := Cost(rec); c != "" {
			right = append(right, c)
		}
	}
	if rec.Worker != "" {
		right = append(right, "at "+printable.Line(rec.Worker, 24))
	}
	if quiet := quietFor(rec, now); quiet >= silent {
		right = append(right, "silent "+figures.Span(quiet))
	}
	if until, _, ok := rec.ParkedUntil(now); ok {
		right = append(right, "until "+task.Clock(until, now))
	}
	right = append(right, figures.Span(rec.Duration(now)))
	if width >= 70 {
		right = append(right, printable.Line(string(rec.ID), 20))
	}
	end := strings.Join(right, "  ")
	title := printable.Line(transcript.Title(rec), 300)
	if width >= 56 && rec.AgentType != "" {
		title = printable.Line(rec.AgentType, 24) + " · " + title
	}
	left := width - ansi.StringWidth(end) - ansi.StringWidth(tree) - ansi.StringWidth(word) - 5
	title = ansi.Truncate(title, max(4, left), "…")
	title += strings.Repeat(" ", max(0, left-ansi.StringWidth(title)))
	return ansi.Truncate(t.Rule.Render(tree)+style.Render(mark+" "+word)+" "+title+"  "+t.Dim.Render(end), width, "…")
}

// stateOf is the state of a task as a word of at most eight letters and a mark.
func stateOf(r task.Record, now time.Time) (word, mark string) {
	_, _, parked := r.ParkedUntil(now)
	switch {
	case r.Stopping && !r.Status.Terminal():
		return "stopping", "◌"
	case r.AwaitingApproval:
		return "asks you", "?"
	case r.Paused:
		return "paused  ", "‖"
	case parked:
		return "parked  ", "◌"
	case r.WaitsFor != "":
		return "waits   ", "○"
	case r.Idle && r.Status == task.Running:
		return "idle    ", "○"
	}
	switch r.Status {
	case task.Pending:
		return "pending ", "◌"
	case task.Running:
		return "running ", "●"
	case task.Completed:
		return "done    ", "✓"
	case task.Failed:
		return "failed  ", "✗"
	case task.Killed:
		return "stopped ", "■"
	}
	return fmt.Sprintf("%-8.8s", printable.Line(string(r.Status), 8)), "·"
}

// quietFor is how long nothing was heard of an agent at work.
func quietFor(r task.Record, now time.Time) time.Duration {
	if r.LastHeard == nil || r.Status != task.Running || r.Idle || r.Paused || r.Parked != nil || r.AwaitingApproval {
		return 0
	}
	return now.Sub(*r.LastHeard)
}

// recent is what an agent has done lately, the newest first.
func recent(r task.Record) string {
	if r.Progress == nil {
		return ""
	}
	var list []string
	for _, a := range slices.Backward(r.Progress.RecentActivities) {
		did := printable.Line(a.ToolName, 40) + " " + printable.Line(transcript.About(string(a.Input)), 60)
		list = append(list, strings.TrimSpace(did))
	}
	return strings.Join(list, ", ")
}

// Cost returns the cost of a task for people; empty: it is unknown, or zero.
func Cost(r task.Record) string {
	u := r.Used()
	if u == nil || u.CostUSD == nil || *u.CostUSD == 0 {
		return ""
	}
	return usage.Dollars(*u.CostUSD)
}

// detail draws the chosen task with the end of its output.
func (s *State) detail(t theme.Theme, r task.Record, width, height int, now time.Time) []string {
	if height < 3 {
		return nil
	}
	word, _ := stateOf(r, now)
	facts := []string{printable.Line(string(r.ID), 20), strings.TrimSpace(word), "for " + figures.Span(r.Duration(now))}
	if why := transcript.Ending(r); why != "" {
		facts = append(facts, why)
	}
	if r.Worker != "" {
		facts = append(facts, "at worker "+printable.Line(r.Worker, 63))
	}
	if r.Model != "" {
		facts = append(facts, printable.Line(r.Model, 40))
	}
	if u := r.Used(); u != nil {
		if u.TotalTokens > 0 {
			facts = append(facts, figures.Count(u.TotalTokens)+" tokens")
		}
		if u.ToolUses > 0 {
			facts = append(facts, fmt.Sprintf("%d tool uses", u.ToolUses))
		}
	}
	if c := Cost(r); c != "" {
		facts = append(facts, c)
	}
	if q := quietFor(r, now); q >= silent {
		facts = append(facts, "nothing heard for "+figures.Span(q))
	}
	if r.Progress != nil && r.Progress.Message != "" {
		facts = append(facts, printable.Line(r.Progress.Message, 80))
	}
	lines := []string{
		t.Rule.Render(strings.Repeat("─", width)),
		t.Dim.Render(ansi.Truncate(strings.Join(facts, " · "), width, "…")),
	}
	if did := recent(r); did != "" {
		lines = append(lines, t.Dim.Render(ansi.Truncate("lately: "+did, width, "…")))
	}
	note := s.note
	if s.armed == r.ID && now.Before(s.armedX) {
		note = "press x again to stop it, with everything below it"
	}
	if note != "" {
		for line := range strings.SplitSeq(printable.Block(note), "\n") {
			lines = append(lines, t.Warning.Render(ansi.Truncate(line, width, "…")))
		}
	}
	room := height - len(lines)
	if room <= 0 {
		return lines[:height]
	}
	out := s.tail.Lines
	if s.tail.Task != r.ID {
		out = nil
	}
	for _, line := range out[max(0, len(out)-room):] {
		lines = append(lines, ansi.Truncate(line, width, "…"))
	}
	if len(out) == 0 {
		lines = append(lines, t.Dim.Render("no output yet"))
	}
	for len(lines) < height {
		lines = append(lines, "")
	}
	return lines
}

// keys are what can be done now.
func (s *State) keys(t theme.Theme, r task.Record, width int) string {
	list := []string{"↑↓ choose"}
	live := r.ID != "" && !r.Status.Terminal()
	if r.ID != "" {
		list = append(list, "enter open")
	}
	if live {
		list = append(list, "x stop")
		if r.Paused {
			list = append(list, "p go on")
		} else {
			list = append(list, "p pause")
		}
		if !r.Backgrounded {
			list = append(list, "b background")
		}
	}
	if r.Kind.IsAgent() || r.TTY && live {
		list = append(list, "s send")
	}
	if r.ID != "" && !live && r.Traits().Resumable {
		list = append(list, "r run again")
	}
	list = append(list, "a all", "esc close")
	return t.Dim.Render(ansi.Truncate(strings.Join(list, " · "), width, "…"))
}
