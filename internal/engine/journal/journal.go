// Package journal stores the event log of one session in one SQLite file.
//
// An event is one change of a task with the whole record after the change, so the
// newest event of a task is its state and recovery replays nothing. The notification
// of a terminal event, and the answer of the run, are written in the same
// transaction. Messages between agents are stored with the events, in the same
// numbering.
//
// After [Journal.Append] or [Journal.Post] has returned, the data survives kill -9
// (and a power failure, with [Options.Power]). Events and messages are numbered
// without gaps in the order in which they became durable. A reader that reads by
// number misses none and sees none twice, however slow it is.
//
// Writes are group-committed: the first caller becomes the writer. It commits its
// own entry and all entries queued after it, then passes the role to the next in the
// queue.
//
// The package does not interpret events. Only one process at a time may write a
// file; the caller holds the lock of the session.
package journal

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net/url"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"

	_ "modernc.org/sqlite" // the database driver

	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/internal/platform/failpoint"
	"github.com/drover-dev/drover/task"
)

// Options configures a journal. The zero value is the usual configuration.
type Options struct {
	// Power makes every commit survive a power cut, at the cost of one disk
	// flush per group of events.
	Power bool
	// ReadOnly opens the log of a dead session. Append is refused.
	ReadOnly bool
}

// ErrClosed is returned by a journal that has been closed.
var ErrClosed = errors.New("journal is closed")

const (
	schemaVersion = 3
	maxBatch      = 256 // events committed together
)

// Journal is an open event log. Its methods may be called by several
// goroutines.
type Journal struct {
	path      string
	opts      Options
	write     *sql.DB // one connection, used by the current writer
	w         *writer // on that connection; nil for a reader
	lastBatch int     // size of the last batch; owned by the current writer

	readOnce sync.Once
	read     *sql.DB // several connections for readers; opened at the first read
	readErr  error

	mu          sync.Mutex
	last        task.Seq      // newest durable event
	count       task.Seq      // newest number: of an event or a message
	recent      recent        // guarded by mu
	committed   chan struct{} // closed and replaced at every commit
	undelivered undelivered   // guarded by mu
	mailed      chan struct{} // closed and replaced at every commit of mail
	queue       []*request    // requests in the queue; guarded by mu
	taken       bool          // there is a current writer; guarded by mu
	closed      bool
	rested      chan struct{} // closed when the journal is closed and the last writer has finished
}

// request is one write by one caller.
type request struct {
	entry   *lifecycle.Entry // exactly one of these four is set
	message *task.Message
	ack     []task.Seq // notifications and messages to acknowledge
	summary *summaryPart

	record []byte // of entry
	seq    task.Seq
	err    error
	turn   chan bool // capacity 1: true makes the caller the writer, false means that the request is done
}

// Open opens the journal at path, and creates it if necessary.
func Open(path string, opts Options) (*Journal, error) {
	j := &Journal{
		path:      path,
		opts:      opts,
		committed: make(chan struct{}),
		mailed:    make(chan struct{}),
		rested:    make(chan struct{}),
	}
	if opts.ReadOnly {
		if _, err := os.Lstat(path); err != nil {
			return nil, fmt.Errorf("open journal: %w", err)
		}
		if err := cmp.Or(ours(path), widowed(path)); err != nil {
			return nil, fmt.Errorf("open journal %s: %w", path, err)
		}
		if err := j.load(); err != nil {
			_ = j.closeDBs() // it was opened for reading only
			return nil, fmt.Errorf("open journal %s: %w", path, err)
		}
		return j, nil
	}
	if err := j.openWriter(); err != nil {
		return nil, fmt.Errorf("open journal %s: %w", path, err)
	}
	return j, nil
}

