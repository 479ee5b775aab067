package remote

import (
	"cmp"
	"context"
	"strings"

	"github.com/drover-dev/drover/internal/api/remoteapi"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/task"
)

// brief is text of a service as one harmless line.
func brief(text string) string { return excerpt.Line(text, 500) }

// show tells how far the session has come.
func (w *work) show(message string) {
	p := task.Progress{
		ToolUseCount: w.fold.Tools,
		TokenCount:   w.fold.Tokens,
		Phase:        excerpt.Line(w.fold.Phase, 40),
		Message:      brief(cmp.Or(message, w.fold.Note)),
		Remote:       &task.RemoteSession{ID: w.state.Session, Type: string(w.state.Type), Host: w.service.Host()},
	}
	for _, e := range w.fold.Recent {
		p.RecentActivities = append(
			p.RecentActivities,
			task.Activity{ToolName: excerpt.Line(e.Tool, 80), Input: e.Input}.Short(),
		)
	}
	if n := len(p.RecentActivities); n > 0 {
		p.LastActivity = &p.RecentActivities[n-1]
	}
	w.h.Progress(p)
}

// tell lets the owner hear of a phase in which the session waits for somebody.
// Each is told once, also over the end of a host, unless that dies just then: the
// next tells it again.
func (w *work) tell(ctx context.Context) {
	phase := w.fold.Phase
	if phase == w.phase {
		return
	}
	w.phase = phase
	text := map[string]string{
		remoteapi.NeedsInput: "The remote session needs input before it can go on.",
		remoteapi.NeedsAuth:  "The remote session needs its user to authenticate before it can go on.",
		remoteapi.PlanReady:  "The remote session has a plan ready, and waits for approval.",
	}[phase]
	if text == "" {
		return
	}
	if end := strings.TrimSpace(w.fold.LastWords()); end != "" {
		text += "\n" + end
	}
	// An owner with a full mailbox sees the phase in the record.
	_ = w.h.Tell(ctx, task.MonitorEvent, text, task.Next)
}
