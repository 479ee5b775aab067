// Package sim plays random histories of a session with crashes in them.
//
// The supervisor, the journal on its SQLite file and the mailbox are the real ones;
// only the work of a task is played. A seed makes a history: tasks that start, end, ask,
// are stopped, held and left to others, messages, readers that remember how far they have
// read, and crashes, after which a copy of the files is opened as a kill -9 would have
// left them. What was acknowledged must be there, once; all that is there must be what
// somebody wrote. docs/reliability.md has the whole of it. `make sim` plays a million
// events; `go test ./sim` some thousand.
package sim

import (
	"cmp"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// What a run is asked for. SIM_EVENTS: so many in all; SIM_SEED: this history only, and
// with SIM_STEPS only these of its steps, such as 1-40,77.
const (
	eventsVariable = "SIM_EVENTS"
	seedVariable   = "SIM_SEED"
	stepsVariable  = "SIM_STEPS"
)

const (
	shortEvents   = 4_000 // and messages, of a run that nobody has asked for more
	historyEvents = 2_000 // of one history
	patience      = 60 * time.Second
	shrinkTime    = 2 * time.Minute // for making a history that failed smaller
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(powerVariable); dir != "" {
		powerChild(dir)
		return
	}
	goleak.VerifyTestMain(m)
}

// number is what a variable says, or what holds without it.
func number(t *testing.T, name string, usual int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return usual
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s=%q is no number above 0", name, text)
	}
	return n
}

// TestSim plays so many histories that as many events and messages were written as are
// wanted.
func TestSim(t *testing.T) {
	if seed := number(t, seedVariable, 0); seed > 0 {
		p := plan{seed: uint64(seed)}
		if text := os.Getenv(stepsVariable); text != "" {
			var err error
			if p.steps, err = ranges(text); err != nil {
				t.Fatal(err)
			}
		}
		got := p.play(t.TempDir())
		t.Log(got.tally)
		if got.err != nil {
			t.Fatalf("%v\n%s", got.err, strings.Join(got.script, "\n"))
		}
		return
	}
	want := number(t, eventsVariable, shortEvents)
	begun := time.Now()
	sum, failed := playAll(t, want)
	t.Logf("%s, seeds 1 to %d, in %s: %.0f events/s", sum, sum.histories, time.Since(begun).Round(time.Millisecond),
		float64(sum.events)/time.Since(begun).Seconds())
	if failed != nil {
		small := failed.smallest(t)
		t.Fatalf("%v\n%s\nagain: make sim SEED=%d STEPS=%s", small.err, strings.Join(small.script, "\n"), small.seed, written(small.steps))
	}
	if sum.crashes < sum.events/1000 || want > shortEvents && (sum.repeats == 0 || sum.torn == 0) { // the short form has few
		t.Errorf("too little was broken: %s", sum)
	}
}

