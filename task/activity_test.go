package task_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/drover-dev/drover/task"
)

// What an agent did is told with what it was about, however much it wrote; what is short is told as it was.
func TestActivityInput(t *testing.T) {
	long := strings.Repeat("ä", task.MaxActivityInput)
	many := map[string]string{}
	for n := range task.MaxActivityInput {
		many[fmt.Sprint(n)] = "x"
	}
	crowd, _ := json.Marshal(many)
	for _, c := range []struct{ in, want string }{
		{`{"file_path": "/a"}`, `{"file_path": "/a"}`},
		{`not JSON`, `not JSON`},
		{`{"file_path":"/a","content":"` + long + `"}`, `{"content":"` + strings.Repeat("ä", 128) + `…","file_path":"/a"}`},
		{`{"file_path":"/a","content":"x` + long + `"}`, `{"content":"x` + strings.Repeat("ä", 127) + `…","file_path":"/a"}`},
		{`{"file_path":"/a","edits":[{"old":"` + long + `"}]}`, `{"file_path":"/a"}`},
		{`["` + long + `"]`, ""},
		{string(crowd), ""},
		{long, ""},
	} {
		p := task.Progress{}.Add(task.Activity{ToolName: "Write", Input: json.RawMessage(c.in)})
		if got := string(p.LastActivity.Input); got != c.want || got != string(p.RecentActivities[0].Input) || !utf8.ValidString(got) {
			t.Errorf("of %.60s: %.400s", c.in, got)
		}
	}
}
