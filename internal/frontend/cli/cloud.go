package cli

import (
	"fmt"

	"github.com/drover-dev/drover/task"
)

// cloudSessions says in a few words how many of the tasks work elsewhere now, or
// nothing if none does.
func cloudSessions(tasks []task.Record) string {
	n := 0
	for _, r := range tasks {
		if r.Kind == task.RemoteAgent && !r.Status.Terminal() {
			n++
		}
	}
	switch n {
	case 0:
		return ""
	case 1:
		return "◇ 1 cloud session"
	}
	return fmt.Sprintf("◇ %d cloud sessions", n)
}
