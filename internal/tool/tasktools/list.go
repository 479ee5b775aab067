package tasktools

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/tool/strict"
	"github.com/drover-dev/drover/task"
)

// MaxListed is how many tasks one listing shows.
const MaxListed = 100

//go:embed listtasks.md
var listPrompt string

const listSchema = `{"type":"object","properties":{` +
	`"status":{"type":"string","enum":["pending","running","completed","failed","killed"],"description":"Only tasks of this status"},` +
	`"all":{"type":"boolean","default":false,"description":"Every task, those that have ended included"}` +
	`},"additionalProperties":false}`

// Lister is what ListTasks needs.
type Lister interface {
	// List returns the tasks that the agent may see, newest first. It may be
	// called by several goroutines.
	List(ctx context.Context) ([]task.Record, error)
}

// NewList makes the tool ListTasks, which keeps no state.
func NewList(l Lister) agent.Tool {
	return &listTool{tasks: l, now: time.Now, spec: agent.ToolSpec{Name: "ListTasks", Description: listPrompt, InputSchema: json.RawMessage(listSchema)}}
}

type listTool struct {
	tasks Lister
	now   func() time.Time
	spec  agent.ToolSpec
}

func (t *listTool) Spec() agent.ToolSpec { return t.spec }
func (t *listTool) Parallel() bool       { return true }
func (t *listTool) ReadOnly() bool       { return true }

// Aliases are the names of the same tool in other dialects.
func (t *listTool) Aliases() []string { return []string{"list_tasks", "ListAgents", "list_agents"} }

type listInput struct {
	Status string `json:"status"`
	All    bool   `json:"all"`
}

// Listed is the structured result.
type Listed struct {
	Tasks []ListedTask `json:"tasks"`
	Total int          `json:"total"` // with those that are not shown
}

// ListedTask is one task of a listing.
type ListedTask struct {
	TaskID      task.ID     `json:"task_id"`
	TaskType    task.Kind   `json:"task_type"`
	Status      task.Status `json:"status"`
	Description string      `json:"description"`
	AgeMS       int64       `json:"age_ms"` // since it was recorded
	Tokens      int64       `json:"tokens,omitempty"`
}

func (t *listTool) Call(ctx context.Context, c agent.Call) (agent.Output, error) {
	in, err := strict.Decode[listInput](c.Input)
	if err == nil && in.Status != "" && !slices.Contains(task.Statuses(), task.Status(in.Status)) {
		err = fmt.Errorf(`field "status" must be one of %v, not %.40q`, task.Statuses(), in.Status)
	}
	if err != nil {
		return agent.Refuse("ListTasks: " + err.Error()), nil
	}
	recs, err := t.tasks.List(ctx)
	if err != nil {
		return outcome("list tasks", "", err)
	}
	recs = slices.DeleteFunc(slices.Clone(recs), func(r task.Record) bool { return !in.wants(r) })
	out := Listed{Tasks: []ListedTask{}, Total: len(recs)}
	for _, r := range recs[:min(len(recs), MaxListed)] {
		out.Tasks = append(out.Tasks, t.entry(r))
	}
	return agent.Output{Text: out.text(in), Structured: out}, nil
}

func (in listInput) wants(r task.Record) bool {
	switch {
	case in.Status != "":
		return string(r.Status) == in.Status
	case in.All:
		return true
	}
	return r.Background()
}

func (t *listTool) entry(r task.Record) ListedTask {
	e := ListedTask{TaskID: r.ID, TaskType: r.Kind, Status: r.Status, Description: excerpt.Line(r.Description, 120),
		AgeMS: max(0, t.now().Sub(r.CreateTime)).Milliseconds()}
	if e.Description == "" {
		e.Description = excerpt.Line(r.Command, 120)
	}
	switch {
	case r.Usage != nil:
		e.Tokens = r.Usage.TotalTokens
	case r.Progress != nil:
		e.Tokens = r.Progress.TokenCount
	}
	return e
}

// text is in the form of the reminder about background tasks, with the age and
// the tokens behind.
func (l Listed) text(in listInput) string {
	if l.Total == 0 {
		if in.Status == "" && !in.All {
			return "No background tasks."
		}
		return "No such tasks."
	}
	var b strings.Builder
	head := "Background tasks:"
	if in.Status != "" || in.All {
		head = "Tasks:"
	}
	b.WriteString(head + "\n")
	for _, e := range l.Tasks {
		fmt.Fprintf(&b, "- [%s] %s (%s): %s (%s", e.TaskID, e.TaskType, e.Status, e.Description, (time.Duration(e.AgeMS) * time.Millisecond).Round(time.Second))
		if e.Tokens > 0 {
			fmt.Fprintf(&b, ", %d tokens", e.Tokens)
		}
		b.WriteString(")\n")
	}
	if more := l.Total - len(l.Tasks); more > 0 {
		fmt.Fprintf(&b, "(and %d older)\n", more)
	}
	b.WriteString("\nUse TaskOutput for results and TaskStop to terminate.")
	return b.String()
}
