package project

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/drover-dev/drover/task"
)

// What a repair has done is said in full to programs, and in few lines to people,
// with nothing in them that a terminal would obey.
func TestRepairText(t *testing.T) {
	r := Repair{Session: "s12345678", Damage: "page 3\x1b[2J is torn", Tasks: 4, Events: 9, UnreadablePages: 2, Aside: []string{"/x/session.db.damaged-1"}}
	for i := range 50 {
		id := task.ID(fmt.Sprintf("b%08d", i))
		r.Missing = append(r.Missing, [2]task.Seq{task.Seq(i * 10), task.Seq(i*10 + i%2)})
		r.MissingTasks, r.Rebuilt = append(r.MissingTasks, id), append(r.Rebuilt, Rebuilt{ID: id, Running: i == 1, From: []string{"tasks/x.output"}})
	}
	text := r.text()
	for _, want := range []string{"rebuilt its log", "kept: 4 tasks, 9 events", "records: 0, 10 to 11, 20,", "and 30 more", "b00000019", "2 pages", "set aside: /x/session.db.damaged-1",
		"b00000001, a kept command", "b00000002, killed, cause lost"} {
		if !strings.Contains(text, want) {
			t.Errorf("it does not say %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "\x1b") || strings.Contains(text, "b00000021") || strings.Contains(text, "count as told") {
		t.Errorf("it says too much:\n%s", text)
	}
	data, err := json.Marshal(Repair{Session: "s12345678", Intact: true}.filled())
	if err != nil || strings.Contains(string(data), "null") || !strings.Contains(string(data), `"intact":true`) {
		t.Errorf("%s, %v", data, err)
	}
}
