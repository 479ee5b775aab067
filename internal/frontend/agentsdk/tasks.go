package agentsdk

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/task"
)

// patience is how long a command may run in the foreground before its task_started: most end sooner, and two lines for
// each would hide the rest.
const patience = 2 * time.Second

// entry is a live run.
type entry struct {
	rec   task.Record
	order task.Seq  // number of its first event
	shown bool      // task_started is written
	ours  bool      // it began under this stream and is counted
	due   time.Time // latest time of its task_started
	voice voice     // of an agent

	calls   int   // tool calls of the run
	context int64 // tokens of the latest request
	output  int64 // tokens of all replies
}

// onTask prints the change of one event.
func (s *Stream) onTask(ctx context.Context, e task.Event) {
	r := e.Task
	if s.hidden(r) || e.Verb == task.MarkSeen {
		return
	}
	t := s.tasks[r.ID]
	fresh := t == nil || t.rec.Run != r.Run
	if fresh {
		t = &entry{order: e.Seq, ours: e.Verb == task.Create || e.Verb == task.Resume, voice: speaker(r)}
		s.tasks[r.ID] = t
		s.count(t, r)
	}
	was := t.rec
	t.rec = r
	if r.Status.Terminal() {
		delete(s.tasks, r.ID)
		defer s.ended(ctx, t, was.Background())
	}
	switch {
	case t.shown:
		s.changed(t, was)
	case r.Kind != task.LocalBash || r.Backgrounded || e.At.Sub(r.CreateTime) >= patience:
		s.started(t)
	case fresh:
		t.due = r.CreateTime.Add(patience)
		s.due = append(s.due, t)
	}
}

// overdue starts the foreground commands that are due.
func (s *Stream) overdue(now time.Time) {
	for len(s.due) > 0 {
		t := s.due[0]
		if !t.shown && s.tasks[t.rec.ID] == t {
			if now.Before(t.due) {
				return
			}
			s.started(t)
		}
		s.due = s.due[1:]
	}
}

func (s *Stream) started(t *entry) {
	r := t.rec
	t.shown = true
	if r.Background() {
		s.background()
	}
	s.line(startedLine{
		head: system("task_started"), Task: r.ID, Run: r.Run, ToolUseID: r.ToolUseID, Kind: r.Kind,
		SubagentType: r.AgentType, Description: describe(r), Backgrounded: r.Backgrounded, Depth: r.Depth,
		Parent: s.parent(r), Prompt: r.Prompt, Workflow: workflowName(r), stamp: s.stamp(),
	})
	s.note("task %s started: %s", r.ID, excerpt.Line(describe(r), 120))
}

// changed prints the changes of a live run that the wire has words for.
func (s *Stream) changed(t *entry, was task.Record) {
	s.steps(t, was)
	r := t.rec
	if r.Status.Terminal() {
		return
	}
	if r.Paused != was.Paused {
		s.updated(r, patch{Status: patchStatus(r)})
	}
	if r.Backgrounded && !was.Backgrounded {
		s.updated(r, patch{Backgrounded: true})
		s.background()
		s.note("task %s continues in the background", r.ID)
	}
}

func (s *Stream) ended(ctx context.Context, t *entry, wasBackground bool) {
	r := t.rec
	if t.ours && r.Kind.IsAgent() {
		switch r.Status {
		case task.Completed:
			s.stats.Completed++
		case task.Failed:
			s.stats.Failed++
		default:
			s.stats.Killed[reason(r)]++
		}
	}
	if !t.shown {
		return
	}
	s.updated(r, patch{Status: patchStatus(r), EndTime: endTime(r), Error: r.Error})
	n := notificationLine{
		head: system("task_notification"),
		Task: r.ID, Run: r.Run, ToolUseID: r.ToolUseID,
		Status: notificationStatus(r.Status), Reason: notificationReason(r.Cause), OutputFile: r.OutputFile,
		Summary: describe(r) + ": " + outcome(r), ExitCode: r.ExitCode, Cause: r.Cause, stamp: s.stamp(),
	}
	if r.Kind != task.LocalBash {
		if u := r.Usage; u != nil {
			n.Usage = &taskUsage{Tokens: u.TotalTokens, ToolUses: u.ToolUses, DurationMS: u.DurationMS}
		}
		if r.Status == task.Completed {
			n.Summary, n.IsReport = s.report(ctx, r, n.Summary)
		}
	}
	s.line(n)
	if wasBackground {
		s.background()
	}
	s.note("task %s %s", r.ID, outcome(r))
}

// report returns the final text of a run, or a summary if it is empty.
func (s *Stream) report(ctx context.Context, r task.Record, summary string) (string, bool) {
	if s.o.Answer == nil || s.o.Format != StreamJSON {
		return summary, false
	}
	if text := s.o.Answer(ctx, r); text != "" {
		return text, true
	}
	return summary + " with an empty answer", false
}

func (s *Stream) updated(r task.Record, p patch) {
	s.line(updatedLine{head: system("task_updated"), Task: r.ID, Run: r.Run, Patch: p, stamp: s.stamp()})
}

// background prints the whole list of live background tasks.
func (s *Stream) background() {
	live := make([]*entry, 0, len(s.tasks))
	for _, t := range s.tasks {
		if t.rec.Background() {
			live = append(live, t)
		}
	}
	slices.SortFunc(live, func(a, b *entry) int { return cmp.Compare(a.order, b.order) })
	list := make([]backgroundTask, len(live))
	for i, t := range live {
		r := t.rec
		list[i] = backgroundTask{Task: r.ID, Run: r.Run, Kind: r.Kind, SubagentType: r.AgentType,
			Description: describe(r), Parent: s.parent(r)}
	}
	s.line(backgroundLine{head: system("background_tasks_changed"), Tasks: list, stamp: s.stamp()})
}

// progress prints a line for a tool call of an agent.
func (s *Stream) progress(t *entry, tool string) {
	r := t.rec
	t.calls++
	if !t.shown {
		return
	}
	s.line(progressLine{
		head: system("task_progress"), Task: r.ID, Run: r.Run, ToolUseID: r.ToolUseID,
		SubagentType: r.AgentType, Description: describe(r),
		Usage: taskUsage{Tokens: t.context + t.output, ToolUses: t.calls,
			DurationMS: r.Duration(time.Now()).Milliseconds()},
		LastTool: tool, Summary: summary(r), stamp: s.stamp(),
	})
}

// summary is the summary of a running agent.
func summary(r task.Record) string {
	if r.Progress == nil {
		return ""
	}
	return r.Progress.Summary
}

func (s *Stream) count(t *entry, r task.Record) {
	if t.ours && r.Kind.IsAgent() {
		s.stats.Spawned++
		s.stats.ByType[r.AgentType]++
	}
}

func (s *Stream) parent(r task.Record) task.ID {
	if r.Parent == s.o.Session {
		return ""
	}
	return r.Parent
}

func reason(r task.Record) task.Reason {
	if r.Cause == nil {
		return task.ReasonStopped
	}
	return r.Cause.Reason
}
