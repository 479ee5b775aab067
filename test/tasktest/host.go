package tasktest

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/drover-dev/drover/task"
)

// Host is a [task.Host] without a runtime: it keeps what it is told in memory,
// and output in a file of the test. Children run in memory too, each on a goroutine
// that [Host.End] waits for.
type Host struct {
	t     testing.TB
	input json.RawMessage
	path  string
	once  sync.Once
	alive chan struct{} // closed at the first sign of life
	asked chan asked    // what the driver asks

	family *family

	mu   sync.Mutex
	rec  task.Record // guarded by mu, like the rest
	text string      // of a child that has ended
	fuse int         // calls until the host dies; below 1: never
	dead bool        // nothing takes effect any more
	die  func()

	wrote chan struct{} // closed by the next Write
}

// NewHost makes a host for one run of a new task, which is running.
func NewHost(t testing.TB, kind task.Kind, input json.RawMessage) *Host {
	t.Helper()
	dir, now := t.TempDir(), time.Now().UTC()
	id := task.NewID(kind)
	return newHost(
		t,
		task.Record{
			ID:        id,
			Run:       task.NewRunID(),
			Kind:      kind,
			Status:    task.Running,
			Session:   "s00000000",
			Cwd:       dir,
			StartTime: &now,
			Depth:     1,
		},
		input,
		dir,
	)
}

func (h *Host) lives() { h.once.Do(func() { close(h.alive) }) }

// Record is the task as the driver has told of it.
func (h *Host) Record() task.Record {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.rec
}

func (h *Host) change(f func(*task.Record)) {
	h.mu.Lock()
	f(&h.rec)
	h.mu.Unlock()
}

// Input is what the host was made with.
func (h *Host) Input() json.RawMessage { return h.input }

// Output is a file of the test.
func (h *Host) Output() task.Output { return h }

// Begun notes the process.
func (h *Host) Begun(p task.Process) error {
	h.change(func(r *task.Record) { r.Process = &p })
	h.lives()
	return nil
}

// Progress notes the progress.
func (h *Host) Progress(p task.Progress) {
	h.change(func(r *task.Record) {
		if !h.dead {
			r.Progress = &p
		}
	})
	h.lives()
}

// Checkpoint notes the state.
func (h *Host) Checkpoint(ctx context.Context, state []byte) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	h.step()
	if h.lost() {
		return ErrOver
	}
	h.change(func(r *task.Record) { r.Checkpoint = state })
	return nil
}

// Tell forgets the message: the task has no owner.
func (h *Host) Tell(ctx context.Context, _ task.MessageKind, _ string, _ task.Priority) error {
	return context.Cause(ctx)
}

// Rest waits.
func (h *Host) Rest(ctx context.Context, wait func(context.Context) error) error { return wait(ctx) }

// WaitWhilePaused never waits.
func (h *Host) WaitWhilePaused(ctx context.Context) error { return context.Cause(ctx) }

// Write appends to the output.
func (h *Host) Write(b []byte) (int, error) {
	f, err := h.File()
	if err != nil {
		return 0, err
	}
	defer f.Close()
	defer h.lives()
	n, err := f.Write(b)
	h.mu.Lock()
	defer h.mu.Unlock()
	close(h.wrote)
	h.wrote = make(chan struct{})
	return n, err
}

// UntilPrinted returns once text stands so many times in what Write was given.
func (h *Host) UntilPrinted(text string, times int) {
	h.t.Helper()
	for {
		h.mu.Lock()
		wrote := h.wrote
		h.mu.Unlock()
		if strings.Count(h.Printed(), text) >= times {
			return
		}
		select {
		case <-wrote:
		case <-time.After(30 * time.Second):
			h.t.Fatalf("%q is not printed: %s", text, h.Printed())
		}
	}
}

// File opens the output for append.
func (h *Host) File() (*os.File, error) {
	return os.OpenFile(h.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
}

// Path is where the output is.
func (h *Host) Path() string { return h.path }

// Size is that of the output.
func (h *Host) Size() int64 { return int64(len(h.Printed())) }

// Limit is none.
func (h *Host) Limit() int64 { return 0 }

// Printed is the output so far.
func (h *Host) Printed() string {
	data, err := os.ReadFile(h.path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		h.t.Errorf("read output: %v", err)
	}
	return string(data)
}
