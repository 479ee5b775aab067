package journal

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/drover-dev/drover/task"
)

// ErrNewer is returned for a log in a format that this build does not know.
var ErrNewer = errors.New("it was written by a newer drover")

// Span is a range of numbers, from the first to the last.
type Span [2]task.Seq

// Salvaged is the result of [Salvage]: the restored and the lost parts.
type Salvaged struct {
	Tasks         int
	Events        int
	Notifications int
	Messages      int
	Answers       int

	Missing      []Span    // numbers of events and messages that could not be read, or were lost in an earlier repair
	MissingTasks []task.ID // the tasks of those numbers, as far as they are known
	Unnotified   []task.ID // ended tasks whose notification could not be read: it counts as delivered
	BadPages     int       // pages that could not be read from the disk
}

// Salvage writes a new log with everything readable of a damaged one: with the same numbers,
// every event whose record has a valid checksum, and the notifications, answers and messages,
// acknowledged as before. It parses the files itself, so that one bad page hides no other; see
// [Remains]. The next number of the new log is above all numbers that were seen and above the
// given one.
//
// Messages, answers and the times of events have no checksums: changed values are not detected.
// If ctx ends, the new log is unusable.
func Salvage(ctx context.Context, from Remains, to string, above task.Seq) (s Salvaged, err error) {
	m := from.look()
	j, err := Open(to, Options{Power: true})
	if err != nil {
		return s, fmt.Errorf("make a new log: %w", err)
	}
	defer func() {
		if err = errors.Join(err, j.Close()); err != nil {
			err = fmt.Errorf("salvage log: %w", err)
		}
	}()
	if j.count > 0 {
		return s, fmt.Errorf("%s is not empty", to)
	}
	w := &salvage{w: j.w, top: int64(above)}
	if err := w.all(ctx, m); err != nil {
		return s, err
	}
	if s, err = w.count(ctx); err != nil {
		return s, err
	}
	s.BadPages = m.bad
	return s, w.mark()
}

// Format returns the format version of a log; 0: unknown.
func (r Remains) Format() int {
	buf := make([]byte, pageBytes)
	if !r.look().page(1, buf) || !strings.HasPrefix(string(buf), "SQLite format 3\x00") {
		return 0
	}
	return int(be32(buf[60:]))
}

// Newer returns an error that wraps [ErrNewer] for a log in a format that this build does not
// know. A damaged version number looks the same.
func (r Remains) Newer() error {
	if n := r.Format(); n > schemaVersion {
		return fmt.Errorf("%w (format %d, this one knows %d)", ErrNewer, n, schemaVersion)
	}
	return nil
}

// salvage writes a new log.
type salvage struct {
	w        *writer
	top      int64   // the highest number seen
	doubtful []event // events whose number is doubtful
	steps    int
}

