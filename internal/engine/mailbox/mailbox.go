// Package mailbox has the undelivered notifications and messages of an agent.
//
// A [Box] belongs to one owner and reads the log from its cursor: the notifications
// for that owner, and messages of others. Every read shows all that was durable
// before. An entry stays until it is acknowledged and keeps its number. A waiting
// owner is woken at once; a wake-up carries no data and may be merged with others.
// [Render] makes the text of a notification from the record of an ended run, which
// can no longer change; [RenderMessage] makes the text of a message.
//
// The package does not decide when mail is read, and writes only acknowledgements.
package mailbox

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/task"
)

// Log is where mail is stored and acknowledged.
type Log interface {
	// Mail returns what an owner has not acknowledged after a number, and the number after
	// which to continue. It includes everything durable before the call.
	Mail(ctx context.Context, owner task.ID, after task.Seq) (
		notifications []lifecycle.Notification, messages []task.Message, upto task.Seq, err error)
	// Mailed returns a channel that is closed when the next mail of any owner is durable.
	Mailed() <-chan struct{}
	Acknowledge(ctx context.Context, seqs ...task.Seq) error
}

// Box is the mail of one owner. Its methods may be called by several goroutines.
type Box struct {
	owner task.ID
	log   Log

	mu   sync.Mutex // guards what follows, and is held while the log is read
	read task.Seq   // the log was read up to here
	mail []Mail     // not acknowledged, in the order of delivery
}

// Mail is one undelivered notification or message.
type Mail struct {
	Seq          task.Seq
	Urgent       bool
	Notification lifecycle.Notification
	Message      *task.Message // nil: it is a notification
}

// Open returns the box of an owner with its mail from the log.
func Open(ctx context.Context, owner task.ID, log Log) (*Box, error) {
	b := &Box{owner: owner, log: log}
	_, err := b.Mail(ctx)
	return b, err
}

// readOn reads the mail that is new in the log. The caller holds mu.
func (b *Box) readOn(ctx context.Context) error {
	notifications, messages, upto, err := b.log.Mail(ctx, b.owner, b.read)
	if err != nil {
		return fmt.Errorf("read mailbox of %s: %w", b.owner, err)
	}
	b.read = upto
	for _, n := range notifications {
		b.put(Mail{Seq: n.Seq, Urgent: n.Priority == task.Next, Notification: n})
	}
	for _, m := range messages {
		b.put(Mail{Seq: m.Seq, Urgent: m.Priority == task.Next, Message: &m})
	}
	return nil
}

// put inserts mail in order. Mail that is already there changes nothing.
func (b *Box) put(m Mail) {
	at, there := slices.BinarySearchFunc(b.mail, m, compare)
	if !there {
		b.mail = slices.Insert(b.mail, at, m)
	}
}

// compare sorts urgent mail first, otherwise in the order in which it became durable.
func compare(a, b Mail) int {
	return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Seq, b.Seq))
}

func rank(m Mail) int {
	if m.Urgent {
		return 0
	}
	return 1
}

// Mail returns the unacknowledged mail, most urgent first. With an error it is the mail that
// was read before.
func (b *Box) Mail(ctx context.Context) ([]Mail, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	err := b.readOn(ctx)
	return slices.Clone(b.mail), err
}

// Owner returns the owner of the box.
func (b *Box) Owner() task.ID { return b.owner }

// Wait returns when there is mail, or with the cause of ctx.
func (b *Box) Wait(ctx context.Context) error {
	for {
		mailed := b.Mailed()
		mail, err := b.Mail(ctx)
		switch {
		case len(mail) > 0:
			return nil
		case err != nil && ctx.Err() == nil:
			return err
		}
		select {
		case <-mailed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Mailed returns a channel that is closed when there may be more mail.
func (b *Box) Mailed() <-chan struct{} { return b.log.Mailed() }

// Acknowledge removes mail permanently. It leaves the box only after the log has recorded it.
func (b *Box) Acknowledge(ctx context.Context, seqs ...task.Seq) error {
	if len(seqs) == 0 {
		return nil
	}
	if _, err := b.Mail(ctx); err != nil { // acknowledged mail is not read again
		return err
	}
	if err := b.log.Acknowledge(ctx, seqs...); err != nil {
		return fmt.Errorf("mailbox of %s: %w", b.owner, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mail = slices.DeleteFunc(b.mail, func(m Mail) bool { return slices.Contains(seqs, m.Seq) })
	return nil
}
