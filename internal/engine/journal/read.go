package journal

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/task"
)

// Limits of one page of events for a slow reader. The reader holds the page while
// it is stalled.
const (
	pageEvents = 128
	eventBytes = 128 << 10 // encoded size, unless a single event is larger
)

// Since returns events after a number, oldest first, at most one page.
func (j *Journal) Since(ctx context.Context, after task.Seq) ([]task.Event, error) {
	j.mu.Lock()
	if after >= j.last {
		j.mu.Unlock()
		return nil, nil
	}
	if events, ok := j.recent.since(after); ok {
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
	rows, err := db.QueryContext(ctx, eventsOf+"WHERE seq > ? ORDER BY seq LIMIT ?", int64(after), pageEvents)
	if err != nil {
		return nil, fmt.Errorf("read events after %d: %w", after, err)
	}
	defer rows.Close()
	for bytes := 0; bytes < eventBytes && rows.Next(); {
		e, size, err := scanEvent(rows.Scan)
		if err != nil {
			return nil, fmt.Errorf("read events after %d: %w", after, err)
		}
		events, bytes = append(events, e), bytes+size
	}
	return events, rows.Err()
}

const eventsOf = "SELECT seq, verb, at, record FROM events "

// scanEvent reads a row of [eventsOf] and returns the size of its record. In this build only
// the first event of a task has the complete text of a long command.
func scanEvent(scan func(...any) error) (e task.Event, size int, err error) {
	var at int64
	var record []byte
	if err := scan(&e.Seq, &e.Verb, &at, &record); err != nil {
		return e, 0, err
	}
	if err := unseal(record, &e.Task); err != nil {
		return e, 0, fmt.Errorf("event %d: %w", e.Seq, err)
	}
	if e.Verb != task.Create {
		e.Task = lifecycle.Short(e.Task)
	}
	e.At = time.Unix(0, at).UTC()
	return e, len(record), nil
}

// Events yields every event after a number and then waits for more, until ctx ends (with its
// cause) or the journal is closed (without an error).
func (j *Journal) Events(ctx context.Context, after task.Seq) iter.Seq2[task.Event, error] {
	return func(yield func(task.Event, error) bool) {
		for {
			committed := j.NextCommit()
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
			case <-committed:
			case <-ctx.Done():
				yield(task.Event{}, context.Cause(ctx))
				return
			}
		}
	}
}

// Latest returns the newest events of some kinds, at most so many, the oldest first.
func (j *Journal) Latest(ctx context.Context, verbs []task.Verb, most int) (events []task.Event, err error) {
	db, err := j.reader()
	if err != nil {
		return nil, fmt.Errorf("read events: %w", err)
	}
	args := make([]any, 0, len(verbs)+1)
	for _, v := range verbs {
		args = append(args, v)
	}
	in := strings.TrimSuffix(strings.Repeat("?,", len(verbs)), ",")
	rows, err := db.QueryContext(ctx, eventsOf+"WHERE verb IN ("+in+") ORDER BY seq DESC LIMIT ?", append(args, most)...)
	if err != nil {
		return nil, fmt.Errorf("read the latest events: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		e, _, err := scanEvent(rows.Scan)
		if err != nil {
			return nil, fmt.Errorf("read the latest events: %w", err)
		}
		events = append(events, e)
	}
	slices.Reverse(events)
	return events, rows.Err()
}

// ended reports that no further event can follow.
func (j *Journal) ended() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.closed || j.opts.ReadOnly
}

// State is the current state of a task.
type State struct {
	Born task.Seq // of its first event
	Seq  task.Seq // of its newest event
	Task task.Record
}

// newest is in the order of the first events. The LIMIT, which limits nothing, makes SQLite
// sort the numbers and then look up the records, neighbours together; sorting the records
// themselves took twice as long.
const newest = `SELECT n.born, e.seq, e.record FROM
	(SELECT min(seq) AS born, max(seq) AS seq FROM events GROUP BY task_id ORDER BY born LIMIT -1) n
	CROSS JOIN events e ON e.seq = n.seq`

// page reads backwards from the newest event and touches only the tasks that it returns.
const page = `SELECT b.seq, e.seq, e.record FROM events b
	JOIN events e ON e.seq = (SELECT max(seq) FROM events WHERE task_id = b.task_id)
	WHERE b.seq < ? AND b.seq = (SELECT min(seq) FROM events WHERE task_id = b.task_id)
	ORDER BY b.seq DESC LIMIT ?`

