package tasktools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/task"
)

// listed is a fixed listing.
type listed struct {
	tasks []task.Record
	err   error
}

func (l listed) List(context.Context) ([]task.Record, error) { return l.tasks, l.err }

func at(created time.Time, id string, kind task.Kind, s task.Status, background bool, description string) task.Record {
	return task.Record{ID: task.ID(id), Kind: kind, Status: s, Backgrounded: background, Description: description,
		CreateTime: created}
}

func TestListTasks(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	agentTask := at(now.Add(-90*time.Second), "a00000001", task.LocalAgent, task.Running, true, "Look\nfor it")
	agentTask.Progress = &task.Progress{TokenCount: 1200}
	done := at(now.Add(-time.Hour), "a00000003", task.LocalAgent, task.Completed, true, "Done")
	done.Usage = &task.Usage{TotalTokens: 7}
	command := at(now.Add(-2*time.Second), "b00000002", task.LocalBash, task.Pending, true, "")
	command.Command, command.Worker = "make test", "gpu-1"
	all := listed{tasks: []task.Record{command, agentTask, at(now, "b00000004", task.LocalBash, task.Running, false,
		"in front"), done}}
	tool := newList(all, func() time.Time { return now })
	const hint = "\nUse TaskOutput for results and TaskStop to terminate."
	live := "- [b00000002] local_bash (pending): make test (2s, at worker gpu-1)\n- [a00000001] local_agent (running): Look for it " +
		"(1m30s, 1200 tokens)\n"
	for input, want := range map[string]string{
		`{}`:                     "Background tasks:\n" + live + hint,
		`{"status":"completed"}`: "Tasks:\n- [a00000003] local_agent (completed): Done (1h0m0s, 7 tokens)\n" + hint,
		`{"status":"killed"}`:    "No such tasks.",
		`{"all":true}`: "Tasks:\n" + live +
			"- [b00000004] local_bash (running): in front (0s)\n- [a00000003] local_agent (completed): Done (1h0m0s, 7 " +
			"tokens)\n" + hint,
	} {
		out, err := tool.Call(t.Context(), agent.Call{Input: json.RawMessage(input)})
		if err != nil || out.IsError || out.Text != want {
			t.Errorf("%s: %q, %v", input, out.Text, err)
		}
	}
	out, _ := tool.Call(t.Context(), agent.Call{Input: json.RawMessage(`{"status":"completed"}`)})
	if want := (Listed{Total: 1, Tasks: []ListedTask{{"a00000003", task.LocalAgent, task.Completed, "Done", 3_600_000,
		7, "", ""}}}); !reflect.DeepEqual(out.Structured, want) {
		t.Errorf("%+v", out.Structured)
	}
	if len(all.tasks) != 4 || all.tasks[2].ID != "b00000004" {
		t.Error("the listing of the runtime was changed")
	}
}

func TestListBounds(t *testing.T) {
	var many listed
	for i := range 250 {
		many.tasks = append(many.tasks, at(time.Now(), fmt.Sprintf("b%08d", i), task.LocalBash, task.Running, true,
			strings.Repeat("long ", 100)))
	}
	out, err := NewList(many).Call(t.Context(), agent.Call{Input: json.RawMessage(`{}`)})
	if err != nil || !strings.Contains(out.Text, "(and 150 older)") || strings.Count(out.Text, "\n- [") != MaxListed ||
		len(out.Text) > 20_000 || out.Structured.(Listed).Total != 250 {
		t.Errorf("%d bytes, %v", len(out.Text), err)
	}
	if out, _ := NewList(listed{}).Call(t.Context(),
		agent.Call{Input: json.RawMessage(`{}`)}); out.Text != "No background tasks." {
		t.Errorf("%q", out.Text)
	}
	for _, input := range []string{`{"status":"stopped"}`, `{"task_id":"x"}`, `{"all":"yes"}`} {
		if out, err := NewList(many).Call(t.Context(), agent.Call{Input: json.RawMessage(input)}); err != nil ||
			!out.IsError {
			t.Errorf("%s: %q, %v", input, out.Text, err)
		}
	}
	broken := errors.New("no log")
	if _, err := NewList(listed{err: broken}).Call(t.Context(), agent.Call{Input: json.RawMessage(`{}`)}); !errors.Is(err,
		broken) {
		t.Errorf("error %v", err)
	}
}

// Every tool is strict, and all of these may run beside others.
func TestMarks(t *testing.T) {
	for _, tool := range append(New(Config{Tasks: &memory{}}), NewList(listed{})) {
		s := tool.Spec()
		if !json.Valid(s.InputSchema) || !strings.HasSuffix(string(s.InputSchema), `"additionalProperties":false}`) ||
			s.Description == "" {
			t.Errorf("%s: %s", s.Name, s.InputSchema)
		}
		if p, ok := tool.(agent.Parallel); !ok || !p.Parallel() {
			t.Errorf("%s holds other calls up", s.Name)
		}
	}
}
