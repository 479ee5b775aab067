package shell_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/driver/shell"
	"github.com/drover-dev/drover/internal/engine/process"
	"github.com/drover-dev/drover/internal/engine/tty"
	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/test/tasktest"
	"github.com/drover-dev/drover/test/waittest"
)

// apart makes drivers whose terminals are held by the test binary.
func apart(t *testing.T) (shell.Config, func(task.ID) string) {
	dir := t.TempDir()
	keys := func(id task.ID) string { return filepath.Join(dir, string(id)+".keys") }
	exits := func(id task.ID) string { return filepath.Join(dir, string(id)+".exit") }
	return shell.Config{ExitFile: exits, Copier: []string{os.Args[0], "role", "tty"}, Keys: keys}, keys
}

// holders are the processes that hold the terminal of a task.
func holders(h *host) (out []process.Proc) {
	for _, p := range new(process.Table).Marked(process.MarkTask, string(h.rec.ID)) {
		line, _ := os.ReadFile("/proc/" + itoa(p.PID) + "/cmdline")
		if bytes.Contains(line, []byte("\x00tty\x00")) {
			out = append(out, p)
		}
	}
	return out
}

func itoa(n int) string { b, _ := json.Marshal(n); return string(b) }

func onTerminal(t *testing.T, line string) *host {
	h := newHost(t, shell.Command{Line: line, TTY: true})
	h.rec.TTY = true
	return h
}

// A command on a terminal keeps what every driver promises, whoever holds it.
func TestTerminalContract(t *testing.T) {
	for name, alone := range map[string]bool{"apart": true, "here": false} {
		t.Run(name, func(t *testing.T) {
			command := func(line string) func(*testing.T) (task.Driver, json.RawMessage) {
				return func(t *testing.T) (task.Driver, json.RawMessage) {
					input, err := json.Marshal(shell.Command{Line: line, TTY: true})
					if err != nil {
						t.Fatal(err)
					}
					c, _ := apart(t)
					if !alone {
						c = shell.Config{}
					}
					return shell.New(c).For(client()), input
				}
			}
			tasktest.Run(t, tasktest.Config{Long: command("sleep 630"), Short: command("printf 'the last '; sleep 0.05; printf word"), Prints: "the last word"})
		})
	}
}

// What is typed is read by the command, and the terminal and its pipe go with it.
func TestTyped(t *testing.T) {
	for name, alone := range map[string]bool{"apart": true, "here": false} {
		t.Run(name, func(t *testing.T) {
			c, keys := apart(t)
			if !alone {
				c = shell.Config{}
			}
			d := shell.New(c).For(shell.Client{Env: append(os.Environ(), "TERM=xterm")})
			h := onTerminal(t, `tty >/dev/null && stty size && echo $TERM; read -p 'name? ' x; echo "<$x>"; exit 3`)
			_, join := launch(t, d, h)
			h.says("name? ")
			if err := d.Steer(t.Context(), h.rec.ID, "ann\r"); err != nil {
				t.Fatal(err)
			}
			res, err := join()
			if reason(err) != task.ReasonExit || res.ExitCode == nil || *res.ExitCode != 3 || len(res.Signals) > 0 {
				t.Errorf("%+v, %v", res, err)
			}
			if got := strings.ReplaceAll(h.text(), "\r", ""); got != "24 80\ndumb\nname? ann\n<ann>\n" {
				t.Errorf("printed %q", got)
			}
			var mute *task.SteerError
			if err := d.Steer(t.Context(), h.rec.ID, "x"); !errors.As(err, &mute) {
				t.Errorf("after the end: %v", err)
			}
			if _, err := os.Lstat(keys(h.rec.ID)); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the pipe is left: %v", err)
			}
			nobodyLeft(t, h)
		})
	}
}

func nobodyLeft(t *testing.T, h *host) {
	t.Helper()
	alone(t, h)
	if left := holders(h); len(left) > 0 {
		t.Errorf("%v holds a terminal still", left)
	}
}

// A stop ends the command and whoever holds its terminal; last words are kept.
func TestTerminalStop(t *testing.T) {
	c, _ := apart(t)
	d := shell.New(c).For(client())
	h := onTerminal(t, `trap 'echo last words; exit 9' TERM; echo ready; while :; do sleep 0.02; done`)
	cancel, join := launch(t, d, h)
	h.says("ready")
	if len(holders(h)) != 1 {
		t.Fatalf("held by %v", holders(h))
	}
	cancel(stopBy(10 * time.Second))
	if res, err := join(); !errors.Is(err, task.ErrStopRequested) || res.ExitCode == nil || *res.ExitCode != 9 {
		t.Errorf("%+v, %v", res, err)
	}
	if !strings.HasSuffix(h.text(), "last words\n") {
		t.Errorf("printed %q", h.text())
	}
	nobodyLeft(t, h)
}

