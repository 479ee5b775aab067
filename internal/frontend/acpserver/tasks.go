package acpserver

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	acp "github.com/coder/acp-go-sdk"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/task"
)

// Bounds of the display of a task.
const (
	tailLines = 40   // of a command's output
	lastSteps = 20   // calls of a subagent
	maxPast   = 4096 // ended calls that are remembered
)

// shownTask is a task that the client sees as a call: the call of the main agent that started it, or a call of
// its own.
type shownTask struct {
	call  string // ID of the call
	rec   task.Record
	steps []string // calls of a subagent, newest last
	asked int      // number of all calls
}

// tasks shows the tasks and their ends until the session is closed.
func (s *session) tasks() {
	page, err := s.api.List(s.ctx, control.ListRequest{})
	for _, r := range page.Tasks { // of an earlier host
		s.task(r)
	}
	if err == nil {
		for e, wrong := range s.api.Events(s.ctx, s.since) {
			if err = wrong; err != nil {
				break
			}
			s.task(e.Task)
		}
	}
	if err != nil {
		s.warn("read the tasks", err)
	}
}

// task shows a task as it is now.
func (s *session) task(r task.Record) {
	if s.children != nil {
		s.child(r)
	}
	if r.ID == s.open.ID() || r.IsConversation() || r.Depth > 1 {
		return
	}
	if s.view.task(r) {
		s.view.ended(r, s.ending(s.ctx, r))
	}
}

// meet shows a task whose agent acts before the event of its start arrives.
func (s *session) meet(id task.ID) {
	s.view.mu.Lock()
	known := s.view.tasks[id] != nil
	s.view.mu.Unlock()
	if known {
		return
	}
	if r, err := s.api.Get(s.ctx, string(id)); err == nil {
		s.task(r)
	}
}

// caughtUp shows the ends of tasks that the main agent has just read of, before it speaks of them. The
// log, which shows them too, may arrive later.
func (s *session) caughtUp() {
	for _, id := range s.view.shown() {
		if r, err := s.api.Get(s.ctx, string(id)); err == nil && over(r) {
			s.task(r)
		}
	}
}

// shown returns the tasks that the client sees as running.
func (v *view) shown() []task.ID {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Sorted(maps.Keys(v.tasks))
}

// started shows the tasks of a call, before the end of the call.
func (s *session) started(call string) {
	page, err := s.api.List(s.ctx, control.ListRequest{})
	if err != nil {
		return // the session is closed
	}
	for _, r := range page.Tasks {
		if r.ToolUseID == call && r.Depth <= 1 && r.ID != s.open.ID() {
			s.view.task(r)
		}
	}
}

// ending is the display of an ended task.
func (s *session) ending(ctx context.Context, r task.Record) []acp.ToolCallContent {
	line := fmt.Sprintf("%s %s: %s", r.Noun(), r.ID, cmp.Or(excerpt.Line(r.Outcome(), 500), string(r.Status)))
	if r.Worker != "" {
		line += ", at worker " + excerpt.Line(r.Worker, 63)
	}
	if r.Kind.IsAgent() {
		a, err := s.api.Result(ctx, control.ResultRequest{Ref: string(r.ID), Max: maxResult})
		if err == nil && strings.TrimSpace(a.Text) != "" {
			return text(line + "\n\n" + a.Text)
		}
		return text(line)
	}
	chunk, err := s.api.Output(ctx, control.OutputRequest{Ref: string(r.ID), Tail: tailLines, Max: maxResult})
	if err != nil || len(chunk.Data) == 0 {
		return text(line)
	}
	return text(line + "\n\n" + fenced(excerpt.Plain(string(chunk.Data))))
}

// task shows a live task, and reports whether its end must be shown.
func (v *view) task(r task.Record) (ended bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	t := v.tasks[r.ID]
	if t == nil {
		if over(r) || v.past[r.ToolUseID] {
			return false
		}
		t = &shownTask{call: r.ToolUseID, rec: r}
		if _, open := v.calls[r.ToolUseID]; !open {
			t.call = "task-" + string(r.ID)
			v.appear(t)
		}
		v.tasks[r.ID] = t
		return false
	}
	t.rec = r
	if _, open := v.calls[t.call]; over(r) && open { // the end of the call shows it
		delete(v.tasks, r.ID)
		return false
	}
	return over(r)
}

// over reports whether a task has done its work; an agent that waits for messages has.
func over(r task.Record) bool { return r.Status.Terminal() || r.Resting() && r.Kind.IsAgent() }

// appear shows a task as a call of its own.
func (v *view) appear(t *shownTask) {
	r := t.rec
	kind := acp.ToolKindExecute
	if r.Kind.IsAgent() {
		kind = acp.ToolKindOther
	}
	v.spoken = false
	v.send(acp.SessionUpdate{ToolCall: &acp.SessionUpdateToolCall{ToolCallId: acp.ToolCallId(t.call), Kind: kind,
		Title:  excerpt.Line(cmp.Or(r.Description, r.Command, r.Name, string(r.ID)), maxTitle),
		Status: acp.ToolCallStatusInProgress, Content: text(excerpt.Plain(r.Command))}})
}

// ended shows the end of a task.
func (v *view) ended(r task.Record, content []acp.ToolCallContent) {
	v.mu.Lock()
	defer v.mu.Unlock()
	t := v.tasks[r.ID]
	if t == nil {
		return
	}
	delete(v.tasks, r.ID)
	v.remember(t.call)
	status := acp.ToolCallStatusCompleted
	if r.Status.Terminal() && r.Status != task.Completed {
		status = acp.ToolCallStatusFailed
	}
	v.status(t.call, status, content)
}

// remember keeps the ID of an ended call, so that late events of it show nothing.
func (v *view) remember(call string) {
	if len(v.past) >= maxPast {
		clear(v.past)
	}
	v.past[call] = true
}

// settled forgets the tasks of a call whose result shows their end.
func (v *view) settled(call string) {
	v.remember(call)
	for id, t := range v.tasks {
		if t.call == call {
			delete(v.tasks, id)
		}
	}
}

// living reports whether a task of a call runs in the background.
func (v *view) living(call string) bool {
	for _, t := range v.tasks {
		if t.call == call && !over(t.rec) && t.rec.Backgrounded {
			return true
		}
	}
	return false
}

// step shows a call of a tool by a subagent.
func (v *view) step(from task.ID, c agent.Call) {
	t := v.tasks[from]
	if t == nil {
		return
	}
	t.asked++
	t.steps = append(t.steps, describeCall(c, v.folder).title)
	if len(t.steps) > lastSteps {
		t.steps = t.steps[len(t.steps)-lastSteps:]
	}
	var b strings.Builder
	if more := t.asked - len(t.steps); more > 0 {
		fmt.Fprintf(&b, "- %d earlier calls\n", more)
	}
	for _, one := range t.steps {
		b.WriteString("- " + one + "\n")
	}
	v.status(t.call, acp.ToolCallStatusInProgress, text(b.String()))
}

// abandon shows the end of the tasks that the close of the session has stopped.
func (s *session) abandon() {
	s.view.mu.Lock()
	defer s.view.mu.Unlock()
	for id, t := range s.view.tasks {
		delete(s.view.tasks, id)
		s.view.status(t.call, acp.ToolCallStatusFailed, text("The session was closed."))
	}
}