// playAll plays histories side by side, from seed 1 on, and returns at the first that
// fails.
func playAll(t *testing.T, want int) (sum tally, failed *played) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	next := uint64(0)
	for range min(runtime.GOMAXPROCS(0), 4) {
		wg.Go(func() {
			for {
				mu.Lock()
				if failed != nil || int(next)*historyEvents >= want {
					mu.Unlock()
					return
				}
				next++
				p := plan{seed: next}
				mu.Unlock()
				got := p.play(t.TempDir())
				mu.Lock()
				sum = sum.and(got.tally)
				if got.err != nil && (failed == nil || got.seed < failed.seed) {
					failed = &got
				}
				if sum.histories%20 == 0 {
					t.Log(sum)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return sum, failed
}

// plan is one history: its seed, and which of its steps are done. Each step draws from
// the seed and its own number, so that what is left out does not change the others.
type plan struct {
	seed  uint64
	steps []int // nil: from 1 on, until there are enough events
}

// played is a history that was played.
type played struct {
	plan
	tally  tally
	err    error
	script []string // one line for each step, of a history that failed
}

// play plays a history in a folder.
func (p plan) play(dir string) (out played) {
	w := newWorld(p.seed, dir)
	out.plan = p
	defer func() {
		if v := recover(); v != nil {
			f, ok := v.(failure)
			if !ok {
				panic(v)
			}
			out.err = fmt.Errorf("seed %d, step %d: %s", p.seed, w.step, string(f))
		}
		out.tally, out.script = w.tally, w.script
		w.abandon()
	}()
	w.up(true)
	done := []int{}
	defer func() { out.steps = done }()
	for n := 1; p.steps == nil && w.ledger.written() < historyEvents || n <= len(p.steps); n++ {
		step := n
		if p.steps != nil {
			step = p.steps[n-1]
		}
		done = append(done, step)
		w.play(step)
	}
	w.ends()
	return out
}

// failure is what a history panics with: what is not as it should be.
type failure string

// smallest leaves steps out while the history still fails.
func (p *played) smallest(t *testing.T) played {
	t.Logf("%v\nagain: make sim SEED=%d\nsteps are left out while it fails…", p.err, p.seed)
	best, until := *p, time.Now().Add(shrinkTime)
	for size := len(best.steps) / 2; size > 0; size /= 2 {
		for from := 0; from < len(best.steps) && time.Now().Before(until); {
			fewer := slices.Delete(slices.Clone(best.steps), from, min(from+size, len(best.steps)))
			if got := (plan{p.seed, fewer}).play(t.TempDir()); got.err != nil {
				best = got
			} else {
				from += size
			}
		}
	}
	if again := (plan{p.seed, best.steps}).play(t.TempDir()); again.err != nil {
		return again
	}
	t.Log("the history does not fail each time: what follows may need several tries")
	return best
}

// written is numbers in the form 1-40,77.
func written(steps []int) string {
	var out []string
	for i := 0; i < len(steps); {
		j := i
		for j+1 < len(steps) && steps[j+1] == steps[j]+1 {
			j++
		}
		one := strconv.Itoa(steps[i])
		if j > i {
			one += "-" + strconv.Itoa(steps[j])
		}
		out, i = append(out, one), j+1
	}
	return strings.Join(out, ",")
}

// ranges reads what written has written.
func ranges(text string) (steps []int, err error) {
	for part := range strings.SplitSeq(text, ",") {
		first, last, several := strings.Cut(part, "-")
		from, err1 := strconv.Atoi(first)
		to := from
		var err2 error
		if several {
			to, err2 = strconv.Atoi(last)
		}
		if err := cmp.Or(err1, err2); err != nil {
			return nil, fmt.Errorf("steps %q: %w", text, err)
		}
		for n := from; n <= to; n++ {
			steps = append(steps, n)
		}
	}
	return steps, nil
}

func TestRanges(t *testing.T) {
	for _, text := range []string{"1", "1-3", "1-3,5,7-9"} {
		steps, err := ranges(text)
		if err != nil || written(steps) != text {
			t.Errorf("%q is read as %v, %v", text, steps, err)
		}
	}
	if _, err := ranges("1-x"); err == nil {
		t.Error("a word is taken for a number")
	}
}

// tally counts what a history had.
type tally struct {
	histories, steps, events, messages int
	runs, notifications                int
	crashes, torn, closes              int // of the crashes: in the midst of a commit
	repeats                            int // mail that came again because its acknowledgement was lost
}

func (a tally) and(b tally) tally {
	return tally{a.histories + b.histories, a.steps + b.steps, a.events + b.events, a.messages + b.messages, a.runs + b.runs, a.notifications + b.notifications,
		a.crashes + b.crashes, a.torn + b.torn, a.closes + b.closes, a.repeats + b.repeats}
}

func (a tally) String() string {
	return fmt.Sprintf("%d histories: %d events and %d messages, acknowledged or found behind a crash, in %d steps, %d runs, %d notifications read, %d crashes (%d within a commit), %d closes, %d mails came again",
		a.histories, a.events, a.messages, a.steps, a.runs, a.notifications, a.crashes, a.torn, a.closes, a.repeats)
}
