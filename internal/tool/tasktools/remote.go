package tasktools

import (
	"fmt"
	"strings"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/task"
)

// isolations is the schema of the tool Agent: an agent is said to be able to work
// elsewhere only where it can.
func isolations(remote bool) string {
	if !remote {
		return agentSchema
	}
	const one = `"enum":["worktree"],"description":"worktree: the agent works on its own copy of the repository"`
	const both = `"enum":["worktree","remote"],"description":"worktree: the agent works on its own copy of the repository; ` +
		`remote: it works on another machine, without the files of this one, and in the background"`
	return strings.Replace(agentSchema, one, both, 1)
}

func checkIsolation(text string) error {
	switch text {
	case "", "worktree", "remote":
		return nil
	}
	return fmt.Errorf(`field "isolation" must be worktree or remote, not %.40q`, text)
}

// LaunchedRemote is the structured result of an agent that works elsewhere.
type LaunchedRemote struct {
	Status      string  `json:"status"` // remote_launched
	TaskID      task.ID `json:"taskId"`
	Description string  `json:"description"`
	Prompt      string  `json:"prompt"`
	OutputFile  string  `json:"outputFile"`
}

func launchedRemote(r AgentRequest, out AgentOutcome) agent.Output {
	rec := out.Task
	var b strings.Builder
	fmt.Fprintf(&b, "The agent works elsewhere now.\nTask ID: %s\nOutput file: %s\n", rec.ID, rec.OutputFile)
	if out.Note != "" {
		b.WriteString(excerpt.Plain(out.Note) + "\n")
	}
	fmt.Fprintf(&b, "You will be told when %s ends; go on with other work. A message reaches it by SendMessage.", rec.ID)
	return agent.Output{Text: b.String(), Structured: LaunchedRemote{Status: "remote_launched", TaskID: rec.ID, Description: r.Description, Prompt: r.Prompt, OutputFile: rec.OutputFile}}
}
