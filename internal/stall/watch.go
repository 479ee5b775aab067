package stall

import "time"

// Watch follows how the output of one run grows. The zero Watch has seen nothing.
type Watch struct {
	size  int64
	since time.Time // when it was last seen to have grown, or looked at
	done  bool
}

// Quiet reports whether the end of the output has to be read: it has not grown
// for so long, and the watch is not over. Until it grows the next look is as long
// away.
func (w *Watch) Quiet(now time.Time, size int64, after time.Duration) bool {
	if w.since.IsZero() || size != w.size {
		w.size, w.since = size, now
		return false
	}
	if w.done || now.Sub(w.since) < after {
		return false
	}
	w.since = now
	return true
}

// Over ends the watch: of one run a question is told once.
func (w *Watch) Over() { w.done = true }
