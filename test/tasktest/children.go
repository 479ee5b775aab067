package tasktest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/task"
)

// family is the children of one task, over all its runs.
type family struct {
	mu       sync.Mutex
	children []*child // guarded by mu, like the rest
	over     bool     // no further child
	runs     sync.WaitGroup
}

// child is one of them, in its present or last run.
type child struct {
	host *Host
	end  context.CancelCauseFunc
	done chan struct{} // closed when the run has ended
}

// ErrOver is returned by [Host.Spawn] of a task that has ended, or whose host was lost.
var ErrOver = errors.New("the task has ended")

func (f *family) find(is func(task.Record) bool) *child {
	for _, c := range f.children {
		if is(c.host.Record()) {
			return c
		}
	}
	return nil
}

// Spawn runs a child in memory, or finds the one that has the key of the spec.
func (h *Host) Spawn(ctx context.Context, d task.Driver, s task.Spec) (task.Record, error) {
	if err := d.Check(s.Input); err != nil {
		return task.Record{}, err
	}
	if ctx.Err() != nil {
		return task.Record{}, context.Cause(ctx)
	}
	h.step()
	h.family.mu.Lock()
	defer h.family.mu.Unlock()
	if c := h.family.find(func(r task.Record) bool { return s.Key != "" && r.Key == s.Key }); c != nil {
		return c.host.Record(), nil
	}
	if h.family.over || h.lost() {
		return task.Record{}, ErrOver
	}
	parent := h.Record()
	rec := task.Record{
		ID:           task.NewID(d.Kind()),
		Run:          task.NewRunID(),
		Kind:         d.Kind(),
		Status:       task.Pending,
		Session:      parent.Session,
		Parent:       parent.ID,
		Name:         s.Name,
		Description:  s.Description,
		Command:      s.Command,
		Cwd:          s.Cwd,
		Key:          s.Key,
		Backgrounded: s.Backgrounded,
		Depth:        parent.Depth + 1,
		CreateTime:   time.Now().UTC(),
	}
	c := &child{host: newHost(h.t, rec, s.Input, filepath.Dir(h.path))}
	h.family.children = append(h.family.children, c)
	return c.begin(h.family, d, s.Timeout), nil
}

// begin runs the driver; the caller holds mu of the family. The record is that
// before the run.
func (c *child) begin(f *family, d task.Driver, limit time.Duration) task.Record {
	rec := c.host.Record()
	ctx, end := context.WithCancelCause(context.Background())
	var late *time.Timer
	if limit > 0 {
		late = time.AfterFunc(limit, func() { end(task.ErrTimeout) })
	}
	host, done := c.host, make(chan struct{})
	c.end, c.done = end, done
	f.runs.Go(func() { // joined by End
		defer close(done)
		defer end(nil)
		now := time.Now().UTC()
		host.change(func(r *task.Record) {
			// it may be lost already
			if next, err := lifecycle.Apply(*r, lifecycle.Change{Verb: task.Begin, At: now}); err == nil {
				*r = next
			}
		})
		res, err := d.Run(ctx, host)
		if late != nil {
			late.Stop()
		}
		change, ends := lifecycle.Ending(context.Cause(ctx), res, err)
		host.End()
		host.change(func(r *task.Record) {
			if next, err := lifecycle.Apply(*r, change); ends && err == nil { // one that was lost has ended already
				*r = next
			}
		})
		host.mu.Lock()
		host.text = res.Text
		host.mu.Unlock()
	})
	return rec
}

// ResumeChild gives a child that has ended a further run.
func (h *Host) ResumeChild(_ context.Context, id task.ID, d task.Driver, s task.Spec) (task.Record, error) {
	h.family.mu.Lock()
	defer h.family.mu.Unlock()
	c := h.family.find(func(r task.Record) bool { return r.ID == id })
	if c == nil || !c.host.Record().Status.Terminal() || h.family.over {
		return task.Record{}, fmt.Errorf("child %s cannot have a further run", id)
	}
	c.host = c.host.Again(s.Input)
	return c.begin(h.family, d, s.Timeout), nil
}

