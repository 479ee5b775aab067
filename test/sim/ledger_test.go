package sim

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"fmt"
	"net/url"
	"path/filepath"
	"runtime"
	"slices"
	"sync"

	"github.com/drover-dev/drover/internal/engine/journal"
	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/task"
)

// ledger is what was written: what somebody was told to be durable, and what was on its
// way when the program died.
type ledger struct {
	mu      sync.Mutex
	facts   map[task.Seq]*fact // acknowledged; guarded by mu, like the rest
	acks    map[task.Seq]int   // mail that was acknowledged, and the mark of that
	doubt   map[sum]bool       // may be there, once
	unsure  map[task.Seq]bool  // acknowledgements that may be there
	ends    map[task.RunID]*lifecycle.Notification
	marking *wal   // nil: no crash is near, and nobody asks how far the files have come
	wrong   string // what went wrong where nobody could say so; empty: nothing
}

// fact is an event or a message.
type fact struct {
	sum          sum
	letter       *task.Message // nil: it is an event
	verb         task.Verb
	rec          task.Record // without its bulk
	notification *lifecycle.Notification
	answer       string
	mark         int // frames of the write-ahead log when it was acknowledged
}

// sum says what was written, whoever reads it.
type sum [16]byte

func sumOf(v any) (s sum) {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(failure(err.Error()))
	}
	full := sha256.Sum256(raw)
	copy(s[:], full[:])
	return s
}

func sumOfEvent(verb task.Verb, at int64, r task.Record) sum { return sumOf([]any{verb, at, r}) }

func sumOfLetter(m task.Message) sum {
	return sumOf([]any{m.To, m.From, m.Kind, m.Text, m.Priority, m.At.UnixNano(), m.Hops})
}

func newLedger() *ledger {
	return &ledger{facts: map[task.Seq]*fact{}, acks: map[task.Seq]int{}, doubt: map[sum]bool{}, unsure: map[task.Seq]bool{}, ends: map[task.RunID]*lifecycle.Notification{}}
}

// written is how many events and messages were acknowledged.
func (l *ledger) written() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.facts)
}

// mark is how far the files have come. The caller holds mu.
func (l *ledger) mark() int {
	if l.marking == nil {
		return 0
	}
	l.marking.look()
	return l.marking.commits()
}

// try notes that something is on its way.
func (l *ledger) try(sums ...sum) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range sums {
		if l.doubt[s] {
			l.wrong = "the same is written twice at once"
		}
		l.doubt[s] = true
	}
}

// settle notes how it went.
func (l *ledger) settle(seq task.Seq, f *fact, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.doubt, f.sum)
	if err != nil {
		return
	}
	if old := l.facts[seq]; old != nil {
		l.wrong = fmt.Sprintf("number %d was given twice", seq)
	}
	f.mark = l.mark()
	l.facts[seq] = f
	if f.notification != nil {
		l.ends[f.notification.Run] = f.notification
	}
}

// line is the way from one life of the program to its journal.
type line struct {
	j *journal.Journal
	l *ledger

	gate sync.RWMutex // held over each write; whoever kills the program holds it alone
	dead bool         // guarded by gate
}

// enter is the beginning of a write. In a program that was killed nobody goes on.
func (c *line) enter() {
	c.gate.RLock()
	if c.dead {
		c.gate.RUnlock()
		runtime.Goexit()
	}
}

// Append implements supervise.Log.
func (c *line) Append(ctx context.Context, e lifecycle.Entry) (task.Seq, error) {
	seqs, errs := c.AppendAll(ctx, []lifecycle.Entry{e})
	return seqs[0], errs[0]
}

