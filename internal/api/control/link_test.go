package control_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/task"
)

// ending is a session that holds leases until it ends.
type ending struct {
	control.API
	name  string
	ended atomic.Bool
	held  chan string
}

func (e *ending) gone() error {
	if e.ended.Load() {
		return &control.Error{Code: control.Unavailable, Message: "the host has ended"}
	}
	return nil
}

func (e *ending) Info(context.Context) (control.Info, error) { return control.Info{}, e.gone() }

func (e *ending) Get(_ context.Context, ref string) (task.Record, error) {
	parents := map[string]task.ID{"b1": "a1", "a1": "a0"}
	return task.Record{ID: task.ID(ref), Name: e.name, Parent: parents[ref]}, e.gone()
}

func (e *ending) HoldLease(ctx context.Context, lease string) error {
	e.held <- lease
	<-ctx.Done()
	return nil
}

// A link calls the next session when one has ended, holds the lease at each, and releases each once.
func TestLink(t *testing.T) {
	sessions := []*ending{{name: "first", held: make(chan string, 1)}, {name: "second", held: make(chan string, 1)}}
	connected, released := 0, make(chan string, 2)
	link := control.NewLink(t.Context(), func(context.Context) (control.API, func(), error) {
		s := sessions[connected]
		connected++
		return s, func() { released <- s.name }, nil
	}, "lease-1")
	for _, s := range sessions {
		for range 2 { // the second call uses the same connection
			if r, err := link.Record(t.Context(), "b1"); err != nil || r.Name != s.name {
				t.Fatalf("%+v, %v, want the answer of the %s session", r, err, s.name)
			}
		}
		if lease := <-s.held; lease != "lease-1" {
			t.Errorf("the lease is %q", lease)
		}
		if s == sessions[0] {
			s.ended.Store(true)
		}
	}
	if name := <-released; name != "first" {
		t.Errorf("%s was released", name)
	}
	above := func(id task.ID) bool {
		return link.Below(t.Context(), "b1", func(r task.Record) bool { return r.ID == id })
	}
	if !above("b1") || !above("a0") || above("a9") {
		t.Error("a task is below itself and its parents only")
	}
	link.Close()
	if name := <-released; name != "second" {
		t.Errorf("%s was released", name)
	}
}
