package todo

import (
	"slices"
	"strings"
)

// Graph is which to-do waits for which.
type Graph struct {
	Nodes []Item `json:"nodes"`
	Edges []Edge `json:"edges"`
}

// Edge is one wait: To waits for From.
type Edge struct {
	From ID `json:"from"`
	To   ID `json:"to"`
}

// Graph returns the list as a graph.
func (l List) Graph() Graph {
	g := Graph{Nodes: append([]Item{}, l.Items...), Edges: []Edge{}}
	for _, it := range l.Items {
		for _, id := range it.BlockedBy {
			g.Edges = append(g.Edges, Edge{From: id, To: it.ID})
		}
	}
	return g
}

// maxIndent bounds how deep a tree is drawn, so that a long chain stays short.
const maxIndent = 20

// Tree draws the list: below each to-do the to-dos that wait for it. A to-do that waits
// for several appears below each of them, with its own subtree only the first time. line
// makes the text of one. The time grows with the to-dos and their edges.
func (l List) Tree(line func(it Item, again bool) string) string {
	below := make(map[ID][]Item, len(l.Items))
	for _, it := range l.Items {
		for _, id := range it.BlockedBy {
			below[id] = append(below[id], it)
		}
	}
	type place struct {
		it    Item
		depth int
	}
	var b strings.Builder
	drawn := make(map[ID]bool, len(l.Items))
	draw := func(top Item) {
		for stack := []place{{top, 0}}; len(stack) > 0; {
			p := stack[len(stack)-1]
			stack = stack[:len(stack)-1]
			again := drawn[p.it.ID]
			drawn[p.it.ID] = true
			b.WriteString(strings.Repeat("  ", min(p.depth, maxIndent)) + line(p.it, again) + "\n")
			if again {
				continue
			}
			for _, child := range slices.Backward(below[p.it.ID]) {
				stack = append(stack, place{child, p.depth + 1})
			}
		}
	}
	for _, it := range l.Items {
		if !slices.ContainsFunc(it.BlockedBy, func(id ID) bool { _, ok := l.Get(id); return ok }) {
			draw(it)
		}
	}
	for _, it := range l.Items { // the to-dos of a circle
		if !drawn[it.ID] {
			draw(it)
		}
	}
	return b.String()
}
