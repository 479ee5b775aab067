package stall

import "time"

// Watch follows the growth of the output of one run. The zero Watch has seen nothing.
type Watch struct {
	size  int64
	since time.Time // when it was last seen to grow, or was checked
	seen  time.Time // when it was last observed
	reads int       // how many times in a row, since it has grown, it was seen to read its terminal
	done  bool
}

// leastGap is the minimum gap between two observations that does not count as quiet time,
// however short the quiet time is.
const leastGap = 5 * time.Second

// Quiet reports whether the end of the output must be read: it has not grown for a given time,
// and the watch is not over. Until it grows the next check follows after the same time.
//
// A gap without observations does not count: the machine slept, or the host was suspended.
func (w *Watch) Quiet(now time.Time, size int64, after time.Duration) bool {
	slept := now.Sub(w.seen) >= max(after, leastGap)
	w.seen = now
	if w.since.IsZero() || size != w.size || slept {
		w.size, w.since, w.reads = size, now, 0
		return false
	}
	if w.done || now.Sub(w.since) < after {
		return false
	}
	w.since = now
	return true
}

// Skip is called while the command is paused: the quiet time begins again when it is resumed.
func (w *Watch) Skip() { w.since, w.reads = time.Time{}, 0 }

// Saw records whether the command was seen, at the latest check, to read its terminal.
func (w *Watch) Saw(reads bool) {
	if w.reads++; !reads {
		w.reads = 0
	}
}

// Reads reports whether the command was seen to read its terminal at each check since its
// output has grown, and more than once.
func (w *Watch) Reads() bool { return w.reads > 1 }

// Over ends the watch: a question is reported once for a run.
func (w *Watch) Over() { w.done = true }

// Reported reports whether the watch is over.
func (w *Watch) Reported() bool { return w.done }
