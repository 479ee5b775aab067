package agents

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/internal/frontend/cli/console"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/policy/hook"
	"github.com/drover-dev/drover/internal/project/catalog"
	"github.com/drover-dev/drover/internal/project/definitions"
)

func (a *app) agentsCommand() *cobra.Command {
	var asJSON bool
	list := func(cmd *cobra.Command, _ []string) error { return a.agentsList(cmd.OutOrStdout(), asJSON) }
	cmd := &cobra.Command{
		Use: "agents",
		Long: "List the agents that can be started here: the built-in ones, and definitions in .drover/agents,\n" +
			".claude/agents and .github/agents of the folder and of its repository, and in ~/.config/drover/agents\n" +
			"and ~/.claude/agents.",
		RunE: list,
	}
	cmd.PersistentFlags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.AddCommand(
		&cobra.Command{Use: "list", Short: "List the agents", RunE: list},
		&cobra.Command{
			Use: "show NAME", Short: "Show the whole definition of an agent",
			Long: "Show the whole definition of one agent: its source, the definitions that it overrides, its problems,\n" +
				"and the tools, model and rules that it would start with.",
			Args: console.Args(1, 1), ValidArgsFunction: a.CompleteAgents(),
			RunE: func(cmd *cobra.Command, words []string) error {
				return a.agentsShow(cmd.OutOrStdout(), words[0], asJSON)
			},
		},
		&cobra.Command{
			Use: "check [PATH…]", Short: "Check definitions of agents",
			Long: "Report the problems of all definitions, or of the files and folders named, one per line:\n" +
				"FILE:LINE: SEVERITY: what (how to fix it). An error is a definition that cannot be used, and makes the\n" +
				"exit code 1; a warning is a definition that works differently than written; a note is information.",
			Args: console.Args(0, -1), ValidArgsFunction: console.CompleteFiles,
			RunE: func(cmd *cobra.Command, paths []string) error { return a.agentsCheck(cmd.OutOrStdout(), paths, asJSON) },
		},
	)
	return cmd
}

// agentLine is an agent in a list. What is null or missing comes from the agent
// that starts it.
type agentLine struct {
	Name        string            `json:"name"`
	DisplayName string            `json:"display_name,omitempty"`
	Description string            `json:"description"`
	Level       definitions.Level `json:"level"`
	Source      string            `json:"source,omitempty"`
	Dialect     catalog.Dialect   `json:"dialect,omitempty"`
	Model       string            `json:"model,omitempty"`
	Tools       []string          `json:"tools"`
}

func lineOf(e catalog.Entry) agentLine {
	return agentLine{e.Name, e.DisplayName, e.Description, e.Level, e.Source, e.Dialect, e.Model, e.Tools}
}

func (a *app) agentsList(out io.Writer, asJSON bool) error {
	files := a.Agents("", true)
	entries := slices.DeleteFunc(files.Entries(), func(e catalog.Entry) bool { return e.HiddenBy != "" })
	if n := severities(files.Problems()); n[catalog.Error]+n[catalog.Warning] > 0 {
		fmt.Fprintf(a.Stderr, "drover: note: %s in definitions of agents (see `drover agents check`)\n", tally(n, false))
	}
	if asJSON {
		lines := make([]agentLine, len(entries))
		for i, e := range entries {
			lines[i] = lineOf(e)
		}
		return console.PrintJSON(out, lines)
	}
	rows := [][]string{{"NAME", "SOURCE", "MODEL", "TOOLS", "DESCRIPTION"}}
	for _, e := range entries {
		rows = append(rows, []string{excerpt.Line(e.Name, 40), excerpt.Line(a.sourceOf(e), 50),
			cmp.Or(excerpt.Line(e.Model, 24), "inherits"),
			excerpt.Line(toolsOf(e.Tools), 32), excerpt.Line(e.Description, 60)})
	}
	return a.Table(rows, console.Headed)
}

// sourceOf is where an agent is from, as short as it can be said.
func (a *app) sourceOf(e catalog.Entry) string {
	if e.Source == "" {
		return string(e.Level)
	}
	return a.Brief(e.Source)
}

func toolsOf(tools []string) string {
	switch {
	case tools == nil:
		return "inherits all"
	case len(tools) == 0:
		return "none"
	}
	return strings.Join(tools, ", ")
}

