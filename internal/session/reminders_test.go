package session

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
	kinds := []item{{"explore", "- explore: finds"}}
	r := &reminders{told: map[string]bool{}, critical: "Never push.", news: func() []string { return nil }, lists: []list{
		{name: taskList, head: "Background tasks:", foot: "\n\nhow to read them", volatile: true, items: func() []item { return taskItems(live) }},
		{name: agentList, head: "Kinds:", items: func() []item { return kinds }},
	}}
	due := func(start bool, want ...string) {
		t.Helper()
		if got := r.Due(context.Background(), start); !slices.Equal(got, want) {
			t.Errorf("told %q\nwant %q", got, want)
		}
	}
	r.know(taskList, "a22222222")
	due(true, reminder("Background tasks:\n- [b11111111] local_bash (running): serve\n\nhow to read them"), reminder("Kinds:\n- explore: finds"), reminder("Never push."))
	due(false)
	kinds = append(kinds, item{"mine", "- mine: new"})
	due(true, reminder("Kinds:\n- mine: new"), reminder("Never push."))
	r.Forgotten()
	due(true, reminder("Kinds:\n- explore: finds\n- mine: new"), reminder("Never push."))

	live = live[1:] // what has ended is not kept in mind beyond a compaction
	r.Forgotten()
	if r.told[taskList+" b11111111"] || !r.told[taskList+" a22222222"] {
		t.Errorf("kept in mind: %v", r.told)
	}
	due(false, reminder("Kinds:\n- explore: finds\n- mine: new"))
	live = append([]task.Record{{ID: "b11111111", Kind: task.LocalBash, Status: task.Running, Description: "serve"}}, live...)

	if got := runningTasks(live); !strings.HasPrefix(got, "## Running Background Tasks\n- b11111111: serve (local_bash)\n- a22222222: look <here> and there (local_agent)\n") {
		t.Errorf("restored %q", got)
	}
	if got := runningTasks(nil); got != "" {
		t.Errorf("restored %q of nothing", got)
	}
}
