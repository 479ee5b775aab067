package placement

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/drover-dev/drover/internal/fleet/fleetwire"
	"github.com/drover-dev/drover/internal/fleet/folder"
	"github.com/drover-dev/drover/internal/fleet/link"
	"github.com/drover-dev/drover/task"
)

// maxLeft limits the folders of lost claims that wait to be taken in.
const maxLeft = 16

// left is the folder of a claim that has ended here, as a worker sent it.
type left struct {
	id    task.ID
	claim Former
	end   fleetwire.End
	msg   jetstream.Msg
}

// lostRef is where the changes of a lost claim in a checkout come back to, and lostName the folder for others.
func lostRef(id task.ID, epoch uint64) string {
	return fmt.Sprintf("%slost/%s-%d", folder.RefPrefix, id, epoch)
}

func lostName(id task.ID, epoch uint64) string { return fmt.Sprintf("%s-lost-%d", id, epoch) }

// ofLost says where the changes of a claim will be whose worker is out of reach. Nil: it had no folder.
func (w *work) ofLost() *task.Worktree {
	f := w.book.former()
	where := lostRef(w.id, f.Epoch)
	switch {
	case f.Sent == nil:
		return nil
	case f.Sent.Plain:
		where = "the folder returned/" + lostName(w.id, f.Epoch) + " of the session"
	}
	return &task.Worktree{Text: fmt.Sprintf(
		"What the task has changed at worker %s has not come back yet. It comes into %s as soon as the worker can send it.",
		f.Worker, where)}
}

// leftOver takes the changes of a lost claim. The record of the task says which worker had that claim, so no other
// worker can send anything in its place.
func (f *Fleet) leftOver(m jetstream.Msg, id task.ID, worker string, e fleetwire.Event) {
	refuse := func(why string) {
		f.refuse(m, Evidence{Task: id, Worker: worker, Epoch: e.Epoch, Kind: e.Kind, Why: why})
	}
	var b Book
	came := false // what the claim has changed
	if w := f.find(id); w != nil {
		w.mu.Lock()
		b = w.book
		w.mu.Unlock()
		if b.Valid(worker, e.Instance, e.Epoch) == nil { // it is not given up here yet
			_ = m.NakWithDelay(time.Second)
			return
		}
		came = b.Reported
	} else if rec, ok := f.cfg.Task(id); ok {
		b, _ = readBook(rec.Checkpoint) // of an empty book nothing was lost
		came = cameBack(rec)
	}
	claim, ok := b.Lost(worker, e.Instance, e.Epoch)
	if e.Kind == fleetwire.Ended && (came || e.Epoch != b.Epoch) {
		refuse(errOver.Error()) // a repetition, or an attempt whose failure is recorded
		return
	}
	if !ok || e.End == nil {
		refuse("it is of no claim that had a folder")
		return
	}
	select {
	case f.left <- left{id, claim, *e.End, m}:
	default:
		_ = m.NakWithDelay(time.Minute)
	}
}

// takeLeft takes in the folders of lost claims until ctx ends.
func (f *Fleet) takeLeft(ctx context.Context, l *link.Link) {
	had := map[string]bool{} // delivered again because taking it in took long
	for {
		select {
		case <-ctx.Done():
			return
		case x := <-f.left:
			name := lostName(x.id, x.claim.Epoch)
			if had[name] {
				_ = x.msg.Ack()
				break
			}
			_ = x.msg.InProgress()
			text, err := f.keepLeft(ctx, l, x)
			if ctx.Err() != nil {
				return // it comes again
			}
			if err != nil {
				text = fmt.Sprintf("What task %s had changed at worker %s, and came after its end, cannot be taken in: %v",
					x.id, x.claim.Worker, err)
			}
			had[name] = true
			f.refuse(x.msg, Evidence{Task: x.id, Worker: x.claim.Worker, Epoch: x.claim.Epoch, Kind: fleetwire.Left, Why: text})
			if f.cfg.Say != nil {
				f.cfg.Say(x.id, text)
			}
		}
	}
}

// keepLeft keeps the changes of a lost claim apart, and says where.
func (f *Fleet) keepLeft(ctx context.Context, l *link.Link, x left) (string, error) {
	rec, ok := f.cfg.Task(x.id)
	if !ok {
		return "", errors.New("the session does not know the task any more")
	}
	ref, name := lostRef(x.id, x.claim.Epoch), lostName(x.id, x.claim.Epoch)
	t, err := f.takeIn(ctx, l, rec.Cwd, ref, name, *x.claim.Sent, x.end.Return)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("Worker %s has sent what it had of task %s after its end. %s", x.claim.Worker, x.id, t.Text), nil
}

// cameBack reports whether the record of a task names its changes.
func cameBack(r task.Record) bool {
	return r.Worktree != nil && (r.Worktree.Rescue != "" || r.Worktree.Path != "" || r.Worktree.Removed)
}

// Misses reports whether a task had a folder at a worker of which nothing has come back, and yet may.
func Misses(r task.Record, now time.Time) bool {
	if r.Worker == "" {
		return false // its checkpoint is something else
	}
	b, err := readBook(r.Checkpoint)
	if _, had := b.Lost(b.Worker, b.Instance, b.Epoch); err != nil || !had && len(b.Earlier) == 0 {
		return false
	}
	return !cameBack(r) && (r.EndTime == nil || now.Sub(*r.EndTime) < fleetwire.MessagesAge)
}

// listenAgain is the pause between tries to reach the hub for the changes of lost claims.
const listenAgain = time.Minute

// Listen connects to the hub although no task of this host needs it, for changes of tasks of
// earlier hosts. It returns when the hub is there, or ctx ends.
func (f *Fleet) Listen(ctx context.Context) {
	for ctx.Err() == nil {
		one, cancel := context.WithTimeout(ctx, offerTime)
		_, err := f.open(one)
		cancel()
		if err == nil || errors.Is(err, errClosed) {
			return
		}
		select {
		case <-time.After(listenAgain):
		case <-ctx.Done():
		}
	}
}
