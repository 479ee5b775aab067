package sim

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/drover-dev/drover/internal/engine/journal"
	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/internal/engine/mailbox"
	"github.com/drover-dev/drover/internal/engine/supervise"
	"github.com/drover-dev/drover/task"
)

// session is the owner of most tasks, and who reads most mail.
const session = task.ID("s00000000")

// world is a session over all of its lives, and what the model knows of it.
type world struct {
	seed uint64
	base string // where the files of all lives are
	opts journal.Options

	dir  string // of this life
	line *line
	s    *supervise.Supervisor

	mu     sync.Mutex
	stages map[task.ID]*stage
	boxes  map[task.ID]*mailbox.Box // open ones; of this life

	ledger *ledger
	live   map[task.ID]*run
	tasks  map[task.ID]*run // the latest of each
	runs   map[task.RunID]*run
	keys   map[childKey]task.ID
	names  map[task.ID]string               // t1, t2 …, for the script
	read   map[task.ID]map[task.Seq]sumOrID // the transcripts
	cursor task.Seq                         // of somebody who reads along, over all lives

	step   int
	script []string
	tally  tally
}

type childKey struct {
	parent task.ID
	key    string
}

// sumOrID is what mail is known by: the run that a notification is of, or the sum of a message.
type sumOrID string

// run is what the model knows of a run.
type run struct {
	id         task.RunID
	task       task.ID
	parent     task.ID
	owner      task.ID
	background bool
	keep       bool
	leaves     bool // what it leaves running goes to its own parent
	paused     bool
	asks       bool
	stopping   bool // a stop had been asked for when its host died
	ended      bool
}

func newWorld(seed uint64, dir string) *world {
	return &world{seed: seed, base: dir, stages: map[task.ID]*stage{}, ledger: newLedger(), live: map[task.ID]*run{}, tasks: map[task.ID]*run{}, runs: map[task.RunID]*run{},
		keys: map[childKey]task.ID{}, names: map[task.ID]string{}, read: map[task.ID]map[task.Seq]sumOrID{}, tally: tally{histories: 1}}
}

func must(err error) {
	if err != nil {
		panic(failure(err.Error()))
	}
}

func unix(ns int64) time.Time { return time.Unix(0, ns).UTC() }

func wrong(format string, args ...any) { panic(failure(fmt.Sprintf(format, args...))) }

func (w *world) say(format string, args ...any) {
	w.script = append(w.script, fmt.Sprintf("%5d  ", w.step)+fmt.Sprintf(format, args...))
}

// name is what the script calls a task.
func (w *world) name(id task.ID) string {
	switch {
	case id == "":
		return "nobody"
	case id == session:
		return "the session"
	case w.names[id] == "":
		w.names[id] = "t" + strconv.Itoa(len(w.names)+1)
	}
	return w.names[id]
}

// tailEvents is how many events are read again in each life. All are read in every
// eighth, and at the end.
const tailEvents = 400

// up opens the journal of this life as a program does that takes a session up.
func (w *world) up(whole bool) {
	if w.dir == "" {
		w.dir = filepath.Join(w.base, "0")
		must(os.MkdirAll(w.dir, 0o700))
	}
	j, err := journal.Open(filepath.Join(w.dir, databaseName), w.opts)
	must(err)
	w.line = &line{j: j, l: w.ledger}
	from := max(0, j.Last()-tailEvents)
	if life := w.tally.crashes + w.tally.closes; life%8 == 0 || whole {
		from = 0
	}
	w.ledger.compare(j, w.dir, from)
	w.mu.Lock()
	w.boxes = map[task.ID]*mailbox.Box{}
	w.mu.Unlock()
	cfg := supervise.Config{Session: session, Log: w.line, Recall: j.Newest}
	if w.seed%2 == 0 { // ended tasks leave the memory as soon as they may
		cfg.Held, cfg.Grace = 8, 1
	}
	w.s = supervise.New(cfg)
	states, err := j.Tasks(context.Background())
	must(err)
	old := make([]supervise.Old, len(states))
	for i, st := range states {
		old[i] = supervise.Old{Born: st.Born, Task: st.Task}
	}
	must(w.s.Adopt(context.Background(), old, func(task.Kind) task.Driver { return actor{w} }))
	for owner := range w.readers() {
		w.open(owner)
	}
	w.reconcile()
}

