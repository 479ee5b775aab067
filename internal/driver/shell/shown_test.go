package shell_test

import (
	"bytes"
	"context"
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
	"github.com/drover-dev/drover/task"
)

// What is shown is bounded as what is not: by its limit, by the quota of all, and
// where it feeds on itself.
func TestShownBounds(t *testing.T) {
	errFull := errors.New("all outputs together are too much")
	for name, c := range map[string]struct {
		line   string
		limit  int64
		quota  bool
		reason task.Reason
	}{
		"limit": {"yes", 100 << 10, false, task.ReasonOutputLimit},
		"quota": {"yes", 1 << 40, true, task.ReasonOutputQuota},
		"loop":  {"seq -f %0100f 1000; tail -c +1 -f OUT | while read -r l; do echo $l; done", 1 << 30, false, task.ReasonOutputLoop},
	} {
		for _, terminal := range []bool{false, true} {
			t.Run(name+map[bool]string{true: " on a terminal"}[terminal], func(t *testing.T) {
				t.Parallel()
				if c.reason == task.ReasonOutputLoop && !process.Reads(os.Getpid(), opened(t)) {
					t.Skip("this system does not show who reads a file")
				}
				h := retold(t, c.line)
				if terminal {
					at := h.path
					h = onTerminal(t, strings.ReplaceAll(c.line, "OUT", at))
					h.path = at
				}
				h.limit = c.limit
				cfg := shell.Config{Written: func(n int64) error {
					if c.quota && n > 0 {
						return errFull
					}
					return nil
				}}
				cl := client()
				cl.Tee = &shell.Tee{Stdout: new(count), Stderr: new(count)}
				_, join := launch(t, shell.New(cfg).For(cl), h)
				if res, err := join(); reason(err) != c.reason {
					t.Errorf("result %+v, %v", res, err)
				}
				alone(t, h)
			})
		}
	}
}

// count is shown something and forgets it.
type count struct{}

func (*count) Write(b []byte) (int, error) { return len(b), nil }

// gone cannot be shown anything, and tells when somebody has tried.
type gone struct {
	err  error
	once sync.Once
	told chan struct{}
}

func newGone(err error) *gone { return &gone{err: err, told: make(chan struct{})} }

func (g *gone) Write([]byte) (int, error) {
	g.once.Do(func() { close(g.told) })
	return 0, g.err
}

// A command whose reader is gone ends as one that writes into a closed pipe, or whose
// terminal was closed, and its end says why.
func TestReaderGone(t *testing.T) {
	for name, c := range map[string]struct {
		line     string
		terminal bool
		err      error
		stderr   bool
		signal   string
		says     string
	}{
		"pipe":          {"yes", false, syscall.EPIPE, false, "SIGPIPE", "ended by SIGPIPE: nobody read any more"},
		"stderr":        {"exec yes >&2", false, syscall.EPIPE, true, "SIGPIPE", "nobody read any more"},
		"full":          {"exec yes", false, syscall.ENOSPC, false, "SIGPIPE", "could not be shown any more: no space left on device"},
		"terminal":      {"exec yes", true, syscall.EPIPE, false, "SIGHUP", "ended by SIGHUP: nobody read any more"},
		"full terminal": {"exec yes", true, syscall.ENOSPC, false, "SIGHUP", "could not be shown any more: no space left on device"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, shell.Command{Line: c.line, TTY: c.terminal})
			cl, away := client(), newGone(c.err)
			cl.Tee = &shell.Tee{Stdout: away, Stderr: new(count)}
			if c.stderr {
				cl.Tee = &shell.Tee{Stdout: new(count), Stderr: away}
			}
			_, join := launch(t, shell.New(shell.Config{}).For(cl), h)
			res, err := join()
			if res.Signal != c.signal || reason(err) != task.ReasonSignal || !strings.Contains(err.Error(), c.says) || len(res.Signals) > 0 {
				t.Errorf("result %+v, %v", res, err)
			}
			if lost := cl.Tee.Lost(); !errors.Is(lost, c.err) {
				t.Errorf("lost: %v", lost)
			}
			if h.Size() == 0 {
				t.Error("the file does not hold what nobody read")
			}
			alone(t, h)
		})
	}
}

