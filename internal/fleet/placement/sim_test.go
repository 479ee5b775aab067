package placement

import (
	"container/heap"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/fleet/fleetwire"
)

// The claim protocol in virtual time: a session whose hosts are killed, workers that are killed, cut off and come back,
// a hub that is killed and forgets, clocks that run at different speeds, and a network that loses, doubles, delays and
// reorders every message. The rules are those of [Book], [fleetwire.LeaseEnd], [fleetwire.GiveUp] and [fleetwire.Begun]; times and
// messages are played. Faults stop at some time, after which every task has to end.
type simulation struct {
	rng    *rand.Rand
	now    time.Duration // true time, which nobody but the checks knows
	queue  events
	seq    int
	faults time.Duration // until then

	hub     int      // how often it has been killed
	stored  []func() // the last messages that its streams have delivered
	workers []*simWorker
	tasks   []*simTask

	rate float64 // of the clock of the session
	host int     // which host of the session it is
	up   bool    // it is there

	broken string // what has not held; empty: all has
	stats  simStats
}

type simStats struct {
	messages, refused, grants, again, begun, twice, lostWorkers, hubs, hosts, adopted, ends, completed int
	// carriedOn are adopted tasks that completed, strangers events in the name of others.
	carriedOn, strangers int
}

const (
	simLease  = 30 * time.Second
	simRenew  = 5 * time.Second
	simTick   = simLease / 10       // as [work.follow] looks
	simMost   = 90 * time.Second    // that a message travels: longer than any lease
	simAsk    = 5 * time.Second     // that a worker waits for an answer
	simAcks   = fleetwire.OfferWait // until a message comes again that was not acknowledged
	simRing   = 40                  // messages that a killed hub delivers again
	simFaults = 25 * time.Minute    // that faults last
	simEnd    = 3 * time.Hour       // when every task has ended, if faults stop
	simLength = int64(300)          // of the output of an attempt
	simEven   = 1.0954451150103321  // the square root of 1.2: the drift each way that the lease allows
	simTasks  = 20                  // of one history
	simCount  = 3                   // workers
	simTries  = 3                   // of a claim
	simRetry  = time.Second         // before a further attempt
)

// simTask is a task as its session has it.
type simTask struct {
	id     string
	keep   bool
	inside bool // a command in a workspace: its worker has not claimed it
	more   int  // attempts that are left

	book    Book
	saved   []byte // the book, as it is in the record; nil: the task waits for its first worker
	open    string // offer
	offers  int
	base    int64     // of the output of the attempt
	given   time.Time // when the last lease was given
	started bool
	live    bool // this host follows it
	adopted bool
	lost    uint64 // the newest epoch that was given up

	ended     int
	completed bool
	output    []byte
	attempts  []simAttempt // what the output is made of
	works     []*simWork   // at all workers
}

// simAttempt is what one epoch has written.
type simAttempt struct {
	epoch uint64
	from  int // in the output of the task
}

// simWorker is a machine.
type simWorker struct {
	s        *simulation
	name     string
	rate     float64 // of its clock
	instance int     // which start of it
	begun    fleetwire.Begun
	cut      time.Duration // it is out of reach until then
}

// simWork is a claim as its worker has it.
type simWork struct {
	task     *simTask
	worker   *simWorker
	instance string
	epoch    uint64
	deadline time.Time // of its lease
	at       int64     // of its output that it has told
	fails    bool      // it is to end with an error
	over     bool      // its process has ended
	done     bool      // nothing more of it is told
}

// works reports whether its process may run.
func (w *simWork) works() bool { return !w.over && w.leased() }

// leased reports whether the worker may still tell of it.
func (w *simWork) leased() bool { return !w.done && w.worker.clock().Before(w.deadline) }

func (w *simWorker) id() string { return w.name + "." + strconv.Itoa(w.instance) }

// clock is what a clock says that runs at a rate.
func (s *simulation) clock(rate float64) time.Time {
	return time.Unix(0, 0).Add(time.Duration(float64(s.now) * rate))
}

func (w *simWorker) clock() time.Time { return w.s.clock(w.rate) }

type event struct {
	at  time.Duration
	seq int
	do  func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].seq < e[j].seq
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	old := *e
	x := old[len(old)-1]
	old[len(old)-1] = event{}
	*e = old[:len(old)-1]
	return x
}

