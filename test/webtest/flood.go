// Package webtest has a session for tests of the page: many tasks that change when the test says so.
package webtest

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/task"
)

// Flood is a live session, whose events one client reads.
type Flood struct {
	control.API
	Tasks  []task.Record // as they began
	events chan task.Event

	mu  sync.Mutex
	now map[task.ID]task.Record
}

// Change changes a task, and returns when the client knows of it.
func (f *Flood) Change(r task.Record) {
	f.mu.Lock()
	f.now[r.ID] = r
	f.mu.Unlock()
	f.events <- task.Event{Task: r}
}

// New is a session with running tasks of a kind.
func New(tasks int, kind task.Kind) *Flood {
	f := &Flood{events: make(chan task.Event), now: map[task.ID]task.Record{}}
	start := time.Unix(2, 0)
	for n := range tasks {
		f.Tasks = append(f.Tasks, task.Record{ID: task.ID(fmt.Sprintf("b%08d", n)), Session: "m1", Kind: kind,
			Status: task.Running, Name: fmt.Sprintf("task %d", n), CreateTime: start.Add(time.Duration(n)), StartTime: &start})
		f.now[f.Tasks[n].ID] = f.Tasks[n]
	}
	return f
}

// Session is how a page finds it.
type Session struct{ *Flood }

// Info describes it.
func (s Session) Info() control.Info {
	return control.Info{Session: "m1", Live: true, Title: "flood", StartTime: time.Unix(1, 0)}
}

// Open returns it.
func (s Session) Open(context.Context) (control.API, func(), error) {
	return api(s), func() {}, nil
}

// api is the session as clients see it.
type api struct{ *Flood }

func (a api) State(context.Context, control.StateRequest) (control.State, error) {
	return control.State{}, nil
}

func (a api) List(context.Context, control.ListRequest) (control.Page, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return control.Page{Tasks: slices.Collect(maps.Values(a.now))}, nil
}

func (a api) Attention(ctx context.Context, req control.AttentionRequest) (control.Attention, error) {
	if req.After != "" {
		<-ctx.Done()
		return control.Attention{}, context.Cause(ctx)
	}
	return control.Attention{Version: "1"}, nil
}

// Approvals has no question, and waits for one.
func (a api) Approvals(ctx context.Context, _ control.ApprovalsRequest) (control.Approvals, error) {
	<-ctx.Done()
	return control.Approvals{}, context.Cause(ctx)
}

func (a api) Events(ctx context.Context, _ task.Seq) iter.Seq2[task.Event, error] {
	return func(yield func(task.Event, error) bool) {
		for {
			select {
			case e := <-a.events:
				if !yield(e, nil) {
					return
				}
			case <-ctx.Done():
				yield(task.Event{}, context.Cause(ctx))
				return
			}
		}
	}
}