// AppendAll implements supervise.Log.
func (c *line) AppendAll(ctx context.Context, entries []lifecycle.Entry) ([]task.Seq, []error) {
	c.enter()
	defer c.gate.RUnlock()
	facts := make([]*fact, len(entries))
	for i, e := range entries {
		facts[i] = &fact{sum: sumOfEvent(e.Verb, e.At.UnixNano(), e.Task), verb: e.Verb, rec: lean(e.Task), answer: e.Answer}
		c.l.try(facts[i].sum)
	}
	var seqs []task.Seq
	var errs []error
	if len(entries) == 1 {
		seq, err := c.j.Append(ctx, entries[0])
		seqs, errs = []task.Seq{seq}, []error{err}
	} else {
		seqs, errs = c.j.AppendAll(ctx, entries)
	}
	for i, e := range entries {
		if e.Notification != nil {
			n := *e.Notification
			facts[i].notification = &n
		}
		c.l.settle(seqs[i], facts[i], errs[i])
	}
	return seqs, errs
}

// lean is a record without what is looked at by its sum alone.
func lean(r task.Record) task.Record {
	r.Checkpoint, r.Progress, r.Questions = nil, nil, nil
	return r
}

// Post implements supervise.Log.
func (c *line) Post(ctx context.Context, m task.Message) (task.Seq, error) {
	c.enter()
	defer c.gate.RUnlock()
	f := &fact{sum: sumOfLetter(m), letter: &m}
	c.l.try(f.sum)
	seq, err := c.j.Post(ctx, m)
	c.l.settle(seq, f, err)
	return seq, err
}

// Mail, Mailed and Acknowledge implement mailbox.Log.
func (c *line) Mail(ctx context.Context, owner task.ID, after task.Seq) ([]lifecycle.Notification, []task.Message, task.Seq, error) {
	return c.j.Mail(ctx, owner, after)
}

func (c *line) Mailed() <-chan struct{} { return c.j.Mailed() }

func (c *line) Acknowledge(ctx context.Context, seqs ...task.Seq) error {
	c.enter()
	defer c.gate.RUnlock()
	c.l.mu.Lock()
	for _, seq := range seqs {
		c.l.unsure[seq] = true
	}
	c.l.mu.Unlock()
	err := c.j.Acknowledge(ctx, seqs...)
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	for _, seq := range seqs {
		delete(c.l.unsure, seq)
		if err == nil {
			c.l.acks[seq] = c.l.mark()
		}
	}
	return err
}

// watch has the marks of what is written from now on noted, in the log of a folder.
func (l *ledger) watch(dir string) *wal {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.marking = &wal{path: filepath.Join(dir, databaseName+"-wal")}
	l.marking.look()
	for _, f := range l.facts {
		f.mark = 0
	}
	for seq := range l.acks {
		l.acks[seq] = 0
	}
	return l.marking
}

// cut puts in doubt what was acknowledged when more than n frames were there: the files
// that are taken up have only those.
func (l *ledger) cut(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.marking = nil
	for seq, f := range l.facts {
		if f.mark > n {
			delete(l.facts, seq)
			l.doubt[f.sum] = true
		}
	}
	for seq, mark := range l.acks {
		if mark > n {
			delete(l.acks, seq)
			l.unsure[seq] = true
		}
	}
}

