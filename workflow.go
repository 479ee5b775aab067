package drover

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/task"
)

// Workflow is a file of steps, as docs/workflows.md describes it.
type Workflow struct {
	File   string            // relative to the folder of the runtime, or absolute
	Params map[string]string // its parameters
	Name   string            // default: the name of the file
	Dir    string            // where its steps work; default: the folder of the runtime
}

// Workflow starts a workflow in the background and returns when it is durably
// recorded. [Runtime.Result] returns its outputs in the end; [task.Progress] has the
// state of each step.
func (rt *Runtime) Workflow(ctx context.Context, w Workflow) (task.Record, error) {
	dir, err := rt.folder(w.Dir)
	if err != nil {
		return task.Record{}, err
	}
	if !filepath.IsAbs(w.File) {
		w.File = filepath.Join(rt.dir, w.File)
	}
	return rt.start(
		ctx,
		control.StartRequest{
			Name:     w.Name,
			Cwd:      dir,
			Env:      rt.env,
			Workflow: &control.WorkflowRequest{File: w.File, Params: w.Params},
		},
	)
}

// ResumeWorkflow continues a workflow that has failed or was stopped, after the steps
// that are done.
func (rt *Runtime) ResumeWorkflow(ctx context.Context, id task.ID) (task.Record, error) {
	r, err := rt.s.Get(ctx, string(id))
	if err == nil && r.Traits().Work != task.BySteps {
		err = fmt.Errorf("resume workflow: task %s is no workflow (%s)", r.ID, r.Noun())
	}
	if err != nil {
		return r, err
	}
	return rt.s.Resume(ctx, control.ResumeRequest{Ref: string(r.ID), Env: rt.env})
}