// A command that prints nothing more is not harmed by a reader that has gone, and
// what it writes elsewhere is still shown.
func TestReaderGoneQuiet(t *testing.T) {
	for name, terminal := range map[string]bool{"pipe": false, "terminal": true} {
		t.Run(name, func(t *testing.T) {
			fifo := filepath.Join(t.TempDir(), "fifo")
			if err := syscall.Mkfifo(fifo, 0o600); err != nil {
				t.Fatal(err)
			}
			line := "echo a; read go < " + fifo
			if !terminal {
				line += "; echo still >&2"
			}
			h := newHost(t, shell.Command{Line: line, TTY: terminal})
			cl, away, errs := client(), newGone(syscall.EPIPE), bytes.Buffer{}
			cl.Tee = &shell.Tee{Stdout: away, Stderr: &errs}
			_, join := launch(t, shell.New(shell.Config{}).For(cl), h)
			<-away.told
			if err := os.WriteFile(fifo, []byte("go\n"), 0); err != nil {
				t.Fatal(err)
			}
			if res, err := join(); err != nil || res.ExitCode == nil || *res.ExitCode != 0 {
				t.Errorf("result %+v, %v", res, err)
			}
			if want := map[bool]string{false: "still\n"}[terminal]; errs.String() != want {
				t.Errorf("stderr %q, want %q", errs.String(), want)
			}
		})
	}
}

// Ctrl-C asks a command by INT, and TERM and KILL come for one that does not go; a
// second one means KILL at once.
func TestInterrupt(t *testing.T) {
	const traps = "trap 'echo INT; exit 7' INT; trap 'echo TERM; exit 8' TERM; echo ready; while :; do sleep 0.01; done"
	for name, c := range map[string]struct {
		cmd    shell.Command
		grace  time.Duration
		hurry  bool
		signal string
		code   int
	}{
		"taken":    {shell.Command{Line: traps}, time.Minute, false, "", 7},
		"dead":     {shell.Command{Line: "echo ready; exec sleep 1000"}, time.Minute, false, "SIGINT", -1},
		"deaf":     {shell.Command{Line: strings.Replace(traps, "trap 'echo INT; exit 7'", "trap ''", 1)}, 2 * time.Second, false, "", 8},
		"stubborn": {self("ignore-term"), 50 * time.Millisecond, false, "SIGKILL", -1},
		"hurry":    {self("ignore-term"), time.Minute, true, "SIGKILL", -1},
		"shown":    {shell.Command{Line: traps, TTY: true}, time.Minute, false, "", 7},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, cl := newHost(t, c.cmd), client()
			hurry, rush := context.WithCancel(t.Context())
			defer rush()
			cl.Hurry = hurry
			stop, join := launch(t, shell.New(shell.Config{}).For(cl), h)
			h.says("ready")
			cause := &task.StopError{Cause: task.Cause{Actor: task.ByUser, Reason: task.ReasonInterrupt}, Grace: &c.grace}
			stop(cause)
			if c.hurry {
				rush()
			}
			res, err := join()
			if err != error(cause) || res.ExitCode == nil || *res.ExitCode != c.code || res.Signal != c.signal {
				t.Errorf("result %+v, %v", res, err)
			}
			if len(res.Signals) == 0 || res.Signals[0].Signal != "SIGINT" {
				t.Errorf("sent %v", res.Signals)
			}
			alone(t, h)
		})
	}
}

// A shell that waits at its prompt goes when it is stopped, and so does what it runs,
// whoever holds its terminal.
func TestShellStops(t *testing.T) {
	for name, typed := range map[string]string{"idle": "echo rea''dy\r", "busy": "sleep 1000 & echo rea''dy; sleep 1000\r"} {
		for _, here := range []bool{false, true} {
			t.Run(name+map[bool]string{true: " here"}[here], func(t *testing.T) {
				c, _ := apart(t)
				if here {
					c = shell.Config{}
				}
				d := shell.New(c).For(client())
				h := onTerminal(t, "exec bash --norc --noprofile -i")
				stop, join := launch(t, d, h)
				<-h.begun
				if err := d.Steer(t.Context(), h.rec.ID, typed); err != nil {
					t.Fatal(err)
				}
				h.says("ready")
				stop(stopBy(time.Minute))
				res, err := join()
				if !errors.Is(err, task.ErrStopRequested) || res.Signal != "SIGHUP" || len(res.Left) > 0 {
					t.Errorf("result %+v, %v", res, err)
				}
				nobodyLeft(t, h)
			})
		}
	}
}
