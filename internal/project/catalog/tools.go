package catalog

import (
	"slices"
	"strings"

	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
)

// named are our tools for a name as a dialect has it, or nil. Case does not
// count (C-35).
func named(name string, d Dialect) []string {
	name = strings.ToLower(name)
	if d == Copilot {
		if tools := copilot(name); tools != nil {
			return tools
		}
	}
	if tools := alias(name); tools != nil {
		return tools
	}
	for _, own := range own() {
		if strings.ToLower(own) == name {
			return []string{own}
		}
	}
	return nil
}

func own() []string {
	return []string{"Bash", "Read", "Write", "Edit", "Glob", "Grep", "Agent", "TaskOutput", "TaskStop", "ListTasks",
		"SendMessage", "Monitor", "Workflow", "TaskCreate", "TaskGet", "TaskList", "TaskUpdate", "WebFetch", "WebSearch",
		"Skill", "AskUserQuestion", "report_intent", "ListMcpResources", "ReadMcpResource", task.ExitPlanMode}
}

// ToolNames are the names of our tools.
func ToolNames() []string {
	return append(own(), "read_agent", task.SubmitPlan, "context_board", "task_complete",
		"ToolSearch", "CallTool")
}

// KnownTool reports whether a permission rule can be about a tool of this name: one of
// ours, by any name that it has elsewhere, a tool of an MCP server, or a tool that only
// other programs have. Case does not count.
func KnownTool(name string) bool {
	if strings.HasPrefix(name, "mcp__") || named(name, Claude) != nil {
		return true
	}
	others := []string{"NotebookEdit", "NotebookRead", "EnterPlanMode", "SlashCommand", "write_agent"}
	return slices.ContainsFunc(append(ToolNames(), others...), func(s string) bool { return strings.EqualFold(s, name) })
}

// alias knows the names that our tools have had elsewhere.
func alias(name string) []string {
	switch name {
	case "task":
		return []string{"Agent"}
	case "fileread", "view":
		return []string{"Read"}
	case "filewrite", "create":
		return []string{"Write"}
	case "fileedit", "multiedit":
		return []string{"Edit"}
	case "ls":
		return []string{"Glob"}
	case "shell":
		return []string{"Bash"}
	case "bashoutput", "agentoutput", "bashoutputtool", "agentoutputtool":
		return []string{"TaskOutput"}
	case "killshell", "killbash":
		return []string{"TaskStop"}
	case "listagents", "list_agents", "list_tasks":
		return []string{"ListTasks"}
	case "todowrite":
		return todos()
	case "todoread":
		return []string{"TaskGet", "TaskList"}
	case "fetch", "web_fetch":
		return []string{"WebFetch"}
	case "web_search":
		return []string{"WebSearch"}
	case "ask_user":
		return []string{"AskUserQuestion"}
	case "exit_plan_mode":
		return []string{task.ExitPlanMode}
	}
	return nil
}

func todos() []string { return []string{"TaskCreate", "TaskGet", "TaskList", "TaskUpdate"} }

// sets returns the groups of tools in Copilot's dialect: the word before a slash
// names a group or an MCP server.
func sets() []string {
	return []string{"execute", "read", "edit", "search", "agent", "web", "todo", "vscode", "runcommands"}
}

// copilot knows the groups, and those single tools that give no more than one of
// ours does. Both may be written with the group before them.
func copilot(name string) []string {
	if set, one, ok := strings.Cut(name, "/"); ok {
		if !slices.Contains(sets(), set) {
			return nil
		}
		name = one
	}
	switch name {
	case "execute":
		return []string{"Bash", "TaskOutput", "TaskStop"}
	case "shell", "bash", "powershell", "runcommands", "runinterminal", "terminalcommand", "runtests",
		"runtasks", "runtask", "createandruntask":
		return []string{"Bash"}
	case "getterminaloutput", "awaitterminal", "gettaskoutput":
		return []string{"TaskOutput"}
	case "read", "readfile", "notebookread":
		return []string{"Read"}
	case "edit", "editfiles":
		return []string{"Edit", "Write"}
	case "createfile":
		return []string{"Write"}
	case "search", "codebase", "searchresults", "findtestfiles", "usages":
		return []string{"Glob", "Grep"}
	case "filesearch", "listdirectory":
		return []string{"Glob"}
	case "textsearch":
		return []string{"Grep"}
	case "agent", "custom-agent", "runsubagent":
		return []string{"Agent", "TaskOutput", "TaskStop"}
	case "fetch":
		return []string{"WebFetch"}
	case "web":
		return []string{"WebFetch", "WebSearch"}
	case "todo", "todos":
		return todos()
	}
	return nil
}