// compare reads the journal and holds it against what was written. What was in
// doubt and is there counts as written from then on. Of events up to from, which are many,
// only the number and the notifications are looked at.
func (l *ledger) compare(j *journal.Journal, dir string, from task.Seq) {
	l.mu.Lock()
	defer l.mu.Unlock()
	notifications := map[task.Seq]lifecycle.Notification{}
	all, err := j.Notifications(context.Background())
	must(err)
	for _, n := range all {
		notifications[n.Seq] = n
	}
	letters, acked, seen := readLetters(dir, from)
	story := newStory()
	for seq, n := range notifications {
		if f := l.facts[seq]; seq <= from && f != nil {
			l.owes(j, seq, f.rec, f, notifications[seq], true)
			delete(notifications, n.Seq)
		}
	}
	l.events(j, from, func(e task.Event) {
		seen++
		f := l.known(e.Seq, sumOfEvent(e.Verb, e.At.UnixNano(), e.Task), func() *fact { return &fact{verb: e.Verb, rec: lean(e.Task)} })
		if from == 0 {
			story.add(e)
		}
		n, there := notifications[e.Seq]
		l.owes(j, e.Seq, e.Task, f, n, there)
		delete(notifications, e.Seq)
	})
	if len(notifications) > 0 {
		panic(failure(fmt.Sprintf("notifications without an end: %v", notifications)))
	}
	for _, m := range letters {
		seen++
		l.known(m.Seq, sumOfLetter(m), func() *fact { return &fact{letter: &m} })
		l.told(m.Seq, acked[m.Seq])
	}
	if len(l.facts) != seen {
		for seq, f := range l.facts {
			if seq > task.Seq(seen) || f.rec.ID == "" && f.letter == nil {
				panic(failure(fmt.Sprintf("acknowledged and lost: %d, %s of %s; the log has %d", seq, f.verb, f.rec.ID, seen)))
			}
		}
		panic(failure(fmt.Sprintf("%d were acknowledged, the log has %d", len(l.facts), seen)))
	}
	for seq := range l.facts {
		if seq < 1 || seq > task.Seq(seen) {
			panic(failure(fmt.Sprintf("number %d of %d: there are gaps", seq, seen)))
		}
	}
	l.doubt, l.unsure = map[sum]bool{}, map[task.Seq]bool{} // what is not there now never comes
}

// events yields every event after a number. The caller holds mu.
func (l *ledger) events(j *journal.Journal, after task.Seq, yield func(task.Event)) {
	for {
		page, err := j.Since(context.Background(), after)
		must(err)
		if len(page) == 0 {
			return
		}
		for _, e := range page {
			if e.Seq <= after {
				panic(failure(fmt.Sprintf("event %d comes after %d", e.Seq, after)))
			}
			after = e.Seq
			yield(e)
		}
	}
}

// known is what was written under a number. The caller holds mu.
func (l *ledger) known(seq task.Seq, s sum, made func() *fact) *fact {
	f := l.facts[seq]
	switch {
	case f != nil && f.sum == s:
		return f
	case f != nil:
		panic(failure(fmt.Sprintf("number %d is not what was acknowledged: %s of %s", seq, f.verb, f.rec.ID)))
	case !l.doubt[s]:
		panic(failure(fmt.Sprintf("number %d is there and nobody wrote it, or is there twice", seq)))
	}
	delete(l.doubt, s)
	f = made()
	f.sum = s
	l.facts[seq] = f
	return f
}

// owes looks at the notification of an end, and at its answer. The caller holds mu.
func (l *ledger) owes(j *journal.Journal, seq task.Seq, r task.Record, f *fact, n lifecycle.Notification, there bool) {
	if there != r.Status.Terminal() {
		panic(failure(fmt.Sprintf("event %d, %s of %s, has a notification: %v", seq, r.Status, r.ID, there)))
	}
	if !there {
		return
	}
	if n.Run != r.Run || n.Task != r.ID || n.Owner != r.Owner || n.Priority != r.Priority {
		panic(failure(fmt.Sprintf("notification %d is %+v, the record %+v", seq, n, r)))
	}
	born := f.notification != nil && f.notification.Acked
	if f.notification == nil { // it was in doubt, so nobody can have acknowledged it
		born = n.Acked
		f.notification = &n
	}
	if !born {
		l.told(seq, n.Acked)
	}
	if f.answer != "" && seq%64 == 0 { // a sample: each is a query of its own
		text, err := j.Answer(context.Background(), r.Run)
		must(err)
		if text != f.answer {
			panic(failure(fmt.Sprintf("the answer of run %s is %q, and was %q", r.Run, text, f.answer)))
		}
	}
}

// told looks whether mail is acknowledged as it should be. The caller holds mu.
func (l *ledger) told(seq task.Seq, acked bool) {
	_, want := l.acks[seq]
	switch {
	case want == acked:
	case acked && l.unsure[seq]:
		l.acks[seq] = 0
	default:
		panic(failure(fmt.Sprintf("mail %d is acknowledged: %v, want %v", seq, acked, want)))
	}
}

