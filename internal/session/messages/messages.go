// Package messages has the mailboxes of the agents of a session.
//
// [Mailboxes] owns the open mailboxes, and the lengths of message chains between agents. An
// agent reads each notification as the text of the run that it reports. One damaged record does
// not block other mail. Agents cannot answer each other forever.
//
// The package does not decide who may send messages to whom; package agents does.
package messages

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/internal/engine/mailbox"
	"github.com/drover-dev/drover/internal/engine/spool"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/platform/failpoint"
	"github.com/drover-dev/drover/internal/session/conversation"
	"github.com/drover-dev/drover/internal/session/tree"
	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
)

// Mailboxes are the mailboxes of a session's agents. Its methods may be called by several
// goroutines.
type Mailboxes struct {
	s      *tree.Tree
	chains chains
	rates  rates

	mu   sync.Mutex
	open map[task.ID]*mailbox.Box // guarded by mu
}

// New returns the mailboxes of a session.
func New(s *tree.Tree) *Mailboxes { return &Mailboxes{s: s, open: map[task.ID]*mailbox.Box{}} }

// Open returns the mailbox of an agent. An agent that has not begun may have mail too, since it
// can wait long for a slot.
func (m *Mailboxes) Open(ctx context.Context, owner task.ID) (*mailbox.Box, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if b := m.open[owner]; b != nil {
		return b, nil
	}
	b, err := mailbox.Open(ctx, owner, m.s.Log)
	if err != nil {
		return nil, err
	}
	m.open[owner] = b
	return b, nil
}

// Drop removes the mailbox of an agent whose run has ended. Its mail stays in the log.
func (m *Mailboxes) Drop(owner task.ID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.open, owner)
}

// Waits reports whether an agent has done its work: it waits for a message, and has no mail that
// is about to wake it.
func (m *Mailboxes) Waits(r task.Record) bool { return r.Resting() && m.Empty(r.ID) }

// Empty reports whether an agent has read all its mail.
func (m *Mailboxes) Empty(owner task.ID) bool {
	m.mu.Lock()
	box := m.open[owner]
	m.mu.Unlock()
	if box == nil {
		return true
	}
	mail, _ := box.Mail(context.Background()) // unreadable mail does not keep a session from ending
	return len(mail) == 0
}

// takeBackWait limits TakeBack.
const takeBackWait = 10 * time.Second

// TakeBack acknowledges a message with which an agent could not be resumed: its sender gets an
// error and sends it again. An agent that another caller has resumed meanwhile keeps it.
func (m *Mailboxes) TakeBack(ctx context.Context, to task.ID, seq task.Seq, refused error) error {
	if now, there := m.s.Tasks.Get(to); refused == nil || there && !now.Status.Terminal() {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), takeBackWait, task.ErrClosing)
	defer cancel()
	box, err := m.Open(ctx, to)
	if err == nil {
		err = box.Acknowledge(ctx, seq)
	}
	if err != nil {
		return errors.Join(refused, fmt.Errorf("the message stays in the mailbox: %w", err))
	}
	return refused
}

// EventOrigin is the [agent.MailMessage] origin of an event of a monitor, which does not keep an agent at work.
const EventOrigin = "event"

// Reader returns a mailbox as a conversation reads it. Either function may be nil: skip selects
// mail that is read otherwise, and heard is called for each message that the conversation holds.
func (m *Mailboxes) Reader(box *mailbox.Box, skip func(mailbox.Mail) bool, heard func(task.MessageKind)) agent.Mail {
	return &reader{m, box, skip, heard}
}

type reader struct {
	of    *Mailboxes
	box   *mailbox.Box
	skip  func(mailbox.Mail) bool
	heard func(task.MessageKind)
}

func (r *reader) Take(ctx context.Context) ([]agent.MailMessage, error) {
	var letters []agent.MailMessage
	mail, err := r.box.Mail(ctx)
	if err != nil {
		return nil, err
	}
	for _, x := range mail {
		if r.skip != nil && r.skip(x) {
			continue
		}
		l := agent.MailMessage{Seq: int64(x.Seq), Urgent: x.Urgent, Origin: conversation.TaskOrigin}
		if x.Message != nil {
			l.Text = mailbox.RenderMessage(*x.Message)
			l.Origin = subagent.MessageOrigin
			if x.Message.Kind == task.MonitorEvent {
				l.Origin = EventOrigin
			}
		} else {
			var err error
			if l.Text, err = r.of.Text(ctx, x.Notification); err != nil && ctx.Err() != nil {
				return nil, err
			}
			if err != nil { // one damaged record must not block all mail
				l.Text = mailbox.RenderUnreadable(x.Notification, err)
			}
		}
		letters = append(letters, l)
		_ = failpoint.Hit("mail/taken")
	}
	return letters, nil
}

func (r *reader) Ack(ctx context.Context, letters []agent.MailMessage) error {
	seqs := make([]task.Seq, len(letters))
	for i, l := range letters {
		seqs[i] = task.Seq(l.Seq)
	}
	_ = failpoint.Hit("mail/told")
	mail, err := r.box.Mail(ctx)
	if err != nil {
		return err
	}
	r.of.chains.read(r.box.Owner(), mail, seqs)
	for _, x := range mail {
		if r.heard != nil && x.Message != nil && slices.Contains(seqs, x.Seq) {
			r.heard(x.Message.Kind)
		}
	}
	err = r.box.Acknowledge(ctx, seqs...)
	_ = failpoint.Hit("mail/acknowledged")
	return err
}

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
