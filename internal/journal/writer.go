package journal

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/drover-dev/drover/task"
)

// writer commits batches on the one connection that writes. Its statements are
// prepared when they are first needed: opening a session must stay cheap.
type writer struct {
	conn  *sql.Conn
	stmts map[string]*sql.Stmt
}

const (
	insertEvent  = `INSERT INTO events (seq, task_id, verb, at, record) VALUES (?, ?, ?, ?, ?)`
	insertNotice = `INSERT INTO notices (seq, run_id, task_id, owner, priority, acked) VALUES (?, ?, ?, ?, ?, ?)`
	insertAnswer = `INSERT INTO answers (run_id, text) VALUES (?, ?)`
	acknowledge  = `UPDATE notices SET acked = 1 WHERE seq = ?`
)

func (w *writer) exec(query string, args ...any) error {
	s, ok := w.stmts[query]
	if !ok {
		var err error
		if s, err = w.conn.PrepareContext(context.Background(), query); err != nil {
			return err
		}
		if w.stmts == nil {
			w.stmts = map[string]*sql.Stmt{}
		}
		w.stmts[query] = s
	}
	_, err := s.Exec(args...)
	return err
}

// commit writes a batch in one transaction and numbers its events after last.
func (w *writer) commit(last task.Seq, batch []*request) error {
	if len(batch) == 1 && batch[0].entry != nil && batch[0].entry.Notice == nil {
		return w.event(last+1, batch[0]) // one statement is its own transaction
	}
	if err := w.exec("BEGIN IMMEDIATE"); err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	err := w.all(last, batch)
	if err == nil {
		err = w.exec("COMMIT")
	}
	if err != nil {
		return errors.Join(err, w.rollback())
	}
	return nil
}

// rollback ends a failed transaction. SQLite may have ended it already, which
// is no further failure.
func (w *writer) rollback() error {
	_, _ = w.conn.ExecContext(context.Background(), "ROLLBACK")
	return nil
}

func (w *writer) all(last task.Seq, batch []*request) error {
	for _, r := range batch {
		if r.entry == nil {
			for _, seq := range r.ack {
				if err := w.exec(acknowledge, int64(seq)); err != nil {
					return err
				}
			}
			continue
		}
		last++
		if err := w.event(last, r); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) event(seq task.Seq, r *request) error {
	e := r.entry
	if err := w.exec(insertEvent, int64(seq), string(e.Task.ID), string(e.Verb), e.At.UnixNano(), r.record); err != nil {
		return err
	}
	r.seq = seq
	n := e.Notice
	if n == nil {
		return nil
	}
	n.Seq = seq
	if err := w.exec(insertNotice, int64(seq), string(e.Task.Run), string(e.Task.ID), string(n.Owner), string(n.Priority), n.Acked); err != nil {
		return err
	}
	if e.Answer == "" {
		return nil
	}
	return w.exec(insertAnswer, string(e.Task.Run), e.Answer)
}

func (w *writer) close() {
	for _, s := range w.stmts {
		_ = s.Close() // the connection is closed next, and reports
	}
}