// open is the box of an owner in this life.
func (w *world) open(owner task.ID) *mailbox.Box {
	w.mu.Lock()
	defer w.mu.Unlock()
	if b := w.boxes[owner]; b != nil {
		return b
	}
	b, err := mailbox.Open(context.Background(), owner, w.line)
	must(err)
	w.boxes[owner] = b
	return b
}

// readers are all to whom mail was ever sent, by what they are owed still.
func (w *world) readers() map[task.ID]int {
	w.ledger.mu.Lock()
	defer w.ledger.mu.Unlock()
	out := map[task.ID]int{session: 0}
	for seq, f := range w.ledger.facts {
		owner := task.ID("")
		switch {
		case f.letter != nil:
			owner = f.letter.To
		case f.notification != nil && !f.notification.Acked:
			owner = f.notification.Owner
		}
		if owner == "" {
			continue
		}
		if _, acked := w.ledger.acks[seq]; !acked {
			out[owner]++
		}
	}
	return out
}

// die ends the program without a word. The next life has a copy of the files as they
// were at that moment; of two moments with writes between them, one in the midst of
// these. meanwhile makes them; nobody hears what became of what it did.
func (w *world) die(r *rand.Rand, meanwhile func()) {
	w.line.gate.Lock()
	before, log := take(w.dir), w.ledger.watch(w.dir)
	first, generation := log.commits(), log.generation
	w.line.gate.Unlock()
	meanwhile()
	w.line.gate.Lock()
	w.line.dead = true
	w.ledger.mu.Lock()
	log.look()
	w.ledger.mu.Unlock()
	after := take(w.dir)
	w.line.gate.Unlock()
	left, last := after, len(log.frames)
	if log.generation == generation && last > first && r.IntN(4) > 0 {
		cut := first + r.IntN(last-first+1)
		end := log.at(cut)
		if cut < last && r.IntN(2) == 0 { // within a frame
			end += r.Int64N(log.at(cut+1) - end)
		}
		// What was there before the log began anew is there still behind its end.
		left = files{db: before.db, wal: slices.Clone(after.wal[:end])}
		if len(before.wal) > len(left.wal) {
			left.wal = append(left.wal, before.wal[len(left.wal):]...)
		}
		if last = cut; end != log.at(cut) || cut > 0 && !log.frames[cut-1].commit {
			w.tally.torn++
		}
	}
	w.ledger.cut(last)
	w.tally.crashes++
	w.abandon()
	w.say("       killed: %d of %d frames that were written meanwhile are there", last-first, len(log.frames)-first)
	w.dir = filepath.Join(w.base, strconv.Itoa(w.tally.crashes+w.tally.closes))
	left.put(w.dir)
	w.up(false)
}

// abandon ends the goroutines of a life that is over.
func (w *world) abandon() {
	if w.line == nil {
		return
	}
	w.line.gate.Lock()
	w.line.dead = true
	w.line.gate.Unlock()
	w.s.Close()
	_ = w.line.j.Close() // what it lost is found by the comparison
	_ = os.RemoveAll(w.dir)
	w.line = nil
}

