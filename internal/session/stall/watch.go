package stall

import "time"

// Watch follows how the output of one run grows. The zero Watch has seen nothing.
type Watch struct {
	size  int64
	since time.Time // when it was last seen to have grown, or looked at
	seen  time.Time // when it was last looked at
	reads int       // how often in a row, since it has grown, it was seen to read its terminal
	done  bool
}

// leastGap is how long nobody need have looked for that time not to count, however
// short a quiet time is.
const leastGap = 5 * time.Second

// Quiet reports whether the end of the output has to be read: it has not grown
// for so long, and the watch is not over. Until it grows the next look is as long
// away.
//
// Where nobody has looked for all of that time it does not count: the machine
// slept, or everything stood still.
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

// Skip says that the command stands still: the quiet begins anew when it goes on.
func (w *Watch) Skip() { w.since, w.reads = time.Time{}, 0 }

// Saw tells whether the command was seen, at the latest look, to read its terminal.
func (w *Watch) Saw(reads bool) {
	if w.reads++; !reads {
		w.reads = 0
	}
}

// Reads reports whether the command was seen to read its terminal at each look
// since its output has grown, and more than once.
func (w *Watch) Reads() bool { return w.reads > 1 }

// Over ends the watch: of one run a question is told once.
func (w *Watch) Over() { w.done = true }

// Told reports whether the watch is over.
func (w *Watch) Told() bool { return w.done }
