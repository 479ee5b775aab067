package remote

import (
	"context"
	"strings"

	"github.com/drover-dev/drover/internal/api/a2a"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/task"
)

// maxSaid limits the kept part of the agent's messages, which is the newest, in bytes.
const maxSaid = 1 << 20

// maxUnseen limits the messages that wait for a checker, in bytes.
const maxUnseen = 8 << 20

// hear takes messages of the agent.
func (w *work) hear(messages []string) {
	for _, text := range messages {
		w.said += text + "\n"
		w.said = w.said[max(0, len(w.said)-maxSaid):]
		w.note = text
	}
	if w.checker() == nil {
		return
	}
	w.unseen = append(w.unseen, messages...)
	from, size := len(w.unseen), 0
	for from > 0 && size+len(w.unseen[from-1]) <= maxUnseen {
		from--
		size += len(w.unseen[from])
	}
	w.unseen = w.unseen[from:]
}

// brief returns text of an agent as one harmless line.
func brief(text string) string { return excerpt.Line(text, 500) }

// show records how far the remote task has come; message takes the place of what the agent said last.
func (w *work) show(message string) {
	if message == "" {
		message = w.note
	}
	p := task.Progress{Phase: excerpt.Line(w.phase, 40), Message: brief(message),
		Remote: &task.RemoteSession{ID: w.state.Session, Type: w.state.Type, Host: w.client.Host()}}
	w.h.Progress(p)
}

// maxWords limits the agent's messages in the notification of a phase, in characters.
const maxWords = 2000

// tell notifies the owner of a phase in which the remote task waits: once for each phase, unless the
// host dies before the record shows it.
func (w *work) tell(ctx context.Context, phase string) {
	if phase == w.phase {
		return
	}
	w.phase = phase
	text := map[string]string{
		a2a.NeedsInput: "The remote agent needs input before it can continue.",
		a2a.NeedsAuth:  "The remote agent needs its user to authenticate before it can continue.",
		a2a.PlanReady:  "The remote agent has a plan ready, and waits for approval.",
	}[phase]
	if text == "" {
		return
	}
	words := strings.TrimSpace(strings.ToValidUTF8(w.said, ""))
	if r := []rune(words); len(r) > maxWords {
		words = "…" + string(r[len(r)-maxWords:])
	}
	// The error is ignored: an owner whose mailbox is full sees the phase in the record.
	_ = w.h.Tell(ctx, task.MonitorEvent, strings.TrimSpace(text+"\n"+words), task.Next)
}

// hookArtifact names the artifacts that are the output of a hook of the agent.
const hookArtifact = "hook_progress"

// review returns the text between the last tags <remote-review> and </remote-review>.
func review(text string) *string {
	const begin, end = "<remote-review>", "</remote-review>"
	to := strings.LastIndex(text, end)
	if to < 0 {
		return nil
	}
	from := strings.LastIndex(text[:to], begin)
	if from < 0 {
		return nil
	}
	found := strings.TrimSpace(text[from+len(begin) : to])
	return &found
}
