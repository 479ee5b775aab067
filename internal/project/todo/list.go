package todo

import (
	"fmt"
	"slices"
	"strings"
)

// List is all that a list held at one moment.
type List struct {
	Items    []Item // in the order of their numbers
	Problems []Problem
}

// Problem is a file that cannot be read, or to-dos that wait in a circle.
type Problem struct {
	ID   ID     // 0 if it is not about one
	File string // empty for a circle
	Why  string
}

func (p Problem) String() string {
	if p.File == "" {
		return p.Why
	}
	return fmt.Sprintf("to-do file %s cannot be used: %s", p.File, p.Why)
}

// Circle is the error for to-dos that would wait for each other.
type Circle struct {
	IDs []ID // each waits for the next, the last for the first
}

func (c *Circle) Error() string {
	const shown = 8
	names := make([]string, 0, shown+2)
	for i, id := range c.IDs {
		if i == shown {
			names = append(names, fmt.Sprintf("%d more", len(c.IDs)-shown))
			break
		}
		names = append(names, id.String())
	}
	names = append(names, c.IDs[0].String())
	return "to-dos would wait for each other in a circle: " + strings.Join(names, " waits for ")
}

// Get returns a to-do.
func (l List) Get(id ID) (Item, bool) {
	i, ok := slices.BinarySearchFunc(l.Items, id, func(it Item, id ID) int { return int(it.ID - id) })
	if !ok {
		return Item{}, false
	}
	return l.Items[i], true
}

// Blocks returns what waits for a to-do.
func (l List) Blocks(id ID) []ID {
	out := []ID{}
	for _, it := range l.Items {
		if _, ok := slices.BinarySearch(it.BlockedBy, id); ok {
			out = append(out, it.ID)
		}
	}
	return out
}

// Waits returns the to-dos that a to-do still waits for: the open ones and the
// unreadable ones.
func (l List) Waits(it Item) []ID {
	out := []ID{}
	for _, id := range it.BlockedBy {
		if other, ok := l.Get(id); !ok || other.Status != Completed {
			out = append(out, id)
		}
	}
	return out
}

// Ready returns what can be begun: the pending to-dos that wait for nothing.
func (l List) Ready() []Item {
	out := []Item{}
	for _, it := range l.Items {
		if it.Status == Pending && len(l.Waits(it)) == 0 {
			out = append(out, it)
		}
	}
	return out
}

// settle sorts the to-dos, drops edges to deleted ones, and reports a circle that
// somebody has written by hand.
func (l *List) settle() {
	slices.SortFunc(l.Items, func(a, b Item) int { return int(a.ID - b.ID) })
	slices.SortFunc(l.Problems, func(a, b Problem) int { return strings.Compare(a.File, b.File) })
	there := make(map[ID]bool, len(l.Items))
	edges := make(map[ID][]ID, len(l.Items))
	for _, it := range l.Items {
		there[it.ID] = true
	}
	for _, p := range l.Problems {
		there[p.ID] = true
	}
	for i := range l.Items {
		it := &l.Items[i]
		it.BlockedBy = slices.DeleteFunc(sorted(it.BlockedBy), func(id ID) bool { return !there[id] })
		edges[it.ID] = it.BlockedBy
	}
	if circle := findCircle(edges); circle != nil {
		l.Problems = append(l.Problems, Problem{Why: (&Circle{circle}).Error() + " (take one edge away)"})
	}
}

// findCircle returns to-dos of which each waits for the next and the last for
// the first, or nil. It repeatedly removes to-dos that wait for nothing; from the
// remaining ones every path leads into a circle. Its time grows with the to-dos
// and their edges.
func findCircle(waits map[ID][]ID) []ID {
	open := make(map[ID]int, len(waits))
	blocks := make(map[ID][]ID, len(waits))
	var free []ID
	for id, on := range waits {
		for _, other := range on {
			if _, known := waits[other]; known {
				open[id]++
				blocks[other] = append(blocks[other], id)
			}
		}
		if open[id] == 0 {
			free = append(free, id)
		}
	}
	for len(free) > 0 {
		id := free[len(free)-1]
		free = free[:len(free)-1]
		for _, other := range blocks[id] {
			if open[other]--; open[other] == 0 {
				free = append(free, other)
			}
		}
	}
	left := ID(0)
	for id, n := range open {
		if n > 0 && (left == 0 || id < left) {
			left = id
		}
	}
	if left == 0 {
		return nil
	}
	at := map[ID]int{}
	var way []ID
	for id := left; ; {
		if i, been := at[id]; been {
			return way[i:]
		}
		at[id] = len(way)
		way = append(way, id)
		id = waits[id][slices.IndexFunc(waits[id], func(other ID) bool { return open[other] > 0 })]
	}
}
