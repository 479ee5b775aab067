package command

import (
	"embed"
	"strings"
)

//go:embed prompts
var prompts embed.FS

// Names of commands that the program answers.
const (
	CompactName      = "compact"
	SubconsciousName = "subconscious"
	AutopilotName    = "autopilot"
	ResearchName     = "research"
)

// builtIn are the commands of the program.
func builtIn() []Command {
	text := func(name, description, hint string, only ...string) Command {
		data, err := prompts.ReadFile("prompts/" + name + ".md")
		if err != nil {
			panic(err) // it is part of the binary
		}
		return Command{Name: name, Sort: Prompt, Description: description, Hint: hint, Level: BuiltIn, Trusted: true,
			Only: only, Template: Parse(strings.TrimSpace(string(data)))}
	}
	program := func(name, description, hint string) Command {
		return Command{Name: name, Sort: Program, Description: description, Hint: hint, Level: BuiltIn, Trusted: true}
	}
	research := text(ResearchName, "Research a question by several agents, and save a report.", "QUESTION",
		"Agent(research)", "Write(${DROVER_REPORT})", "Read(${DROVER_REPORT})", "Read(${DROVER_TASKS}/**)",
		"report_intent", "task_complete")
	research.Allow = []string{"Agent(research)", "Write(${DROVER_REPORT})", "Read(${DROVER_REPORT})"}
	return []Command{program(CompactName, "Sum up the conversation, so that it becomes shorter.", "[WHAT TO KEEP]"),
		program(SubconsciousName, "Show or use what is remembered of this project.", "[run|status|on|off]"),
		program(AutopilotName, "Remind the agent to go on until the work is marked as complete.", "[on|off]"),
		text("review", "Review a change, by an agent that did not make it.", "[WHAT TO REVIEW]"), research,
		text("fleet", "Plan work with its dependencies, and have agents do it side by side.", "TASK"),
		text("init", "Write AGENTS.md: what agents must know of this project.", "[WHAT MATTERS]")}
}