// Await waits for the end of a child.
func (h *Host) Await(ctx context.Context, id task.ID) (task.Record, error) {
	h.step()
	h.family.mu.Lock()
	c := h.family.find(func(r task.Record) bool { return r.ID == id })
	h.family.mu.Unlock()
	if c == nil {
		return task.Record{}, fmt.Errorf("unknown child %s", id)
	}
	h.lives()
	select {
	case <-c.done:
		return c.host.Record(), nil
	case <-ctx.Done():
		return c.host.Record(), context.Cause(ctx)
	}
}

// StopChild ends a child and waits for that.
func (h *Host) StopChild(id task.ID, why task.Cause) {
	h.family.mu.Lock()
	c := h.family.find(func(r task.Record) bool { return r.ID == id })
	h.family.mu.Unlock()
	if c != nil {
		c.end(&task.StopError{Cause: why})
		<-c.done
	}
}

// Children are the records of all children, in the order of their first starts.
func (h *Host) Children() []task.Record {
	h.family.mu.Lock()
	defer h.family.mu.Unlock()
	out := make([]task.Record, len(h.family.children))
	for i, c := range h.family.children {
		out[i] = c.host.Record()
	}
	return out
}

// Child is the host of a child, or nil.
func (h *Host) Child(id task.ID) *Host {
	h.family.mu.Lock()
	defer h.family.mu.Unlock()
	if c := h.family.find(func(r task.Record) bool { return r.ID == id }); c != nil {
		return c.host
	}
	return nil
}

// Text is the final text of a child's last run that has ended.
func (h *Host) Text() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.text
}

// End ends what is left below the task, as the runtime does after every run.
func (h *Host) End() {
	h.family.mu.Lock()
	h.family.over = true
	for _, c := range h.family.children {
		c.end(&task.StopError{Cause: task.Cause{Actor: task.ByParent, Reason: task.ReasonParentEnded}})
	}
	h.family.mu.Unlock()
	h.family.runs.Wait()
}

// LoseAfter lets the host die at the n-th call from now that would be durable or
// starts something, from 1: nothing takes effect from then on, and end is called,
// which is to end the context of the run.
func (h *Host) LoseAfter(n int, end func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fuse, h.die = n, end
}

func (h *Host) lost() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.dead
}

// step counts a call towards the death of the host.
func (h *Host) step() {
	h.mu.Lock()
	die := h.fuse == 1 && !h.dead
	h.fuse--
	if die {
		h.dead = true
	}
	h.mu.Unlock()
	if die {
		h.family.lose()
		h.die()
	}
}

// lose records all that lives as lost with its host.
func (f *family) lose() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.over = true
	for _, c := range f.children {
		c.host.change(func(r *task.Record) {
			if next, err := lifecycle.Apply(*r,
				lifecycle.Change{Verb: task.Stop, At: time.Now().UTC(), Cause: task.Lost(*r, "")}); err == nil {
				*r = next
			}
		})
		c.host.mu.Lock()
		c.host.dead = true
		c.host.mu.Unlock()
		c.host.family.lose()
		c.end(errors.New("the host was lost"))
	}
}

// Again makes the host for a further run of the task. The earlier one must have
// ended; its checkpoint and its children are there.
func (h *Host) Again(input json.RawMessage) *Host {
	rec := h.Record()
	rec.Run, rec.Status, rec.Progress, rec.Cause, rec.EndTime, rec.Error = task.NewRunID(), task.Running, nil, nil, nil, ""
	if rec.Parent != "" {
		rec.Status = task.Pending
	}
	next := newHost(h.t, rec, input, filepath.Dir(h.path))
	next.family = h.family
	next.family.mu.Lock()
	next.family.over = false
	next.family.mu.Unlock()
	return next
}

// newHost makes a host of a record.
func newHost(t testing.TB, rec task.Record, input json.RawMessage, dir string) *Host {
	h := &Host{
		t:      t,
		input:  input,
		path:   filepath.Join(dir, string(rec.ID)+".output"),
		alive:  make(chan struct{}),
		asked:  make(chan asked),
		wrote:  make(chan struct{}),
		rec:    rec,
		family: &family{},
	}
	t.Cleanup(h.End)
	return h
}
