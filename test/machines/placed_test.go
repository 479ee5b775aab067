//go:build linux

package machines

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

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

// Tasks that come at once fill the free places of all workers of a label, and no worker has more than its places.
func TestSpreads(t *testing.T) {
	t.Parallel()
	w := open(t)
	w.another("one", "--label", "pair", "--capacity", "2")
	w.another("two", "--label", "pair", "--capacity", "2")
	line := fmt.Sprintf("while [ ! -e %s/go-pair ]; do sleep 0.02; done\n", w.Dir)
	w.File("batch", strings.Repeat(line, 4), 0o600)
	ids := strings.Fields(w.Good("run", "--on", "pair", "--no-folder", "--batch", "batch"))
	at := map[string]int{}
	for _, id := range ids {
		w.Until("the begin of "+id, func() bool { return w.record(id).Status == task.Running })
		at[w.record(id).Worker]++
	}
	if at["one"] != 2 || at["two"] != 2 {
		t.Errorf("four tasks are at %v, want two at each of two workers with two places", at)
	}
	w.letGo("pair")
	for _, id := range ids {
		w.ended(id)
	}
}