// agentView is one agent whole.
type agentView struct {
	agentLine
	DisallowedTools  []string          `json:"disallowed_tools,omitempty"`
	Spawns           []string          `json:"spawns"` // null: every type
	MaxTurns         int               `json:"max_turns,omitempty"`
	PermissionMode   string            `json:"permission_mode,omitempty"`
	Effort           string            `json:"effort,omitempty"`
	Background       *bool             `json:"background,omitempty"`
	Isolation        string            `json:"isolation,omitempty"`
	On               string            `json:"on,omitempty"`
	Sandbox          string            `json:"sandbox,omitempty"`
	OnEnd            string            `json:"on_end,omitempty"`
	Skills           []string          `json:"skills,omitempty"`
	Hooks            map[string]any    `json:"hooks,omitempty"`
	MCPServers       []any             `json:"mcp_servers,omitempty"`
	NoModel          bool              `json:"not_for_models"`
	NoUser           bool              `json:"not_for_people"`
	InitialPrompt    string            `json:"initial_prompt,omitempty"`
	CriticalReminder string            `json:"critical_reminder,omitempty"`
	WaitsForTrust    []string          `json:"waits_for_trust,omitempty"`
	KeysWithout      []catalog.Key     `json:"keys_without_effect,omitempty"`
	Hides            []string          `json:"shadows,omitempty"`
	Problems         []catalog.Problem `json:"problems,omitempty"`
	Prompt           string            `json:"prompt"`
}

func (a *app) agentsShow(out io.Writer, name string, asJSON bool) error {
	files := a.Agents("", false)
	def, err := files.Current().Find(name)
	if err != nil {
		return console.Missing(err.Error(), "see `drover agents`")
	}
	v := agentView{}
	for _, e := range files.Entries() {
		switch {
		case e.Name != def.Name:
		case e.HiddenBy == "":
			v = viewOf(e)
		default:
			v.Hides = append(v.Hides, cmp.Or(e.Source, string(e.Level)))
		}
	}
	for _, p := range files.Problems() {
		if p.File == v.Source && v.Source != "" || slices.Contains(v.Hides, p.File) {
			v.Problems = append(v.Problems, p)
		}
	}
	if asJSON {
		return console.PrintJSON(out, v)
	}
	return a.printAgent(out, v)
}

func viewOf(e catalog.Entry) agentView {
	return agentView{
		agentLine:        lineOf(e),
		DisallowedTools:  e.DisallowedTools,
		Spawns:           e.Spawns,
		MaxTurns:         e.MaxTurns,
		PermissionMode:   e.PermissionMode,
		Effort:           e.Effort,
		Background:       e.Background,
		Isolation:        e.Isolation,
		On:               e.On,
		Sandbox:          e.Sandbox,
		OnEnd:            e.OnEnd,
		Skills:           e.Skills,
		Hooks:            e.Hooks,
		MCPServers:       e.MCPServers,
		NoModel:          e.NoModel,
		NoUser:           e.NoUser,
		InitialPrompt:    e.InitialPrompt,
		CriticalReminder: e.CriticalReminder,
		WaitsForTrust:    e.Waits,
		KeysWithout:      e.Rest,
		Prompt:           e.Prompt,
	}
}

