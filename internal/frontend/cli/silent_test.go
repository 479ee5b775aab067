package cli

import (
	"testing"

	"github.com/drover-dev/drover/internal/frontend/cli/console"
	"github.com/drover-dev/drover/task"
)

// A table says since when nothing was heard of an agent at work, from 30 s on; what
// waits for somebody says that instead.
func TestSilent(t *testing.T) {
	for _, c := range []struct {
		r    task.Record
		want string
	}{
		{task.Record{}, "running"},
		{task.Record{LastHeard: when(31)}, "running"},
		{task.Record{LastHeard: when(30)}, "running (silent 30s)"},
		{task.Record{LastHeard: when(-130), Stopping: true}, "running (stopping, silent 3m10s)"},
		{task.Record{LastHeard: when(0), AwaitingApproval: true}, "running (needs your answer)"},
		{task.Record{LastHeard: when(0), Paused: true}, "running (paused)"},
		{task.Record{LastHeard: when(90)}, "running"},
	} {
		c.r.Status, c.r.Backgrounded = task.Running, true
		if got := console.Status(at(60), c.r); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
