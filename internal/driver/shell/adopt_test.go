package shell_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/driver/shell"
	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/internal/engine/process"
	"github.com/drover-dev/drover/task"
)

// watcher is a keeper that only remembers.
type watcher struct {
	mu     sync.Mutex
	kept   map[int]string // exit files
	forgot int
	coming []string // told of by Expect, and not taken back
	fail   error
}

func (w *watcher) Watch(id process.Identity, _ string, keep bool, exitFile string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.kept == nil {
		w.kept = map[int]string{}
	}
	if keep {
		w.kept[id.PID] = exitFile
	}
	return w.fail
}

func (w *watcher) Ready() error { return nil }

func (w *watcher) Expect(id, _ string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.coming = append(w.coming, id)
	return nil
}

func (w *watcher) Unexpect(id string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.coming = slices.DeleteFunc(w.coming, func(c string) bool { return c == id })
	return nil
}

func (w *watcher) Forget(process.Identity) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.forgot++
	return nil
}

func keeping(t *testing.T) (*shell.Driver, *watcher, func(task.ID) string) {
	dir := t.TempDir()
	path := func(id task.ID) string { return filepath.Join(dir, string(id)+".exit") }
	w := new(watcher)
	return shell.New(shell.Config{Keeper: w, ExitFile: path}), w, path
}

// orphan starts a line under a shell, so that it is nobody's child here, and
// makes the host's record say that an earlier host started it.
func orphan(t *testing.T, h *host, line string) process.Identity {
	t.Helper()
	cmd := exec.Command("sh", "-c", `setsid sh -c "$LINE" >/dev/null 2>&1 & echo $!`)
	cmd.Env = append(os.Environ(), "LINE="+line, process.MarkTask+"="+string(h.rec.ID))
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil {
		t.Fatal(err)
	}
	id, err := process.Identify(pid)
	if err != nil {
		t.Fatal(err)
	}
	h.rec.Process = &task.Process{PID: id.PID, Start: id.Start, Boot: id.Boot}
	return id
}

func TestDetach(t *testing.T) {
	d, w, path := keeping(t)
	h := newHost(t, shell.Command{Line: "echo ready; while :; do sleep 0.01; done"})
	h.rec.Keep = true
	cancel, join := launch(t, d.For(client()), h)
	p := <-h.begun
	h.says("ready")
	cancel(task.ErrClosing)
	if _, err := join(); err != task.ErrDetached {
		t.Fatalf("err = %v", err)
	}
	id := process.Identity{PID: p.PID, Start: p.Start, Boot: p.Boot}
	if !process.Alive(id) {
		t.Fatal("a kept command was ended on closing")
	}
	if k := w.kept[p.PID]; k != path(h.rec.ID) || w.forgot != 0 {
		t.Errorf("the keeper was told %q and %d times to forget", k, w.forgot)
	}

	// The next host takes it up, and can stop it.
	h.rec.Process = &p
	cancel, join = launch(t, d, h)
	cancel(stopBy(10 * time.Second))
	if _, err := join(); !errors.Is(err, task.ErrStopRequested) {
		t.Errorf("err = %v", err)
	}
	if process.Alive(id) {
		t.Error("it lives on after its stop")
	}
	_, _ = syscall.Wait4(p.PID, nil, 0, nil) // it was our child all along
}

// What was expected of a start that failed is taken back.
func TestUnexpect(t *testing.T) {
	d, w, _ := keeping(t)
	h := newHost(t, shell.Command{Args: []string{"/does/not/exist"}})
	h.rec.Keep = true
	_, join := launch(t, d.For(client()), h)
	if _, err := join(); err == nil {
		t.Fatal("it was started")
	}
	if len(w.coming) > 0 {
		t.Errorf("the keeper expects %v still", w.coming)
	}
}

func TestClosing(t *testing.T) {
	h := newHost(t, shell.Command{Line: "echo ready; exec sleep 1000"})
	cancel, join := launch(t, driver(), h)
	h.says("ready")
	cancel(task.ErrClosing)
	res, err := join()
	if err != task.ErrClosing || res.Signal != "SIGTERM" {
		t.Errorf("%+v, %v", res, err)
	}
	alone(t, h)
}

// A kept command is not reaped before its end is durable.
func TestSettle(t *testing.T) {
	d, w, _ := keeping(t)
	h := newHost(t, shell.Command{Line: "exit 5"})
	h.rec.Keep = true
	_, join := launch(t, d.For(client()), h)
	res, err := join()
	p := <-h.begun
	if reason(err) != task.ReasonExit || res.Settle == nil {
		t.Fatalf("%+v, %v", res, err)
	}
	if _, err := process.Identify(p.PID); err != nil {
		t.Errorf("reaped too early: %v", err)
	}
	res.Settle()
	if _, err := process.Identify(p.PID); !errors.Is(err, process.ErrGone) {
		t.Errorf("not reaped: %v", err)
	}
	if w.forgot != 1 {
		t.Errorf("forgotten %d times", w.forgot)
	}
}