// after does something after a true time, by a clock that runs at a rate.
func (s *simulation) after(d time.Duration, rate float64, do func()) {
	s.seq++
	heap.Push(&s.queue, event{s.now + time.Duration(float64(d)/rate), s.seq, do})
}

func (s *simulation) chance(percent int) bool { return s.rng.IntN(100) < percent }
func (s *simulation) upTo(d time.Duration) time.Duration {
	return time.Duration(s.rng.Int64N(int64(d)))
}
func (s *simulation) faulty() bool { return s.now < s.faults }

func (s *simulation) fail(format string, args ...any) {
	if s.broken == "" {
		s.broken = fmt.Sprintf("at %s: ", s.now) + fmt.Sprintf(format, args...)
	}
}

// travel lets a message arrive never, once or more often, each time after a delay of its own.
func (s *simulation) travel(do func()) {
	s.stats.messages++
	copies := 1
	if s.faulty() {
		copies = []int{0, 0, 1, 1, 1, 1, 1, 1, 1, 2}[s.rng.IntN(10)]
	}
	for ; copies > 0; copies-- {
		delay := s.upTo(40 * time.Millisecond)
		if s.faulty() && s.chance(2) {
			delay = s.upTo(simMost)
		}
		s.after(delay, 1, do)
	}
}

// ask carries a question or an answer between a worker and the session, which no stream keeps: it is lost when the hub
// is killed meanwhile, or the worker is cut off.
func (s *simulation) ask(w *simWorker, do func()) {
	if s.now < w.cut {
		return
	}
	hub := s.hub
	s.travel(func() {
		if s.hub == hub && s.now >= w.cut {
			do()
		}
	})
}

// store carries a message through a stream. It waits for whom it is for. When the hub is killed, it comes again or, if
// it was not on the disk yet, is lost.
func (s *simulation) store(w *simWorker, do func()) {
	hub := s.hub
	var arrive func()
	arrive = func() {
		switch {
		case s.hub != hub && s.faulty() && s.chance(20):
			return
		case s.now < w.cut:
			s.after(w.cut-s.now+s.upTo(time.Second), 1, arrive)
			return
		case !s.up:
			s.after(time.Second, 1, arrive)
			return
		}
		if s.stored = append(s.stored, do); len(s.stored) > simRing {
			s.stored = s.stored[1:]
		}
		do()
	}
	s.travel(arrive)
}

// killHub starts the hub anew: it delivers again what it does not know to have been acknowledged.
func (s *simulation) killHub() {
	s.hub++
	s.stats.hubs++
	for _, do := range s.stored {
		if s.chance(30) {
			s.after(s.upTo(simMost), 1, do)
		}
	}
	s.stored = nil
}

// killHost kills the host of the session. The next one knows what the records say.
func (s *simulation) killHost() {
	if !s.up {
		return
	}
	s.up = false
	s.host++
	s.stats.hosts++
	for _, t := range s.tasks {
		t.live, t.open = false, ""
	}
	s.after(s.upTo(time.Minute), 1, func() {
		s.up = true
		host := s.host
		for _, t := range s.tasks {
			s.after(s.upTo(2*time.Second), 1, func() {
				if s.host == host && t.started && !t.live && t.ended == 0 {
					s.adopt(t)
				}
			})
		}
		if s.faulty() && s.chance(50) { // and the next one soon after
			s.after(s.upTo(40*time.Second), 1, s.killHost)
		}
	})
}

// adopt takes up a task that an earlier host has left, as [work.run] does, or records that it died with it.
func (s *simulation) adopt(t *simTask) {
	if t.saved == nil || !t.keep {
		s.finish(t, false)
		return
	}
	b, err := readBook(t.saved)
	if err != nil {
		s.fail("task %s: %v", t.id, err)
		return
	}
	b.Bytes = int64(len(t.output))
	t.book, t.given, t.live, t.adopted, t.more = b, s.clock(s.rate), true, true, 0
	s.stats.adopted++
	s.watch(t, b.Epoch, s.host)
}

// cutOff makes a worker unreachable for a time.
func (s *simulation) cutOff(w *simWorker) { w.cut = s.now + s.upTo(time.Minute) }

// killWorker kills a worker, whose keeper ends its processes, and starts it again.
func (s *simulation) killWorker(w *simWorker) {
	w.instance++
	w.begun = fleetwire.Begun{}
	for _, t := range s.tasks {
		for _, one := range t.works {
			if one.worker == w {
				one.done = true
			}
		}
	}
	s.cutOff(w)
}

