package environment

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/policy"
	"github.com/drover-dev/drover/internal/tool/boardtool"
	"github.com/drover-dev/drover/internal/tool/findtool"
	"github.com/drover-dev/drover/internal/tool/mcptool"
	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
)

// Narrower returns the mode of a child: its own only if that allows no more.
func Narrower(parent, own policy.Mode) policy.Mode {
	width := func(m policy.Mode) int {
		return slices.Index(
			[]policy.Mode{
				policy.Plan,
				policy.DontAsk,
				policy.Default,
				policy.AcceptEdits,
				policy.Bypass,
			},
			m,
		)
	}
	if parent == "" || parent == policy.Auto {
		parent = policy.Default
	}
	if own == policy.Auto {
		own = policy.Default
	}
	if w := width(own); w >= 0 && w < width(parent) {
		return own
	}
	return parent
}

// Spawnable extracts the types of agents that may be started from a list of tools:
// Agent(explore, plan) is the tool Agent for those two.
func Spawnable(tools []string) (names, types []string) {
	for _, t := range tools {
		name, args, ok := strings.Cut(t, "(")
		if name != "Agent" && name != "Task" || !ok {
			names = append(names, t)
			continue
		}
		names = append(names, "Agent")
		types = []string{}
		for _, one := range strings.Split(strings.TrimSuffix(args, ")"), ",") {
			types = append(types, subagent.Normalize(one))
		}
	}
	if tools != nil && names == nil {
		names = []string{}
	}
	return names, types
}

// Subset returns the tools of a child: those listed that its parent has (nil: all that its
// parent has) without the forbidden. A nil result means all, including the program's own.
func Subset(parent, listed, forbidden []string, own ...string) []string {
	if listed == nil && len(forbidden) == 0 {
		return parent
	}
	if listed == nil {
		if listed = parent; listed == nil {
			listed = append(append(allTools(), own...), "mcp__*")
		}
	}
	names := []string{}
	for _, n := range listed {
		if !slices.Contains(forbidden, n) {
			names = append(names, within(parent, n)...)
		}
	}
	return names
}

func allTools() []string {
	return []string{
		"Bash", "Read", "Write", "Edit", "Glob", "Grep", "WebFetch", "Agent", "TaskOutput", "TaskStop",
		"ListTasks", "SendMessage", "read_agent", task.SubmitPlan, task.ExitPlanMode, "Monitor", "Workflow", "Skill",
		"TaskCreate", "TaskGet", "TaskList", "TaskUpdate", "AskUserQuestion", "report_intent",
		mcptool.ListName,
		mcptool.ReadName,
		findtool.Search, findtool.Call,
	}
}

// Sizes of descriptions and schemas, in bytes.
const (
	fewDeferred = 3 << 10 // of tools that are worth no search
	manyForeign = 8 << 10 // of MCP servers and of the program, which each request may hold
)

// Defer splits off the tools that an agent finds with ToolSearch instead of reading their schemas
// in each request, and returns all tools with those that find. Tools that are needed in most
// conversations stay, and so do those that keep reports: the definition of the agent names them.
// The result depends on the tools alone, so agents of one type have the same beginning of requests.
func Defer(tools []agent.Tool, keep func(name string) bool) (all []agent.Tool, deferred []string) {
	foreign := 0
	for _, t := range tools {
		if s := t.Spec(); isForeign(s.Name) {
			foreign += specBytes(s)
		}
	}
	var specs []agent.ToolSpec
	size := 0
	for _, t := range tools {
		s := t.Spec()
		if keep(s.Name) || slices.Contains(coreTools(), s.Name) || isForeign(s.Name) && foreign <= manyForeign {
			continue
		}
		specs, size = append(specs, s), size+specBytes(s)
		deferred = append(deferred, s.Name)
	}
	if size < fewDeferred {
		return tools, nil
	}
	return append(slices.Clip(tools), findtool.New(specs, isForeign)...), deferred
}

func specBytes(s agent.ToolSpec) int { return len(s.Name) + len(s.Description) + len(s.InputSchema) }

// isForeign reports whether a tool is not one of ours.
func isForeign(name string) bool {
	return name != boardtool.Name && !slices.Contains(allTools(), name)
}

// coreTools are those that most conversations need.
func coreTools() []string {
	return []string{
		"Bash", "Read", "Write", "Edit", "Glob", "Grep", "Agent", "TaskOutput", "TaskStop", "WebFetch",
		"AskUserQuestion", task.SubmitPlan, boardtool.Name,
	}
}

// Tools of servers in lists of tools: mcp__server, mcp__server__* and mcp__* match many, and so
// does server/* of foreign files.

// Pattern is an entry of such a list; an entry that ends in __ or is mcp__ matches all names with
// that prefix.
func Pattern(entry string) string {
	if server, tool, ok := strings.Cut(entry, "/"); ok && !strings.HasPrefix(entry, mcptool.Prefix) {
		if tool == "*" {
			return mcptool.Prefix + mcptool.ServerName(server) + "__"
		}
		return mcptool.Name(server, tool)
	}
	rest, ok := strings.CutPrefix(entry, mcptool.Prefix)
	switch {
	case !ok:
		return entry
	case !strings.Contains(rest, "__") && rest != "*":
		return entry + "__"
	}
	return strings.TrimSuffix(entry, "*")
}

// Covers reports whether an entry covers another, or a tool.
func Covers(entry, other string) bool {
	p, q := Pattern(entry), Pattern(other)
	return p == q || strings.HasPrefix(p, mcptool.Prefix) && strings.HasSuffix(p, "__") && strings.HasPrefix(q, p)
}

func CoveredBy(list []string, name string) bool {
	return slices.ContainsFunc(list, func(entry string) bool { return Covers(entry, name) })
}

// within returns the entries of a child's list that its parent's list permits; a nil one
// permits all.
func within(parent []string, entry string) []string {
	if parent == nil || slices.Contains(parent, entry) || CoveredBy(parent, entry) {
		return []string{entry}
	}
	var out []string
	for _, p := range parent {
		if Covers(entry, p) {
			out = append(out, p)
		}
	}
	return out
}

// Bar adds the servers and their tools that a definition forbids.
func Bar(barred, forbidden []string) []string {
	out := slices.Clone(barred)
	for _, f := range forbidden {
		if strings.HasPrefix(Pattern(f), mcptool.Prefix) {
			out = append(out, f)
		}
	}
	return out
}

// ToolNames are the names of tools.
func ToolNames(tools []agent.Tool) []string {
	names := make([]string, len(tools))
	for i, t := range tools {
		names[i] = t.Spec().Name
	}
	return names
}

// CheckTools refuses own tools whose names a model could not distinguish from others.
func CheckTools(tools []agent.Tool) error {
	seen := append(allTools(), boardtool.Name)
	for _, name := range ToolNames(tools) {
		switch {
		case strings.TrimSpace(name) == "":
			return errors.New("a tool of the program has no name")
		case slices.ContainsFunc(seen, func(other string) bool { return strings.EqualFold(name, other) }):
			return fmt.Errorf("tool %s of the program: there is a tool of this name", name)
		}
		seen = append(seen, name)
	}
	return nil
}
