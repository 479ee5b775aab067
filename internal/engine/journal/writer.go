package journal

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/drover-dev/drover/internal/platform/failpoint"
	"github.com/drover-dev/drover/task"
)

// writer commits batches on the one connection that writes. It prepares statements when they
// are first needed, since opening a session must be fast.
type writer struct {
	conn  *sql.Conn
	stmts map[string]*sql.Stmt
}

const (
	insertEvent        = `INSERT INTO events (seq, task_id, verb, at, record) VALUES (?, ?, ?, ?, ?)`
	insertNotification = `INSERT INTO notices (seq, run_id, task_id, owner, priority, acked) VALUES (?, ?, ?, ?, ?, ?)`
	insertAnswer       = `INSERT INTO answers (run_id, text) VALUES (?, ?)`
	ackNotification    = `UPDATE notices SET acked = 1 WHERE seq = ?`
	ackMessage         = `UPDATE messages SET acked = 1 WHERE seq = ?`

	insertMessage = `INSERT INTO messages (seq, owner, sender, kind, text, priority, at, hops) VALUES (?, ?, ?, ?, ?, ?, ?, ?)`
	countUnread   = `SELECT count(*) FROM messages WHERE owner = ? AND acked = 0`
)

func (w *writer) stmt(query string) (*sql.Stmt, error) {
	if s, ok := w.stmts[query]; ok {
		return s, nil
	}
	s, err := w.conn.PrepareContext(context.Background(), query)
	if err != nil {
		return nil, err
	}
	if w.stmts == nil {
		w.stmts = map[string]*sql.Stmt{}
	}
	w.stmts[query] = s
	return s, nil
}

func (w *writer) exec(query string, args ...any) error {
	s, err := w.stmt(query) //nolint:sqlclosecheck // the writer keeps its statements
	if err == nil {
		_, err = s.Exec(args...)
	}
	return err
}

// commit writes a batch in one transaction and numbers its events after last.
func (w *writer) commit(last task.Seq, batch []*request) error {
	if len(batch) == 1 && batch[0].entry != nil && batch[0].entry.Notification == nil {
		return w.event(last+1, batch[0]) // a single statement is its own transaction
	}
	if err := w.exec("BEGIN IMMEDIATE"); err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	err := w.all(last, batch)
	if err == nil {
		err = failpoint.Hit("commit/open")
	}
	if err == nil {
		err = w.exec("COMMIT")
	}
	if err != nil {
		return errors.Join(err, w.rollback())
	}
	return nil
}

// rollback ends a failed transaction. If SQLite has ended it already, that is not an error;
// another one can begin only then.
func (w *writer) rollback() error {
	ctx := context.Background()
	_, err := w.conn.ExecContext(ctx, "ROLLBACK")
	if err == nil {
		return nil
	}
	if _, open := w.conn.ExecContext(ctx, "BEGIN"); open != nil {
		return fmt.Errorf("roll back: %w", err)
	}
	if _, err := w.conn.ExecContext(ctx, "ROLLBACK"); err != nil {
		return fmt.Errorf("roll back: %w", err)
	}
	return nil
}

// all writes a batch. A message to a full mailbox is refused alone, since nothing of it was
// written; otherwise each message of a flood would cost the rest of its batch a separate
// commit.
func (w *writer) all(last task.Seq, batch []*request) error {
	for _, r := range batch {
		r.seq, r.err = 0, nil
		write := w.event
		switch {
		case r.message != nil:
			write = w.message
		case r.summary != nil:
			if err := w.summarize(r.summary); err != nil {
				return err
			}
			continue
		case r.entry == nil:
			if err := w.acknowledge(r.ack); err != nil {
				return err
			}
			continue
		}
		switch err := write(last+1, r); {
		case errors.Is(err, task.ErrMailFull):
			r.err = err
		case err != nil:
			return err
		default:
			last++
		}
	}
	return nil
}

// acknowledge updates both tables: a number is in only one of them.
func (w *writer) acknowledge(seqs []task.Seq) error {
	for _, seq := range seqs {
		if err := errors.Join(w.exec(ackNotification, int64(seq)), w.exec(ackMessage, int64(seq))); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) message(seq task.Seq, r *request) error {
	s, err := w.stmt(countUnread) //nolint:sqlclosecheck // the writer keeps its statements
	if err != nil {
		return err
	}
	m, unread := r.message, 0
	if err := s.QueryRow(string(m.To)).Scan(&unread); err != nil {
		return err
	}
	if unread >= m.Kind.MaxUnread() {
		return fmt.Errorf("%w: %d messages are unread", task.ErrMailFull, unread)
	}
	r.seq = seq
	return w.exec(
		insertMessage,
		int64(seq),
		string(m.To),
		m.From,
		string(m.Kind),
		m.Text,
		string(m.Priority),
		m.At.UnixNano(),
		m.Hops,
	)
}

func (w *writer) event(seq task.Seq, r *request) error {
	e := r.entry
	if err := w.exec(insertEvent, int64(seq), string(e.Task.ID), string(e.Verb), e.At.UnixNano(), r.record); err != nil {
		return err
	}
	r.seq = seq
	n := e.Notification
	if n == nil {
		return nil
	}
	n.Seq = seq
	if err := w.exec(
		insertNotification,
		int64(seq),
		string(e.Task.Run),
		string(e.Task.ID),
		string(n.Owner),
		string(n.Priority),
		n.Acked,
	); err != nil {
		return err
	}
	return w.answer(e.Task.Run, e.Answer)
}

func (w *writer) close() {
	for _, s := range w.stmts {
		_ = s.Close() // the connection is closed next, which reports the error
	}
}
