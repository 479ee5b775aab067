package tui

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/frontend/tui/printable"
	"github.com/drover-dev/drover/internal/frontend/tui/transcript"
	"github.com/drover-dev/drover/internal/model/usage"
	"github.com/drover-dev/drover/internal/platform/figures"
	"github.com/drover-dev/drover/internal/project/todo"
	"github.com/drover-dev/drover/task"
)

// pageBuilder makes the rows of a page. Text of others goes through package printable.
type pageBuilder struct {
	m     *Model
	width int
	rows  []pageRow
}

func (b *pageBuilder) build(name string, f pageFacts) []pageRow {
	switch name {
	case "help":
		b.help()
	case "permissions":
		b.permissions(f.env)
	case "hooks":
		b.hooks(f.env)
	case "mcp":
		b.servers(f.env)
	case "agents":
		b.agentTypes(f.env)
	case "model":
		b.models(f.env)
	case "cost":
		b.costs(f)
	case "memory":
		b.memory(f.env)
	case "context":
		b.context(f.env.Context)
	case "todos":
		b.todos()
	case "diff":
		b.diff(f.diff)
	}
	return b.rows
}

// add adds a line, head one in bold with an empty line before it, and wrap one that is
// broken into lines of the width, all but the first indented.
func (b *pageBuilder) add(style lipgloss.Style, text string) {
	b.rows = append(b.rows, pageRow{text: text, style: style})
}

func (b *pageBuilder) head(text string) {
	if len(b.rows) > 0 {
		b.add(b.m.theme.Plain, "")
	}
	b.add(b.m.theme.Bold, text)
}

func (b *pageBuilder) wrap(style lipgloss.Style, text, indent string) {
	for i, line := range strings.Split(ansi.Wrap(text, max(20, b.width-len(indent)), ""), "\n") {
		if i > 0 {
			line = indent + line
		}
		b.add(style, line)
	}
}

// table adds lines of cells in columns; the last is broken into lines where it is long.
func (b *pageBuilder) table(style lipgloss.Style, rows [][]string) {
	var widths []int
	for _, r := range rows {
		for i, cell := range r[:len(r)-1] {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], min(ansi.StringWidth(cell), max(12, b.width/3)))
		}
	}
	for _, r := range rows {
		line := ""
		for i, cell := range r[:len(r)-1] {
			cell = ansi.Truncate(cell, widths[i], "…")
			line += cell + strings.Repeat(" ", widths[i]-ansi.StringWidth(cell)+2)
		}
		last := r[len(r)-1]
		if room := b.width - ansi.StringWidth(line); room >= 24 {
			for i, part := range strings.Split(ansi.Wrap(last, room, ""), "\n") {
				if i > 0 {
					line = strings.Repeat(" ", ansi.StringWidth(line))
				}
				b.add(style, line+part)
				line = strings.Repeat(" ", b.width-room)
			}
			continue
		}
		b.add(style, strings.TrimRight(line, " "))
		b.wrap(b.m.theme.Dim, "    "+last, "    ")
	}
}

func (b *pageBuilder) none(text string) { b.add(b.m.theme.Dim, text) }

func cell(text string) string { return printable.Line(text, 400) }

func (b *pageBuilder) help() {
	where := ""
	b.head("Commands of the terminal UI; those of the session complete with tab")
	var rows [][]string
	for _, c := range commands() {
		rows = append(rows, []string{"/" + c.name, c.does})
	}
	b.table(b.m.theme.Plain, rows)
	rows = nil
	for _, k := range b.m.bindings {
		if k.Where != where {
			b.table(b.m.theme.Plain, rows)
			where, rows = k.Where, nil
			b.head(where)
		}
		rows = append(rows, []string{strings.Join(k.Keys, " "), k.Does})
	}
	b.table(b.m.theme.Plain, rows)
}