func (j *Journal) dsn() string {
	sync := "NORMAL"
	if j.opts.Power {
		sync = "FULL"
	}
	q := url.Values{}
	q.Add("_pragma", "busy_timeout(5000)")
	if j.opts.ReadOnly {
		q.Set("mode", "ro")
	} else {
		q.Add("_pragma", "journal_mode(WAL)")
		q.Add("_pragma", "synchronous("+sync+")")
		q.Set("_txlock", "immediate")
	}
	return (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: j.path}).EscapedPath(), RawQuery: q.Encode()}).String()
}

// schemas are the migrations from one format to the next. The first creates a new file.
func schemas() [schemaVersion]string {
	return [...]string{firstSchema, messageSchema, hopsSchema}
}

const hopsSchema = `ALTER TABLE messages ADD COLUMN hops INTEGER NOT NULL DEFAULT 0;`

const messageSchema = `
CREATE TABLE messages (
	seq      INTEGER PRIMARY KEY,
	owner    TEXT NOT NULL,
	sender   TEXT NOT NULL,
	kind     TEXT NOT NULL,
	text     TEXT NOT NULL,
	priority TEXT NOT NULL,
	at       INTEGER NOT NULL,
	acked    INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX messages_unread ON messages (owner) WHERE acked = 0;`

const firstSchema = `
CREATE TABLE events (
	seq     INTEGER PRIMARY KEY,
	task_id TEXT NOT NULL,
	verb    TEXT NOT NULL,
	at      INTEGER NOT NULL,
	record  BLOB NOT NULL
);
CREATE INDEX events_by_task ON events (task_id, seq);
CREATE TABLE notices (
	seq      INTEGER PRIMARY KEY,
	run_id   TEXT NOT NULL UNIQUE,
	task_id  TEXT NOT NULL,
	owner    TEXT NOT NULL,
	priority TEXT NOT NULL,
	acked    INTEGER NOT NULL
);
CREATE INDEX notices_owed ON notices (owner) WHERE acked = 0;
CREATE TABLE answers (
	run_id TEXT PRIMARY KEY,
	text   TEXT NOT NULL
);`

func (j *Journal) openWriter() (err error) {
	if err := ours(j.path); err != nil {
		return err
	}
	if err := widowed(j.path); err != nil {
		return err
	}
	if err := makePrivate(j.path); err != nil {
		return err
	}
	j.write, err = sql.Open("sqlite", j.dsn())
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = j.closeDBs()
		}
	}()
	ctx := context.Background()
	conn, err := j.write.Conn(ctx)
	if err != nil {
		return err
	}
	j.w = &writer{conn: conn}
	var version int
	if err = conn.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version); err != nil {
		return err
	}
	if version > schemaVersion {
		return fmt.Errorf("it was written by a newer drover (format %d, this one knows %d)", version, schemaVersion)
	}
	if steps := schemas(); version < schemaVersion {
		all := strings.Join(steps[max(0, version):], "\n")
		if _, err = conn.ExecContext(
			ctx,
			fmt.Sprintf("BEGIN; %s PRAGMA user_version = %d; COMMIT", all, schemaVersion),
		); err != nil {
			return err
		}
	}
	if version == 0 {
		return nil // new and empty
	}
	err = conn.QueryRowContext(ctx, newestNumbers).Scan(&j.last, &j.count)
	j.undelivered.gone = j.count
	return err
}

const newestNumbers = `SELECT e, max(e, (SELECT coalesce(max(seq), 0) FROM messages)) FROM (SELECT coalesce(max(seq), 0) AS e FROM events)`