// disturb goes on making faults until they stop.
func (s *simulation) disturb(every time.Duration, fault func()) {
	s.after(s.upTo(2*every), 1, func() {
		if s.faulty() {
			fault()
			s.disturb(every, fault)
		}
	})
}

func (s *simulation) any() *simWorker { return s.workers[s.rng.IntN(len(s.workers))] }

// place begins an attempt.
func (s *simulation) place(t *simTask) {
	t.offers++
	offer := fmt.Sprint(t.id, "-", s.host, "-", t.offers)
	t.base = int64(len(t.output))
	if t.inside {
		s.begin(t, offer)
		return
	}
	t.open = offer
	s.deliver(t, offer, s.host)
}

// deliver gives an offer out, again and again until somebody has claimed it.
func (s *simulation) deliver(t *simTask, offer string, host int) {
	w := s.any()
	s.after(s.upTo(2*time.Second), 1, func() { s.offered(w, t, offer, 1) })
	s.after(5*time.Second, 1, func() {
		if t.open == offer && s.host == host {
			s.deliver(t, offer, host)
		}
	})
}

// offered has a worker claim an offer.
func (s *simulation) offered(w *simWorker, t *simTask, offer string, try int) {
	if s.now < w.cut {
		s.offerAgain(t, offer)
		return
	}
	asked, instance, answered := w.clock(), w.id(), false
	s.ask(w, func() {
		g, ok := s.claimed(t, offer, w.name, instance)
		if g == nil {
			return // nobody is there
		}
		s.ask(w, func() {
			answered = true
			if ok && w.id() == instance {
				s.do(w, t, offer, *g, asked)
			}
			if s.faulty() && s.chance(15) { // the hub does not hear that the offer is not needed any more
				next := s.any()
				if s.chance(50) {
					next = w
				}
				s.after(simAcks, 1, func() { s.offered(next, t, offer, 1) })
			}
		})
	})
	s.after(simAsk, w.rate, func() {
		switch {
		case answered:
		case w.id() == instance && try < simTries:
			s.offered(w, t, offer, try+1)
		default:
			s.offerAgain(t, offer)
		}
	})
}

// offerAgain gives an offer out once more that was not acknowledged.
func (s *simulation) offerAgain(t *simTask, offer string) {
	if s.faulty() {
		s.after(s.upTo(simAcks), 1, func() { s.offered(s.any(), t, offer, 1) })
	}
}

// claimed is the answer of the session to a claim; nil: there is none.
func (s *simulation) claimed(t *simTask, offer, worker, instance string) (*Book, bool) {
	switch {
	case !s.up:
		return nil, false
	case !t.live:
		return &Book{}, false
	}
	b, fresh, err := t.book.Grant(t.open, offer, worker, instance)
	if err != nil || !fresh && t.adopted {
		s.stats.refused++
		return &Book{}, false
	}
	t.given = s.clock(s.rate)
	if fresh {
		s.granted(t, b)
	} else {
		s.stats.again++
		if t.book.Over {
			s.fail("task %s: epoch %d is granted again after its end", t.id, b.Epoch)
		}
	}
	return &b, true
}

// granted makes a grant durable.
func (s *simulation) granted(t *simTask, b Book) {
	s.stats.grants++
	if b.Epoch <= t.book.Epoch {
		s.fail("task %s: epoch %d is granted after %d", t.id, b.Epoch, t.book.Epoch)
	}
	s.alone(t, nil, fmt.Sprintf("epoch %d is granted", b.Epoch))
	saved, err := b.encode()
	if err != nil {
		s.fail("task %s: %v", t.id, err)
	}
	t.book, t.open, t.saved, t.given = b, "", saved, s.clock(s.rate)
	t.attempts = append(t.attempts, simAttempt{b.Epoch, len(t.output)})
	s.watch(t, b.Epoch, s.host)
}

// alone checks that no other attempt of a task may be at work.
func (s *simulation) alone(t *simTask, but *simWork, when string) {
	for _, w := range t.works {
		if w != but && w.works() {
			s.fail("task %s: %s while %s works on epoch %d", t.id, when, w.worker.id(), w.epoch)
		}
	}
}