// Tasks returns the current state of every task, in the order of their first events.
func (j *Journal) Tasks(ctx context.Context) ([]State, error) {
	return j.states(ctx, newest)
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
	err = j.walk(ctx, math.MaxInt, func(some []State) error {
		states = append(states, some...)
		return nil
	}, query, args...)
	return states, err
}

// Limits of what [Journal.Walk] holds in memory, and of the undecoded records of any reader.
const (
	walkPiece = 1024
	walkBytes = 4 << 20
)

// Walk is [Journal.Tasks] in chunks, for a caller that does not need all tasks at once.
func (j *Journal) Walk(ctx context.Context, each func([]State) error) error {
	return j.walk(ctx, walkPiece, each, newest)
}

func (j *Journal) walk(ctx context.Context, piece int, each func([]State) error, query string, args ...any) error {
	db, err := j.reader()
	if err != nil {
		return fmt.Errorf("read tasks: %w", err)
	}
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return fmt.Errorf("read tasks: %w", err)
	}
	defer rows.Close()
	for more := true; more; {
		var states []State
		var records [][]byte
		bytes := 0
		for more = rows.Next(); more; more = rows.Next() {
			var s State
			var record []byte
			if err := rows.Scan(&s.Born, &s.Seq, &record); err != nil {
				return fmt.Errorf("read tasks: %w", err)
			}
			states, records, bytes = append(states, s), append(records, record), bytes+len(record)
			if len(states) == piece || bytes >= walkBytes {
				break
			}
		}
		if err := rows.Err(); err != nil {
			return fmt.Errorf("read tasks: %w", err)
		}
		if err := decode(states, records); err != nil {
			return err
		}
		if err := each(states); err != nil {
			return err
		}
	}
	return nil
}

// decodedAlone is the number of records up to which one goroutine decodes them all.
const decodedAlone = 128

// decode decodes the records of states, in parallel if there are many: for ten thousand tasks
// it takes most of the time.
func decode(states []State, records [][]byte) error {
	part := func(from, to int) error {
		for i := from; i < to; i++ {
			if err := unseal(records[i], &states[i].Task); err != nil {
				return fmt.Errorf("read task of event %d: %w", states[i].Seq, err)
			}
			states[i].Task = lifecycle.Short(states[i].Task)
		}
		return nil
	}
	share := max(decodedAlone, (len(states)+runtime.GOMAXPROCS(0)-1)/runtime.GOMAXPROCS(0))
	var parts sync.WaitGroup
	errs := make([]error, (len(states)+share-1)/share)
	for i := range errs {
		parts.Go(func() { errs[i] = part(i*share, min((i+1)*share, len(states))) })
	}
	parts.Wait()
	return errors.Join(errs...)
}

// blank reports whether the log is empty. A new session reads its agent's mailbox, and opening
// the first connection of a reader costs a tenth of its start.
func (j *Journal) blank() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.w != nil && j.count == 0
}

// Whole returns a record with the complete command, if the record has only its beginning.
// Without it in the log the record is unchanged.
func (j *Journal) Whole(ctx context.Context, r task.Record) (task.Record, error) {
	if r.CommandBytes == 0 {
		return r, nil
	}
	db, err := j.reader()
	if err != nil {
		return r, fmt.Errorf("read command of %s: %w", r.ID, err)
	}
	first, _, err := scanEvent(
		db.QueryRowContext(ctx, eventsOf+"WHERE task_id = ? ORDER BY seq LIMIT 1", string(r.ID)).Scan,
	)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return r, nil
	case err != nil:
		return r, fmt.Errorf("read command of %s: %w", r.ID, err)
	}
	if len(first.Task.Command) == r.CommandBytes { // otherwise it was not in this log, or was lost with a damaged page
		r.Command, r.CommandBytes = first.Task.Command, 0
	}
	return r, nil
}

// Event returns one event, independent of damage to others.
func (j *Journal) Event(ctx context.Context, seq task.Seq) (task.Event, error) {
	db, err := j.reader()
	if err != nil {
		return task.Event{}, fmt.Errorf("read event %d: %w", seq, err)
	}
	e, _, err := scanEvent(db.QueryRowContext(ctx, eventsOf+"WHERE seq = ?", int64(seq)).Scan)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return e, fmt.Errorf("read event %d: there is none", seq)
	case err != nil:
		return e, fmt.Errorf("read event: %w", err)
	}
	return e, nil
}
