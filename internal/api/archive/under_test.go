package archive

import (
	"fmt"
	"testing"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/engine/journal"
	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/task"
)

// A record that is its own ancestor, as only damage makes one, hinders no listing.
func TestUnder(t *testing.T) {
	l := leave(t)
	for _, r := range []task.Record{
		{ID: "a0000root"}, {ID: "a0000kind", Parent: "a0000root"}, {ID: "b000grand", Parent: "a0000kind"}, {ID: "b0foreign", Parent: "a0unknown"},
		{ID: "a0000self", Parent: "a0000self"}, {ID: "a000round", Parent: "a00000and"}, {ID: "a00000and", Parent: "a000round"}, {ID: "b0beneath", Parent: "a000round"},
	} {
		l.task(r, "", lifecycle.Change{Verb: task.Begin}, lifecycle.Change{Verb: task.Complete})
	}
	a := l.open()
	for root, want := range map[task.ID]string{
		"a0000root": "[b000grand a0000kind a0000root]", "b000grand": "[b000grand]", "a0000self": "[a0000self]",
		"a000round": "[b0beneath a00000and a000round]", "b0beneath": "[b0beneath]", "a0nowhere": "[]",
	} {
		page, err := a.List(t.Context(), control.ListRequest{All: true, Under: root})
		ids := []task.ID{}
		for _, r := range page.Tasks {
			ids = append(ids, r.ID)
		}
		if got := fmt.Sprint(ids); err != nil || got != want {
			t.Errorf("under %s: %s, %v; want %s", root, got, err, want)
		}
	}
}

// Each parent is looked for at once: among so many tasks, one behind the other, a
// search through all of them for each would outlast the test.
func TestUnderMany(t *testing.T) {
	states := make([]journal.State, 50_000)
	for i := range states {
		states[i].Task = task.Record{ID: task.ID(fmt.Sprint("t", i)), Parent: "t49999"}
	}
	states[49_999].Task.Parent = "t0"
	is := under(states, "t7")
	for i, s := range states {
		if got := is(s.Task.ID); got != (i == 7) {
			t.Fatalf("%s is under t7: %v", s.Task.ID, got)
		}
	}
	is = under(states, "t0")
	for _, s := range states {
		if !is(s.Task.ID) {
			t.Fatalf("%s is not under t0", s.Task.ID)
		}
	}
}
