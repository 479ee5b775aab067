package tasktools

import (
	"context"
	_ "embed"
	"fmt"
	"strings"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/tool/toolkit"
	"github.com/drover-dev/drover/task"
)

// How long TaskOutput waits, in milliseconds.
const (
	DefaultWaitMS = 30_000
	MaxWaitMS     = 600_000
)

//go:embed taskoutput.md
var outputPrompt string

type outputInput struct {
	TaskID  string `json:"task_id" jsonschema:"ID or name" input:"filled"`
	Block   *bool  `json:"block,omitempty" input:"default=true"`
	Timeout *int   `json:"timeout,omitempty" input:"minimum=0,maximum=600000,default=30000"`
}

func newOutput(c Config) agent.Tool {
	return toolkit.New(toolkit.Tool[outputInput]{
		Name: "TaskOutput", Description: fmt.Sprintf(outputPrompt, DefaultWaitMS, MaxWaitMS),
		Aliases:  []string{"AgentOutputTool", "BashOutputTool", "AgentOutput", "BashOutput"},
		Parallel: true, ReadOnly: true, Call: c.output,
	})
}

func (c Config) output(ctx context.Context, _ agent.Call, in outputInput) (agent.Output, error) {
	timeout := DefaultWaitMS
	if in.Timeout != nil {
		timeout = *in.Timeout
	}
	block := in.Block == nil || *in.Block
	rec, timedOut, err := c.look(ctx, in.TaskID, block, time.Duration(timeout)*time.Millisecond)
	if err != nil {
		return failed("look at task", in.TaskID, err)
	}
	text, err := c.Tasks.Text(ctx, rec)
	if err != nil {
		return failed("read output", in.TaskID, err)
	}
	text, _ = excerpt.Tail(excerpt.Plain(text), c.OutputLimit, rec.OutputFile)
	return show(rec, text, timedOut, timeout), nil
}

// look finds a task, or waits for it. A caller that is gone gets the reason,
// even if the task ends in the same moment.
func (c Config) look(ctx context.Context, ref string, block bool, timeout time.Duration) (
	rec task.Record, timedOut bool, err error,
) {
	if err := checkRef(ref); err != nil {
		return rec, false, err
	}
	if block && timeout > 0 {
		rec, timedOut, err = c.Tasks.Wait(ctx, ref, timeout)
	} else {
		rec, err = c.Tasks.Find(ctx, ref)
		timedOut = block && !rec.Status.Terminal()
	}
	if ctx.Err() != nil {
		return rec, false, context.Cause(ctx)
	}
	return rec, timedOut, err
}

// Shown is the structured result for every kind of task.
type Shown struct {
	TaskID      task.ID     `json:"task_id"`
	TaskType    task.Kind   `json:"task_type"`
	Status      task.Status `json:"status"`
	Description string      `json:"description"`
	Output      string      `json:"output"`
	TimedOut    bool        `json:"timed_out,omitempty"`
}

// ShownShell is the output of a shell.
type ShownShell struct {
	Shown
	ExitCode *int `json:"exitCode"` // null while unknown
}

// ShownAgent is the output of a local agent.
type ShownAgent struct {
	Shown
	Prompt string  `json:"prompt"`
	Result string  `json:"result"` // same as output
	Error  *string `json:"error"`  // null without an error
}

// ShownRemote is the output of a remote agent.
type ShownRemote struct {
	Shown
	Prompt string `json:"prompt"` // the command that was sent
}

func show(rec task.Record, text string, timedOut bool, timeout int) agent.Output {
	out := agent.Output{IsError: rec.Status == task.Killed, Structured: structured(rec, text, timedOut)}
	var b strings.Builder
	switch {
	case rec.Status == task.Killed:
		b.WriteString("Task was killed")
		if rec.Cause != nil {
			fmt.Fprintf(&b, "\nCause: %s (%s)", rec.Cause.Actor, rec.Cause.Reason)
		}
		if text != "" {
			b.WriteString("\nOutput:\n" + text)
		}
	case rec.Status.Terminal():
		fmt.Fprintf(&b, "Status: %s\nOutput:\n%s", rec.Status, text)
		if code := rec.ExitCode; code != nil && *code != 0 {
			fmt.Fprintf(&b, "\n\nExit code: %d", *code)
		}
		if rec.Status == task.Failed {
			fmt.Fprintf(&b, "\n\nError: %s", excerpt.Line(failure(rec), 500))
		}
	default:
		b.WriteString(alive(rec))
		if timedOut {
			fmt.Fprintf(&b, "\nIt did not end within %d ms and goes on.", timeout)
		}
		if text != "" {
			b.WriteString("\nOutput so far:\n" + text)
		}
	}
	out.Text = b.String()
	return out
}

// alive describes a task that has not ended.
func alive(rec task.Record) string {
	var p task.Progress
	if rec.Progress != nil {
		p = *rec.Progress
	}
	if rec.Status == task.Pending {
		if p.Message != "" {
			return "Task is pending\n" + excerpt.Line(p.Message, 200)
		}
		return "Task is pending"
	}
	switch traits := rec.Traits(); {
	case traits.Work == task.ByCommand:
		return "Status: Running"
	case traits.NoUsage:
		return "Status: Running\n" + excerpt.Line(p.Message, 500)
	}
	recent := make([]string, len(p.RecentActivities))
	for i, a := range p.RecentActivities {
		recent[i] = excerpt.Line(a.ToolName, 80)
	}
	state := "Running"
	switch {
	case rec.WaitsFor != "":
		state = "Running, idle: it waits for " + excerpt.Line(rec.WaitsFor, 300)
	case rec.Idle:
		state = "Running, idle: it has answered and waits for a message"
	}
	return fmt.Sprintf("Status: %s\nTokens: %d\nTools: %d\nRecent: [%s]",
		state, p.TokenCount, p.ToolUseCount, strings.Join(recent, ", "))
}

func structured(rec task.Record, text string, timedOut bool) any {
	base := Shown{
		TaskID: rec.ID, TaskType: rec.Kind, Status: rec.Status, Description: rec.Description, Output: text,
		TimedOut: timedOut,
	}
	switch traits := rec.Traits(); {
	case traits.Work == task.ByCommand:
		return ShownShell{Shown: base, ExitCode: rec.ExitCode}
	case traits.Report && traits.Elsewhere != task.AlwaysAway:
		out := ShownAgent{Shown: base, Prompt: rec.Prompt, Result: text}
		if rec.Status == task.Failed || rec.Error != "" {
			why := failure(rec)
			out.Error = &why
		}
		return out
	case traits.Report:
		prompt := rec.Command
		if prompt == "" {
			prompt = rec.Prompt
		}
		return ShownRemote{Shown: base, Prompt: prompt}
	}
	return base
}
