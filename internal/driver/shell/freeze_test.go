package shell_test

import (
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/driver/shell"
	"github.com/drover-dev/drover/task"
)

// A command that stands still prints nothing, goes on where it was, and can be
// stopped while it stands; one that has ended can be neither.
func TestFreeze(t *testing.T) {
	d := driver()
	h := newHost(t, shell.Command{Line: "echo ready; read x <go; echo went on; exec sleep 1000", Cwd: t.TempDir()})
	stop, join := launch(t, d, h)
	h.says("ready")
	p := <-h.begun
	for range 2 {
		for _, do := range []func(task.Process) error{d.Freeze, d.Thaw} {
			if err := do(p); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := d.Freeze(p); err != nil {
		t.Fatal(err)
	}
	stop(stopBy(10 * time.Second))
	if res, err := join(); err == nil || res.Signal != "SIGTERM" {
		t.Errorf("stopped with %+v, %v", res, err)
	}
	alone(t, h)
	if err := d.Thaw(p); err != nil {
		t.Errorf("after the end: %v", err)
	}
}
