package command

import (
	"embed"
	"strings"

	"github.com/drover-dev/drover/internal/project/definitions"
	"github.com/drover-dev/drover/internal/project/skill"
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
	program := func(name, description, hint string) Command {
		return Command{Sort: Program, Skill: skill.Skill{Name: name, Description: description, Hint: hint,
			Level: definitions.BuiltIn, Trusted: true}}
	}
	text := func(name, description, hint string, only ...string) Command {
		data, err := prompts.ReadFile("prompts/" + name + ".md")
		if err != nil {
			panic(err) // it is part of the binary
		}
		c := program(name, description, hint)
		c.Sort, c.Only, c.Template = Prompt, only, Parse(strings.TrimSpace(string(data)))
		return c
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
