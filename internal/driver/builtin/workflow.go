package builtin

import "github.com/drover-dev/drover/internal/driver/workflow"

// Workflow is a workflow whose steps are done by steps. What a host has left of one
// that died is not adopted: somebody gives it a further run.
func (k *Kinds) Workflow(steps workflow.Steps, in workflow.Input) Work {
	return Work{Driver: workflow.New(steps), Input: encode(in)}
}
