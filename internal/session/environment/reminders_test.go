package environment

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/drover-dev/drover/task"
)

// What runs is told once, in the words that clients know; what the agent has
// learned by other means is not; and a compaction brings back what it does not
// restore itself.
func TestReminders(t *testing.T) {
	live := []task.Record{{ID: "b11111111", Kind: task.LocalBash, Status: task.Running, Description: "serve"},
		{ID: "a22222222", Kind: task.LocalAgent, Status: task.Pending, Description: "look <here>\nand there"}}
	kinds := []Item{{"explore", "- explore: finds"}}
	r := NewReminders("Never push.", func() []string { return nil },
		List{Name: "tasks", Head: "Background tasks:", Foot: "\n\nhow to read them", Volatile: true, Items: func() []Item { return TaskItems(live) }},
		List{Name: "agents", Head: "Kinds:", Items: func() []Item { return kinds }})
	due := func(start bool, want ...string) {
		t.Helper()
		if got := r.Due(context.Background(), start); !slices.Equal(got, want) {
			t.Errorf("told %q\nwant %q", got, want)
		}
	}
	r.Know("tasks", "a22222222")
	due(true, Reminder("Background tasks:\n- [b11111111] local_bash (running): serve\n\nhow to read them"), Reminder("Kinds:\n- explore: finds"), Reminder("Never push."))
	due(false)
	kinds = append(kinds, Item{"mine", "- mine: new"})
	due(true, Reminder("Kinds:\n- mine: new"), Reminder("Never push."))
	r.Forgotten()
	due(true, Reminder("Kinds:\n- explore: finds\n- mine: new"), Reminder("Never push."))

	live = live[1:] // what has ended is not kept in mind beyond a compaction
	r.Forgotten()
	if r.known["tasks"+" b11111111"] || !r.known["tasks"+" a22222222"] {
		t.Errorf("kept in mind: %v", r.known)
	}
	due(false, Reminder("Kinds:\n- explore: finds\n- mine: new"))
	live = append([]task.Record{{ID: "b11111111", Kind: task.LocalBash, Status: task.Running, Description: "serve"}}, live...)

	if got := RunningTasks(live, ""); !strings.HasPrefix(got, "## Running Background Tasks\n- b11111111: serve (local_bash)\n- a22222222: look <here> and there (local_agent)\n") {
		t.Errorf("restored %q", got)
	}
	if got := RunningTasks(nil, ""); got != "" {
		t.Errorf("restored %q of nothing", got)
	}
}