func TestAdoptExit(t *testing.T) {
	for name, c := range map[string]struct {
		code   int
		signal string
		reason task.Reason
	}{
		"well":   {0, "", ""},
		"badly":  {9, "", task.ReasonExit},
		"signal": {-1, "SIGSEGV", task.ReasonSignal},
	} {
		t.Run(name, func(t *testing.T) {
			d, _, path := keeping(t)
			h := newHost(t, shell.Command{Line: "x"})
			h.rec.Keep = true
			gate := filepath.Join(t.TempDir(), "gate")
			if err := syscall.Mkfifo(gate, 0o600); err != nil {
				t.Fatal(err)
			}
			id := orphan(t, h, "read x < "+gate)
			_, join := launch(t, d, h)
			open, err := os.OpenFile(gate, os.O_WRONLY, 0) // returns when the reader is there
			if err != nil {
				t.Fatal(err)
			}
			// The parent of the command writes this just after it has ended.
			if err := process.WriteDeparture(path(h.rec.ID), process.Departure{PID: id.PID, Start: id.Start, ExitCode: c.code, Signal: c.signal}); err != nil {
				t.Fatal(err)
			}
			_ = open.Close()
			res, err := join()
			if res.ExitCode == nil || *res.ExitCode != c.code || res.Signal != c.signal || reason(err) != c.reason || (c.reason == "") != (err == nil) {
				t.Fatalf("%+v, %v", res, err)
			}
			// The same again, for a host that comes when all is over.
			_, join = launch(t, d, h)
			if res, err = join(); res.ExitCode == nil || *res.ExitCode != c.code || reason(err) != c.reason {
				t.Errorf("later: %+v, %v", res, err)
			}
			res.Settle()
			if _, err := os.Stat(path(h.rec.ID)); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the exit file stays: %v", err)
			}
		})
	}
}

func TestLost(t *testing.T) {
	gone := &task.Process{PID: os.Getpid(), Start: 1, Boot: process.Boot()} // somebody else has the number
	for name, c := range map[string]struct {
		p      *task.Process
		keep   bool
		actor  task.Actor
		reason task.Reason
	}{
		"reused":  {gone, false, task.ByKeeper, task.ReasonHostLost},
		"kept":    {gone, true, task.ByUnknown, task.ReasonLost},
		"reboot":  {&task.Process{PID: os.Getpid(), Start: 1, Boot: "other"}, true, task.ByUnknown, task.ReasonReboot},
		"reboot2": {&task.Process{PID: os.Getpid(), Start: 1, Boot: "other"}, false, task.ByUnknown, task.ReasonReboot},
	} {
		t.Run(name, func(t *testing.T) {
			d, _, _ := keeping(t)
			h := newHost(t, shell.Command{Line: "x"})
			h.rec.Process, h.rec.Keep = c.p, c.keep
			_, join := launch(t, d, h)
			res, err := join()
			if !errors.Is(err, task.ErrLost) || res.ExitCode != nil {
				t.Fatalf("%+v, %v", res, err)
			}
			change, ok := lifecycle.Ending(nil, res, err)
			if !ok || change.Verb != task.Stop || change.Cause.Actor != c.actor || change.Cause.Reason != c.reason {
				t.Errorf("recorded as %+v %+v", change, change.Cause)
			}
		})
	}
}

// Host and keeper both died: what was not to be kept is ended by the next host.
func TestClear(t *testing.T) {
	d, _, _ := keeping(t)
	h := newHost(t, shell.Command{Line: "x"})
	id := orphan(t, h, "setsid -f sleep 1000; sleep 1000 & exec sleep 1000")
	_, join := launch(t, d, h)
	if _, err := join(); !errors.Is(err, task.ErrLost) {
		t.Errorf("err = %v", err)
	}
	if process.Alive(id) {
		t.Error("it lives on")
	}
	alone(t, h)
}

func TestUnwatched(t *testing.T) {
	d, w, _ := keeping(t)
	w.fail = errors.New("no keeper")
	h := newHost(t, shell.Command{Line: "sleep 1000"})
	_, join := launch(t, d.For(client()), h)
	if _, err := join(); reason(err) != task.ReasonStart || !errors.Is(err, w.fail) {
		t.Errorf("err = %v", err)
	}
	alone(t, h)
}

// A keeper that cannot be told makes no end of a command that goes on.
func TestAdoptUntold(t *testing.T) {
	d, w, path := keeping(t)
	w.fail = errors.New("nobody there")
	h := newHost(t, shell.Command{Line: "sleep 1000"})
	h.rec.Keep = true
	id := orphan(t, h, "exec sleep 1000")
	defer func() { _ = syscall.Kill(id.PID, syscall.SIGKILL) }()
	cancel, join := launch(t, d.For(client()), h)
	cancel(task.ErrClosing)
	if _, err := join(); err != task.ErrDetached || !process.Alive(id) {
		t.Fatalf("err = %v, alive %v", err, process.Alive(id))
	}
	if err := process.WriteDeparture(path(h.rec.ID), process.Departure{PID: id.PID, Start: id.Start}); err != nil {
		t.Fatal(err)
	}
	_, join = launch(t, d.For(client()), h)
	_ = syscall.Kill(id.PID, syscall.SIGKILL) // by its number: it may not lead its group yet
	if res, err := join(); err != nil || res.ExitCode == nil || *res.ExitCode != 0 {
		t.Errorf("%+v, %v", res, err)
	}
}
