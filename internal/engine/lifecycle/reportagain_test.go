package lifecycle_test

import (
	"errors"
	"testing"

	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/task"
)

// What is told again as it was is no change.
func TestReportAgain(t *testing.T) {
	report := func(tools int, summary string) lifecycle.Change {
		return lifecycle.Change{Verb: task.Report, At: ended, Summary: summary,
			Progress: &task.Progress{ToolUseCount: tools, RecentActivities: []task.Activity{{ToolName: "Read"}}}}
	}
	r := apply(t, record(t, task.Running), report(1, "reads"))
	for name, same := range map[string]lifecycle.Change{
		"progress": report(1, ""), "both": report(1, "reads"), "summary": {Verb: task.Report, Summary: "reads"}, "nothing": {Verb: task.Report},
	} {
		if got, err := lifecycle.Apply(r, same); !errors.Is(err, lifecycle.ErrNoChange) {
			t.Errorf("%s: %+v, %v", name, got.Progress, err)
		}
	}
	for name, other := range map[string]lifecycle.Change{
		"progress": report(2, ""), "summary": report(1, "writes"), "output": {Verb: task.Report, OutputBytes: r.OutputBytes + 1},
	} {
		if _, err := lifecycle.Apply(r, other); err != nil {
			t.Errorf("another %s: %v", name, err)
		}
	}
}
