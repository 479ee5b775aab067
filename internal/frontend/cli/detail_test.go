package cli

import (
	"strings"
	"testing"

	"github.com/drover-dev/drover/internal/frontend/cli/run"
	"github.com/drover-dev/drover/task"
)

// Whoever has started a command in the foreground reads why it was ended, where the
// code alone does not tell.
func TestForegroundDetail(t *testing.T) {
	for name, c := range map[string]struct {
		r    task.Record
		says string // empty: nothing
	}{
		"memory": {task.Record{Status: task.Failed, ExitCode: ptr(-1), Error: "ended by SIGKILL: for want of memory",
			Cause: &task.Cause{Actor: task.ByItself, Reason: task.ReasonOutOfMemory, Signal: "SIGKILL", Detail: "for want of memory"}}, "failed: ended by SIGKILL: for want of memory"},
		"child": {task.Record{Status: task.Failed, ExitCode: ptr(137), Error: "exit code 137: a process of it",
			Cause: &task.Cause{Actor: task.ByItself, Reason: task.ReasonExit, Detail: "a process of it"}}, "failed: exit code 137: a process of it"},
		"plain": {task.Record{Status: task.Failed, ExitCode: ptr(137), Error: "exit code 137", Cause: &task.Cause{Actor: task.ByItself, Reason: task.ReasonExit}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := sample()
			w.foreground = func(run.Foreground) (task.Record, error) { return c.r, nil }
			got := w.do(t, "run", "x")
			if got.code != 137 || !strings.Contains(got.err, c.says) || (got.err == "") != (c.says == "") {
				t.Errorf("%+v", got)
			}
		})
	}
}