// makePrivate creates the file before SQLite does, which would make it readable by others.
func makePrivate(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// load reads the numbers that a reader of a dead session needs.
func (j *Journal) load() error {
	db, err := j.reader()
	if err != nil {
		return err
	}
	j.undelivered.gone = math.MaxInt64 // the file has mail that is not in memory
	return db.QueryRow("SELECT coalesce(max(seq), 0) FROM events").Scan(&j.last)
}

func (j *Journal) reader() (*sql.DB, error) {
	j.readOnce.Do(func() {
		j.read, j.readErr = sql.Open("sqlite", j.dsn())
		if j.readErr == nil {
			j.read.SetMaxOpenConns(4)
		}
	})
	return j.read, j.readErr
}

// Append writes an event and returns its number when it is durable. After an error nothing of
// the entry is written. A ctx that has ended refuses the event; a write in progress is awaited.
func (j *Journal) Append(ctx context.Context, e lifecycle.Entry) (task.Seq, error) {
	record, err := encode(&e.Task)
	if err != nil {
		return 0, fmt.Errorf("append event of task %s: %w", e.Task.ID, err)
	}
	r := &request{entry: &e, record: record, turn: make(chan bool, 1)}
	err = j.ask(ctx, r)
	if err = cmp.Or(err, r.err); err != nil {
		return 0, fmt.Errorf("append event of task %s: %w", e.Task.ID, err)
	}
	return r.seq, nil
}

// AppendAll is [Journal.Append] for many events, with as few commits as possible. The results
// are in the order of the entries; each belongs to its own entry.
func (j *Journal) AppendAll(ctx context.Context, entries []lifecycle.Entry) ([]task.Seq, []error) {
	all, good := make([]*request, len(entries)), make([]*request, 0, len(entries))
	for i := range entries {
		r := &request{entry: &entries[i], turn: make(chan bool, 1)}
		if r.record, r.err = encode(&entries[i].Task); r.err == nil {
			good = append(good, r)
		}
		all[i] = r
	}
	err := j.ask(ctx, good...)
	seqs, errs := make([]task.Seq, len(entries)), make([]error, len(entries))
	for i, r := range all {
		if seqs[i] = r.seq; cmp.Or(r.err, err) != nil {
			errs[i] = fmt.Errorf("append event of task %s: %w", r.entry.Task.ID, cmp.Or(r.err, err))
		}
	}
	return seqs, errs
}

// Post writes a message and returns its number when it is durable. After an error it is not
// written. The error wraps [task.ErrMailFull] if the receiver has too many unacknowledged
// messages; see [task.MessageKind.MaxUnread].
func (j *Journal) Post(ctx context.Context, m task.Message) (task.Seq, error) {
	if err := m.Check(); err != nil {
		return 0, fmt.Errorf("post message to %s: %w", m.To, err)
	}
	r := &request{message: &m, turn: make(chan bool, 1)}
	err := j.ask(ctx, r)
	if err = cmp.Or(err, r.err); err != nil {
		return 0, fmt.Errorf("post message to %s: %w", m.To, err)
	}
	return r.seq, nil
}

// Acknowledge marks notifications and messages as delivered to their owner.
func (j *Journal) Acknowledge(ctx context.Context, seqs ...task.Seq) error {
	if len(seqs) == 0 {
		return nil
	}
	r := &request{ack: seqs, turn: make(chan bool, 1)}
	err := j.ask(ctx, r)
	if err = cmp.Or(err, r.err); err != nil {
		return fmt.Errorf("acknowledge mail: %w", err)
	}
	return nil
}

// ask writes a request. If there is no current writer, the caller becomes the writer of its own
// and the queued requests and then passes the role to one that arrived meanwhile. So a single
// caller never waits for a goroutine to wake up, and no caller writes for the others forever.
// The returned error applies to all requests; the result of each is in the request.
func (j *Journal) ask(ctx context.Context, requests ...*request) error {
	if len(requests) == 0 {
		return nil
	}
	if j.w == nil {
		return fs.ErrPermission
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	j.mu.Lock()
	if j.closed {
		j.mu.Unlock()
		return ErrClosed
	}
	j.queue = append(j.queue, requests...)
	mine := !j.taken
	j.taken = true
	j.mu.Unlock()
	for i, r := range requests { // the requests of a batch that were written with the first are marked done
		if mine && i == 0 || <-r.turn {
			j.lead()
		}
	}
	return nil
}

// lead writes the queue, the caller's own request first, and passes the role on.
func (j *Journal) lead() {
	if j.lastBatch > 1 {
		// Callers of the last batch tend to come back together. Waiting a moment for them saves
		// them a commit of their own.
		runtime.Gosched()
	}
	j.mu.Lock()
	n := min(len(j.queue), maxBatch)
	batch, last := j.queue[:n:n], j.count
	j.queue = j.queue[n:]
	j.mu.Unlock()
	j.lastBatch = n
	j.settle(batch, last)
	for _, r := range batch[1:] { // the writer's own request is first
		r.turn <- false
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.queue) > 0 {
		j.queue[0].turn <- true
		return
	}
	j.queue, j.taken = nil, false
	if j.closed {
		close(j.rested)
	}
}

// settle commits a batch and makes it visible.
func (j *Journal) settle(batch []*request, last task.Seq) {
	err := j.w.commit(last, batch)
	_ = failpoint.Hit("commit/done")
	if err == nil || len(batch) == 1 {
		j.publish(batch, err)
		return
	}
	// One invalid entry must not fail the others.
	for i := range batch {
		j.mu.Lock()
		last = j.count
		j.mu.Unlock()
		one := batch[i : i+1]
		j.publish(one, j.w.commit(last, one))
	}
}

// publish makes a committed batch visible and records its results. A request that was refused
// alone has its error already. The order is guaranteed: a reader that sees that a task has
// ended finds its notification, and a reader that sees an event finds its record.
func (j *Journal) publish(batch []*request, err error) {
	if err != nil {
		for _, r := range batch {
			r.err = err
		}
		return
	}
	j.deliver(batch)
	for _, r := range batch {
		if r.err == nil && r.entry != nil && r.entry.Committed != nil {
			r.entry.Committed(r.seq)
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, r := range batch {
		if r.entry != nil {
			j.last = r.seq
			j.recent.add(task.Event{Seq: r.seq, Verb: r.entry.Verb, At: r.entry.At, Task: r.entry.Task}, len(r.record))
		}
	}
	close(j.committed)
	j.committed = make(chan struct{})
}

// deliver makes the mail of a committed batch visible to its owners.
func (j *Journal) deliver(batch []*request) {
	j.mu.Lock()
	defer j.mu.Unlock()
	mail := false
	for _, r := range batch {
		j.count = max(j.count, r.seq)
		mail = j.accept(r) || mail
	}
	if mail {
		close(j.mailed)
		j.mailed = make(chan struct{})
	}
}

// Reached returns the number of the newest event or message.
func (j *Journal) Reached() task.Seq {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.count
}

// Last returns the number of the newest event.
func (j *Journal) Last() task.Seq {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.last
}

// NextCommit returns a channel that is closed at the next commit.
func (j *Journal) NextCommit() <-chan struct{} {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.committed
}

// Close waits for the current write and closes the file.
func (j *Journal) Close() error {
	j.mu.Lock()
	if j.closed {
		j.mu.Unlock()
		return nil
	}
	j.closed = true
	if !j.taken {
		close(j.rested)
	}
	j.mu.Unlock()
	<-j.rested
	j.mu.Lock()
	close(j.committed) // wakes waiting readers, which see that it is closed
	j.mu.Unlock()
	return j.closeDBs()
}

func (j *Journal) closeDBs() error {
	var errs []error
	if j.w != nil {
		j.w.close()
		errs = append(errs, j.w.conn.Close())
	}
	if j.write != nil {
		errs = append(errs, j.write.Close())
	}
	j.readOnce.Do(func() { j.readErr = ErrClosed })
	if j.read != nil {
		errs = append(errs, j.read.Close())
	}
	return errors.Join(errs...)
}

// usualRecord is large enough for the record of most commands.
const usualRecord = 1024

func encode(r *task.Record) ([]byte, error) {
	buf := bytes.NewBuffer(make([]byte, 0, usualRecord))
	e := json.NewEncoder(buf)
	e.SetEscapeHTML(false)
	if err := e.Encode(r); err != nil {
		return nil, err
	}
	return seal(bytes.TrimRight(buf.Bytes(), "\n")), nil
}
