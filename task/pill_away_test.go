package task_test

import (
	"testing"

	"github.com/drover-dev/drover/task"
)

func TestCloudSessions(t *testing.T) {
	far := task.Record{Kind: task.RemoteAgent, Status: task.Running}
	ended := task.Record{Kind: task.RemoteAgent, Status: task.Completed}
	near := task.Record{Kind: task.LocalAgent, Status: task.Running}
	for want, tasks := range map[string][]task.Record{"": {near, ended}, "◇ 1 cloud session": {far, near}, "◇ 2 cloud sessions": {far, ended, far}} {
		if got := task.CloudSessions(tasks); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