// begin gives a command to the worker that keeps its workspace, as [work.begin] does.
func (s *simulation) begin(t *simTask, offer string) {
	w := s.workers[int(t.id[len(t.id)-1])%len(s.workers)]
	instance := w.id()
	b, _, err := t.book.Grant(offer, offer, w.name, instance)
	if err != nil {
		s.fail("task %s: begin: %v", t.id, err)
		return
	}
	s.granted(t, b)
	var began func()
	began = func() {
		if w.id() != instance {
			return // its workspace is lost
		}
		if s.faulty() && s.chance(15) {
			s.after(simAcks, 1, began) // it was not acknowledged in time
		}
		s.renew(w, t, instance, b.Epoch, func(asked time.Time, valid bool) {
			if valid && w.id() == instance {
				s.do(w, t, fmt.Sprint(t.id, ".", b.Epoch), b, asked)
			}
		})
	}
	s.store(w, began)
}

// do does a task at a worker, if it is not the second time.
func (s *simulation) do(w *simWorker, t *simTask, key string, g Book, asked time.Time) {
	if !w.begun.First(key) {
		s.stats.twice++
		return
	}
	one := &simWork{task: t, worker: w, instance: w.id(), epoch: g.Epoch, deadline: fleetwire.LeaseEnd(asked, simLease),
		fails: t.more > 0 && s.chance(40)}
	if !one.works() {
		return // the answer came too late to be of use
	}
	s.stats.begun++
	if g.Epoch <= t.lost {
		s.fail("task %s: epoch %d begins after it has been given up", t.id, g.Epoch)
	}
	s.alone(t, one, fmt.Sprintf("epoch %d begins", g.Epoch))
	for _, old := range t.works {
		if old.epoch >= one.epoch {
			s.fail("task %s: epoch %d begins after epoch %d has begun", t.id, one.epoch, old.epoch)
		}
	}
	t.works = append(t.works, one)
	s.step(one)
	s.renewLater(one)
}

// renew asks the session whether a claim still counts.
func (s *simulation) renew(w *simWorker, t *simTask, instance string, epoch uint64, then func(time.Time, bool)) {
	asked := w.clock()
	s.ask(w, func() {
		if !s.up {
			return
		}
		valid := false
		switch {
		case t.ended > 0:
		case t.live:
			if valid = t.book.Valid(w.name, instance, epoch) == nil; valid {
				t.given = s.clock(s.rate)
			}
		case t.keep && t.saved != nil: // this host is about to take it up, see [Fleet.renewed]
			b, err := readBook(t.saved)
			valid = err == nil && b.Valid(w.name, instance, epoch) == nil
		}
		s.ask(w, func() { then(asked, valid) })
	})
}

func (s *simulation) renewLater(one *simWork) {
	w := one.worker
	s.after(simRenew, w.rate, func() {
		if !one.leased() {
			return
		}
		s.renew(w, one.task, one.instance, one.epoch, func(asked time.Time, valid bool) {
			switch end := fleetwire.LeaseEnd(asked, simLease); {
			case !valid:
				one.done = true
			case one.leased() && end.After(one.deadline):
				one.deadline = end
			}
		})
		s.renewLater(one)
	})
}

// step tells a piece of output, or the end behind the last one.
func (s *simulation) step(w *simWork) {
	s.after(s.upTo(20*time.Second), w.worker.rate, func() {
		if !w.leased() {
			return
		}
		if w.at < simLength {
			w.at = min(simLength, w.at+1+s.rng.Int64N(40))
		}
		w.over = w.over || w.at == simLength
		s.tell(w, max(0, w.at-100), w.at, w.at == simLength)
		s.step(w)
	})
}

// content is what an attempt prints: each something else.
func content(epoch uint64, at int64) byte { return byte(at) + byte(31*epoch) }

func (s *simulation) tell(w *simWork, from, to int64, end bool) {
	s.store(w.worker, func() {
		t := w.task
		if !t.live {
			if t.ended == 0 { // it comes again until this host has taken the task up
				s.after(time.Second, 1, func() { s.tell(w, from, to, end) })
			}
			return
		}
		before, last, over := len(t.output), t.book.Epoch, t.book.Over
		s.told(w, from, to, end)
		if changed := len(t.output) != before || t.book.Over || t.ended > 0; changed && w.epoch != last && !over {
			s.fail("task %s: epoch %d changes the record of epoch %d", t.id, w.epoch, last)
		}
	})
}