func (b *pageBuilder) permissions(e control.Environment) {
	t := b.m.theme
	about := map[string]string{
		"default": "asks about what no rule allows", "acceptEdits": "edits files of the project without a question",
		"plan": "changes nothing until its plan is approved", "dontAsk": "denies what would be asked about",
		"bypassPermissions": "asks about nothing",
	}[e.Mode]
	b.head("Mode: " + cell(e.Mode) + map[bool]string{true: ", which " + about}[about != ""])
	b.none("shift+tab and /mode change it")
	for _, effect := range []string{"deny", "ask", "allow"} {
		var rows [][]string
		for _, r := range e.Rules {
			if r.Effect == effect {
				rows = append(rows, []string{"  " + cell(printable.Exact(r.Rule)), cell(cmp.Or(r.Source, "not known"))})
			}
		}
		if len(rows) == 0 {
			continue
		}
		b.head(map[string]string{"deny": "Never run", "ask": "Always asked about", "allow": "Run without a question"}[effect])
		b.table(map[string]lipgloss.Style{"deny": t.Bad, "ask": t.Warning, "allow": t.Good}[effect], rows)
	}
	if len(e.Rules) == 0 {
		b.none("no rules")
	}
	if len(e.Directories) > 0 {
		b.head("Further folders that tools may use")
		for _, d := range e.Directories {
			b.add(t.Plain, "  "+cell(d))
		}
	}
}

func (b *pageBuilder) hooks(e control.Environment) {
	if len(e.Hooks) == 0 {
		b.none("no hooks")
	}
	source := ""
	for _, h := range e.Hooks {
		if h.Source != source {
			source = h.Source
			b.head(cell(source))
		}
		style, note := b.m.theme.Plain, ""
		if !h.Runs {
			style, note = b.m.theme.Warning, "  (does not run: see `drover trust`)"
		}
		note += bounded(h.Sandbox)
		matcher := map[bool]string{true: " " + cell(h.Matcher)}[h.Matcher != ""]
		b.wrap(style, "  "+cell(h.Event)+matcher+"  "+cell(printable.Exact(h.Command))+note, "      ")
	}
}

// bounded says what the sandbox of a hook or server holds.
func bounded(box *task.Sandbox) string {
	if box == nil {
		return ""
	}
	if missing := box.Missing(); len(missing) > 0 {
		return "  (in the sandbox, without " + strings.Join(missing, ", ") + ")"
	}
	return "  (in the sandbox)"
}

func (b *pageBuilder) servers(e control.Environment) {
	t := b.m.theme
	if len(e.Servers) == 0 {
		b.none("no MCP servers: `drover mcp add` adds one")
	}
	for _, s := range e.Servers {
		mark, style := "◌", t.Warning
		switch s.Status {
		case "connected":
			mark, style = "●", t.Good
		case "failed":
			mark, style = "✗", t.Bad
		}
		b.add(style, fmt.Sprintf("%s %s  %s, %s%s", mark, cell(s.Name), cell(s.Status), figures.Several(s.Tools, "tool"),
			bounded(s.Sandbox)))
		if s.Error != "" {
			b.wrap(t.Dim, "    "+cell(s.Error), "    ")
		}
	}
}

func (b *pageBuilder) agentTypes(e control.Environment) {
	t := b.m.theme
	for _, a := range e.AgentTypes {
		b.head(cell(a.Name) + map[bool]string{true: " · " + cell(a.Model)}[a.Model != ""])
		b.wrap(t.Plain, "  "+cell(a.Description), "  ")
		b.add(t.Dim, "  "+cell(cmp.Or(a.Source, "built in")))
	}
}

func (b *pageBuilder) models(e control.Environment) {
	m := b.m
	b.none("the model is " + cell(m.settings().Model) + "; /model PROVIDER/NAME names any other")
	if len(e.Offered) > 0 {
		b.none("* current; the window, and dollars for a million tokens")
	}
	offered := e.Offered
	if len(offered) == 0 {
		for _, name := range e.Models {
			offered = append(offered, control.ModelOffer{Name: name})
		}
	}
	for _, o := range offered {
		mark := map[bool]string{true: " *"}[o.Current]
		text := fmt.Sprintf("%-10s %-12s %-18s", cell(o.Name)+mark, cell(o.Title), cell(o.Full))
		if o.Window > 0 {
			text += fmt.Sprintf(" %5dk", o.Window/1000)
		}
		if o.Input > 0 {
			text += fmt.Sprintf(" $%g/$%g", o.Input, o.Output)
		}
		b.rows = append(b.rows, pageRow{text: strings.TrimRight(text, " "), style: m.theme.Plain, do: func() tea.Cmd {
			return m.configure(control.ConfigureRequest{Model: &o.Name})
		}})
	}
}

