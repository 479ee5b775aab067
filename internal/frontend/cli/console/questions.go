package console

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/task"
)

// A watching command asks a session, which answers after a change or after watchWait. Every WatchTick it
// looks for new sessions.
const (
	WatchWait = time.Minute
	WatchTick = 3 * time.Second
)

// Asker names the task and the agent of a question.
func Asker(q task.Question) string {
	who := Cell(string(q.Task), 40)
	if q.Agent != "" {
		who += " (" + ExactCell(q.Agent, 60) + ")"
	}
	return who
}

// QuestionBody is a question without its head, for every view: its time limit, reason, input and digest.
func QuestionBody(q task.Question, now time.Time) string {
	var b strings.Builder
	if !q.Until.IsZero() {
		fmt.Fprintf(&b, ", denied in %s", Span(q.Until.Sub(now)))
	}
	if q.Reason != "" {
		fmt.Fprintf(&b, "\n  why: %s", ExactCell(q.Reason, 2000))
	}
	fmt.Fprintf(&b, "\n%s", indented(excerpt.Call(q.Input, q.Hidden)))
	if q.Hidden > 0 {
		fmt.Fprintf(&b, "  (%d bytes of the input are hidden: `drover approvals show %s` shows all of it)\n", q.Hidden,
			Cell(q.ID, 40))
	}
	if q.Digest != "" {
		fmt.Fprintf(&b, "  digest: %.16s\n", Cell(q.Digest, 100))
	}
	return b.String()
}

// ExactCell is text on one line with every character visible.
func ExactCell(text string, limit int) string { return Cell(excerpt.Exact(text), limit) }

// Written says where a permanent rule is written.
func Written(rule string) string {
	return "adds the rule " + excerpt.ExactLine(rule) + " to .drover/settings.local.json"
}

func indented(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString("  " + line)
	}
	return b.String()
}

// FollowQuestions passes each question of a session to put once, until the session or ctx ends. It skips
// the seen ones, and returns the questions that were open last.
func FollowQuestions(
	ctx context.Context, api control.API, seen map[string]bool, put func(task.Question),
) map[string]bool {
	req := control.ApprovalsRequest{}
	for {
		list, err := api.Approvals(ctx, req)
		if err != nil || ctx.Err() != nil {
			return seen
		}
		now := map[string]bool{}
		for _, q := range list.Questions {
			if now[q.ID] = true; !seen[q.ID] {
				put(q)
			}
		}
		seen, req = now, control.ApprovalsRequest{After: list.Version, Wait: WatchWait}
	}
}

// SayQuestions notes the questions of some tasks and their subtrees, or of the whole session without
// tasks, until the returned function is called.
func (a *Console) SayQuestions(ctx context.Context, api control.API, tasks []Found) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { // ends with stop
		defer close(done)
		FollowQuestions(ctx, api, nil, func(q task.Question) {
			if len(tasks) == 0 || startedBy(ctx, api, q.Task, tasks) {
				a.Note("%s", NeedsAnswer(q))
			}
		})
	}()
	return func() { cancel(); <-done }
}

// startedBy reports whether a task is one of these, or below one.
func startedBy(ctx context.Context, api control.API, id task.ID, tasks []Found) bool {
	for range 32 {
		if slices.ContainsFunc(tasks, func(f Found) bool { return f.Record.ID == id }) {
			return true
		}
		r, err := api.Get(ctx, string(id))
		if err != nil || r.Parent == "" || r.Parent == id {
			return false
		}
		id = r.Parent
	}
	return false
}

// NeedsAnswer names a waiting agent and the command that answers it.
func NeedsAnswer(q task.Question) string {
	how := "allow " + q.ID
	switch q.Kind {
	case task.Choice:
		how = "answer " + q.ID + " TEXT"
	case task.Form:
		how = "answer " + q.ID + " JSON"
	}
	return fmt.Sprintf("%s needs your answer about %s: `drover approvals %s` (`drover approvals show %s` shows it)",
		Asker(q),
		ExactCell(q.Tool, 60), how, q.ID)
}