const (
	// seen has the content of the index of events, and the numbers of damaged ones.
	makeSeen  = `CREATE TEMP TABLE seen (seq INTEGER PRIMARY KEY, task_id TEXT NOT NULL, indexed INTEGER NOT NULL); CREATE INDEX temp.seen_by_task ON seen (task_id, seq)`
	putSeen   = `INSERT OR IGNORE INTO seen (seq, task_id, indexed) VALUES (?, ?, ?)`
	ofNumber  = `SELECT task_id FROM seen WHERE seq = ? AND indexed = 1`
	ofTask    = `SELECT count(*) FROM (SELECT 1 FROM seen WHERE task_id = ? AND indexed = 1 LIMIT 1)`
	itsNumber = `SELECT coalesce(min(seq), 0) FROM seen WHERE task_id = ? AND indexed = 1 AND seq NOT IN (SELECT seq FROM events)`

	keepEvent        = `INSERT OR IGNORE INTO events (seq, task_id, verb, at, record) VALUES (?, ?, ?, ?, ?)`
	keptRecord       = `SELECT record FROM events WHERE seq = ?`
	keptVerb         = `SELECT verb FROM events WHERE seq = ?`
	keptTime         = `SELECT at FROM events WHERE seq = ?`
	dropEvent        = `DELETE FROM events WHERE seq = ?`
	dropEnd          = `DELETE FROM ends WHERE seq = ?`
	keepAnswer       = `INSERT OR IGNORE INTO answers (run_id, text) VALUES (?, ?)`
	keepNotification = `INSERT INTO notices (seq, run_id, task_id, owner, priority, acked) VALUES (?, ?, ?, ?, ?, ?) ` + onceAcked + ` WHERE run_id = excluded.run_id ON CONFLICT DO NOTHING`
	keepMessage      = `INSERT INTO messages (seq, owner, sender, kind, text, priority, at, acked, hops) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ` + onceAcked

	// If a row is found twice, one is older; an acknowledgement is kept.
	onceAcked = `ON CONFLICT (seq) DO UPDATE SET acked = max(acked, excluded.acked)`

	makeEnds = `CREATE TEMP TABLE ends (seq INTEGER PRIMARY KEY, run_id TEXT NOT NULL, task_id TEXT NOT NULL, owner TEXT NOT NULL, priority TEXT NOT NULL)`
	keepEnd  = `INSERT OR IGNORE INTO ends (seq, run_id, task_id, owner, priority) VALUES (?, ?, ?, ?, ?)`

	// A number belongs to one thing. A notification belongs to an end, and so does an answer.
	agree = `
		DELETE FROM ends WHERE NOT EXISTS (SELECT 1 FROM events e WHERE e.seq = ends.seq AND e.task_id = ends.task_id);
		DELETE FROM messages WHERE seq IN (SELECT seq FROM events);
		DELETE FROM notices WHERE NOT EXISTS (SELECT 1 FROM ends e
			WHERE e.seq = notices.seq AND e.task_id = notices.task_id AND e.run_id = notices.run_id);
		DELETE FROM answers WHERE substr(run_id, 1, instr(run_id || '/', '/') - 1) NOT IN (SELECT run_id FROM ends)`
	unnotified = ` FROM ends WHERE seq NOT IN (SELECT seq FROM notices)`
	told       = `INSERT OR IGNORE INTO notices (seq, run_id, task_id, owner, priority, acked) SELECT seq, run_id, task_id, owner, priority, 1` + unnotified

	numbers = `SELECT seq FROM events UNION SELECT seq FROM messages`
	gaps    = `SELECT s + 1, n - 1 FROM (SELECT s, lead(s) OVER (ORDER BY s) AS n FROM (SELECT 0 AS s UNION ` + numbers + ` UNION SELECT ?)) WHERE n > s + 1 LIMIT 10000`
)

func (s *salvage) all(ctx context.Context, m *image) error {
	if err := errors.Join(s.run(makeSeen), s.run(makeEnds), s.run("BEGIN")); err != nil {
		return err
	}
	for r, err := range m.rows(ctx, true) {
		if err != nil {
			return err
		}
		if err := errors.Join(s.entry(r), s.step()); err != nil {
			return err
		}
	}
	for r, err := range m.rows(ctx, false) {
		if err != nil {
			return err
		}
		if err := errors.Join(s.row(r), s.step()); err != nil {
			return err
		}
	}
	return errors.Join(s.settle(), s.run(agree))
}

// run executes statements that are needed once.
func (s *salvage) run(query string) error {
	_, err := s.w.conn.ExecContext(context.Background(), query)
	return err
}

// mostAtOnce limits the rows of one transaction, and so the size of the WAL.
const mostAtOnce = 5000

func (s *salvage) step() error {
	if s.steps++; s.steps%mostAtOnce > 0 {
		return nil
	}
	return s.run("COMMIT; BEGIN")
}

func (s *salvage) ask(query string, to any, args ...any) error {
	st, err := s.w.stmt(query) //nolint:sqlclosecheck // the writer keeps its statements
	if err != nil {
		return err
	}
	err = st.QueryRow(args...).Scan(to)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	return err
}

// entry records an entry of the index of events, which has each number twice.
func (s *salvage) entry(r row) error {
	if r.shape != "tii" || r.cols[1].num != r.cols[2].num || !numbered(r.cols[1].num) {
		return nil
	}
	return s.see(r.cols[1].num, string(r.cols[0].text), true)
}

