package journal

import (
	"cmp"
	"slices"

	"github.com/drover-dev/drover/task"
)

// Limits of the events in memory for readers that keep up. There may be twice as many, since
// removing some costs a copy of the others.
const (
	recentEvents = 2048
	recentBytes  = 8 << 20 // encoded size
)

// recent has the newest events by number, without a gap.
type recent struct {
	events []task.Event
	sizes  []int // size in the file
	bytes  int   // total size
}

func (r *recent) add(e task.Event, size int) {
	r.events, r.sizes, r.bytes = append(r.events, e), append(r.sizes, size), r.bytes+size
	if len(r.events) <= 2*recentEvents && r.bytes <= recentBytes {
		return
	}
	n := 0
	for len(r.events)-n > recentEvents || r.bytes > recentBytes/2 {
		r.bytes -= r.sizes[n]
		n++
	}
	r.events, r.sizes = slices.Delete(r.events, 0, n), slices.Delete(r.sizes, 0, n) // readers have copies
}

// since returns a page of the events after a number. ok is false if some of them are no longer
// in memory.
func (r *recent) since(after task.Seq) (page []task.Event, ok bool) {
	if len(r.events) == 0 || after < r.events[0].Seq-1 {
		return nil, false
	}
	from, _ := slices.BinarySearchFunc(
		r.events,
		after+1,
		func(e task.Event, seq task.Seq) int { return cmp.Compare(e.Seq, seq) },
	)
	to, bytes := from, 0
	for to < min(len(r.events), from+pageEvents) && (to == from || bytes+r.sizes[to] <= eventBytes) {
		bytes += r.sizes[to]
		to++
	}
	return slices.Clone(r.events[from:to]), true
}
