package tasktest

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/drover-dev/drover/task"
)

// Host is a [task.Host] without a runtime: it keeps what it is told in memory,
// and output in a file of the test. It has no children.
type Host struct {
	t     testing.TB
	input json.RawMessage
	path  string
	once  sync.Once
	alive chan struct{} // closed at the first sign of life
	asked chan asked    // what the driver asks

	mu  sync.Mutex
	rec task.Record // guarded by mu
}

// NewHost makes a host for one run of a new task, which is running.
func NewHost(t testing.TB, kind task.Kind, input json.RawMessage) *Host {
	t.Helper()
	dir, now := t.TempDir(), time.Now().UTC()
	id := task.NewID(kind)
	return &Host{t: t, input: input, path: filepath.Join(dir, string(id)+".output"), alive: make(chan struct{}), asked: make(chan asked),
		rec: task.Record{ID: id, Run: task.NewRunID(), Kind: kind, Status: task.Running, Session: "s00000000", Cwd: dir, StartTime: &now, Depth: 1}}
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
	h.change(func(r *task.Record) { r.Progress = &p })
	h.lives()
}

// Checkpoint notes the state.
func (h *Host) Checkpoint(_ context.Context, state []byte) error {
	h.change(func(r *task.Record) { r.Checkpoint = state })
	return nil
}

var errAlone = errors.New("this host has no children")

// Tell forgets the message: the task has no owner.
func (h *Host) Tell(ctx context.Context, _ task.MessageKind, _ string, _ task.Priority) error {
	return context.Cause(ctx)
}

// Rest waits.
func (h *Host) Rest(ctx context.Context, wait func(context.Context) error) error { return wait(ctx) }

// Hold never holds.
func (h *Host) Hold(ctx context.Context) error { return context.Cause(ctx) }

// Spawn always fails.
func (h *Host) Spawn(context.Context, task.Driver, task.Spec) (task.Record, error) {
	return task.Record{}, errAlone
}

// Await always fails.
func (h *Host) Await(context.Context, task.ID) (task.Record, error) {
	return task.Record{}, errAlone
}

// Write appends to the output.
func (h *Host) Write(b []byte) (int, error) {
	f, err := h.File()
	if err != nil {
		return 0, err
	}
	defer f.Close()
	defer h.lives()
	return f.Write(b)
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
