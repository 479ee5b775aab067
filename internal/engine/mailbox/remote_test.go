package mailbox

import (
	"strings"
	"testing"

	"github.com/drover-dev/drover/task"
)

// NT-15: the notification of remote work holds the text that ended it.
func TestRemoteNotification(t *testing.T) {
	r := task.Record{ID: "r00000001", Kind: task.RemoteAgent, Status: task.Completed, Description: "fix it"}
	text := Render(Delivery{Task: r, Answer: "pull request 7 was merged"})
	for _, piece := range []string{"<task-id>r00000001</task-id>", "<status>completed</status>", `<summary>Remote agent "fix it" completed</summary>`, "<result>pull request 7 was merged</result>"} {
		if !strings.Contains(text, piece) {
			t.Errorf("no %s in %s", piece, text)
		}
	}
}
