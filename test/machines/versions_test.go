//go:build linux

package machines

import (
	"strings"
	"testing"

	"github.com/drover-dev/drover/internal/fleet/fleetwire"
	"github.com/drover-dev/drover/task"
)

// versions makes the program of the hub, of the session or of the worker one of other protocols; empty: this one.
func versions(t *testing.T, hub, session, worker string) func(*world) {
	return func(w *world) {
		if hub != "" || session != "" {
			apart(w)
		}
		if hub != "" {
			w.atHub = with(w.atHub, speaking.program(t), w.hubHome(), protocols+"="+hub)
		}
		if session != "" {
			w.Place = with(w.Place, speaking.program(t), w.State(), protocols+"="+session)
		}
		if worker != "" {
			w.atWorker = with(w.atWorker, speaking.program(t), w.far(), protocols+"="+worker)
		}
	}
}

// Programs of two versions work together if one protocol is known to both. Otherwise the task waits for another worker,
// and all who are asked say who must be updated.
func TestVersions(t *testing.T) {
	t.Parallel()
	if fleetwire.Version != 1 || fleetwire.Oldest != 1 {
		t.Fatalf("this program speaks %d to %d: say which protocols are the next ones", fleetwire.Oldest, fleetwire.Version)
	}
	for _, c := range []struct {
		name, hub, session, worker string
		task, list                 string // what they say; empty: they work together
	}{
		{"hub of the next", "2-2", "", "", "", ""},
		{"session of the next that knows this", "", "1-2", "", "", ""},
		{"worker of the next that knows this", "", "", "1-2", "", ""},
		{"hub of this, all else of the next", "", "2-2", "2-2", "", ""},
		{"worker of the next alone", "", "", "2-2",
			"waits for worker far: worker far speaks protocol 2 and later, this program 1: update this one",
			"it speaks protocol 2 and later, this program 1: update this one"},
		{"session of the next alone", "", "2-2", "",
			"waits for worker far: worker far speaks protocol 1, this program 2 to 2: update it",
			"it speaks protocol 1, this program 2 to 2: update it"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := open(t, versions(t, c.hub, c.session, c.worker))
			if c.task == "" {
				id := w.run("both")
				w.letGo("both")
				if r := w.ended(id); r.Status != task.Completed {
					t.Errorf("it ended as %s, %+v", r.Status, r.Cause)
				}
				w.whole(id, "both")
				w.sound("two versions that know one protocol")
				return
			}
			id := w.Good("run", "--on", "far", "-d", "--no-folder", "--", "true")
			w.Until("the reason", func() bool { return strings.Contains(w.Run("inspect", id).Stdout(), c.task) })
			if list := w.Good("workers"); !strings.Contains(list, c.list) {
				t.Errorf("the list of workers does not say who must be updated:\n%s", list)
			}
			// A worker of the right version takes its place, and has the task.
			w.Must(w.worker.Cmd.Process.Kill())
			<-w.worker.Ended()
			w.atWorker = with(w.Place, w.Bin, w.far())
			w.startWorker()
			if r := w.ended(id); r.Status != task.Completed {
				t.Errorf("it ended as %s, %+v", r.Status, r.Cause)
			}
			w.sound("two versions that know no protocol")
		})
	}
}
