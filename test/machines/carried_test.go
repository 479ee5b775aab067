//go:build linux

package machines

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/drover-dev/drover/task"
)

// Each of many tasks that several workers may claim is done once.
func TestOnce(t *testing.T) {
	t.Parallel()
	w := open(t)
	w.another("one", "--capacity", "4")
	w.another("two", "--capacity", "4")
	const n = 60
	log := filepath.Join(w.Work, "done")
	lines := make([]string, n)
	for i := range lines {
		lines[i] = fmt.Sprintf("echo task %d >>%s\n", i, log)
	}
	w.File("batch", strings.Join(lines, ""), 0o600)
	ids := strings.Fields(w.Good("run", "--on", "auto", "--no-folder", "--batch", "batch"))
	if len(ids) != n {
		t.Fatalf("%d tasks were started", len(ids))
	}
	at := map[string]int{}
	for _, id := range ids {
		r := w.ended(id)
		if r.Status != task.Completed {
			t.Errorf("%s ended as %s, %+v", id, r.Status, r.Cause)
		}
		at[r.Worker]++
	}
	text, err := os.ReadFile(log)
	w.Must(err)
	got := strings.Split(strings.TrimSpace(string(text)), "\n")
	slices.Sort(got)
	if len(got) != n || len(slices.Compact(got)) != n {
		t.Errorf("%d tasks ran, %d different ones", len(got), len(slices.Compact(got)))
	}
	if len(at) != 3 {
		t.Errorf("they ran at %v, want three workers", at)
	}
	w.sound("many claims of one task")
}

// Output of any bytes, many times larger than a message, arrives as it was.
func TestLargeOutput(t *testing.T) {
	t.Parallel()
	w := open(t)
	data := make([]byte, 12<<20)
	_, _ = rand.Read(data)
	file := filepath.Join(w.Work, "large")
	w.Must(os.WriteFile(file, data, 0o600))
	id := w.Good("run", "--on", "far", "-d", "--no-folder", "--", "cat "+file)
	r := w.ended(id)
	got, err := os.ReadFile(r.OutputFile)
	w.Must(err)
	if r.Status != task.Completed || !bytes.Equal(got, data) {
		t.Errorf("it ended as %s with %d bytes of %d", r.Status, len(got), len(data))
	}
	w.sound("output larger than a message")
}

// A secret that travels with a command is stored nowhere: not by the hub, nor in a log or record of either side.
func TestSecret(t *testing.T) {
	t.Parallel()
	w := open(t)
	secret := "correct-horse-" + rand.Text()
	place := *w.Place
	place.Env = append(slices.Clone(w.Env), "TOKEN="+secret)
	if got := place.Good("run", "--on", "far", "--no-folder", "--env", "TOKEN", "--", "printf %s \"$TOKEN\" | wc -c"); strings.TrimSpace(got) !=
		fmt.Sprint(len(secret)) {
		t.Fatalf("the command has seen %s bytes", got)
	}
	id := place.Good("run", "--on", "far", "--no-folder", "--env", "TOKEN", "-d", "--", "sleep 600 # go-secret")
	w.Until("its begin", func() bool { return w.record(id).Status == task.Running })
	known := 0 // files that have the command itself
	w.Must(filepath.WalkDir(w.Work, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return nil //nolint:nilerr // it was removed meanwhile
		}
		text, err := os.ReadFile(path)
		if err == nil && bytes.Contains(text, []byte("go-secret")) {
			known++
		}
		if err == nil && bytes.Contains(text, []byte(secret)) {
			t.Errorf("it is in %s", path)
		}
		return nil
	}))
	if known < 2 {
		t.Errorf("the command is in %d files, want the logs of both sides", known)
	}
	w.Good("stop", id)
	w.gone("secret")
	w.sound("secret in the environment")
}