// readLetters reads the messages past the journal, which shows only unread ones, and
// counts the events up to a number.
func readLetters(dir string, to task.Seq) (all []task.Message, acked map[task.Seq]bool, events int) {
	path := (&url.URL{Scheme: "file", Opaque: filepath.Join(dir, databaseName), RawQuery: "mode=ro"}).String()
	db, err := sql.Open("sqlite", path)
	must(err)
	defer db.Close()
	rows, err := db.Query("SELECT seq, owner, sender, kind, text, priority, at, hops, acked FROM messages ORDER BY seq")
	must(err)
	defer rows.Close()
	acked = map[task.Seq]bool{}
	for rows.Next() {
		var m task.Message
		var at int64
		var read bool
		must(rows.Scan(&m.Seq, &m.To, &m.From, &m.Kind, &m.Text, &m.Priority, &at, &m.Hops, &read))
		m.At = unix(at)
		acked[m.Seq] = read
		all = append(all, m)
	}
	must(rows.Err())
	must(db.QueryRow("SELECT count(*) FROM events WHERE seq <= ?", int64(to)).Scan(&events))
	return all, acked, events
}

// story is what the events say one after the other.
type story struct {
	status map[task.ID]task.Status
	run    map[task.ID]task.RunID
	runs   map[task.RunID]task.ID
	names  map[string]task.Record // who was started under a name last
}

func newStory() *story {
	return &story{status: map[task.ID]task.Status{}, run: map[task.ID]task.RunID{}, runs: map[task.RunID]task.ID{}, names: map[string]task.Record{}}
}

// add refuses an event that cannot come after those before it: a run has one end and
// nothing behind it, each run is one of its own, and nobody is started under the name of
// a task that is in its first run.
func (s *story) add(e task.Event) {
	r := e.Task
	was, known := s.status[r.ID]
	fresh := e.Verb == task.Create || e.Verb == task.Resume
	ends := slices.Contains([]task.Verb{task.Complete, task.Fail, task.Stop}, e.Verb)
	switch {
	case known == (e.Verb == task.Create):
		panic(failure(fmt.Sprintf("event %d, %s of %s: the task was there: %v", e.Seq, e.Verb, r.ID, known)))
	case known && was.Terminal() != (e.Verb == task.Resume):
		panic(failure(fmt.Sprintf("event %d, %s of %s, which was %s", e.Seq, e.Verb, r.ID, was)))
	case fresh && s.runs[r.Run] != "":
		panic(failure(fmt.Sprintf("event %d: run %s is there twice", e.Seq, r.Run)))
	case !fresh && s.run[r.ID] != r.Run:
		panic(failure(fmt.Sprintf("event %d, %s of %s, is of run %s, which is not its latest", e.Seq, e.Verb, r.ID, r.Run)))
	case ends != r.Status.Terminal() || ends && (r.Cause == nil || r.EndTime == nil || !r.Notified):
		panic(failure(fmt.Sprintf("event %d, %s of %s: %s, cause %v", e.Seq, e.Verb, r.ID, r.Status, r.Cause)))
	case ends && (r.Idle || r.Paused || r.AwaitingApproval || r.Stopping || len(r.Questions) > 0):
		panic(failure(fmt.Sprintf("event %d: %s has ended and shows that it lives", e.Seq, r.ID)))
	}
	if e.Verb == task.Create && r.Name != "" {
		if o, was := s.names[r.Name]; was && s.run[o.ID] == o.Run && !s.status[o.ID].Terminal() {
			panic(failure(fmt.Sprintf("event %d: %s is started as %s, which %s is called that lives", e.Seq, r.ID, r.Name, o.ID)))
		}
		s.names[r.Name] = r
	}
	s.status[r.ID], s.run[r.ID], s.runs[r.Run] = r.Status, r.Run, r.ID
}
