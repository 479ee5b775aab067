package web

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/drover-dev/drover/task"
)

// The measures of a graph, in pixels.
const (
	nodeWidth, nodeHeight = 180, 44
	nodeAside, nodeBelow  = 44, 14 // distance of two nodes
	mostNodes             = 400    // in the drawing
	mostLabel             = 22     // characters in a node
)

// node is a node of a graph. It waits for the nodes in After; unknown names are ignored.
type node struct {
	ID, Title, State string
	Class            string // of its state
	Href             string // the page of its task; empty: none
	Note             string
	After            []string
}

// graph is nodes and their places. Each is to the right of all nodes that it waits for.
type graph struct {
	Title         string
	Width, Height int
	Nodes         []placed
	Lines         []string // the paths of the lines between them
	Left          int      // number of nodes beyond mostNodes
}

type placed struct {
	node
	Label         string
	X, Y          int
	TextX, StateY int
	TitleY        int
}

// laid gives nodes their places. The nodes of a cycle share the last column.
func laid(title string, nodes []node) graph {
	g := graph{Title: title}
	if len(nodes) > mostNodes {
		g.Left = len(nodes) - mostNodes
		nodes = nodes[:mostNodes]
	}
	at := map[string]int{}
	for i, n := range nodes {
		at[n.ID] = i
	}
	after := make([][]int, len(nodes))
	for i, n := range nodes {
		for _, id := range n.After {
			if j, ok := at[id]; ok && j != i {
				after[i] = append(after[i], j)
			}
		}
	}
	columns := columnsOf(after)
	rows := make([]float64, len(nodes)) // of each node in its column
	out := make([]placed, len(nodes))
	for x, column := range columns {
		// A node is near the height of the nodes that it waits for.
		slices.SortStableFunc(column, func(i, j int) int {
			return cmp.Compare(middle(after[i], rows), middle(after[j], rows))
		})
		for y, i := range column {
			rows[i] = float64(y)
			left, top := x*(nodeWidth+nodeAside)+1, y*(nodeHeight+nodeBelow)+1
			out[i] = placed{node: nodes[i], Label: line(nodes[i].Title, mostLabel), X: left, Y: top,
				TextX: left + 8, TitleY: top + 18, StateY: top + 35}
			g.Height = max(g.Height, top+nodeHeight+1)
		}
		g.Width = (x+1)*(nodeWidth+nodeAside) - nodeAside + 2
	}
	for i, list := range after {
		for _, j := range list {
			from, to := out[j], out[i]
			x, y, toY := from.X+nodeWidth, from.Y+nodeHeight/2, to.Y+nodeHeight/2
			bend := (to.X - x) / 2
			g.Lines = append(g.Lines, fmt.Sprintf("M%d %dC%d %d %d %d %d %d", x, y, x+bend, y, to.X-bend, toY, to.X, toY))
		}
	}
	g.Nodes = out
	return g
}

// columnsOf puts each node into the column after the last node that it waits for.
func columnsOf(after [][]int) (columns [][]int) {
	waits := make([]int, len(after))
	before := make([][]int, len(after))
	for i, list := range after {
		waits[i] = len(list)
		for _, j := range list {
			before[j] = append(before[j], i)
		}
	}
	var now []int
	for i, n := range waits {
		if n == 0 {
			now = append(now, i)
		}
	}
	seen := 0
	for len(now) > 0 {
		seen += len(now)
		columns = append(columns, now)
		var next []int
		for _, i := range now {
			for _, j := range before[i] {
				if waits[j]--; waits[j] == 0 {
					next = append(next, j)
				}
			}
		}
		now = next
	}
	if seen < len(after) { // the rest are cycles
		var rest []int
		for i, n := range waits {
			if n > 0 {
				rest = append(rest, i)
			}
		}
		columns = append(columns, rest)
	}
	return columns
}

// middle is the mean row of nodes.
func middle(nodes []int, rows []float64) float64 {
	sum := 0.0
	for _, i := range nodes {
		sum += rows[i]
	}
	return sum / float64(max(len(nodes), 1))
}

// stepsOf returns the steps of a workflow as a graph; nil: the task has none.
func stepsOf(r task.Record) *graph {
	if r.Progress == nil || len(r.Progress.Steps) == 0 {
		return nil
	}
	var nodes []node
	for _, s := range r.Progress.Steps {
		n := node{ID: s.ID, Title: line(s.ID, 80), State: string(s.Status), Class: string(s.Status), After: s.Needs,
			Note: line(s.Error, 200)}
		if s.Task != "" {
			n.Href = href("task", r.Session, s.Task)
		}
		if s.Attempt > 1 {
			n.State += fmt.Sprintf(", attempt %d", s.Attempt)
		}
		nodes = append(nodes, n)
	}
	g := laid("Steps", nodes)
	return &g
}