// told takes an event in, as [work.take] does.
func (s *simulation) told(w *simWork, from, to int64, end bool) {
	t := w.task
	if t.book.Valid(w.worker.name, w.instance, w.epoch) != nil {
		s.stats.refused++
		return
	}
	if w.epoch != t.attempts[len(t.attempts)-1].epoch {
		s.fail("task %s: epoch %d is taken in, which is not the newest", t.id, w.epoch)
	}
	data := make([]byte, to-from)
	for i := range data {
		data[i] = content(w.epoch, from+int64(i))
	}
	part, next, gap := t.book.Take(t.base, from, data)
	if gap {
		s.resend(w, t.book.Bytes-t.base)
		return
	}
	t.book = next
	t.output = append(t.output, part...)
	if !end {
		return
	}
	if t.base+simLength > t.book.Bytes {
		s.resend(w, t.book.Bytes-t.base)
		return
	}
	t.book = t.book.End()
	if w.fails {
		s.again(t)
		return
	}
	s.finish(t, true)
}

// strange tells something of a claim that another worker has, or an earlier start of that worker.
func (s *simulation) strange() {
	t := s.tasks[s.rng.IntN(len(s.tasks))]
	if !t.live || t.book.Epoch == 0 || t.book.Over {
		return
	}
	worker, instance := s.any().name, t.book.Instance
	if worker == t.book.Worker {
		instance += ".earlier"
	}
	s.stats.strangers++
	if t.book.Valid(worker, instance, t.book.Epoch) == nil {
		s.fail("task %s: what %s tells as %s of the claim of %s counts", t.id, worker, instance, t.book.Worker)
	}
}

// resend asks a worker for output that is missing.
func (s *simulation) resend(w *simWork, missing int64) {
	s.store(w.worker, func() {
		if w.leased() && w.at > missing {
			w.at = max(0, missing)
		}
	})
}

// again begins a further attempt, if there is one.
func (s *simulation) again(t *simTask) {
	if t.more == 0 {
		s.finish(t, false)
		return
	}
	t.more--
	host := s.host
	s.after(simRetry, s.rate, func() {
		if s.host == host {
			s.place(t)
		}
	})
}

func (s *simulation) finish(t *simTask, completed bool) {
	t.ended++
	t.live, t.completed = false, completed
	s.stats.ends++
	if completed {
		s.stats.completed++
	}
	if completed && t.adopted {
		s.stats.carriedOn++
	}
	if t.ended > 1 {
		s.fail("task %s has %d ends", t.id, t.ended)
	}
}

// watch gives a worker up that does not renew its lease.
func (s *simulation) watch(t *simTask, epoch uint64, host int) {
	s.after(simTick, s.rate, func() {
		if s.host != host || t.ended > 0 || t.book.Epoch != epoch || t.book.Over {
			return
		}
		if s.clock(s.rate).Sub(t.given) > fleetwire.GiveUp(simLease) {
			s.stats.lostWorkers++
			t.book, t.lost = t.book.End(), epoch
			s.alone(t, nil, fmt.Sprintf("epoch %d is given up", epoch))
			s.again(t)
			return
		}
		s.watch(t, epoch, host)
	})
}

// check looks at what is left when nothing more happens.
func (s *simulation) check() {
	for _, t := range s.tasks {
		if t.ended != 1 {
			s.fail("task %s has %d ends, %d grants", t.id, t.ended, t.book.Epoch)
		}
		for i, a := range t.attempts {
			to := len(t.output)
			if i+1 < len(t.attempts) {
				to = t.attempts[i+1].from
			}
			for k, b := range t.output[a.from:to] {
				if b != content(a.epoch, int64(k)) {
					s.fail("task %s: byte %d of the output of epoch %d is %d", t.id, k, a.epoch, b)
					break
				}
			}
			if whole := int64(to-a.from) == simLength; t.completed && i+1 == len(t.attempts) && !whole {
				s.fail("task %s: epoch %d has %d bytes of output", t.id, a.epoch, to-a.from)
			}
		}
	}
}

// rates are how fast the clocks of a history may run, the smallest and the largest.
type rates struct{ session, worker [2]float64 }

func (s *simulation) between(r [2]float64) float64 { return r[0] + (r[1]-r[0])*s.rng.Float64() }

