package journal

import (
	"cmp"
	"slices"

	"github.com/drover-dev/drover/task"
)

// What is kept in memory for readers that keep up. There may be twice as many events, since to let
// go of some costs a copy of the others.
const (
	recentEvents = 2048
	recentBytes  = 8 << 20 // as they are written
)

// recent is the newest events, without a gap, by number.
type recent struct {
	events []task.Event
	sizes  []int // in the file
	bytes  int   // the sum
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

// since returns a page of the events after a number. It is not ok if some of them are gone.
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
