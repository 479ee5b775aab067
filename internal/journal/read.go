package journal

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/drover-dev/drover/task"
)

// pageEvents is how many events a reader that lags behind gets at once.
const pageEvents = 512

// Since returns events after a number, oldest first, at most a page of them.
func (j *Journal) Since(ctx context.Context, after task.Seq) ([]task.Event, error) {
	j.mu.Lock()
	if after >= j.last {
		j.mu.Unlock()
		return nil, nil
	}
	if len(j.recent) > 0 && after >= j.recent[0].Seq-1 {
		from, _ := slices.BinarySearchFunc(j.recent, after+1, func(e task.Event, seq task.Seq) int { return cmp.Compare(e.Seq, seq) })
		to := min(len(j.recent), from+pageEvents)
		events := append([]task.Event(nil), j.recent[from:to]...)
		j.mu.Unlock()
		return events, nil
	}
	j.mu.Unlock()
	return j.since(ctx, after)
}

func (j *Journal) since(ctx context.Context, after task.Seq) (events []task.Event, err error) {
	db, err := j.reader()
	if err != nil {
		return nil, fmt.Errorf("read events: %w", err)
	}
	rows, err := db.QueryContext(ctx, "SELECT seq, verb, at, record FROM events WHERE seq > ? ORDER BY seq LIMIT ?", int64(after), pageEvents)
	if err != nil {
		return nil, fmt.Errorf("read events after %d: %w", after, err)
	}
	defer rows.Close()
	for rows.Next() {
		var e task.Event
		var at int64
		var record []byte
		if err := rows.Scan(&e.Seq, &e.Verb, &at, &record); err != nil {
			return nil, fmt.Errorf("read events after %d: %w", after, err)
		}
		if err := unseal(record, &e.Task); err != nil {
			return nil, fmt.Errorf("read event %d: %w", e.Seq, err)
		}
		e.At = time.Unix(0, at).UTC()
		events = append(events, e)
	}
	return events, rows.Err()
}

// Events yields every event after a number and then waits for more, until ctx
// ends (with its cause) or the journal is closed (silently).
func (j *Journal) Events(ctx context.Context, after task.Seq) iter.Seq2[task.Event, error] {
	return func(yield func(task.Event, error) bool) {
		for {
			grown := j.Grown()
			events, err := j.Since(ctx, after)
			if err != nil {
				yield(task.Event{}, err)
				return
			}
			for _, e := range events {
				if !yield(e, nil) {
					return
				}
				after = e.Seq
			}
			if len(events) > 0 {
				continue
			}
			if j.ended() {
				return
			}
			select {
			case <-grown:
			case <-ctx.Done():
				yield(task.Event{}, context.Cause(ctx))
				return
			}
		}
	}
}

// ended reports that no further event can come.
func (j *Journal) ended() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.closed || j.opts.ReadOnly
}

// State is a task as it is now.
type State struct {
	Born task.Seq // its first event
	Seq  task.Seq // its newest event
	Task task.Record
}

const newest = `SELECT n.born, e.seq, e.record FROM events e
	JOIN (SELECT min(seq) AS born, max(seq) AS seq FROM events GROUP BY task_id) n ON e.seq = n.seq`

// page walks back from the newest event and looks only at the tasks that it
// returns, however many there are.
const page = `SELECT b.seq, e.seq, e.record FROM events b
	JOIN events e ON e.seq = (SELECT max(seq) FROM events WHERE task_id = b.task_id)
	WHERE b.seq < ? AND b.seq = (SELECT min(seq) FROM events WHERE task_id = b.task_id)
	ORDER BY b.seq DESC LIMIT ?`

// Tasks returns every task as it is now, in the order of their first events.
func (j *Journal) Tasks(ctx context.Context) ([]State, error) {
	return j.states(ctx, newest+" ORDER BY n.born")
}

