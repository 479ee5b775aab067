package placement

import (
	"container/heap"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"
)

// The claim protocol in virtual time: one session with tasks that may be tried again, workers that
// are killed, stand still and come back, and a network that loses, doubles, delays and reorders
// every message. The rules are those of [Book]; times and messages are played.
type simulation struct {
	t      *testing.T
	rng    *rand.Rand
	now    time.Duration
	queue  events
	seq    int
	tasks  []*simTask
	stats  struct{ messages, refused, grants, lostWorkers, ends int }
	length int64 // of the output of each task
}

const (
	simLease  = 30 * time.Second
	simRenew  = 5 * time.Second
	simGiveUp = simLease + simLease/5 // as [work.follow] counts
	simMost   = 90 * time.Second      // that a message travels: longer than any lease
)

// simTask is a task as its session has it.
type simTask struct {
	book    Book
	open    string // offer
	offers  int
	renewal time.Duration // when the last lease was given
	ended   int
	output  []byte
	works   []*simWork
}

// simWork is a claim as its worker has it.
type simWork struct {
	task     *simTask
	worker   string
	epoch    uint64
	deadline time.Duration // of its lease, by its own asking
	at       int64         // of its output that it has told
	done     bool          // it works no more
	silent   bool          // its worker is dead
}

func (w *simWork) works(now time.Duration) bool { return !w.done && !w.silent && now < w.deadline }

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
	*e = old[:len(old)-1]
	return x
}

func (s *simulation) after(d time.Duration, do func()) {
	s.seq++
	heap.Push(&s.queue, event{s.now + d, s.seq, do})
}

// send lets a message arrive never, once or more often, each time after a delay of its own.
func (s *simulation) send(do func()) {
	s.stats.messages++
	for n := []int{0, 0, 1, 1, 1, 1, 1, 1, 1, 2}[s.rng.IntN(10)]; n > 0; n-- {
		delay := time.Duration(s.rng.IntN(40)) * time.Millisecond
		if s.rng.IntN(50) == 0 {
			delay = time.Duration(s.rng.Int64N(int64(simMost)))
		}
		s.after(delay, do)
	}
}

// offer offers a task, again and again until somebody has claimed it.
func (s *simulation) offer(t *simTask) {
	t.offers++
	t.open = "offer-" + strconv.Itoa(t.offers)
	s.claimLater(t, t.open)
}

func (s *simulation) claimLater(t *simTask, offer string) {
	for range 1 + s.rng.IntN(2) { // a work queue may hand it out twice
		worker := "w" + strconv.Itoa(s.rng.IntN(3))
		s.after(time.Duration(s.rng.IntN(2000))*time.Millisecond, func() { s.claim(t, offer, worker) })
	}
	s.after(5*time.Second, func() {
		if t.open == offer {
			s.claimLater(t, offer)
		}
	})
}

func (s *simulation) claim(t *simTask, offer, worker string) {
	asked := s.now
	s.send(func() {
		b, fresh, err := t.book.Grant(t.open, offer, worker, worker)
		if err != nil {
			s.stats.refused++
			return
		}
		if fresh {
			s.stats.grants++
			for _, old := range t.works {
				if old.works(s.now) {
					s.t.Fatalf("epoch %d is granted while %s works on epoch %d", b.Epoch, old.worker, old.epoch)
				}
			}
			t.book, t.open, t.renewal = b, "", s.now
			t.output, t.book.Bytes = nil, 0 // an attempt begins its output anew
			s.watch(t, b.Epoch)
		}
		s.send(func() { s.granted(t, worker, b.Epoch, asked) })
	})
}

func (s *simulation) granted(t *simTask, worker string, epoch uint64, asked time.Duration) {
	for _, w := range t.works {
		if w.epoch == epoch && w.worker == worker {
			return // the answer came twice
		}
	}
	w := &simWork{task: t, worker: worker, epoch: epoch, deadline: asked + simLease}
	if !w.works(s.now) {
		return // it came too late to be of use
	}
	t.works = append(t.works, w)
	s.step(w)
	s.renewLater(w)
	if s.rng.IntN(3) == 0 {
		s.after(time.Duration(s.rng.Int64N(int64(2*time.Minute))), func() { w.silent = true })
	}
}

