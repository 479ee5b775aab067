package tasktools

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/tool/toolkit"
	"github.com/drover-dev/drover/task"
)

// MaxListed is how many tasks one listing shows.
const MaxListed = 100

//go:embed listtasks.md
var listPrompt string

// Lister is what ListTasks needs.
type Lister interface {
	// List returns the tasks that the agent may see, newest first. It may be
	// called by several goroutines.
	List(ctx context.Context) ([]task.Record, error)
}

// NewList makes the tool ListTasks, which keeps no state.
func NewList(l Lister) agent.Tool {
	return newList(l, time.Now)
}

func newList(l Lister, now func() time.Time) agent.Tool {
	return toolkit.New(toolkit.Tool[listInput]{
		Name: "ListTasks", Description: listPrompt, Aliases: []string{"list_tasks", "ListAgents", "list_agents"},
		Parallel: true, ReadOnly: true,
		Call: func(ctx context.Context, _ agent.Call, in listInput) (agent.Output, error) {
			recs, err := l.List(ctx)
			if err != nil {
				return failed("list tasks", "", err)
			}
			return in.list(recs, now()), nil
		},
	})
}

type listInput struct {
	Status string `json:"status,omitempty" jsonschema:"Only tasks of this status" input:"enum=pending|running|completed|failed|killed"`
	All    bool   `json:"all,omitempty" jsonschema:"Every task, ended ones included" input:"default=false"`
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
	Worker      string      `json:"worker,omitempty"`    // on another machine, that does it
	WaitsFor    string      `json:"waits_for,omitempty"` // as in [task.Record]
}

func (in listInput) list(recs []task.Record, now time.Time) agent.Output {
	recs = slices.DeleteFunc(slices.Clone(recs), func(r task.Record) bool { return !in.wants(r) })
	out := Listed{Tasks: []ListedTask{}, Total: len(recs)}
	for _, r := range recs[:min(len(recs), MaxListed)] {
		out.Tasks = append(out.Tasks, entry(r, now))
	}
	return agent.Output{Text: out.text(in), Structured: out}
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

func entry(r task.Record, now time.Time) ListedTask {
	e := ListedTask{TaskID: r.ID, TaskType: r.Kind, Status: r.Status, Description: excerpt.Line(r.Description, 120),
		AgeMS: max(0, now.Sub(r.CreateTime)).Milliseconds(), Worker: excerpt.Line(r.Worker, 63),
		WaitsFor: excerpt.Line(r.WaitsFor, 300)}
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

// text returns the list in the form of the reminder about background tasks, followed
// by the age and the tokens.
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
		age := (time.Duration(e.AgeMS) * time.Millisecond).Round(time.Second)
		fmt.Fprintf(&b, "- [%s] %s (%s): %s (%s", e.TaskID, e.TaskType, e.Status, e.Description, age)
		if e.Tokens > 0 {
			fmt.Fprintf(&b, ", %d tokens", e.Tokens)
		}
		if e.Worker != "" {
			b.WriteString(", at worker " + e.Worker)
		}
		if e.WaitsFor != "" {
			b.WriteString(", waits for " + e.WaitsFor)
		}
		b.WriteString(")\n")
	}
	if more := l.Total - len(l.Tasks); more > 0 {
		fmt.Fprintf(&b, "(and %d older)\n", more)
	}
	b.WriteString("\nUse TaskOutput for results and TaskStop to terminate.")
	return b.String()
}
