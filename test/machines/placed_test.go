//go:build linux

package machines

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/test/harness"
)

// another starts a further worker, with a state of its own and without a link that can be cut.
func (w *world) another(name string, args ...string) *harness.Call {
	w.Helper()
	args = append([]string{"worker", "--hub", w.line(), "--name", name}, args...)
	c := with(w.Place, program, filepath.Join(w.Work, name)).Start(args...)
	w.Until("worker "+name, func() bool { return strings.Contains(w.Run("workers").Stdout(), name) })
	return c
}

// repository makes the project a checkout with all its files.
func repository(w *harness.Place) {
	w.Helper()
	w.File("kept", "one\n", 0o600)
	for _, args := range [][]string{{"init", "-q"}, {"add", "."},
		{"-c", "user.name=A", "-c", "user.email=a@example.com", "commit", "-qm", "first"}} {
		git := exec.Command("git", args...)
		git.Dir, git.Env = w.Dir, w.Env
		if out, err := git.CombinedOutput(); err != nil {
			w.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
}

// A task goes to the worker that has commits of its repository, and to another one if that does not take it.
func TestPrefersCheckout(t *testing.T) {
	t.Parallel()
	w := open(t)
	repository(w.Place)
	near := w.another("near", "--capacity", "8") // behind the other one by its name
	w.Good("run", "--on", "near", "--", "true")
	w.Until("the repository at the worker", func() bool {
		return strings.Count(w.Run("workers", "--json").Stdout(), `"repositories"`) == 1
	})
	for i := range 10 {
		if got := w.Good("run", "--on", "auto", "--json", "--", "true"); !strings.Contains(got, `"worker": "near"`) {
			t.Errorf("task %d did not go to the worker that has the repository:\n%s", i, got)
		}
	}
	w.Must(near.Cmd.Process.Signal(syscall.SIGSTOP))
	begin := time.Now()
	if got := w.Good("run", "--on", "auto", "--json", "--", "true"); !strings.Contains(got, `"worker": "far"`) {
		t.Errorf("the task did not go to the other worker:\n%s", got)
	}
	t.Logf("at the other worker and back after %s", time.Since(begin))
	w.Must(near.Cmd.Process.Signal(syscall.SIGCONT))
}

// Tasks that come at once are spread by free places.
func TestSpreads(t *testing.T) {
	t.Parallel()
	w := open(t)
	w.another("one", "--label", "pair", "--capacity", "4")
	w.another("two", "--label", "pair", "--capacity", "4")
	line := fmt.Sprintf("while [ ! -e %s/go-pair ]; do sleep 0.02; done\n", w.Dir)
	w.File("batch", strings.Repeat(line, 4), 0o600)
	ids := strings.Fields(w.Good("run", "--on", "pair", "--no-folder", "--batch", "batch"))
	at := map[string]int{}
	for _, id := range ids {
		w.Until("the begin of "+id, func() bool { return w.record(id).Status == task.Running })
		at[w.record(id).Worker]++
	}
	if at["one"] != 2 || at["two"] != 2 {
		t.Errorf("four tasks are at %v, want two at each of two workers", at)
	}
	w.letGo("pair")
	for _, id := range ids {
		w.ended(id)
	}
}
