package messages

import (
	"cmp"
	"context"
	"fmt"

	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/internal/engine/mailbox"
	"github.com/drover-dev/drover/internal/engine/spool"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/task"
)

// tailLines is how many lines of a failed command's output its notification has.
const (
	tailLines = 20
	tailBytes = 2 << 10
)

// Text returns the text of a notification from its event: the task may have a further run by
// now.
func (m *Mailboxes) Text(ctx context.Context, n lifecycle.Notification) (string, error) {
	r, ok := m.s.Tasks.Get(n.Task)
	if !ok || r.Run != n.Run || !r.Status.Terminal() { // not terminal: its end is not visible yet
		e, err := m.s.Log.Event(ctx, n.Seq)
		if err != nil {
			return "", err
		}
		r = e.Task
	}
	l := mailbox.Delivery{Task: r, Limit: m.s.Options.Tasks.OutputLength}
	if r.Traits().Work == task.ByCommand {
		if r.Status == task.Failed {
			l.Tail = tail(r)
		}
		return mailbox.Render(l), nil
	}
	var err error
	if l.Answer, err = m.s.Log.AnswerExcerpt(ctx, n.Run); err != nil {
		return "", err
	}
	if r.Team != nil {
		last, err := m.lastMessage(ctx, r, l.Answer)
		return mailbox.RenderMessage(last), err
	}
	if r.Kind.IsAgent() && r.OutputFile == "" { // else the transcript lies next to the output file
		l.Transcript = m.s.Place.AgentTranscript(r.ID)
	}
	return mailbox.Render(l), nil
}

// lastMessage returns the message by which the leader of a teammate is notified of the end of a
// run. It is made from the notification that was recorded with that end, so it is delivered
// exactly once.
func (m *Mailboxes) lastMessage(ctx context.Context, r task.Record, answer string) (task.Message, error) {
	text := mailbox.Summary(r) + "."
	if answer != "" {
		said, _ := excerpt.Tail(excerpt.Plain(answer), m.s.Options.Tasks.OutputLength, r.OutputFile)
		text += "\n\n" + said
	}
	for _, line := range mailbox.Left(r) {
		text += "\n\n[" + line + "]"
	}
	unread, err := m.s.Log.Unread(ctx, r.ID)
	if err != nil {
		return task.Message{}, err
	}
	if n := len(unread); n > 0 {
		text += fmt.Sprintf(
			"\n\n[Messages to it that it has not read: %d. It reads them if it goes on, by a message of yours.]", n,
		)
	}
	return task.Message{From: cmp.Or(r.Name, string(r.ID)), Kind: task.TeammateEnd, Text: text}, nil
}

// tail returns the end of a command's output for a notification.
func tail(r task.Record) string {
	data, _, err := spool.Tail(r.OutputFile, tailLines, tailBytes)
	if err != nil {
		return ""
	}
	return string(data)
}