func numbered(n int64) bool { return n > 0 && n <= maxNumber }

func (s *salvage) see(number int64, of string, indexed bool) error {
	s.top = max(s.top, number)
	return s.w.exec(putSeen, number, of, indexed)
}

// row restores a row if it is intact. Its columns show the table.
func (s *salvage) row(r row) error {
	texts := make([]string, len(r.cols))
	for i, c := range r.cols {
		texts[i] = string(c.text)
	}
	switch r.shape {
	case "nttib":
		return s.event(r)
	case "tt":
		return s.w.exec(keepAnswer, texts[0], texts[1])
	case "ntttti":
		if acked := r.cols[5].num; acked == 0 || acked == 1 {
			return s.w.exec(keepNotification, r.number, texts[1], texts[2], texts[3], texts[4], acked)
		}
	case "ntttttii", "ntttttiii":
		m := task.Message{To: task.ID(texts[1]), From: texts[2], Kind: task.MessageKind(texts[3]), Text: texts[4]}
		hops := int64(0) // a column that rows of older builds do not have
		if len(r.cols) > 8 {
			hops = r.cols[8].num
		}
		s.top = max(s.top, r.number)
		if acked := r.cols[7].num; m.Check() == nil && (acked == 0 || acked == 1) {
			return s.w.exec(keepMessage, r.number, texts[1], texts[2], texts[3], texts[4], texts[5], r.cols[6].num, acked, hops)
		}
	}
	return nil
}

// mostDoubtful limits the events in memory.
const mostDoubtful = 4096

// event is one event that was found.
type event struct {
	number, at int64
	verb       string
	record     []byte
	task       task.Record
}

// event restores an event. The checksum covers the record only, and the other columns of the
// row must agree with it. Doubtful numbers are decided when all events are read: those that the
// index assigns to another task, or that the index does not have although it has the task.
func (s *salvage) event(r row) error {
	e := event{number: r.number, verb: string(r.cols[2].text), at: r.cols[3].num, record: r.cols[4].text}
	id, verb := string(r.cols[1].text), task.Verb(e.verb)
	if unseal(e.record, &e.task) != nil || string(e.task.ID) != id ||
		verb != task.Create && !slices.Contains(task.Verbs(), verb) {
		return s.see(r.number, id, false)
	}
	var says string
	known := 0
	err := s.ask(ofNumber, &says, r.number)
	if err == nil && says == "" {
		err = s.ask(ofTask, &known, id)
	}
	switch {
	case err != nil:
		return err
	case says == id || says == "" && known == 0 || len(s.doubtful) == mostDoubtful:
		twin, err := s.twin(e)
		if err != nil || twin == nil {
			return cmp.Or(err, s.keep(e))
		}
		s.doubtful = append(s.doubtful, *twin)
	}
	e.record = slices.Clone(e.record) // the page buffer is reused
	s.doubtful = append(s.doubtful, e)
	return nil
}

// twin removes a stored event with the same number as another, so that both are decided
// together; nil if it has none.
func (s *salvage) twin(e event) (*event, error) {
	old := event{number: e.number}
	if err := s.ask(
		keptRecord,
		&old.record,
		e.number,
	); err != nil || old.record == nil || bytes.Equal(old.record, e.record) ||
		len(s.doubtful) >= mostDoubtful {
		return nil, err
	}
	err := errors.Join(
		s.ask(keptVerb, &old.verb, e.number),
		s.ask(keptTime, &old.at, e.number),
		unseal(old.record, &old.task),
	)
	return &old, errors.Join(err, s.w.exec(dropEvent, e.number), s.w.exec(dropEnd, e.number))
}

func (s *salvage) keep(e event) error {
	s.top = max(s.top, e.number)
	r := e.task
	if err := s.w.exec(keepEvent, e.number, string(r.ID), e.verb, e.at, e.record); err != nil || !r.Status.Terminal() {
		return err
	}
	return s.w.exec(keepEnd, e.number, string(r.Run), string(r.ID), string(r.Owner), string(r.Priority))
}