func (b *pageBuilder) costs(f pageFacts) {
	t := b.m.theme
	var usd float64
	unpriced := 0
	rows := [][]string{{"model", "calls", "input", "from cache", "to cache", "output", "cost"}}
	for _, s := range f.env.Spent {
		usd += s.USD
		unpriced += s.Unpriced
		cost := usage.Dollars(s.USD)
		if s.Unpriced == s.Calls {
			cost = "–"
		}
		rows = append(rows, []string{cell(s.Model), fmt.Sprint(s.Calls), figures.Count(s.Input), figures.Count(s.CacheRead),
			figures.Count(s.CacheWrite), figures.Count(s.Output), cost})
	}
	head := "Spent: " + usage.Dollars(usd)
	if f.env.Budget > 0 {
		head += fmt.Sprintf(" of %s", usage.Dollars(f.env.Budget))
	}
	if unpriced > 0 {
		head += fmt.Sprintf(", and %s without a known price", figures.Several(unpriced, "call"))
	}
	b.head(head)
	if len(rows) > 1 {
		b.add(t.Plain, "")
		b.table(t.Plain, rows)
	}
	type spent struct {
		r      task.Record
		usd    float64
		tokens int64
	}
	var list []spent
	for _, r := range f.tasks {
		s := spent{r: r}
		if u := r.Used(); u != nil {
			s.tokens = u.TotalTokens
			if u.CostUSD != nil {
				s.usd = *u.CostUSD
			}
		}
		if s.tokens > 0 || s.usd > 0 {
			list = append(list, s)
		}
	}
	if len(list) == 0 {
		return
	}
	slices.SortStableFunc(list, func(a, c spent) int {
		return cmp.Or(cmp.Compare(c.usd, a.usd), cmp.Compare(c.tokens, a.tokens))
	})
	b.head("By task")
	rows = nil
	for _, s := range list {
		rows = append(rows, []string{
			cell(string(s.r.ID)), cell(cmp.Or(s.r.AgentType, string(s.r.Kind))), cell(string(s.r.Status)),
			figures.Count(s.tokens) + " tokens", usage.Dollars(s.usd), cell(transcript.Title(s.r)),
		})
	}
	b.table(t.Plain, rows)
}

func (b *pageBuilder) memory(e control.Environment) {
	t := b.m.theme
	b.head("Remembered of this folder; see docs/memory.md")
	if len(e.Memory) == 0 {
		b.none("  nothing")
	}
	var rows [][]string
	for _, f := range e.Memory {
		age := "  " + figures.Age(b.m.now.Sub(f.Changed)) + " ago"
		rows = append(rows, []string{age, fmt.Sprintf("%d bytes", f.Bytes), cell(f.Path)})
	}
	b.table(t.Plain, rows)
	b.head("Instructions, as agents are told them")
	if strings.TrimSpace(e.Instructions) == "" {
		b.none("  none: /init writes AGENTS.md")
	}
	for line := range strings.SplitSeq(printable.Block(e.Instructions), "\n") {
		b.wrap(t.Plain, "  "+line, "  ")
	}
}

// bytesOfToken is about how many bytes of a text one token has.
const bytesOfToken = 4

