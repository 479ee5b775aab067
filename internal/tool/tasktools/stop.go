package tasktools

import (
	"context"
	_ "embed"
	"fmt"
	"strings"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/tool/toolkit"
	"github.com/drover-dev/drover/task"
)

//go:embed taskstop.md
var stopPrompt string

// killShell is the older name, which ends shells only.
const killShell = "KillShell"

type stopInput struct {
	TaskID  string `json:"task_id,omitempty"`
	ShellID string `json:"shell_id,omitempty" jsonschema:"Same as task_id, for a shell" input:"unlisted"`
}

func newStop(c Config) agent.Tool {
	return toolkit.New(toolkit.Tool[stopInput]{
		Name: "TaskStop", Description: stopPrompt, Aliases: []string{killShell}, Parallel: true, Call: c.stop,
	})
}

func (c Config) stop(ctx context.Context, call agent.Call, in stopInput) (agent.Output, error) {
	called, field := "TaskStop", "task_id"
	if call.Name == killShell {
		called, field = killShell, "shell_id"
	}
	ref, err := same("task_id", in.TaskID, "shell_id", in.ShellID)
	if err == nil && ref == "" {
		err = fmt.Errorf("field %q is missing", field)
	}
	if err != nil {
		return agent.Refuse(called + ": " + err.Error()), nil
	}
	if err := checkRef(ref); err != nil {
		return failed("stop task", ref, err)
	}
	before, err := c.Tasks.Find(ctx, ref)
	if err != nil {
		return failed("stop task", ref, err)
	}
	if called == killShell && before.Traits().Work != task.ByCommand {
		return agent.Refuse(fmt.Sprintf("KillShell: %s is no shell (%s); use TaskStop", before.ID, before.Noun())), nil
	}
	rec, receipt, err := c.Tasks.Stop(ctx, string(before.ID))
	if err != nil {
		return failed("stop task", ref, err)
	}
	return stopped(called, rec, receipt), nil
}

// StopResult is the structured result of a stop.
type StopResult struct {
	Message   string          `json:"message"`
	TaskID    task.ID         `json:"task_id"`
	TaskType  task.Kind       `json:"task_type"`
	Status    task.Status     `json:"status"`
	Command   string          `json:"command,omitempty"`
	Survivors []task.Survivor `json:"survivors,omitempty"`
}

// stopped tells of the end of a task. The words come from the record alone, so
// that a second stop is answered like the first; only processes that are
// still there come from the receipt.
func stopped(called string, rec task.Record, receipt task.Receipt) agent.Output {
	message := fmt.Sprintf("Task %s had already ended: %s", rec.ID, rec.Status)
	switch {
	case rec.Status == task.Killed && called == killShell:
		message = "Successfully killed shell: " + string(rec.ID)
	case rec.Status == task.Killed:
		message = "Successfully stopped task: " + string(rec.ID)
	case rec.Status == task.Completed && rec.Team != nil:
		message = fmt.Sprintf("Teammate %s has finished; what it has said last comes as a message", rec.ID)
	case !rec.Status.Terminal():
		message = fmt.Sprintf("Task %s is being stopped", rec.ID)
	case rec.ExitCode != nil:
		message += fmt.Sprintf(" (exit code %d)", *rec.ExitCode)
	}
	var b strings.Builder
	b.WriteString(message)
	for _, s := range receipt.Survivors {
		fmt.Fprintf(&b, "\nStill there: process %d (%s): %s",
			s.PID, excerpt.Line(s.Command, 80), excerpt.Line(s.Why, 200))
	}
	return agent.Output{Text: b.String(), Structured: StopResult{
		Message: message, TaskID: rec.ID, TaskType: rec.Kind, Status: rec.Status, Command: rec.Command,
		Survivors: receipt.Survivors,
	}}
}