// reconcile holds the tasks that the next life shows against those that lived in the
// last one, and takes over what was not known to have happened.
func (w *world) reconcile() {
	shown := map[task.ID]task.Record{}
	var order []task.Record
	var asked []task.ID // to end, of the host before
	must(w.s.Listing(context.Background(), 0, func(_ task.Seq, rec task.Record) bool {
		if rec.Stopping {
			asked = append(asked, rec.ID)
		}
		return true
	}))
	_, err := w.s.Wait(context.Background(), asked, false)
	must(err)
	must(w.s.Listing(context.Background(), 0, func(_ task.Seq, rec task.Record) bool {
		if _, twice := shown[rec.ID]; twice {
			wrong("%s is listed twice", w.name(rec.ID))
		}
		shown[rec.ID], order = rec, append(order, rec)
		return true
	}))
	for id, r := range w.live {
		rec, ok := shown[id]
		switch {
		case !ok:
			wrong("%s is lost", w.name(id))
		case rec.Run != r.id && w.runs[rec.Run] == nil: // it ended and was begun again
			r.ended = true
			delete(w.live, id)
			w.adopt(rec)
			continue
		case rec.Run != r.id:
			wrong("%s is shown in run %s, and %s is its latest", w.name(id), rec.Run, r.id)
		case rec.Status.Terminal():
			w.survives(rec, false)
			r.ended = true
			delete(w.live, id)
			continue
		}
		w.survives(rec, true)
		r.take(rec)
	}
	w.keys = map[childKey]task.ID{}
	for _, rec := range order {
		if w.runs[rec.Run] == nil {
			w.adopt(rec)
		}
		k := childKey{rec.Parent, rec.Key}
		if w.keys[k] != "" {
			wrong("%s has the key %q of %s", w.name(rec.ID), rec.Key, w.name(w.keys[k]))
		}
		if rec.Key != "" {
			w.keys[k] = rec.ID
		}
	}
	w.called()
	for _, r := range w.runs {
		if rec := shown[r.task]; r.ended && rec.Run == r.id && !rec.Status.Terminal() {
			wrong("%s had ended, and is %s", w.name(r.task), rec.Status)
		}
	}
}

// survives looks whether a task may be as it is shown in the next life.
func (w *world) survives(rec task.Record, lives bool) {
	switch {
	case lives && (!rec.Keep || rec.Process == nil || rec.Status != task.Running):
		wrong("%s is %s without its host", w.name(rec.ID), rec.Status)
	case lives && (rec.AwaitingApproval || len(rec.Questions) > 0):
		wrong("%s waits for an answer to what nobody asks any more", w.name(rec.ID))
	case !lives && rec.Cause.Reason == task.ReasonHostLost && rec.Keep && rec.Process != nil:
		wrong("%s was kept, and was lost with its host", w.name(rec.ID))
	}
}

// adopt takes a run over that was begun when nobody listened any more.
func (w *world) adopt(rec task.Record) {
	r := &run{id: rec.Run, task: rec.ID, keep: rec.Keep, leaves: rec.OnEnd == task.Reparents}
	r.take(rec)
	w.tasks[r.task], w.runs[r.id] = r, r
	w.say("       %s is there too, %s", w.name(r.task), rec.Status)
	w.survives(rec, !rec.Status.Terminal())
	if r.ended = rec.Status.Terminal(); !r.ended {
		w.live[r.task] = r
	}
}

// take takes over what may change in the life of a run.
func (r *run) take(rec task.Record) {
	r.parent, r.owner, r.background, r.paused, r.asks, r.stopping = rec.Parent, rec.Owner, rec.Backgrounded, rec.Paused, rec.AwaitingApproval, rec.Stopping
}

// check looks at every live task and at what somebody reads who reads along.
func (w *world) check() {
	w.ledger.mu.Lock()
	bad := w.ledger.wrong
	w.ledger.mu.Unlock()
	if bad != "" {
		wrong("%s", bad)
	}
	for id, r := range w.live {
		rec, ok := w.s.Get(id)
		if !ok || rec.Run != r.id || rec.Status != task.Running || rec.Paused != r.paused || rec.AwaitingApproval != r.asks || rec.Stopping != r.stopping ||
			rec.Parent != r.parent || rec.Owner != r.owner || rec.Backgrounded != r.background {
			wrong("%s is %s, want %s", w.name(id), w.brief(rec), w.model(r))
		}
	}
	if w.step%16 == 0 {
		w.called()
	}
}

// called looks whether each name means the newest task that lives, else the newest.
func (w *world) called() {
	named := map[string][]task.Record{}
	must(w.s.Listing(context.Background(), 0, func(_ task.Seq, rec task.Record) bool { // newest first
		if rec.Name != "" {
			named[rec.Name] = append(named[rec.Name], rec)
		}
		return true
	}))
	for name, all := range named {
		want := lifecycle.Meant(all).ID
		if got, err := w.s.Find(name); err != nil || got.ID != want {
			wrong("%s means %s (%v), want %s", name, w.name(got.ID), err, w.name(want))
		}
	}
}

