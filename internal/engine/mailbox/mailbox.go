// Package mailbox keeps what an agent has not been told yet.
//
// A [Box] belongs to one owner and holds the notices that the log says are owed
// to it, and the messages that others have sent. It promises that both stay until
// they are acknowledged, that the same mail always has the same number, and that
// a waiting owner is woken at once. What a notice says is made by [Render], from
// the record of a run that has ended and can no longer change; a message says
// what [RenderMessage] makes of it.
//
// It does not decide when mail is read, and writes nothing but acknowledgements.
package mailbox

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/drover-dev/drover/task"
)

// Log is where mail is owed and acknowledged.
type Log interface {
	Owed(ctx context.Context, owner task.ID) ([]task.Notice, error)
	Unread(ctx context.Context, owner task.ID) ([]task.Message, error)
	Acknowledge(ctx context.Context, seqs ...task.Seq) error
}

// Box is the mail of one owner. Its methods may be called by several goroutines.
type Box struct {
	owner task.ID
	log   Log

	mu    sync.Mutex
	mail  []Mail        // not acknowledged, in the order of delivery
	added chan struct{} // capacity 1: something was added
}

// Mail is one thing that its owner has not been told: a notice or a message.
type Mail struct {
	Seq     task.Seq
	Urgent  bool
	Notice  task.Notice
	Message *task.Message // nil: it is the notice
}

func ofNotice(n task.Notice) Mail {
	return Mail{Seq: n.Seq, Urgent: n.Priority == task.Next, Notice: n}
}

func ofMessage(m task.Message) Mail {
	return Mail{Seq: m.Seq, Urgent: m.Priority == task.Next, Message: &m}
}

// Open returns the box of an owner with what the log owes it.
func Open(ctx context.Context, owner task.ID, log Log) (*Box, error) {
	owed, err := log.Owed(ctx, owner)
	if err != nil {
		return nil, fmt.Errorf("open mailbox of %s: %w", owner, err)
	}
	unread, err := log.Unread(ctx, owner)
	if err != nil {
		return nil, fmt.Errorf("open mailbox of %s: %w", owner, err)
	}
	b := New(owner, log)
	for _, n := range owed {
		b.Add(n)
	}
	for _, m := range unread {
		b.AddMessage(m)
	}
	return b, nil
}

// New returns the box of an owner to whom nothing is owed yet.
func New(owner task.ID, log Log) *Box {
	return &Box{owner: owner, log: log, added: make(chan struct{}, 1)}
}

// Add puts in a notice that is durably owed. One that is there already, or is
// acknowledged, or somebody else's, changes nothing.
func (b *Box) Add(n task.Notice) {
	if n.Acked || n.Owner != b.owner {
		return
	}
	b.put(ofNotice(n))
}

// AddMessage puts in a message that is durable. One that is there already, or
// somebody else's, changes nothing.
func (b *Box) AddMessage(m task.Message) {
	if m.To != b.owner {
		return
	}
	b.put(ofMessage(m))
}

func (b *Box) put(m Mail) {
	b.mu.Lock()
	defer b.mu.Unlock()
	at, there := slices.BinarySearchFunc(b.mail, m, compare)
	if there {
		return
	}
	b.mail = slices.Insert(b.mail, at, m)
	select {
	case b.added <- struct{}{}:
	default:
	}
}

// compare puts urgent mail first and keeps the order in which it became durable
// otherwise.
func compare(a, b Mail) int {
	return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Seq, b.Seq))
}

func rank(m Mail) int {
	if m.Urgent {
		return 0
	}
	return 1
}

// Mail returns what has not been acknowledged, most urgent first.
func (b *Box) Mail() []Mail {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.mail)
}

// Owner is whose box it is.
func (b *Box) Owner() task.ID { return b.owner }

// Wait returns when there is mail, or with the cause of ctx.
func (b *Box) Wait(ctx context.Context) error {
	for {
		b.mu.Lock()
		n := len(b.mail)
		b.mu.Unlock()
		if n > 0 {
			return nil
		}
		select {
		case <-b.added:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Added returns a channel that receives after something was added. Wake-ups may
// merge: look at [Box.Mail] after each.
func (b *Box) Added() <-chan struct{} { return b.added }

// Acknowledge takes mail out for good. It is out of the box only when the log
// says so.
func (b *Box) Acknowledge(ctx context.Context, seqs ...task.Seq) error {
	if len(seqs) == 0 {
		return nil
	}
	if err := b.log.Acknowledge(ctx, seqs...); err != nil {
		return fmt.Errorf("mailbox of %s: %w", b.owner, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mail = slices.DeleteFunc(b.mail, func(m Mail) bool { return slices.Contains(seqs, m.Seq) })
	return nil
}
