package web

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/drover-dev/drover/task"
)

// TestLaid gives each node of any graph a place of its own, to the right of all that it waits for
// unless it waits for itself.
func TestLaid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 30).Draw(t, "nodes")
		nodes := make([]node, n)
		for i := range nodes {
			nodes[i].ID = fmt.Sprint(i)
			// Those before it: no circle.
			for _, j := range rapid.SliceOfNDistinct(rapid.IntRange(0, max(i-1, 0)), 0, min(i, 3), rapid.ID).Draw(t, "after") {
				nodes[i].After = append(nodes[i].After, fmt.Sprint(j), "nobody")
			}
		}
		circle := n > 2 && rapid.Bool().Draw(t, "circle")
		if circle {
			nodes[0].After = append(nodes[0].After, "1")
			nodes[1].After = append(nodes[1].After, "0")
		}
		g := laid("x", nodes)
		if len(g.Nodes) != n {
			t.Fatalf("%d of %d nodes have a place", len(g.Nodes), n)
		}
		seen := map[[2]int]bool{}
		for i, p := range g.Nodes {
			at := [2]int{p.X, p.Y}
			if seen[at] || p.X < 0 || p.Y < 0 || p.X+nodeWidth > g.Width || p.Y+nodeHeight > g.Height {
				t.Fatalf("node %d is at %v of %d × %d", i, at, g.Width, g.Height)
			}
			seen[at] = true
			for _, id := range nodes[i].After {
				j := slices.IndexFunc(nodes, func(n node) bool { return n.ID == id })
				if j >= 0 && !circle && g.Nodes[j].X >= p.X {
					t.Fatalf("node %d is not to the right of node %d", i, j)
				}
			}
		}
	})
}

// TestSteps draws the steps of a workflow on its page, with links to their tasks.
func TestSteps(t *testing.T) {
	v, err := newViews()
	if err != nil {
		t.Fatal(err)
	}
	html := v.head(task.Record{ID: "w1", Session: "s1", Kind: task.LocalWorkflow, Status: task.Running,
		Progress: &task.Progress{Steps: []task.Step{
			{ID: "build", Status: task.StepCompleted, Task: "b1"},
			{ID: "<i>test", Status: task.StepFailed, Task: "b2", Needs: []string{"build"}, Attempt: 2, Error: "exit <b>1"},
		}}}, time.Unix(9, 0))
	for _, want := range []string{`href="/task/s1/b2"`, "&lt;i&gt;test", "failed, attempt 2", "exit &lt;b&gt;1", "<path d=\"M"} {
		if !strings.Contains(html, want) {
			t.Errorf("it lacks %q: %s", want, html)
		}
	}
	if strings.Contains(html, "cannot be shown") || strings.Contains(html, "<i>") || strings.Contains(html, "<b>") {
		t.Error(html)
	}
	if many := laid("x", make([]node, 3000)); len(many.Nodes) != mostNodes || many.Left != 3000-mostNodes {
		t.Errorf("%d nodes are drawn, and %d left out", len(many.Nodes), many.Left)
	}
}

// TestBudget shows what a task and all below it may use.
func TestBudget(t *testing.T) {
	v, err := newViews()
	if err != nil {
		t.Fatal(err)
	}
	r := task.Record{ID: "a1", Session: "s1", Kind: task.LocalAgent, Status: task.Running,
		Budget: task.Budget{USD: 2.5, Tokens: 300_000, WallMS: 90_000}}
	for _, html := range []string{v.task(r, time.Unix(9, 0)), v.head(r, time.Unix(9, 0))} {
		if !strings.Contains(html, "$2.50, 300k tokens, 1m30s") {
			t.Error(html)
		}
	}
}