// Page returns up to limit tasks whose first event is before a number (0: all),
// newest first.
func (j *Journal) Page(ctx context.Context, before task.Seq, limit int) ([]State, error) {
	if before == 0 {
		before = j.Last() + 1
	}
	return j.states(ctx, page, int64(before), limit)
}

func (j *Journal) states(ctx context.Context, query string, args ...any) (states []State, err error) {
	db, err := j.reader()
	if err != nil {
		return nil, fmt.Errorf("read tasks: %w", err)
	}
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, fmt.Errorf("read tasks: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var s State
		var record []byte
		if err := rows.Scan(&s.Born, &s.Seq, &record); err != nil {
			return nil, fmt.Errorf("read tasks: %w", err)
		}
		if err := unseal(record, &s.Task); err != nil {
			return nil, fmt.Errorf("read task of event %d: %w", s.Seq, err)
		}
		states = append(states, s)
	}
	return states, rows.Err()
}

// blank reports that nothing was ever written. A new session asks what its agent
// is owed, and the first connection of a reader costs a tenth of its start.
func (j *Journal) blank() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.w != nil && j.count == 0
}

// Owed returns the notices that an owner has not acknowledged, oldest first.
func (j *Journal) Owed(ctx context.Context, owner task.ID) ([]task.Notice, error) {
	if j.blank() {
		return nil, nil
	}
	return j.notices(ctx, "WHERE owner = ? AND acked = 0 ORDER BY seq", string(owner))
}

// Notices returns all notices, oldest first.
func (j *Journal) Notices(ctx context.Context) ([]task.Notice, error) {
	return j.notices(ctx, "ORDER BY seq")
}

func (j *Journal) notices(ctx context.Context, where string, args ...any) (out []task.Notice, err error) {
	db, err := j.reader()
	if err != nil {
		return nil, fmt.Errorf("read notices: %w", err)
	}
	rows, err := db.QueryContext(ctx, "SELECT seq, run_id, task_id, owner, priority, acked FROM notices "+where, args...)
	if err != nil {
		return nil, fmt.Errorf("read notices: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var n task.Notice
		if err := rows.Scan(&n.Seq, &n.Run, &n.Task, &n.Owner, &n.Priority, &n.Acked); err != nil {
			return nil, fmt.Errorf("read notices: %w", err)
		}
		out = append(out, n)
	}
	return out, rows.Err()
}

// Unread returns the messages that an owner has not acknowledged, in the order
// they were sent.
func (j *Journal) Unread(ctx context.Context, owner task.ID) (out []task.Message, err error) {
	if j.blank() {
		return nil, nil
	}
	db, err := j.reader()
	if err != nil {
		return nil, fmt.Errorf("read messages: %w", err)
	}
	rows, err := db.QueryContext(ctx, unread, task.MaxMessageBytes, string(owner))
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

// unread bounds what it reads whoever wrote it.
const unread = `SELECT seq, owner, sender, kind, substr(CAST(text AS BLOB), 1, ?), priority, CAST(at AS INTEGER), CAST(hops AS INTEGER) FROM messages
	WHERE owner = ? AND acked = 0 ORDER BY seq`

// Answer returns the final answer of a run, or "" if it gave none.
func (j *Journal) Answer(ctx context.Context, run task.RunID) (string, error) {
	db, err := j.reader()
	if err != nil {
		return "", fmt.Errorf("read answer: %w", err)
	}
	var text string
	err = db.QueryRowContext(ctx, "SELECT text FROM answers WHERE run_id = ?", string(run)).Scan(&text)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read answer of %s: %w", run, err)
	}
	return text, nil
}

// Event returns one event.
func (j *Journal) Event(ctx context.Context, seq task.Seq) (task.Event, error) {
	events, err := j.since(ctx, seq-1)
	if err != nil {
		return task.Event{}, err
	}
	if len(events) == 0 || events[0].Seq != seq {
		return task.Event{}, fmt.Errorf("read event %d: there is none", seq)
	}
	return events[0], nil
}
