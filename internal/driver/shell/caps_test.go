package shell_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/drover-dev/drover/internal/driver/shell"
	"github.com/drover-dev/drover/internal/engine/process"
	"github.com/drover-dev/drover/task"
)

// retold is a host whose command knows where its output is.
func retold(t *testing.T, line string) *host {
	t.Helper()
	h := newHost(t, shell.Command{Line: "true"})
	in, err := json.Marshal(shell.Command{Line: strings.ReplaceAll(line, "OUT", h.path)})
	if err != nil {
		t.Fatal(err)
	}
	h.input, h.limit = in, 1<<30
	return h
}

// A command that reads what it writes is ended, whatever reads: a child, the shell
// itself, or what has left the group.
func TestOutputLoop(t *testing.T) {
	if !process.Reads(os.Getpid(), opened(t)) {
		t.Skip("this system does not show who reads a file")
	}
	for name, line := range map[string]string{
		"tail":   "seq -f %0100f 1000; tail -c +1 -f OUT | while read -r l; do echo $l; done", // not so fast that it meets its limit first
		"shell":  "printf '%09000d\\n' 0 0; while read -r l; do echo $l; echo $l; done < OUT",
		"behind": "seq -f %0100f 1000; setsid sh -c 'tail -c +1 -f OUT | while read -r l; do echo $l; done'; sleep 1000",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := retold(t, line)
			_, err := run(t, h)
			if reason(err) != task.ReasonOutputLoop || !strings.Contains(err.Error(), "reads the output that the command writes") {
				t.Errorf("ended with %v", err)
			}
			alone(t, h)
		})
	}
}

func opened(t *testing.T) os.FileInfo {
	t.Helper()
	f, err := os.Open(filepath.Join(os.Args[0]))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// What reads the output of another task, or its own once and then prints no more,
// comes to its natural end.
func TestOutputReaders(t *testing.T) {
	other := filepath.Join(t.TempDir(), "other.output")
	if err := os.WriteFile(other, []byte(strings.Repeat("0123456789\n", 10_000)), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, line := range map[string]string{
		"other": "exec 3< " + other + "; for i in 1 2 3 4 5 6 7 8; do seq 20000; sleep 0.7; done",
		"own":   "exec 3< OUT; seq 100000; for i in 1 2 3 4 5; do echo quiet; sleep 1; done",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := run(t, retold(t, line)); err != nil {
				t.Errorf("ended with %v", err)
			}
		})
	}
}

// When all outputs together are too much, the command that still prints is ended,
// and the quiet one goes on.
func TestOutputQuota(t *testing.T) {
	var told atomic.Int64
	errFull := errors.New("all outputs together are too much")
	d := shell.New(shell.Config{Written: func(n int64) error {
		if told.Add(n) > 0 {
			return errFull
		}
		return nil
	}}).For(shell.Client{Env: os.Environ()})
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	quiet, loud := newHost(t, shell.Command{Line: "read go < " + fifo}), newHost(t, shell.Command{Args: []string{"yes"}})
	quiet.limit, loud.limit = 1<<40, 1<<40
	ended := make(chan error, 1)
	go func() {
		_, err := d.Run(t.Context(), quiet)
		ended <- err
	}()
	<-quiet.begun
	_, err := d.Run(t.Context(), loud)
	if reason(err) != task.ReasonOutputQuota || !errors.Is(err, errFull) || told.Load() <= 0 {
		t.Errorf("the loud one: %v, %d bytes", err, told.Load())
	}
	if err := os.WriteFile(fifo, []byte("go\n"), 0); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("the quiet one: %v", err)
	}
}