// play plays one history to its end.
func play(seed uint64, r rates) (s *simulation, steps int) {
	s = &simulation{rng: rand.New(rand.NewPCG(seed, 7)), up: true, faults: simFaults}
	s.rate = s.between(r.session)
	for i := range simCount {
		s.workers = append(s.workers, &simWorker{s: s, name: "w" + strconv.Itoa(i), rate: s.between(r.worker)})
	}
	for i := range simTasks {
		one := &simTask{id: "t" + strconv.Itoa(i)}
		switch one.inside = i%4 == 3; i % 3 {
		case 0:
			one.keep = true
		case 1:
			one.more = 4
		}
		s.tasks = append(s.tasks, one)
		s.after(s.upTo(10*time.Minute), 1, func() {
			one.started = true
			if !s.up {
				s.finish(one, false) // it died with its host before it was offered
				return
			}
			one.live = true
			s.place(one)
		})
	}
	s.disturb(2*time.Minute, s.killHub)
	s.disturb(10*time.Second, s.strange)
	s.disturb(2*time.Minute, func() { s.cutOff(s.any()) })
	s.disturb(4*time.Minute, func() { s.killWorker(s.any()) })
	if seed%2 == 0 { // every second history has hosts that die
		s.disturb(6*time.Minute, s.killHost)
	}
	for len(s.queue) > 0 && s.now < simEnd && s.broken == "" {
		e := heap.Pop(&s.queue).(event)
		s.now = e.at
		e.do()
		steps++
	}
	if s.broken == "" {
		s.check()
	}
	return s, steps
}

// even are clocks of which none is more than a fifth faster than another.
func even() rates { return rates{[2]float64{1 / simEven, simEven}, [2]float64{1 / simEven, simEven}} }

func simEvents(most int) int {
	if n, err := strconv.Atoi(os.Getenv("SIM_EVENTS")); err == nil {
		return n
	}
	return most
}

// No history gives a task two ends, two workers at once, an epoch that begins twice, a change by an old epoch, or
// output that is not what its attempts wrote, and every task ends once faults have stopped. SIM_EVENTS makes it longer.
func TestClaims(t *testing.T) {
	most := simEvents(1_000_000)
	var all simStats
	histories, began := 0, time.Now()
	for seed, steps := uint64(1), 0; steps < most; seed++ {
		s, n := play(seed, even())
		if s.broken != "" {
			t.Fatalf("seed %d: %s", seed, s.broken)
		}
		steps += n
		histories++
		all.add(s.stats)
	}
	t.Logf("%d histories in %s: %+v", histories, time.Since(began).Round(time.Millisecond), all)
	for what, n := range map[string]int{"grant given again": all.again, "second beginning": all.twice,
		"lost worker": all.lostWorkers, "adopted task that completed": all.carriedOn, "killed hub": all.hubs,
		"completed task": all.completed, "event of a stranger": all.strangers} {
		if n == 0 {
			t.Errorf("there was no %s: the histories try too little", what)
		}
	}
}

func (a *simStats) add(b simStats) {
	a.messages += b.messages
	a.refused += b.refused
	a.grants += b.grants
	a.again += b.again
	a.begun += b.begun
	a.twice += b.twice
	a.lostWorkers += b.lostWorkers
	a.hubs += b.hubs
	a.hosts += b.hosts
	a.adopted += b.adopted
	a.ends += b.ends
	a.completed += b.completed
	a.carriedOn += b.carriedOn
	a.strangers += b.strangers
}

// The lease allows that the session's clock is a fifth faster than the worker's, and not more: see [fleetwire.GiveUp].
func TestDrift(t *testing.T) {
	for _, c := range []struct {
		name            string
		session, worker float64
		holds           bool
	}{
		{"session 1.2 times as fast", 1.2, 1, true},
		{"session 9 percent fast, worker 9 percent slow", 1.09, 0.91, true},
		{"session 10 percent fast, worker 10 percent slow", 1.1, 0.9, false},
		{"session 1.3 times as fast", 1.3, 1, false},
		{"worker 1.3 times as fast", 1, 1.3, true},
		{"session twice as slow", 0.5, 1, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			most := simEvents(300_000) / 4
			if !c.holds {
				most = math.MaxInt // until it is seen
			}
			for seed, steps := uint64(1), 0; steps < most; seed++ {
				s, n := play(seed, rates{[2]float64{c.session, c.session}, [2]float64{c.worker, c.worker}})
				steps += n
				switch {
				case s.broken != "" && c.holds:
					t.Fatalf("seed %d: %s", seed, s.broken)
				case s.broken != "":
					t.Logf("seed %d: %s", seed, s.broken)
					return
				}
			}
		})
	}
}
