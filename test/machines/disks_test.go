//go:build linux

package machines

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/drover-dev/drover/task"
)

// disk is a small file system of its own.
type disk struct {
	*world
	dir string
}

// mount makes a folder a file system of so many bytes. It is gone with the test, behind all processes.
func mount(w *world, dir string, size int) *disk {
	w.Helper()
	w.Must(os.MkdirAll(dir, 0o700))
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("mode=700,size=%d", size)); err != nil {
		w.Skipf("NOT TRIED: no file system can be mounted here: %v", err)
	}
	w.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			w.Error(err)
		}
	})
	return &disk{w, dir}
}

func (d *disk) filler() string { return filepath.Join(d.dir, "filler") }

// fill leaves no byte free.
func (d *disk) fill() {
	d.Helper()
	f, err := os.OpenFile(d.filler(), os.O_WRONLY|os.O_CREATE, 0o600)
	d.Must(err)
	block := make([]byte, 64<<10)
	for err == nil {
		_, err = f.Write(block)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		d.Fatal(err)
	}
	d.Must(f.Close())
}

// empty gives the room back.
func (d *disk) empty() { d.Helper(); d.Must(os.Remove(d.filler())) }

// A hub whose disk is full says so, as its tasks do, for longer than their leases; with room it goes on, and nothing is
// lost.
func TestHubDiskFull(t *testing.T) {
	t.Parallel()
	var d *disk
	w := open(t, apart, func(w *world) { d = mount(w, w.hubHome(), 160<<20) })
	id := w.run("before")
	ended := w.run("ended")
	d.fill()
	const reason = "its disk is full"
	w.Until("the hub says it", func() bool { return strings.Contains(w.Run("hub", "status").Stdout(), "problem: "+reason) })
	w.Until("the task says it", func() bool {
		return strings.Contains(w.Run("inspect", id).Stdout(), "the hub does not take what worker far tells: "+reason)
	})
	next := w.Good("run", "--on", "far", "-d", "--no-folder", "--", "true")
	w.Until("the next task says it", func() bool {
		return strings.Contains(w.Run("inspect", next).Stdout(), "waits for the hub: "+reason)
	})
	w.letGo("ended") // its end cannot be told
	time.Sleep(2 * lease)
	for _, x := range []string{id, ended, next} {
		if r := w.record(x); r.Status.Terminal() {
			t.Errorf("while the disk was full %s has ended as %s, %+v", x, r.Status, r.Cause)
		}
	}
	d.empty()
	w.Until("the hub says nothing", func() bool { return !strings.Contains(w.Run("hub", "status").Stdout(), "problem") })
	w.letGo("before")
	for _, x := range []string{id, ended, next} {
		if r := w.ended(x); r.Status != task.Completed {
			t.Errorf("%s ended as %s, %+v", x, r.Status, r.Cause)
		}
	}
	w.whole(id, "before")
	w.whole(ended, "ended")
	w.sound("disk of the hub full")
}

// A worker whose disk is full goes on with what it does, takes nothing and says why, and is of use again when there is
// room.
func TestWorkerDiskFull(t *testing.T) {
	t.Parallel()
	var d *disk
	w := open(t, func(w *world) {
		d = mount(w, w.far(), 48<<20)
		own := filepath.Join(w.Work, "config-far")
		w.Must(os.MkdirAll(filepath.Join(own, "drover"), 0o700))
		w.Must(os.WriteFile(filepath.Join(own, "drover", "settings.json"), []byte(`{"tasks": {"minFreeBytes": 1048576}}`), 0o600))
		w.atWorker = with(w.Place, program, w.far(), "XDG_CONFIG_HOME="+own)
	})
	// It prints nothing while the disk is full: a line across the end of a page could not be written whole.
	id := w.Good("run", "--on", "far", "-d", "--no-folder", "--name", "before", "--", fmt.Sprintf(
		`for i in 1 2 3; do echo "before $i"; done; while [ ! -e %s/go-before ]; do sleep 0.02; done; echo last 3`, w.Dir))
	w.Until("output of before", func() bool { return strings.Contains(w.Run("logs", id).Stdout(), "before 3") })
	d.fill()
	w.Until("the worker to say that it takes nothing", func() bool {
		return strings.Contains(w.Run("workers").Stdout(), "the disk of")
	})
	waits := w.Good("run", "--on", "far", "-d", "--no-folder", "--", "true")
	w.Until("the task to say what it waits for", func() bool {
		r := w.record(waits)
		return r.Progress != nil && strings.Contains(r.Progress.Message, "worker far takes nothing")
	})
	time.Sleep(2 * lease)
	if r := w.record(id); r.Status != task.Running {
		t.Errorf("while the disk was full it has ended as %s, %+v, %s", r.Status, r.Cause, r.Error)
	}
	d.empty()
	w.letGo("before")
	if r := w.ended(id); r.Status != task.Completed {
		t.Errorf("it ended as %s, %+v, %s", r.Status, r.Cause, r.Error)
	}
	w.whole(id, "before")
	if r := w.ended(waits); r.Status != task.Completed {
		t.Errorf("what has waited ended as %s, %+v, %s", r.Status, r.Cause, r.Error)
	}
	w.sound("disk of the worker full")
}
