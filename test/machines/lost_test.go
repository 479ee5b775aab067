//go:build linux

package machines

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/test/harness"
	"github.com/drover-dev/drover/test/waittest"
)

// What a task has changed at a worker that could not be reached comes back when it can be again, apart from what counts.
func TestLostChanges(t *testing.T) {
	t.Parallel()
	w := open(t)
	repository(w.Place)
	id := w.Good("run", "--on", "far", "-d", "--name", "tree", "--", "echo changed >made; echo begun; exec sleep 600 # go-tree")
	w.Until("the begin", func() bool { return strings.Contains(w.Run("logs", id).Stdout(), "begun") })
	w.link.cut(true, true)
	r := w.ended(id)
	if r.Cause.Reason != "worker_lost" || r.Worktree == nil || !strings.Contains(r.Worktree.Text, "refs/drover/lost/"+id+"-1") {
		t.Fatalf("it ended with %+v, and %+v of its folder", r.Cause, r.Worktree)
	}
	w.gone("tree")
	w.link.mend()
	w.Until("the changes", func() bool { return w.shown("refs/drover/lost/"+id+"-1:made") == "changed\n" })
	if r = w.record(id); r.Cause.Reason != "worker_lost" {
		t.Errorf("then it has ended with %+v", r.Cause)
	}
	if got := w.shown("refs/drover/tasks/" + id + ":made"); got != "" {
		t.Errorf("they are also among those that count: %q", got)
	}
	w.Until("an empty folder for tasks at the worker", func() bool {
		left, err := filepath.Glob(filepath.Join(w.far(), "worker", "tasks-*", "*"))
		return err == nil && len(left) == 0
	})
	w.sound("changes of a lost claim")
}

// A worker sends what an earlier one of its name has left that was killed.
func TestWorkerKilledChanges(t *testing.T) {
	t.Parallel()
	w := open(t)
	repository(w.Place)
	id := w.Good("run", "--on", "far", "-d", "--name", "tree", "--", "echo changed >made; echo begun; exec sleep 600 # go-tree")
	w.Until("the begin", func() bool { return strings.Contains(w.Run("logs", id).Stdout(), "begun") })
	w.Must(w.worker.Cmd.Process.Kill())
	<-w.worker.Ended()
	w.gone("tree")
	if r := w.ended(id); r.Cause.Reason != "worker_lost" {
		t.Fatalf("it ended with %+v", r.Cause)
	}
	w.startWorker()
	w.Until("the changes", func() bool { return w.shown("refs/drover/lost/"+id+"-1:made") == "changed\n" })
	w.Until("one folder of a worker", func() bool {
		left, err := filepath.Glob(filepath.Join(w.far(), "worker", "tasks-*"))
		return err == nil && len(left) == 1
	})
	w.sound("changes of a lost claim")
}

// What a task has changed that was ended here, because of its output, comes back too.
func TestLimitedChanges(t *testing.T) {
	t.Parallel()
	w := open(t)
	w.Settings(fmt.Sprintf(`{"workers": {"lease": %q}, "tasks": {"outputLimitBytes": 10000}}`, w.lease))
	repository(w.Place)
	id := w.Good("run", "--on", "far", "-d", "--name", "tree", "--", "echo changed >made; yes; exit # go-tree")
	if r := w.ended(id); r.Cause.Reason != task.ReasonOutputLimit || r.Worktree == nil {
		t.Fatalf("it ended with %+v and %+v of its folder", r.Cause, r.Worktree)
	}
	w.Until("the changes", func() bool { return w.shown("refs/drover/lost/"+id+"-1:made") == "changed\n" })
	w.gone("tree")
	w.sound("changes of a lost claim")
}

// The next host of a session is given what the worker had when the host before died.
func TestHostKilledChanges(t *testing.T) {
	t.Parallel()
	w := open(t)
	w.File("kept", "one\n", 0o600)
	id := w.Good("run", "--on", "far", "-d", "--sync", "--name", "plain", "--", "echo changed >made; echo begun; exec sleep 600 # go-plain")
	if !waittest.Until(harness.Patience, func() bool { return strings.Contains(w.Run("logs", id).Stdout(), "begun") }) {
		w.Fatalf("the command does not begin: %s\n%s", w.Run("inspect", id), w.Run("workers"))
	}
	for _, h := range w.Of("host") {
		if h.Task == "" {
			w.Must(syscall.Kill(h.PID, syscall.SIGKILL))
		}
	}
	w.gone("plain")
	w.Until("the next host", func() bool { return w.Run("run", "-d", "--", "sleep", "600").Code() == 0 })
	w.Until("the changes", func() bool {
		names, err := filepath.Glob(filepath.Join(w.State(), "projects", "*", "s*", "returned", id+"-lost-1", "files", "made"))
		if err != nil || len(names) != 1 {
			return false
		}
		text, err := os.ReadFile(names[0])
		return err == nil && string(text) == "changed\n"
	})
	w.Good("stop", "--all")
	w.sound("changes of a lost claim")
}

// shown is a file of a ref of the project; empty: it is not there.
func (w *world) shown(name string) string {
	git := exec.Command("git", "show", name)
	git.Dir, git.Env = w.Dir, w.Env
	out, err := git.Output()
	if err != nil {
		return ""
	}
	return string(out)
}