// settle assigns numbers to the doubtful events in the order of their times: the first number
// that the index has for the task and that is free, else their own.
func (s *salvage) settle() error {
	slices.SortStableFunc(s.doubtful, func(a, b event) int { return cmp.Compare(a.at, b.at) })
	for _, e := range s.doubtful {
		var number int64
		if err := s.ask(itsNumber, &number, string(e.task.ID)); err != nil {
			return err
		}
		if number > 0 {
			e.number = number
		}
		if err := s.keep(e); err != nil {
			return err
		}
	}
	return nil
}

// count counts the restored and the missing parts, and writes missing notifications.
func (s *salvage) count(ctx context.Context) (out Salvaged, err error) {
	ids := func(query string) (ids []task.ID, err error) {
		ids = []task.ID{}
		return ids, s.each(ctx, query, func(rows *sql.Rows) error {
			var id task.ID
			defer func() { ids = append(ids, id) }()
			return rows.Scan(&id)
		})
	}
	if out.Unnotified, err = ids(`SELECT DISTINCT task_id` + unnotified + ` ORDER BY task_id`); err != nil {
		return out, err
	}
	if err := s.run(told); err != nil {
		return out, err
	}
	for query, to := range map[string]*int{
		`SELECT count(DISTINCT task_id) FROM events`: &out.Tasks,
		`SELECT count(*) FROM events`:                &out.Events, `SELECT count(*) FROM notices`: &out.Notifications,
		`SELECT count(*) FROM messages`:                             &out.Messages,
		`SELECT count(*) FROM answers WHERE instr(run_id, '/') = 0`: &out.Answers,
	} {
		if err := s.ask(query, to); err != nil {
			return out, err
		}
	}
	missing := `SELECT DISTINCT task_id FROM seen WHERE seq NOT IN (` + numbers + `) AND length(task_id) BETWEEN 9 AND 64 ORDER BY task_id LIMIT 10000`
	if out.MissingTasks, err = ids(missing); err != nil {
		return out, err
	}
	out.Missing = []Span{}
	err = s.each(ctx, gaps, func(rows *sql.Rows) error {
		var n Span
		defer func() { out.Missing = append(out.Missing, n) }()
		return rows.Scan(&n[0], &n[1])
	}, s.top+1)
	return out, err
}

func (s *salvage) each(ctx context.Context, query string, do func(*sql.Rows) error, args ...any) (err error) {
	rows, err := s.w.conn.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		if err := do(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// mark writes an acknowledged message above all numbers, from which the log continues.
func (s *salvage) mark() error {
	err := s.w.exec(
		keepMessage,
		s.top+1,
		"drover",
		"drover",
		string(task.PlainMessage),
		"the log was damaged, and was made anew from here down",
		"",
		time.Now().UnixNano(),
		1,
		0,
	)
	return errors.Join(err, s.run("COMMIT"))
}

// Sound returns the numbers of events and messages of an intact log, or an error that describes
// the damage. It opens the file as a host does: pass a copy.
func Sound(ctx context.Context, path string) (n int, err error) {
	j, err := Open(path, Options{})
	if err != nil {
		return 0, cmp.Or(errors.Unwrap(err), err) // the name of the copy is meaningless to the reader
	}
	defer func() { err = errors.Join(err, j.Close()) }()
	var says string
	if err := j.w.conn.QueryRowContext(ctx, "PRAGMA integrity_check(1)").Scan(&says); err != nil {
		return 0, err
	}
	if says != "ok" {
		return 0, fmt.Errorf("%w: %s", ErrDamaged, says)
	}
	for after := task.Seq(0); ; {
		events, err := j.since(ctx, after)
		if err != nil {
			return 0, err
		}
		if len(events) == 0 {
			break
		}
		n, after = n+len(events), events[len(events)-1].Seq
	}
	if _, err := j.w.conn.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d", schemaVersion)); err != nil {
		return 0, fmt.Errorf("%w: it cannot be written to: %w", ErrDamaged, err) // according to its own length
	}
	var messages int
	err = j.w.conn.QueryRowContext(ctx, "SELECT count(*) FROM messages").Scan(&messages)
	return n + messages, err
}
