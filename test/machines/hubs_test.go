//go:build linux

package machines

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/drover-dev/drover/task"
)

// A hub that is killed again and again loses nothing, and repeats nothing.
func TestHubKilledOften(t *testing.T) {
	t.Parallel()
	w := open(t, patient)
	names := []string{"one", "two", "three", "four", "five"}
	ids := map[string]string{}
	for _, name := range names {
		ids[name] = w.run(name)
	}
	for i, name := range names {
		w.killHub()
		w.letGo(name) // its last lines and its end are told to nobody
		w.startHub(w.listen)
		if r := w.ended(ids[name]); r.Status != task.Completed {
			t.Errorf("%s ended as %s, %+v", name, r.Status, r.Cause)
		}
		if i+1 == len(names) {
			break
		}
		last := ids[names[len(names)-1]]
		before := len(w.Good("logs", last))
		w.Until("more output", func() bool { return len(w.Good("logs", last)) > before })
	}
	for _, name := range names {
		w.whole(ids[name], name)
	}
	w.sound("hub killed five times")
}

// There is one hub in a folder and one at an address, and none sees what another has.
func TestTwoHubs(t *testing.T) {
	t.Parallel()
	w := open(t)
	id := w.run("first")
	folder := w.Run("hub", "--listen", "127.0.0.1:0")
	if folder.Code() == 0 || !strings.Contains(folder.Stderr(), w.hubDir()) {
		t.Errorf("a second hub in one folder: %v", folder)
	}
	second := with(w.Place, program, filepath.Join(w.Work, "second"))
	address := second.Run("hub", "--listen", w.listen)
	if address.Code() == 0 || !strings.Contains(address.Stderr(), w.listen) {
		t.Errorf("a second hub at one address: %v", address)
	}

	other := &world{Place: second, atHub: second, atWorker: with(w.Place, program, filepath.Join(w.Work, "far2")),
		lease: w.lease}
	hub, worker := w.hub, w.worker
	other.hub = second.Start("hub", "--listen", "127.0.0.1:0")
	other.Until("the second hub", func() bool { return second.Run("hub", "join").Code() == 0 })
	about := second.Good("hub", "status")
	other.listen = strings.Fields(about)[2]
	// The worker has the name of the other one, and would have what is offered to that or to any.
	other.joinWorker("far", other.listen)
	any := w.Good("run", "--on", "auto", "-d", "--no-folder", "--", "true")
	if r := w.ended(any); r.Status != task.Completed {
		t.Errorf("it ended as %s, %+v", r.Status, r.Cause)
	}
	if seen, err := filepath.Glob(filepath.Join(w.Work, "far2", "projects", "*", "s*", "tasks", "*")); len(seen) > 0 {
		t.Errorf("the worker of the second hub has tasks: %q, %v", seen, err)
	}
	if list := second.Good("workers"); !strings.Contains(list, "0/8") || strings.Contains(list, "first") {
		t.Errorf("the second hub has the workers\n%s", list)
	}
	w.Until("the task of the first hub at its worker", func() bool { return strings.Contains(w.Good("workers"), "first") })
	if state := second.Good("hub", "status"); !strings.Contains(state, "0 tasks wait") {
		t.Errorf("the second hub: %s", state)
	}
	if hub == other.hub || worker == other.worker {
		t.Error("the second hub and its worker are the first ones")
	}
	w.letGo("first")
	if r := w.ended(id); r.Status != task.Completed {
		t.Errorf("it ended as %s, %+v", r.Status, r.Cause)
	}
	w.whole(id, "first")
	w.sound("two hubs")
}

// A hub that has lost what it keeps of messages carries on: what the session has not taken is told again.
func TestHubForgets(t *testing.T) {
	t.Parallel()
	w := open(t, patient)
	id := w.run("forgets")
	w.killHub()
	w.letGo("forgets")
	w.Must(os.RemoveAll(filepath.Join(w.hubDir(), "jetstream")))
	w.startHub(w.listen)
	if r := w.ended(id); r.Status != task.Completed {
		t.Errorf("it ended as %s, %+v", r.Status, r.Cause)
	}
	w.whole(id, "forgets")
	again := w.run("anew")
	w.letGo("anew")
	if r := w.ended(again); r.Status != task.Completed {
		t.Errorf("the next task ended as %s, %+v", r.Status, r.Cause)
	}
	w.whole(again, "anew")
	w.sound("hub without its messages")
}

// An offer that the hub has lost, before a worker has claimed it, is made again.
func TestHubForgetsOffer(t *testing.T) {
	t.Parallel()
	long(t) // it is made again when a worker could have claimed it for half a minute
	w := open(t, patient)
	id := w.Good("run", "--on", "late", "-d", "--no-folder", "--", "true")
	w.Until("the reason", func() bool { return strings.Contains(w.Run("inspect", id).Stdout(), "waits for worker late") })
	w.killHub()
	w.Must(os.RemoveAll(filepath.Join(w.hubDir(), "jetstream")))
	w.startHub(w.listen)
	w.atWorker = with(w.Place, program, filepath.Join(w.Work, "late"))
	w.joinWorker("late", w.link.address())
	if r := w.ended(id); r.Status != task.Completed {
		t.Errorf("it ended as %s, %+v", r.Status, r.Cause)
	}
	w.sound("hub without its offers")
}

// A hub that has lost all its files knows nobody: what was at work is lost, and who joins by a new line is of use.
func TestHubLost(t *testing.T) {
	t.Parallel()
	w := open(t)
	id := w.run("lost")
	w.killHub()
	w.Must(os.RemoveAll(w.hubDir()))
	w.startHub(w.listen)
	if r := w.ended(id); r.Status != task.Failed || r.Cause.Reason != "worker_lost" {
		t.Errorf("it ended as %s, %+v", r.Status, r.Cause)
	}
	w.gone("lost")
	w.Must(w.worker.Cmd.Process.Kill())
	<-w.worker.Ended()
	w.startWorker()
	again := w.run("again")
	w.letGo("again")
	if r := w.ended(again); r.Status != task.Completed {
		t.Errorf("the next task ended as %s, %+v", r.Status, r.Cause)
	}
	w.whole(again, "again")
	w.sound("hub without all its files")
}
