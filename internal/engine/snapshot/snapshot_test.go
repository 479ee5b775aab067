package snapshot

import (
	"fmt"
	"iter"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/drover-dev/drover/internal/engine/journal"
	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/internal/engine/supervise"
	"github.com/drover-dev/drover/task"
)

// What is read at the opening and what the summary stands for are all tasks, each
// once and as it is; read is what lives, what has changed since, the newest, what
// any of these is below, and the steps of what is at work.
func TestPast(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all []journal.State
		byID := map[task.ID]int{}
		for n := range rapid.IntRange(0, 2*MinInMemory).Draw(t, "tasks") {
			r := task.Record{ID: task.ID(fmt.Sprintf("b%08d", n)), Status: task.Completed}
			if n > 0 && rapid.IntRange(0, 3).Draw(t, "below") == 0 {
				r.Parent = all[rapid.IntRange(0, n-1).Draw(t, "parent")].Task.ID
				if rapid.Bool().Draw(t, "keyed") {
					r.Key = fmt.Sprint(n)
				}
			}
			if rapid.IntRange(0, 9).Draw(t, "lives") == 0 {
				r.Status = task.Running
			}
			byID[r.ID] = n
			all = append(all, journal.State{Born: task.Seq(n + 1), Task: r})
		}
		var ended []supervise.Ended
		var live []task.ID
		var changed []journal.State
		for _, st := range all {
			was, there := st.Task.Status, true
			switch rapid.IntRange(0, 9).Draw(t, "since") {
			case 0:
				changed = append(changed, st)
				was = rapid.SampledFrom([]task.Status{task.Running, task.Completed}).Draw(t, "was")
			case 1:
				changed = append(changed, st)
				there = false
			}
			switch {
			case there && was.Terminal():
				ended = append(ended, supervise.Ended{ID: st.Task.ID, Root: st.Task.ID, Born: st.Born, Parent: st.Task.Parent, Key: st.Task.Key})
			case there:
				live = append(live, st.Task.ID)
			}
		}
		newest := ended[max(0, len(ended)-MinInMemory):]
		var parts [][]byte
		for part := range encode(slices.Values(ended), live) {
			parts = append(parts, slices.Clone(part))
		}
		sum, ok := decode(parts)
		if !ok || !slices.Equal(slices.Collect(sum.ended), ended) || !slices.Equal(sum.live, live) {
			t.Fatalf("of %d ended and %d live, %d and %d were read, %v", len(ended), len(live), len(slices.Collect(sum.ended)), len(sum.live), ok)
		}
		p := newSelection(sum, changed)
		for ids := p.first(); len(ids) > 0; ids = p.above() {
			var more []journal.State
			for _, id := range ids {
				more = append(more, all[byID[id]])
			}
			p.add(more)
		}
		read := map[task.ID]bool{}
		for _, st := range p.states {
			if read[st.Task.ID] {
				t.Errorf("%s is read twice", st.Task.ID)
			}
			read[st.Task.ID] = true
		}
		for _, g := range newest {
			if !read[g.ID] {
				t.Errorf("%s is of the newest, and not read", g.ID)
			}
		}
		rest := map[task.ID]bool{}
		for g := range p.rest {
			if rest[g.ID] || read[g.ID] {
				t.Errorf("%s is there twice", g.ID)
			}
			rest[g.ID] = true
		}
		for _, st := range all {
			r := st.Task
			above, keyed := all[byID[r.Parent]].Task, r.Key != ""
			switch {
			case !read[r.ID] && !rest[r.ID]:
				t.Errorf("%s is lost", r.ID)
			case rest[r.ID] && !r.Status.Terminal():
				t.Errorf("%s lives, and is not read", r.ID)
			case read[r.ID] && r.Parent != "" && !read[r.Parent]:
				t.Errorf("%s is read, and %s that it is below is not", r.ID, r.Parent)
			case rest[r.ID] && keyed && read[above.ID] && !above.Status.Terminal():
				t.Errorf("%s is a step of what is at work, and not read", r.ID)
			}
		}
	})
}

// What a host draws up where no summary was left is what one says that has all in memory.
func TestDrawUp(t *testing.T) {
	log, err := journal.Open(filepath.Join(t.TempDir(), "log"), journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	now := time.Now().UTC()
	var all []task.Record
	var olds []supervise.Old
	kinds := []task.Kind{task.LocalBash, task.LocalAgent, task.LocalWorkflow}
	for n := range 3000 { // of more than one piece
		rec := task.Record{ID: task.ID(fmt.Sprintf("b%08d", n)), Run: task.NewRunID(), Kind: kinds[n%3], Status: task.Completed, EndTime: &now, CreateTime: now, Pool: "p", Resumes: n % 4,
			OutputBytes: int64(n), Budget: task.Budget{Tokens: int64(n % 5)}, AgentType: "x"}
		if n%3 == 0 {
			rec.Name, rec.Key = fmt.Sprint("n", n), fmt.Sprint("k", n)
		}
		if n%4 == 1 {
			rec.Owner = "s00000000"
		}
		if above := n / 7; n%2 == 0 && all != nil && all[above].Kind != task.LocalBash {
			rec.Parent = all[above].ID
		}
		if n%300 == 99 { // commands
			rec.Status, rec.EndTime = task.Running, nil
		}
		all = append(all, rec)
	}
	for _, rec := range all {
		seq, err := log.Append(t.Context(), lifecycle.Entry{Verb: task.Create, At: now, Task: rec})
		if err != nil {
			t.Fatal(err)
		}
		if rec.Status.Terminal() {
			olds = append(olds, supervise.Old{Born: seq, Task: rec})
		}
	}
	sum, err := summarize(t.Context(), log)
	if err != nil {
		t.Fatal(err)
	}
	s := supervise.New(supervise.Config{})
	defer s.Close()
	if err := s.Adopt(t.Context(), olds, nil); err != nil {
		t.Fatal(err)
	}
	ended, _ := s.Ended()
	got, want := slices.Collect(sum.ended), slices.Collect(ended)
	if len(want) != len(olds) || len(sum.live) != len(all)-len(olds) {
		t.Fatalf("%d ended and %d live of %d", len(want), len(sum.live), len(all))
	}
	if len(got) != len(want) {
		t.Fatalf("%d of %d", len(got), len(want))
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("%+v, not %+v", got[i], want[i])
		}
	}
}

// A task that ends when the log has grown enough has a summary written while the session
// goes on.
func TestWriter(t *testing.T) {
	log, err := journal.Open(filepath.Join(t.TempDir(), "log"), journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	asked := make(chan struct{}, 1)
	w := New(log, func() (iter.Seq[supervise.Ended], []task.ID) {
		asked <- struct{}{}
		return func(func(supervise.Ended) bool) {}, nil
	})
	w.Start(t.Context())
	w.TaskEnded() // too early
	for n := range fewEvents {
		r := task.Record{ID: task.ID(fmt.Sprintf("b%08d", n)), Run: task.NewRunID(), Kind: task.LocalBash, Status: task.Pending}
		if _, err := log.Append(t.Context(), lifecycle.Entry{Verb: task.Create, At: time.Now(), Task: r}); err != nil {
			t.Fatal(err)
		}
	}
	w.TaskEnded()
	select {
	case <-asked:
	case <-time.After(30 * time.Second):
		t.Fatal("no summary is written")
	}
	w.Close()
	if upTo, _, err := log.Summary(t.Context()); err != nil || upTo != fewEvents {
		t.Errorf("the summary is up to %d, %v", upTo, err)
	}
}