// elsewhere reports whether a name belongs to a tool which other programs have
// and Drover lacks: its author made no mistake.
func elsewhere(name string) bool {
	switch strings.ToLower(name) {
	case "notebookedit", "notebookread", "enterplanmode", "enterworktree", "exitworktree",
		"croncreate", "crondelete", "cronlist", "schedulewakeup", "toolsearch", "reportfindings",
		"listmcpresourcestool", "readmcpresourcetool", "structuredoutput", "powershell", "lsp":
		return true
	}
	return false
}

// foreign reports whether a name belongs to a tool of an MCP server. Such names
// are kept as they are.
func foreign(name string, d Dialect) bool {
	if strings.HasPrefix(name, "mcp__") {
		return len(name) > len("mcp__")
	}
	server, tool, ok := strings.Cut(name, "/")
	return d == Copilot && ok && server != "" && tool != "" && !slices.Contains(sets(), strings.ToLower(server))
}

// choice is the set of tools that a list of names selects.
type choice struct {
	all       bool
	tools     []string
	spawns    []string // that Agent may start, if it is restricted
	limited   bool     // it is
	unknown   []string
	elsewhere []string
	bound     []string // with a rule in brackets, which no list of tools can keep
}

func choose(words []string, d Dialect) choice {
	c := choice{tools: []string{}}
	for _, w := range words {
		c.add(w, d)
	}
	if i := slices.Index(c.tools, "Agent"); i >= 0 && c.limited {
		c.tools[i] = restricted(c.spawns)
	}
	return c
}

// Chosen returns the tools that a list of names selects, and the words that name no tool. It
// leaves out tools of other programs that Drover lacks.
func Chosen(words []string) (tools, unknown []string) {
	c := choose(words, Claude)
	for _, w := range c.unknown {
		if KnownTool(w) {
			c.put(w)
		} else {
			unknown = append(unknown, w)
		}
	}
	return c.tools, append(unknown, c.bound...)
}

func (c *choice) add(word string, d Dialect) {
	name, rule, bracket := strings.Cut(word, "(")
	name = strings.TrimSpace(name)
	tools := named(name, d)
	switch {
	case word == "*":
		c.all = true
	case tools == nil && foreign(name, d):
		c.put(word)
	case tools == nil && elsewhere(name):
		c.elsewhere = append(c.elsewhere, name)
	case tools == nil:
		c.unknown = append(c.unknown, word)
	case bracket && tools[0] == "Agent":
		c.limited = true
		c.spawns = append(c.spawns, types(strings.TrimSuffix(rule, ")"))...)
		c.put("Agent")
	case bracket:
		c.bound = append(c.bound, word)
	default:
		for _, t := range tools {
			c.put(t)
		}
	}
}

func (c *choice) put(tool string) {
	if !slices.Contains(c.tools, tool) {
		c.tools = append(c.tools, tool)
	}
}

// types returns the names in the brackets after Agent.
func types(list string) []string {
	var out []string
	for name := range strings.SplitSeq(list, ",") {
		if name = subagent.Normalize(strings.TrimSpace(name)); name != "" {
			out = append(out, name)
		}
	}
	return out
}

// restricted is how a list of tools says which agents may be started.
func restricted(spawns []string) string { return "Agent(" + strings.Join(spawns, ",") + ")" }
