package agentsdk

import (
	"slices"
	"time"

	"github.com/drover-dev/drover/task"
)

// workflowStep is the state of a step of a workflow.
type workflowStep struct {
	Step    string          `json:"step_id"`
	Status  task.StepStatus `json:"status"`
	Task    task.ID         `json:"task_id,omitempty"`
	Attempt int             `json:"attempt,omitempty"`
	Error   string          `json:"error,omitempty"`
}

// workflowName is the name of a workflow; empty: the task is not one.
func workflowName(r task.Record) string {
	if r.Kind != task.LocalWorkflow {
		return ""
	}
	return r.Name
}

// steps prints all steps of a workflow when one has changed.
func (s *Stream) steps(t *entry, was task.Record) {
	now := stepsOf(t.rec)
	if len(now) == 0 || slices.Equal(now, stepsOf(was)) {
		return
	}
	r := t.rec
	usage := taskUsage{DurationMS: r.Duration(time.Now()).Milliseconds()}
	if r.Progress != nil {
		usage.Tokens, usage.ToolUses = r.Progress.TokenCount, r.Progress.ToolUseCount
	}
	s.line(progressLine{head: system("task_progress"), Task: r.ID, Run: r.Run, ToolUseID: r.ToolUseID,
		Description: describe(r), Usage: usage, Summary: summary(r), Workflow: now, stamp: s.stamp()})
}

func stepsOf(r task.Record) []workflowStep {
	if r.Kind != task.LocalWorkflow || r.Progress == nil {
		return nil
	}
	out := make([]workflowStep, len(r.Progress.Steps))
	for i, p := range r.Progress.Steps {
		out[i] = workflowStep{p.ID, p.Status, p.Task, p.Attempt, p.Error}
	}
	return out
}
