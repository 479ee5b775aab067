// Package workflowtool is the tool Workflow, with which a model runs a workflow file.
//
// It owns the input and the texts of the tool. The caller supplies the functions that
// read the file, check its permissions and run it.
package workflowtool

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/tool/toolkit"
	"github.com/drover-dev/drover/task"
)

// Name is the name of the tool.
const Name = "Workflow"

//go:embed workflow.md
var prompt string

type input struct {
	File   string            `json:"file,omitempty" jsonschema:"Path of the workflow"`
	Params map[string]string `json:"params,omitempty" jsonschema:"Its parameters"`
	Resume string            `json:"resume,omitempty" jsonschema:"Instead of file: ID of an ended workflow to continue"`
}

// Workflows runs workflows. The model gets a [toolkit.Refusal]; another error is a failure
// of the runtime.
type Workflows interface {
	// Start returns when the workflow is durably recorded, or, where nothing may run
	// in the background, at its end.
	Start(ctx context.Context, r Request) (Outcome, error)
}

// Request starts or continues a workflow.
type Request struct {
	File      string // absolute; empty with Resume
	Params    map[string]string
	Resume    string
	ToolUseID string
}

// Outcome is what became of it.
type Outcome struct {
	Task         task.Record
	Backgrounded bool   // it continues
	Unless       string // the rest of the promise to report its end
	Text         string // the result of an ended workflow
}

// New makes the tool. It keeps no state. Relative paths begin at root; limit is how many code
// points of a result are shown, 0 for [excerpt.DefaultLimit].
func New(w Workflows, root string, limit int) agent.Tool {
	limit = cmp.Or(limit, excerpt.DefaultLimit)
	return toolkit.New(toolkit.Tool[input]{Name: Name, Description: prompt,
		Call: func(ctx context.Context, call agent.Call, in input) (agent.Output, error) {
			r, err := in.request(root)
			if err != nil {
				return agent.Output{}, err
			}
			r.ToolUseID = call.ID
			out, err := w.Start(ctx, r)
			switch {
			case err != nil:
				return agent.Output{}, fmt.Errorf("start workflow: %w", err)
			case out.Backgrounded:
				return launched(out.Task, out.Unless), nil
			}
			return ended(out, limit), nil
		}})
}

func (in input) request(root string) (Request, error) {
	r := Request{File: in.File, Params: in.Params, Resume: in.Resume}
	switch {
	case (in.File == "") == (in.Resume == ""):
		return r, toolkit.Refusef(`give "file" or "resume"`)
	case in.Resume != "" && len(in.Params) > 0:
		return r, toolkit.Refusef(`"params" stay what they were when a workflow is resumed; leave them out`)
	case strings.Contains(in.File, "\x00"):
		return r, toolkit.Refusef(`"file" holds a NUL byte`)
	}
	if in.File != "" && !filepath.IsAbs(in.File) {
		r.File = filepath.Join(root, in.File)
	}
	return r, nil
}

// Launched is the structured result of a workflow that continues in the background.
type Launched struct {
	Status     string     `json:"status"` // async_launched
	TaskID     task.ID    `json:"taskId"`
	RunID      task.RunID `json:"runId"`
	ScriptPath string     `json:"scriptPath"`
	OutputFile string     `json:"outputFile"`
}

// Ended is the structured result of an ended workflow.
type Ended struct {
	Status task.Status `json:"status"`
	TaskID task.ID     `json:"taskId"`
	RunID  task.RunID  `json:"runId"`
	Result string      `json:"result"`
	Error  string      `json:"error,omitempty"`
}

func launched(r task.Record, told string) agent.Output {
	text := fmt.Sprintf("Workflow started.\nTask ID: %s\nOutput file: %s\nYou will be told when it ends%s.", r.ID, r.OutputFile, told)
	return agent.Output{Text: text, Structured: Launched{Status: "async_launched", TaskID: r.ID, RunID: r.Run,
		ScriptPath: r.Command, OutputFile: r.OutputFile}}
}

func ended(out Outcome, limit int) agent.Output {
	r := out.Task
	text, _ := excerpt.Tail(excerpt.Plain(out.Text), limit, r.OutputFile)
	res := Ended{Status: r.Status, TaskID: r.ID, RunID: r.Run, Result: text, Error: r.Error}
	head := fmt.Sprintf("Workflow %s is %s.", r.ID, r.Status)
	if r.Status != task.Completed {
		if res.Error == "" && r.Cause != nil {
			res.Error = fmt.Sprintf("stopped by %s (%s)", r.Cause.Actor, r.Cause.Reason)
		}
		head = fmt.Sprintf("Workflow %s did not complete: %s. To go on with it, give its ID as resume.", r.ID,
			excerpt.Line(res.Error, 500))
	}
	return agent.Output{Text: head + "\n\n" + text, IsError: r.Status != task.Completed, Structured: res}
}
