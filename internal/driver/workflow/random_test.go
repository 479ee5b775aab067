package workflow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/test/tasktest"
)

// drawn is a random workflow.
type drawn struct {
	text  string
	needs map[string][]string
	fails map[string]int // tries of a step that fail
	max   map[string]int // retries that it has
	on    map[string]bool
	alway map[string]bool
}

func draw(t *rapid.T) drawn {
	d := drawn{needs: map[string][]string{}, fails: map[string]int{}, max: map[string]int{}, on: map[string]bool{}, alway: map[string]bool{}}
	var b strings.Builder
	fmt.Fprintf(&b, "parallel: %d\nsteps:\n", rapid.IntRange(1, 4).Draw(t, "parallel"))
	n := rapid.IntRange(1, 8).Draw(t, "steps")
	for i := range n {
		id := fmt.Sprintf("s%d", i)
		for j := range i {
			if rapid.IntRange(0, 2).Draw(t, "edge") == 0 {
				d.needs[id] = append(d.needs[id], fmt.Sprintf("s%d", j))
			}
		}
		d.max[id] = rapid.IntRange(0, 2).Draw(t, "retries")
		d.fails[id] = max(0, rapid.IntRange(-4, 3).Draw(t, "failures"))
		d.on[id] = rapid.IntRange(0, 3).Draw(t, "continue") == 0
		d.alway[id] = len(d.needs[id]) > 0 && rapid.IntRange(0, 5).Draw(t, "always") == 0
		fmt.Fprintf(&b, "  - {id: %s, needs: [%s], shell: fail %d, retries: %d, continue_on_error: %v", id, strings.Join(d.needs[id], ", "), d.fails[id], d.max[id], d.on[id])
		if d.alway[id] {
			b.WriteString(", if: always()")
		}
		b.WriteString("}\n")
	}
	d.text = b.String()
	return d
}

// Random graphs, whose host dies at any place any number of times: in the end no step
// was completed twice, each came after what it needs, and nothing is left undone that
// was to be done.
func TestRandom(t *testing.T) {
	outer := t
	rapid.Check(t, func(t *rapid.T) {
		d := draw(t)
		crashes := rapid.SliceOfN(rapid.IntRange(1, 12), 0, 4).Draw(t, "crashes")
		w := newWorld()
		h := tasktest.NewHost(outer, task.LocalWorkflow, input(outer, plan(outer, d.text), nil))
		for _, n := range crashes {
			ctx, end := context.WithCancelCause(context.Background())
			h.LoseAfter(n, func() { end(errors.New("the host died")) })
			g := w.on(ctx, h)
			lost := ctx.Err() != nil
			end(nil)
			if !lost {
				d.judge(t, g, w, len(crashes) > 0)
				return
			}
			if len(h.Record().Checkpoint) == 0 {
				h = tasktest.NewHost(outer, task.LocalWorkflow, input(outer, plan(outer, d.text), nil))
				continue
			}
			h = h.Again(json.RawMessage(`{"resume":true}`))
		}
		d.judge(t, w.on(context.Background(), h), w, len(crashes) > 0)
	})
}

func (d drawn) judge(t *rapid.T, g went, w *world, crashed bool) {
	steps := map[string]task.Step{}
	for _, s := range g.h.Record().Progress.Steps {
		steps[s.ID] = s
	}
	well := map[string]task.Record{}
	for _, r := range g.h.Children() {
		id, _, _ := strings.Cut(r.Key, "/")
		if r.Status != task.Completed {
			continue
		}
		if _, twice := well[id]; twice {
			t.Fatalf("step %s was completed twice\n%s", id, d.text)
		}
		well[id] = r
	}
	failed := ""
	for id, s := range steps {
		forgotten := crashed && g.err != nil && s.Status != task.StepPending // it ended before a crash, and nobody came to ask for it again
		if _, ran := well[id]; ran != (s.Status == task.StepCompleted) && !(ran && forgotten) {
			t.Fatalf("step %s is %s, its tasks say otherwise\n%s", id, s.Status, d.text)
		}
		if s.Status == task.StepFailed && !d.on[id] {
			failed = id
			if d.fails[id] <= d.max[id] {
				t.Fatalf("step %s has failed, though it had %d retries for %d failures\n%s", id, d.max[id], d.fails[id], d.text)
			}
		}
		for _, need := range d.needs[id] {
			switch before := steps[need]; {
			case before.Status == task.StepPending || before.Status == task.StepRunning:
				t.Fatalf("the run has ended and step %s is %s", need, before.Status)
			case s.Status == task.StepCompleted && before.Status != task.StepCompleted && !d.on[need] && !d.alway[id]:
				t.Fatalf("step %s was done, and %s before it is %s\n%s", id, need, before.Status, d.text)
			case s.Status == task.StepCompleted && before.Status == task.StepCompleted && well[id].StartTime.Before(*well[need].EndTime):
				t.Fatalf("step %s began before %s had ended\n%s", id, need, d.text)
			}
		}
		if !crashed && s.Status == task.StepCompleted && w.fails[id] != d.fails[id]+1 {
			t.Fatalf("step %s was tried %d times, want %d\n%s", id, w.fails[id], d.fails[id]+1, d.text)
		}
	}
	if (failed == "") != (g.err == nil) {
		t.Fatalf("failed step %q, the run ended with %v: %s\n%s", failed, g.err, g.statuses(), d.text)
	}
	if failed == "" {
		for id, s := range steps {
			if s.Status != task.StepCompleted && !(s.Status == task.StepFailed && d.on[id]) {
				t.Fatalf("the run went well, and step %s is %s\n%s", id, s.Status, d.text)
			}
		}
	}
}