// brief is what matters of a record.
func (w *world) brief(r task.Record) string {
	return fmt.Sprintf("%s of run %s (cause %+v) below %s for %s, paused %v, asks %v, stopping %v, background %v, kept %v", r.Status, r.Run, r.Cause,
		w.name(r.Parent), w.name(r.Owner), r.Paused, r.AwaitingApproval, r.Stopping, r.Backgrounded, r.Keep)
}

func (w *world) model(r *run) string {
	return fmt.Sprintf("running of run %s below %s for %s, paused %v, asks %v, stopping %v, background %v, kept %v", r.id,
		w.name(r.parent), w.name(r.owner), r.paused, r.asks, r.stopping, r.background, r.keep)
}

// follow reads on from where somebody was, also over crashes.
func (w *world) follow() {
	for {
		page, err := w.line.j.Since(context.Background(), w.cursor)
		must(err)
		if len(page) == 0 {
			break
		}
		for _, e := range page {
			if e.Seq <= w.cursor {
				wrong("a reader at %d is given %d", w.cursor, e.Seq)
			}
			w.ledger.mu.Lock()
			for n := w.cursor + 1; n < e.Seq; n++ { // what is left out are messages
				if f := w.ledger.facts[n]; f == nil || f.letter == nil {
					w.ledger.mu.Unlock()
					wrong("a reader at %d is given %d, and %d is no message", w.cursor, e.Seq, n)
				}
			}
			f := w.ledger.facts[e.Seq]
			w.ledger.mu.Unlock()
			if f == nil || f.sum != sumOfEvent(e.Verb, e.At.UnixNano(), e.Task) {
				wrong("a reader is given event %d, %s of %s, which is not what was written", e.Seq, e.Verb, e.Task.ID)
			}
			w.cursor = e.Seq
		}
	}
}

// ends brings a history to its end: all is stopped, all mail is read, and the journal is
// opened once more.
func (w *world) ends() {
	w.step++
	for _, id := range slices.Sorted(maps.Keys(w.live)) {
		if w.live[id] != nil {
			w.stopping(id, task.ByUser).play(w)
		}
	}
	for owner, n := range w.readers() {
		for ; n > 0; n = w.readers()[owner] {
			w.deliver(owner, 50, false, nil)
		}
	}
	w.follow()
	w.close(true)
	w.readAll()
	w.tally.runs = len(w.runs)
	for _, f := range w.ledger.facts {
		if f.letter != nil {
			w.tally.messages++
		} else {
			w.tally.events++
		}
	}
}

// close ends the program in order and begins it again.
func (w *world) close(whole bool) {
	w.say("close")
	w.tally.closes++
	w.s.Close()
	must(w.line.j.Close())
	w.line = nil
	w.up(whole)
}

// readAll looks whether every notification and every message is in the transcript of its
// owner, once.
func (w *world) readAll() {
	for owner, n := range w.readers() {
		if n > 0 {
			wrong("%s is still owed %d mails", w.name(owner), n)
		}
	}
	told := map[sumOrID]int{}
	for _, transcript := range w.read {
		for _, what := range transcript {
			told[what]++
		}
	}
	for seq, f := range w.ledger.facts {
		what, want := mailOf(f), 1
		if what == "" {
			continue
		}
		if f.notification != nil && f.notification.Acked {
			want = 0
		}
		if told[what] != want {
			wrong("mail %d (%s) was read %d times, want %d", seq, what, told[what], want)
		}
		delete(told, what)
	}
	for what := range told {
		wrong("%s was read and is not there", what)
	}
}

// mailOf is what the mail of a fact is known by, empty for one that is none.
func mailOf(f *fact) sumOrID {
	switch {
	case f.letter != nil:
		return sumOrID(fmt.Sprintf("message %x", f.sum))
	case f.notification != nil:
		return sumOrID("the end of " + string(f.notification.Run))
	}
	return ""
}
