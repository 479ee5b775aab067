package tasktools

import (
	"fmt"
	"strings"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/task"
)

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
	fmt.Fprintf(&b, "You will be told when %s ends%s. A message reaches it by SendMessage.", rec.ID, out.Unless)
	return agent.Output{Text: b.String(), Structured: LaunchedRemote{
		Status: "remote_launched", TaskID: rec.ID, Description: r.Description, Prompt: r.Prompt, OutputFile: rec.OutputFile,
	}}
}
