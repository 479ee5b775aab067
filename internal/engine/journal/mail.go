package journal

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/task"
)

// Limits of the unacknowledged mail in memory, for readers that keep up.
const (
	recentMail      = 256
	recentMailBytes = 1 << 20
)

// mail is a notification or a message.
type mail struct {
	seq          task.Seq
	owner        task.ID
	notification *lifecycle.Notification
	message      *task.Message
}

func (p mail) size() int {
	if p.message == nil {
		return 0
	}
	return len(p.message.Text)
}

// undelivered has the newest unacknowledged mail of all owners, in order.
type undelivered struct {
	mails []mail
	bytes int
	gone  task.Seq // mail up to this number may be in the file only
}

func (t *undelivered) add(p mail) {
	t.mails, t.bytes = append(t.mails, p), t.bytes+p.size()
	for len(t.mails) > recentMail || t.bytes > recentMailBytes {
		t.gone, t.bytes = t.mails[0].seq, t.bytes-t.mails[0].size()
		t.mails = slices.Delete(t.mails, 0, 1)
	}
}

func (t *undelivered) remove(seqs []task.Seq) {
	t.mails = slices.DeleteFunc(t.mails, func(p mail) bool {
		gone := slices.Contains(seqs, p.seq)
		if gone {
			t.bytes -= p.size()
		}
		return gone
	})
}

// accept adds the mail that a request has committed, and reports whether there was any. The
// caller holds mu.
func (j *Journal) accept(r *request) bool {
	switch {
	case r.ack != nil:
		j.undelivered.remove(r.ack)
	case r.seq == 0: // a refused message, or a summary
	case r.message != nil:
		m := *r.message
		m.Seq = r.seq
		j.undelivered.add(mail{seq: r.seq, owner: m.To, message: &m})
		return true
	case r.entry != nil && r.entry.Notification != nil && !r.entry.Notification.Acked && r.entry.Notification.Owner != "":
		n := *r.entry.Notification
		j.undelivered.add(mail{seq: r.seq, owner: n.Owner, notification: &n})
		return true
	}
	return false
}

// Mail returns the unacknowledged notifications and messages of an owner after a number, each
// oldest first, and the number after which to continue. It includes everything committed before
// the call.
func (j *Journal) Mail(ctx context.Context, owner task.ID, after task.Seq) (
	notifications []lifecycle.Notification, messages []task.Message, upto task.Seq, err error,
) {
	j.mu.Lock()
	upto = j.count
	recent := after >= j.undelivered.gone
	if recent {
		for _, p := range j.undelivered.mails {
			switch {
			case p.owner != owner || p.seq <= after:
			case p.message != nil:
				messages = append(messages, *p.message)
			default:
				notifications = append(notifications, *p.notification)
			}
		}
	}
	j.mu.Unlock()
	if recent {
		return notifications, messages, upto, nil
	}
	if notifications, err = j.notifications(ctx, owed, string(owner), int64(after)); err != nil {
		return nil, nil, after, err
	}
	if messages, err = j.messages(ctx, owner, after); err != nil {
		return nil, nil, after, err
	}
	return notifications, messages, upto, nil
}

// Mailed returns a channel that is closed when the next mail of any owner is durable.
func (j *Journal) Mailed() <-chan struct{} {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.mailed
}

const owed = "WHERE owner = ? AND acked = 0 AND seq > ? ORDER BY seq"

// Unacknowledged returns the undelivered notifications of an owner, oldest first.
func (j *Journal) Unacknowledged(ctx context.Context, owner task.ID) ([]lifecycle.Notification, error) {
	if j.blank() {
		return nil, nil
	}
	return j.notifications(ctx, owed, string(owner), 0)
}

// Notifications returns all notifications, oldest first.
func (j *Journal) Notifications(ctx context.Context) ([]lifecycle.Notification, error) {
	return j.notifications(ctx, "ORDER BY seq")
}

func (j *Journal) notifications(ctx context.Context, where string, args ...any) (
	out []lifecycle.Notification, err error,
) {
	db, err := j.reader()
	if err != nil {
		return nil, fmt.Errorf("read notifications: %w", err)
	}
	rows, err := db.QueryContext(ctx, "SELECT seq, run_id, task_id, owner, priority, acked FROM notices "+where, args...)
	if err != nil {
		return nil, fmt.Errorf("read notifications: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var n lifecycle.Notification
		if err := rows.Scan(&n.Seq, &n.Run, &n.Task, &n.Owner, &n.Priority, &n.Acked); err != nil {
			return nil, fmt.Errorf("read notifications: %w", err)
		}
		out = append(out, n)
	}
	return out, rows.Err()
}

// Unread returns the undelivered messages of an owner, in the order in which they were sent.
func (j *Journal) Unread(ctx context.Context, owner task.ID) ([]task.Message, error) {
	if j.blank() {
		return nil, nil
	}
	return j.messages(ctx, owner, 0)
}

func (j *Journal) messages(ctx context.Context, owner task.ID, after task.Seq) (out []task.Message, err error) {
	db, err := j.reader()
	if err != nil {
		return nil, fmt.Errorf("read messages: %w", err)
	}
	rows, err := db.QueryContext(ctx, unread, task.Prompt, task.MaxPromptBytes, task.MaxMessageBytes,
		string(owner), int64(after))
	if err != nil {
		return nil, fmt.Errorf("read messages of %s: %w", owner, err)
	}
	defer rows.Close()
	for rows.Next() {
		var m task.Message
		var at int64
		if err := rows.Scan(&m.Seq, &m.To, &m.From, &m.Kind, &m.Text, &m.Priority, &at, &m.Hops); err != nil {
			return nil, fmt.Errorf("read messages of %s: %w", owner, err)
		}
		m.At = time.Unix(0, at).UTC()
		out = append(out, m)
	}
	return out, rows.Err()
}

// unread bounds its read, however long the log is.
const unread = `SELECT seq, owner, sender, kind, substr(CAST(text AS BLOB), 1, CASE kind WHEN ? THEN ? ELSE ? END),
	priority, CAST(at AS INTEGER), CAST(hops AS INTEGER) FROM messages
	WHERE owner = ? AND acked = 0 AND seq > ? ORDER BY seq`
