// Package mailbox keeps what an agent has not been told yet.
//
// A [Box] belongs to one owner and holds the notices that the log says are owed
// to it. It promises that a notice stays owed until it is acknowledged, that
// the same notice always has the same number, and that a waiting owner is woken
// at once. What a notice says is made by [Render], from the record of a run
// that has ended and can no longer change.
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

// Log is where notices are owed and acknowledged.
type Log interface {
	Owed(ctx context.Context, owner task.ID) ([]task.Notice, error)
	Acknowledge(ctx context.Context, seqs ...task.Seq) error
}

// Box is the mail of one owner. Its methods may be called by several goroutines.
type Box struct {
	owner task.ID
	log   Log

	mu    sync.Mutex
	owed  []task.Notice // not acknowledged, in the order of delivery
	added chan struct{} // capacity 1: something was added
}

// Open returns the box of an owner with what the log owes it.
func Open(ctx context.Context, owner task.ID, log Log) (*Box, error) {
	owed, err := log.Owed(ctx, owner)
	if err != nil {
		return nil, fmt.Errorf("open mailbox of %s: %w", owner, err)
	}
	b := New(owner, log)
	for _, n := range owed {
		b.Add(n)
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
	b.mu.Lock()
	defer b.mu.Unlock()
	at, there := slices.BinarySearchFunc(b.owed, n, compare)
	if there {
		return
	}
	b.owed = slices.Insert(b.owed, at, n)
	select {
	case b.added <- struct{}{}:
	default:
	}
}

// compare puts urgent notices first and keeps the order of the ends otherwise.
func compare(a, b task.Notice) int {
	return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Seq, b.Seq))
}

func rank(n task.Notice) int {
	if n.Priority == task.Next {
		return 0
	}
	return 1
}

// Owed returns what has not been acknowledged, most urgent first.
func (b *Box) Owed() []task.Notice {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.owed)
}

// Wait returns when something is owed, or with the cause of ctx.
func (b *Box) Wait(ctx context.Context) error {
	for {
		b.mu.Lock()
		n := len(b.owed)
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
// merge: look at [Box.Owed] after each.
func (b *Box) Added() <-chan struct{} { return b.added }

// Acknowledge takes notices out for good. They are out of the box only when the
// log says so.
func (b *Box) Acknowledge(ctx context.Context, seqs ...task.Seq) error {
	if len(seqs) == 0 {
		return nil
	}
	if err := b.log.Acknowledge(ctx, seqs...); err != nil {
		return fmt.Errorf("mailbox of %s: %w", b.owner, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.owed = slices.DeleteFunc(b.owed, func(n task.Notice) bool { return slices.Contains(seqs, n.Seq) })
	return nil
}
