package agentsdk

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/task"
)

// Every move of a step is told with where all steps stand, the last one before the
// notification of the end.
func TestWorkflowSteps(t *testing.T) {
	w := newWorld(t, Options{Format: StreamJSON})
	id := task.ID("w00000001")
	at := func(a, b task.StepStatus, child task.ID) *task.Progress {
		return &task.Progress{Steps: []task.Step{{ID: "a", Status: a, Task: child, Attempt: 1}, {ID: "b", Status: b}}}
	}
	report := func(p *task.Progress) { w.do(id, lifecycle.Change{Verb: task.Report, Progress: p}) }
	w.run(func() {
		w.create(task.Record{ID: id, Kind: task.LocalWorkflow, Name: "release", Description: "ship it", Backgrounded: true})
		w.begin(id)
		report(at(task.StepPending, task.StepPending, ""))
		report(at(task.StepRunning, task.StepPending, "b00000002"))
		other := at(task.StepRunning, task.StepPending, "b00000002")
		other.Message = "a is at work"
		report(other) // no step has moved
		w.do(id, lifecycle.Change{Verb: task.Complete, Progress: at(task.StepCompleted, task.StepSkipped, "b00000002")})
	})
	var told []string
	for line := range strings.Lines(w.out.String()) {
		var l struct {
			Subtype string `json:"subtype"`
			Name    string `json:"workflow_name"`
			Steps   []struct {
				Step    string `json:"step_id"`
				Status  string `json:"status"`
				Task    string `json:"task_id"`
				Attempt int    `json:"attempt"`
			} `json:"workflow_progress"`
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatal(err)
		}
		switch l.Subtype {
		case "task_started":
			told = append(told, "started "+l.Name)
		case "task_progress":
			var words []string
			for _, s := range l.Steps {
				words = append(words, s.Step+":"+s.Status+":"+s.Task)
			}
			told = append(told, strings.Join(words, " "))
		case "task_notification":
			told = append(told, "ended")
		}
	}
	want := []string{"started release", "a:pending: b:pending:", "a:running:b00000002 b:pending:", "a:completed:b00000002 b:skipped:", "ended"}
	if !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}