func (b *pageBuilder) context(c control.Context) {
	t := b.m.theme
	head := figures.Count(c.Tokens) + " tokens in the latest request"
	if c.Window > 0 {
		head = fmt.Sprintf("%s of %s tokens (%d%%) in the latest request", figures.Count(c.Tokens), figures.Count(c.Window),
			c.Tokens*100/c.Window)
	}
	b.head(head)
	if c.Window > 0 {
		n := max(10, min(b.width, 60))
		full := int(min(c.Tokens, c.Window) * int64(n) / c.Window)
		b.add(t.Accent, strings.Repeat("█", full)+strings.Repeat("░", n-full))
	}
	if c.CompactAt > 0 {
		b.none("summed up at " + figures.Count(c.CompactAt) + " tokens; /compact does it now")
	}
	b.head("In every request, about")
	var rows [][]string
	var sum int64
	for _, p := range c.Parts {
		n := int64(p.Bytes / bytesOfToken)
		sum += n
		rows = append(rows, []string{"  " + cell(p.Name), figures.Count(n) + " tokens"})
	}
	if rest := c.Tokens - sum; rest > 0 {
		rows = append(rows, []string{"  the conversation", figures.Count(rest) + " tokens"})
	}
	b.table(t.Plain, rows)
}

func (b *pageBuilder) todos() {
	t := b.m.theme
	if len(b.m.todos.Items) == 0 {
		b.none("no to-dos; `drover todo add` adds one")
	}
	for _, d := range b.m.todos.Items {
		mark, style := "☐", t.Plain
		switch d.Status {
		case todo.InProgress:
			mark, style = "▶", t.Accent
		case todo.Completed:
			mark, style = "☑", t.Dim
		}
		line := fmt.Sprintf("%s %s  %s", mark, d.ID, cell(d.Title()))
		if d.Owner != "" {
			line += " (" + cell(d.Owner) + ")"
		}
		if waits := b.m.waits(d); waits != "" {
			line += "  ← waits for " + cell(waits)
		}
		b.wrap(style, line, "     ")
	}
}

// mostDiff bounds the lines of a diff.
const mostDiff = 100_000

func (b *pageBuilder) diff(text string) {
	t := b.m.theme
	if strings.TrimSpace(text) == "" {
		b.none("nothing has changed since the last commit")
		return
	}
	for line := range strings.Lines(text) {
		if len(b.rows) == mostDiff {
			b.none("… the rest is left out: see `git diff HEAD`")
			return
		}
		style := t.Plain
		switch line = strings.TrimRight(line, "\r\n"); {
		case strings.HasPrefix(line, "diff "), strings.HasPrefix(line, "+++ "), strings.HasPrefix(line, "--- "),
			strings.HasPrefix(line, "?? "):
			style = t.Bold
		case strings.HasPrefix(line, "+"):
			style = t.Added
		case strings.HasPrefix(line, "-"):
			style = t.Removed
		case strings.HasPrefix(line, "@@"):
			style = t.Hunk
		}
		b.rows = append(b.rows, pageRow{text: line, raw: true, style: style})
	}
}

// autopilot switches autopilot mode on or off.
func (m *Model) autopilot(word string) tea.Cmd {
	mode := map[string]string{"on": autopilotMode, "off": "interactive"}[word]
	if word == "" {
		mode = map[bool]string{true: "interactive", false: autopilotMode}[m.settings().SessionMode == autopilotMode]
	}
	if mode == "" {
		m.say("/autopilot on, off, or nothing for the other one")
		return nil
	}
	return m.configure(control.ConfigureRequest{SessionMode: &mode})
}

// teleport has work done at a service elsewhere.
func (m *Model) teleport(text string) tea.Cmd {
	if text == "" || !m.connected() {
		m.say("/teleport WORK has it done by the usual service of remote agents, once the session has begun")
		return nil
	}
	env, folder := m.o.Env, cmp.Or(m.info.Project, m.o.Folder)
	req := control.StartRequest{Remote: &control.RemoteRequest{Prompt: text}, Env: env, Cwd: folder}
	return m.do("the work was not sent", func(ctx context.Context, api control.API) (string, error) {
		started, err := api.Start(ctx, []control.StartRequest{req})
		switch {
		case err != nil:
			return "", err
		case len(started) != 1 || started[0].Task == nil && started[0].Error == nil:
			return "", errors.New("the session did not report the started task")
		case started[0].Error != nil:
			return "", started[0].Error
		}
		return fmt.Sprintf("%s has begun elsewhere; shift+down shows it", started[0].Task.ID), nil
	})
}
