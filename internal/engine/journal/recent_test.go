package journal

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/drover-dev/drover/task"
)

// Whoever asks has the events after a number in order and without a gap, or is told that some are gone.
// However many there are, and however long, few are held.
func TestRecent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r recent
		var seqs []task.Seq
		var written []int
		sizes := rapid.SampledFrom([]int{100, 1000, recentBytes / 100, recentBytes/2 + 1, recentBytes + 1})
		for n := range rapid.IntRange(0, 5*recentEvents).Draw(t, "events") {
			size := 1000
			if n%50 == 0 {
				size = sizes.Draw(t, "size")
			}
			seqs, written = append(seqs, task.Seq(n*2+1)), append(written, size) // messages have the other numbers
			r.add(task.Event{Seq: seqs[n]}, size)
			if held := 0; len(r.events) > 2*recentEvents || r.bytes > recentBytes {
				for _, size := range r.sizes {
					held += size
				}
				t.Fatalf("%d events are held, %d bytes of %d", len(r.events), r.bytes, held)
			}
		}
		if len(seqs) == 0 {
			return
		}
		at := rapid.IntRange(0, len(seqs)-1).Draw(t, "at")
		page, ok := r.since(seqs[at])
		first := len(seqs) - len(r.events)
		if ok != (len(r.events) > 0 && at >= first) {
			t.Fatalf("after %d of %d, of which %d are held: %v", at, len(seqs), len(r.events), ok)
		}
		fits, bytes := 0, 0
		for _, size := range written[at+1:] {
			if bytes += size; fits == pageEvents || fits > 0 && bytes > eventBytes {
				break
			}
			fits++
		}
		if ok && len(page) != fits {
			t.Fatalf("%d events of %d, where %d fit into a page", len(page), len(seqs)-at-1, fits)
		}
		for i, e := range page {
			if e.Seq != seqs[at+1+i] {
				t.Fatalf("%d, not %d", e.Seq, seqs[at+1+i])
			}
		}
	})
}

// However many events come, and however small, the oldest are let go of.
func TestRecentIsTrimmed(t *testing.T) {
	var r recent
	for n := range 5 * recentEvents {
		r.add(task.Event{Seq: task.Seq(n + 1)}, 1)
	}
	if n := len(r.events); n > 2*recentEvents || n < recentEvents || r.bytes != n || r.events[n-1].Seq != 5*recentEvents {
		t.Errorf("%d events are held, of %d bytes", n, r.bytes)
	}
}
