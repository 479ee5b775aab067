package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/drover-dev/drover/internal/fleet/fleetwire"
	"github.com/drover-dev/drover/task"
)

// Each task of all machines is listed once, with the machine that does it: what this machine has a record of as the
// record says, and the rest as workers tell it.
func TestAllMachines(t *testing.T) {
	w := sample()
	one := newSession("splaced00", true,
		task.Record{ID: "b0000far1", Kind: task.LocalBash, Name: "far", On: "gpu", Worker: "w1", Status: task.Running,
			Backgrounded: true, CreateTime: at(1), StartTime: when(1)},
		task.Record{ID: "b0000lost", Kind: task.LocalBash, Name: "lost", On: "auto", Worker: "w9", Status: task.Running,
			Backgrounded: true, CreateTime: at(2), StartTime: when(2)},
		task.Record{ID: "b0000wait", Kind: task.LocalBash, Name: "waits", On: "gpu", Status: task.Pending,
			Backgrounded: true, CreateTime: at(3)},
	)
	w.others = append(w.others, one)
	w.workers = []fleetwire.Worker{{Name: "w1", Capacity: 4, Tasks: []fleetwire.Doing{
		{Session: "splaced00", Task: "b0000far1", Name: "far"},
		{Session: "splaced00", Task: "b0000over", Name: "over"}, // has ended here, and the worker has not heard of it
		{Session: "selsewher", Task: "b000other", Name: "others", Since: 65_000},
	}}}
	got := w.do(t, "ps", "--all-machines", "--json")
	var all []struct {
		ID            task.ID `json:"task_id"`
		Name, Machine string
		Gone          bool `json:"machine_gone"`
	}
	if err := json.Unmarshal([]byte(got.out), &all); err != nil || got.code != 0 {
		t.Fatalf("%v: %+v", err, got)
	}
	where, seen := map[string]string{}, map[task.ID]bool{}
	for _, r := range all {
		if seen[r.ID] {
			t.Errorf("%s is there twice", r.Name)
		}
		where[r.Name], seen[r.ID] = r.Machine, true
		if r.Gone != (r.Name == "lost") {
			t.Errorf("the worker of %s is gone: %t", r.Name, r.Gone)
		}
	}
	for name, machine := range map[string]string{"far": "w1", "lost": "w9", "waits": "", "others": "w1"} {
		if got, listed := where[name]; !listed || got != machine {
			t.Errorf("%s is at %q, want %q", name, got, machine)
		}
	}
	if _, listed := where["over"]; listed {
		t.Error("what has ended by its record is listed as the worker tells it")
	}
	text := w.do(t, "ps", "--all-machines").out
	for _, want := range []string{"MACHINE", "w9 (gone)", "others"} {
		if !strings.Contains(text, want) {
			t.Errorf("the table has no %q:\n%s", want, text)
		}
	}
	if last := text[strings.LastIndex(strings.TrimSpace(text), "\n")+1:]; !strings.Contains(last, "waits") {
		t.Errorf("what waits for a worker is not last:\n%s", text)
	}
}