func (s *simulation) renewLater(w *simWork) {
	s.after(simRenew, func() {
		if !w.works(s.now) {
			return
		}
		asked := s.now
		s.send(func() {
			valid := w.task.book.Valid(w.worker, w.worker, w.epoch) == nil
			if valid {
				w.task.renewal = s.now
			}
			s.send(func() {
				if !valid {
					w.done = true
				} else if w.works(s.now) {
					w.deadline = max(w.deadline, asked+simLease)
				}
			})
		})
		s.renewLater(w)
	})
}

// step tells a piece of output, or the end behind the last one.
func (s *simulation) step(w *simWork) {
	s.after(time.Duration(s.rng.IntN(20_000))*time.Millisecond, func() {
		if !w.works(s.now) {
			return
		}
		if w.at < s.length {
			w.at = min(s.length, w.at+1+s.rng.Int64N(20))
		}
		s.tell(w, max(0, w.at-100), w.at, w.at == s.length)
		s.step(w)
	})
}

func (s *simulation) tell(w *simWork, from, to int64, end bool) {
	s.send(func() {
		t := w.task
		if t.book.Valid(w.worker, w.worker, w.epoch) != nil {
			s.stats.refused++
			return
		}
		data := make([]byte, to-from)
		for i := range data {
			data[i] = byte(from+int64(i)) + byte(31*w.epoch) // each attempt prints something else
		}
		part, next, gap := t.book.Take(0, from, data)
		if gap {
			missing := t.book.Bytes
			s.send(func() {
				if w.works(s.now) && w.at > missing {
					w.at = missing // told again from there
				}
			})
			return
		}
		t.book = next
		t.output = append(t.output, part...)
		if end && t.book.Bytes >= s.length {
			t.ended++
			s.stats.ends++
			t.book = t.book.End()
		}
	})
}

// watch gives a worker up that does not renew its lease, and offers the task again.
func (s *simulation) watch(t *simTask, epoch uint64) {
	s.after(time.Second, func() {
		if t.book.Epoch != epoch || t.book.Over {
			return
		}
		if s.now-t.renewal > simGiveUp {
			s.stats.lostWorkers++
			t.book = t.book.End()
			s.offer(t)
			return
		}
		s.watch(t, epoch)
	})
}

// No history of lost, doubled, late and reordered messages, dead workers and ended leases gives a task
// two ends, two workers at once, or output that is not what one of them wrote. SIM_EVENTS makes it longer.
func TestClaims(t *testing.T) {
	most := 200_000
	if n, err := strconv.Atoi(os.Getenv("SIM_EVENTS")); err == nil {
		most = n
	}
	for seed, steps := uint64(1), 0; steps < most; seed++ {
		s := &simulation{t: t, rng: rand.New(rand.NewPCG(seed, 7)), length: 300}
		for range 20 {
			one := &simTask{}
			s.tasks = append(s.tasks, one)
			s.offer(one)
		}
		for len(s.queue) > 0 && s.now < 3*time.Hour {
			e := heap.Pop(&s.queue).(event)
			s.now = e.at
			e.do()
			steps++
		}
		for i, one := range s.tasks {
			if one.ended != 1 {
				t.Fatalf("seed %d: task %d has %d ends after %s, %d grants", seed, i, one.ended, s.now, one.book.Epoch)
			}
			for k, b := range one.output {
				if b != byte(k)+byte(31*one.book.Epoch) {
					t.Fatalf("seed %d: byte %d of the output of task %d is %d", seed, k, i, b)
				}
			}
			if int64(len(one.output)) != s.length {
				t.Fatalf("seed %d: task %d has %d bytes of output", seed, i, len(one.output))
			}
		}
		if seed == 1 {
			t.Logf("seed 1: %+v in %s", s.stats, s.now)
		}
	}
}