// printAgent shows the definition and its effect for a start by the main agent.
func (a *app) printAgent(out io.Writer, v agentView) error {
	var b strings.Builder
	line := func(label, text string) {
		if text != "" {
			fmt.Fprintf(&b, "%-14s %s\n", label, excerpt.Line(text, 2000))
		}
	}
	line("name", v.Name)
	line("shown as", v.DisplayName)
	line("from", strings.TrimSpace(string(v.Level)+" "+v.Source))
	line("dialect", string(v.Dialect))
	line("hides", strings.Join(v.Hides, ", "))
	line("description", v.Description)
	line("tools", toolsOf(v.Tools))
	line("never", strings.Join(v.DisallowedTools, ", "))
	if v.Spawns != nil {
		line("may start", cmp.Or(strings.Join(v.Spawns, ", "), "no agents"))
	}
	line("model", cmp.Or(v.Model, "inherits"))
	line("effort", cmp.Or(v.Effort, "inherits"))
	line("turns", turnsOf(v.MaxTurns))
	line("mode", modeOf(v.PermissionMode))
	line("background", backgroundOf(v.Background))
	line("isolation", v.Isolation)
	line("on", v.On)
	line("sandbox", v.Sandbox)
	line("its tasks", v.OnEnd)
	line("skills", strings.Join(v.Skills, ", "))
	line("not for", audience(v))
	line("executes", strings.Join(executes(v), "; "))
	line("waits", waits(v.WaitsForTrust))
	for _, k := range v.KeysWithout {
		line("no effect", keyLine(k))
	}
	for _, p := range v.Problems {
		p.File = a.Brief(p.File)
		line("", p.String())
	}
	for _, part := range []struct{ head, text string }{{"initial prompt", v.InitialPrompt},
		{"said again at every turn", v.CriticalReminder}, {"prompt", v.Prompt}} {
		if part.text != "" {
			fmt.Fprintf(&b, "\n%s:\n\n%s\n", part.head, excerpt.Visible(part.text))
		}
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func turnsOf(n int) string {
	if n == 0 {
		return "inherits"
	}
	return fmt.Sprintf("at most %d", n)
}

func modeOf(mode string) string {
	if mode == "" {
		return "inherits"
	}
	return mode + ", where that allows no more than the asking agent has"
}

func backgroundOf(b *bool) string {
	switch {
	case b == nil:
		return ""
	case *b:
		return "yes"
	}
	return "no"
}

func audience(v agentView) string {
	var out []string
	if v.NoModel {
		out = append(out, "models")
	}
	if v.NoUser {
		out = append(out, "people")
	}
	return strings.Join(out, " and ")
}

func executes(v agentView) []string {
	var out []string
	for _, part := range []struct {
		key   string
		value any
		is    bool
	}{{"hooks", v.Hooks, len(v.Hooks) > 0}, {"mcpServers", v.MCPServers, len(v.MCPServers) > 0}} {
		if part.is {
			out = append(out, keyLine(catalog.Key{Name: part.key, Known: true, Value: part.value}))
		}
	}
	return out
}

func waits(keys []string) string {
	if len(keys) == 0 {
		return ""
	}
	return strings.Join(keys, " and ") + " for trust (see `drover trust`)"
}

func keyLine(k catalog.Key) string {
	value, err := json.Marshal(k.Value)
	if err != nil {
		value = []byte("?") // values of files are plain
	}
	word := ""
	if !k.Known {
		word = " (not known)"
	}
	return k.Name + word + ": " + excerpt.Line(string(value), 300)
}

// agentReport is what `drover agents check --json` prints.
type agentReport struct {
	Agents   int               `json:"agents"` // that can be used
	Errors   int               `json:"errors"`
	Warnings int               `json:"warnings"`
	Notes    int               `json:"notes"`
	Problems []catalog.Problem `json:"problems"`
}

func (a *app) agentsCheck(out io.Writer, paths []string, asJSON bool) error {
	r := agentReport{Problems: []catalog.Problem{}}
	if len(paths) == 0 {
		r.add(a.Agents("", true))
	}
	for _, path := range paths {
		path = a.Path(path)
		places, err := catalog.PlacesIn(path)
		if err != nil {
			return console.Missing(fmt.Sprintf("check %q: %v", path, err), "name a file or a folder")
		}
		r.add(catalog.New(catalog.Config{Places: places}))
	}
	n := severities(r.Problems)
	r.Errors, r.Warnings, r.Notes = n[catalog.Error], n[catalog.Warning], n[catalog.Note]
	var err error
	if asJSON {
		err = console.PrintJSON(out, r)
	} else {
		err = a.printReport(out, r)
	}
	if err == nil && r.Errors > 0 {
		err = &console.ExitError{Code: 1, Err: fmt.Errorf("%s in definitions of agents", tally(n, false))}
	}
	return err
}

func (r *agentReport) add(files *catalog.Files) {
	r.Problems = append(r.Problems, files.Problems()...)
	for _, e := range files.Entries() {
		if e.Level != definitions.BuiltIn {
			r.Agents++
			r.Problems = append(r.Problems, hookProblems(e)...)
		}
	}
}

// hookProblems are what those who run the hooks of an agent would say of them.
func hookProblems(e catalog.Entry) []catalog.Problem {
	if len(e.Hooks) == 0 {
		return nil
	}
	data, err := json.Marshal(map[string]any{"hooks": e.Hooks})
	if err != nil {
		return nil // values of files are plain
	}
	_, problems := hook.Load([]hook.Source{{Path: e.Source, Data: data, Trusted: true, Agent: true}})
	var out []catalog.Problem
	for _, p := range problems {
		what := p.What
		if p.Event != "" {
			what = p.Event + ": " + what
		}
		out = append(out, catalog.Problem{File: e.Source, Severity: catalog.Warning, What: "hooks: " + what, Fix: p.Fix})
	}
	return out
}

func (a *app) printReport(out io.Writer, r agentReport) error {
	var b strings.Builder
	for _, p := range r.Problems {
		p.File = a.Brief(p.File)
		b.WriteString(excerpt.Line(p.String(), 1000) + "\n")
	}
	fmt.Fprintf(&b, "%s; %s\n", console.Plural(r.Agents, "agent"), tally(severities(r.Problems), true))
	_, err := io.WriteString(out, b.String())
	return err
}

func severities(problems []catalog.Problem) map[catalog.Severity]int {
	n := map[catalog.Severity]int{}
	for _, p := range problems {
		n[p.Severity]++
	}
	return n
}

func tally(n map[catalog.Severity]int, notes bool) string {
	parts := []string{console.Plural(n[catalog.Error], "error"), console.Plural(n[catalog.Warning], "warning")}
	if notes {
		parts = append(parts, console.Plural(n[catalog.Note], "note"))
	}
	return strings.Join(parts, ", ")
}