// Whoever holds the terminal is killed: the command is hung up or ended, and told
// why.
func TestTerminalLost(t *testing.T) {
	for name, line := range map[string]string{"hung up": "echo ready; exec sleep 1000", "deaf": "trap '' HUP; echo ready; exec sleep 1000"} {
		t.Run(name, func(t *testing.T) {
			c, _ := apart(t)
			h := onTerminal(t, line)
			_, join := launch(t, shell.New(c).For(client()), h)
			h.says("ready")
			for _, p := range holders(h) {
				if err := syscall.Kill(p.PID, syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
			}
			if res, err := join(); reason(err) != task.ReasonTerminalLost {
				t.Errorf("%+v, %v", res, err)
			}
			nobodyLeft(t, h)
		})
	}
}

// A kept command goes on without its host, which closes; the next one types into it
// and sees its end.
func TestTerminalKept(t *testing.T) {
	c, keys := apart(t)
	c.Keeper = new(watcher)
	h := onTerminal(t, `read -p 'one? ' x; echo "<$x>"; read -p 'two? ' y; echo "<$y>"`)
	h.rec.Keep = true
	d := shell.New(c).For(client())
	cancel, join := launch(t, d, h)
	p := <-h.begun
	h.says("one? ")
	cancel(task.ErrClosing)
	if _, err := join(); !errors.Is(err, task.ErrDetached) {
		t.Fatalf("closing: %v", err)
	}
	next := shell.New(c)
	h.rec.Process, h.input = &p, nil
	_, join = launch(t, next, h)
	press := func(text string) {
		t.Helper()
		var err error
		if !waittest.Until(20*time.Second, func() bool { // until it is taken up
			err = next.Steer(t.Context(), h.rec.ID, text)
			return err == nil
		}) {
			t.Fatal(err)
		}
	}
	press("a\r")
	h.says("two? ")
	var wait sync.WaitGroup // the parent's part: it notes the exit
	wait.Go(func() {
		var ws syscall.WaitStatus
		_, _ = syscall.Wait4(p.PID, &ws, 0, nil)
		_ = process.WriteDeparture(c.ExitFile(h.rec.ID), process.Departure{PID: p.PID, Start: p.Start, ExitCode: ws.ExitStatus(), At: time.Now()})
	})
	press("b\r")
	res, err := join()
	wait.Wait()
	if err != nil || res.ExitCode == nil || *res.ExitCode != 0 || len(res.Signals) > 0 {
		t.Errorf("%+v, %v", res, err)
	}
	if h.text() != "one? a\n<a>\ntwo? b\n<b>\n" {
		t.Errorf("printed %q", h.text())
	}
	if res.Settle == nil {
		t.Fatal("nothing to settle")
	}
	res.Settle()
	if _, err := os.Lstat(keys(h.rec.ID)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the pipe is left: %v", err)
	}
	_, _ = syscall.Wait4(-1, nil, syscall.WNOHANG, nil) // the holder was our child all along
}

// What cannot be: a kept command whose terminal nobody would hold, and a pipe in
// the place of which something stands.
func TestTerminalRefused(t *testing.T) {
	h := onTerminal(t, "true")
	h.rec.Keep = true
	if _, err := run(t, h); reason(err) != task.ReasonStart || !strings.Contains(err.Error(), "cannot be kept") {
		t.Errorf("err = %v", err)
	}
	c, keys := apart(t)
	h = onTerminal(t, "true")
	if err := os.Symlink("/etc/passwd", keys(h.rec.ID)); err != nil {
		t.Fatal(err)
	}
	_, join := launch(t, shell.New(c).For(client()), h)
	if _, err := join(); reason(err) != task.ReasonStart {
		t.Errorf("err = %v", err)
	}
	c.Copier = []string{"/does/not/exist"}
	h = onTerminal(t, "sleep 1000")
	_, join = launch(t, shell.New(c).For(client()), h)
	if _, err := join(); reason(err) != task.ReasonStart {
		t.Errorf("err = %v", err)
	}
	nobodyLeft(t, h)
}

// A command that is shown has the size of the terminal that it is shown on, its
// changes, and the keys that come on stdin.
func TestShown(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	sizes := make(chan tty.Size, 1)
	sizes <- tty.Size{Rows: 11, Cols: 44}
	var shown safe
	d := shell.New(shell.Config{}).For(shell.Client{Env: append(os.Environ(), "TERM=vt100"), Stdin: r, Tee: &shell.Tee{Stdout: &shown}, Sizes: sizes})
	h := onTerminal(t, `echo $TERM; stty size; trap 'stty size; new=1' WINCH; echo ready; until [ "$new" ]; do sleep 0.02; done; read x; echo "<$x>"`)
	_, join := launch(t, d, h)
	h.says("ready")
	sizes <- tty.Size{Rows: 12, Cols: 55}
	h.says("12 55")
	if _, err := w.WriteString("go\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := join(); err != nil {
		t.Error(err)
	}
	if got := h.text(); got != shown.String() || !strings.HasPrefix(got, "vt100\r\n11 44\r\n") || !strings.HasSuffix(got, "<go>\r\n") {
		t.Errorf("kept %q, shown %q", got, shown.String())
	}
}

type safe struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safe) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(b)
}

func (s *safe) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
