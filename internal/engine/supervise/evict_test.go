package supervise

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/task"
)

// newest is a log's Newest.
func (l *memLog) newest(_ context.Context, ids []task.ID) (out []task.Record, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range ids {
		for _, e := range slices.Backward(l.entries) {
			if e.Task.ID == id {
				out = append(out, e.Task)
				break
			}
		}
	}
	return out, nil
}

// held is the IDs of the tasks in memory, oldest first.
func held(s *Supervisor) (ids []task.ID) {
	for _, r := range s.List(0) {
		ids = append(ids, r.ID)
	}
	slices.Reverse(ids)
	return ids
}

func listing(t testing.TB, s *Supervisor, before task.Seq) (ids []task.ID) {
	t.Helper()
	last := task.Seq(1 << 60)
	if err := s.Listing(context.Background(), before, func(born task.Seq, r task.Record) bool {
		if born >= last || before > 0 && born >= before {
			t.Errorf("%s of %d comes behind %d", r.ID, born, last)
		}
		last, ids = born, append(ids, r.ID)
		return true
	}); err != nil {
		t.Fatal(err)
	}
	slices.Reverse(ids)
	return ids
}

// Ended tasks leave the memory after the grace, and not a moment before; whoever
// asks for one by its ID, its name or the beginning of its ID has it all the same.
func TestEvict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &memLog{}
		s := New(Config{Session: "s00000000", Log: log, Held: 8, Recall: log.newest})
		defer s.Close()
		var all []task.ID
		for n := range 20 {
			r := start(t, s, work(instant), task.Spec{Name: fmt.Sprintf("name%d", n), Owner: "s00000000", Backgrounded: true})
			all = append(all, r.ID)
		}
		live := start(t, s, work(until), task.Spec{Name: "live"})
		synctest.Wait()
		time.Sleep(30*time.Second - time.Millisecond)
		synctest.Wait()
		if n := len(held(s)); n != 21 {
			t.Errorf("%d in memory within the grace", n)
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if got := held(s); len(got) != 8 || got[7] != live.ID {
			t.Errorf("%d in memory after the grace", len(got))
		}
		if living, total := s.Live(); living != 1 || total != 21 {
			t.Errorf("%d live of %d", living, total)
		}
		if got := listing(t, s, 0); !slices.Equal(got, append(slices.Clone(all), live.ID)) {
			t.Errorf("listed: %v", got)
		}
		before := s.Born(all[5])
		if got := listing(t, s, before); !slices.Equal(got, all[:5]) {
			t.Errorf("listed before %d: %v", before, got)
		}
		for n, id := range all {
			r, ok := s.Get(id)
			if !ok || r.Status != task.Completed || r.ID != id || r.Name != fmt.Sprintf("name%d", n) {
				t.Errorf("Get: %+v, %v", r, ok)
			}
			for _, ref := range []string{string(id), r.Name, string(id[:7])} {
				if got, err := s.Find(ref); err != nil || got.ID != id {
					t.Errorf("Find(%s) = %s, %v", ref, got.ID, err)
				}
			}
		}
		if n := len(held(s)); n != 8 {
			t.Errorf("%d in memory after they were looked at", n)
		}
		if again := start(t, s, work(instant), task.Spec{Name: "name3"}); again.Name != "name3" || again.AskedName != "" {
			t.Errorf("the name of what has ended is not given again: %s", again.Name)
		} else if r, err := s.Find("name3"); err != nil || r.ID != again.ID {
			t.Errorf("the name means %s, %v, and not the newest", r.ID, err)
		}
		if one := start(t, s, work(instant), task.Spec{Name: "live"}); one.Name != "live-2" || one.AskedName != "live" {
			t.Errorf("a name was given twice: %s for %q", one.Name, one.AskedName)
		}
		recs, err := s.Wait(t.Context(), all[:3], false)
		if err != nil || len(recs) != 3 || recs[2].ID != all[2] {
			t.Errorf("Wait: %v, %v", recs, err)
		}
		select {
		case <-s.Done(all[4]):
		default:
			t.Error("an end is not to be seen any more")
		}
		receipt, err := s.Stop(t.Context(), all[5:6], byUser)
		if err != nil || len(receipt.Stopped) != 1 || receipt.Stopped[0].Status != task.Completed {
			t.Errorf("Stop: %+v, %v", receipt, err)
		}
		if _, err := s.Post(t.Context(), task.Message{To: all[6], From: "s00000000", Kind: task.PlainMessage, Text: "x", Priority: task.Next}); errors.Is(err, ErrUnknown) {
			t.Error(err)
		}
		if got := listing(t, s, 0); !slices.Equal(got[:20], all) || len(got) != 23 {
			t.Errorf("listed after some came back: %v", got)
		}
		var ended []task.ID
		left, _ := s.Ended()
		for g := range left {
			ended = append(ended, g.ID)
		}
		if len(ended) < 20 || !slices.Equal(ended[:20], all) {
			t.Errorf("for the next host, after some came back: %v", ended)
		}
		time.Sleep(time.Hour)
		start(t, s, work(instant), task.Spec{})
		synctest.Wait()
		if n := len(held(s)); n > 9 {
			t.Errorf("%d in memory for good", n)
		}
	})
}

// A further run, a tree and a step with a key are as they would be in memory.
func TestEvictTree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &memLog{}
		s := New(Config{Session: "s00000000", Log: log, Held: 1, Recall: log.newest, Pools: map[string]Pool{"p": {Size: 9, PerRoot: 3}}})
		defer s.Close()
		var child, step task.Record
		root := start(t, s, work(func(ctx context.Context, h task.Host) (task.Result, error) {
			var err error
			child, err = h.Spawn(ctx, work(instant), task.Spec{Name: "child", Pool: "p"})
			if err == nil {
				step, err = h.Spawn(ctx, work(instant), task.Spec{Key: "step"})
			}
			if err != nil {
				t.Error(err)
			}
			return until(ctx, h)
		}), task.Spec{Name: "root", Pool: "p"})
		for range 5 {
			start(t, s, work(instant), task.Spec{})
		}
		synctest.Wait()
		time.Sleep(time.Minute)
		synctest.Wait()
		now := held(s)
		if slices.Contains(now, child.ID) || !slices.Contains(now, step.ID) || !slices.Contains(now, root.ID) {
			t.Errorf("in memory: %v; root %s, child %s, step %s", now, root.ID, child.ID, step.ID)
		}
		again, err := s.Resume(t.Context(), child.ID, work(until), task.Spec{Pool: "p"})
		if err != nil || again.Parent != root.ID || again.Resumes != 1 {
			t.Fatalf("resumed: %+v, %v", again, err)
		}
		if _, err := s.Start(t.Context(), work(instant), task.Spec{Parent: child.ID, Pool: "p"}); err == nil {
			t.Error("what a tree has used is forgotten with those that have left the memory")
		}
		synctest.Wait()
		receipt, err := s.Stop(t.Context(), []task.ID{root.ID}, byUser)
		ids := map[task.ID]task.Status{}
		for _, one := range receipt.Stopped {
			ids[one.ID] = one.Status
		}
		if err != nil || ids[child.ID] != task.Killed || ids[root.ID] != task.Killed {
			t.Errorf("stopped: %v, %v", ids, err)
		}
		for range 5 {
			start(t, s, work(instant), task.Spec{})
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if now := held(s); len(now) > 1 {
			t.Errorf("left in memory: %v", now)
		}
		if _, err := s.Start(t.Context(), work(instant), task.Spec{Parent: root.ID}); !errors.Is(err, ErrFrozen) {
			t.Errorf("a start below what has ended long ago: %v", err)
		}
		if r, ok := s.Get(child.ID); !ok || r.Resumes != 1 || r.Status != task.Killed {
			t.Errorf("the child: %+v", r)
		}
	})
}

// Whatever is done in whatever order, a small memory shows the same as one that
// forgets nothing.
func TestEvictSame(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		synctest.Test(t, func(t *testing.T) {
			log := &memLog{}
			s := New(Config{Session: "s00000000", Log: log, Held: 2, Grace: time.Second, Recall: log.newest})
			defer s.Close()
			var all []task.ID
			for range rapid.IntRange(1, 40).Draw(rt, "steps") {
				some := func() task.ID { return rapid.SampledFrom(all).Draw(rt, "task") }
				switch what := rapid.IntRange(0, 5).Draw(rt, "what"); {
				case what == 0 || len(all) == 0:
					r := start(t, s, work(instant), task.Spec{Name: "n", Backgrounded: true})
					all = append(all, r.ID)
				case what == 1:
					time.Sleep(time.Duration(rapid.IntRange(1, 1500).Draw(rt, "ms")) * time.Millisecond)
				case what == 2:
					_, _ = s.Resume(t.Context(), some(), work(instant), task.Spec{})
				case what == 3:
					if _, err := s.Stop(t.Context(), []task.ID{some()}, byUser); err != nil {
						rt.Fatal(err)
					}
				case what == 4:
					if _, err := s.Wait(t.Context(), []task.ID{some()}, false); err != nil {
						rt.Fatal(err)
					}
				default:
					id := some()
					if r, err := s.Find(string(id)); err != nil || r.ID != id {
						rt.Fatalf("%s: %v", id, err)
					}
				}
				synctest.Wait()
				if got := listing(t, s, 0); !slices.Equal(got, all) {
					rt.Fatalf("listed %v, want %v", got, all)
				}
				if r, err := s.Find("n"); err != nil || r.ID != all[len(all)-1] {
					rt.Fatalf("the name means %s, %v, want the newest of %v", r.ID, err, all)
				}
				if _, total := s.Live(); total != len(all) {
					rt.Fatalf("%d of %d", total, len(all))
				}
			}
		})
	})
}

// What an earlier host left is held no longer than what this one made.
func TestEvictAdopted(t *testing.T) {
	log := &memLog{}
	s := New(Config{Session: "s00000000", Log: log, Held: 16, Recall: log.newest})
	defer s.Close()
	long := time.Now().Add(-time.Hour)
	var old []Old
	for n := range 100 {
		r := task.Record{ID: task.NewID(task.LocalBash), Run: task.NewRunID(), Kind: task.LocalBash, Status: task.Completed, EndTime: &long, Name: fmt.Sprint("n", n)}
		if n > 0 && n%10 == 0 {
			r.Parent = old[n-1].Task.ID
		}
		seq, err := log.Append(t.Context(), lifecycle.Entry{Verb: task.Complete, Task: r})
		if err != nil {
			t.Fatal(err)
		}
		old = append(old, Old{Born: seq, Task: r})
	}
	if err := s.Adopt(t.Context(), old, func(task.Kind) task.Driver { return nil }); err != nil {
		t.Fatal(err)
	}
	if n := len(held(s)); n > 16 {
		t.Errorf("%d in memory", n)
	}
	if n := len(listing(t, s, 0)); n != 100 {
		t.Errorf("%d listed", n)
	}
	if r, err := s.Find("n50"); err != nil || r.Parent != old[49].Task.ID {
		t.Errorf("%+v, %v", r, err)
	}
}

// A further run of a task stands below what it stood below, whichever of both had
// left the memory: a stop from there finds it.
func TestEvictAbove(t *testing.T) {
	for name, resumed := range map[string]bool{"both": false, "the upper": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := &memLog{}
				s := New(Config{Session: "s00000000", Log: log, Held: 1, Recall: log.newest})
				defer s.Close()
				var child task.Record
				root := start(t, s, work(func(ctx context.Context, h task.Host) (task.Result, error) {
					var err error
					child, err = h.Spawn(ctx, work(instant), task.Spec{Name: "child"})
					return task.Result{}, err
				}), task.Spec{Name: "root"})
				synctest.Wait()
				again := func() {
					t.Helper()
					if _, err := s.Resume(t.Context(), child.ID, work(until), task.Spec{}); err != nil {
						t.Fatal(err)
					}
					synctest.Wait()
				}
				if resumed { // the lower one is at work while the upper would have to go
					again()
				}
				for range 5 {
					start(t, s, work(instant), task.Spec{})
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				if now := held(s); resumed != slices.Contains(now, root.ID) {
					t.Errorf("in memory: %v; root %s", now, root.ID)
				}
				if !resumed {
					again()
				}
				receipt, err := s.Stop(t.Context(), []task.ID{root.ID}, byUser)
				if r, _ := s.Get(child.ID); err != nil || r.Status != task.Killed {
					t.Errorf("the lower one is %s: %+v, %v", r.Status, receipt, err)
				}
			})
		})
	}
}

// A task that has left the memory comes back also where what it was below cannot be read
// any more: who asks for it waits for no end that has been, and it may have a further run.
func TestEvictBelowDamage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &memLog{}
		var damaged task.ID
		s := New(Config{Session: "s00000000", Log: log, Held: 1, Recall: func(ctx context.Context, ids []task.ID) ([]task.Record, error) {
			if slices.Contains(ids, damaged) {
				return nil, errors.New("the record is damaged")
			}
			return log.newest(ctx, ids)
		}})
		defer s.Close()
		var child, below task.Record
		parent := start(t, s, work(func(ctx context.Context, h task.Host) (res task.Result, err error) {
			child, err = h.Spawn(ctx, work(func(ctx context.Context, h task.Host) (res task.Result, err error) {
				below, err = h.Spawn(ctx, work(instant), task.Spec{})
				return res, err
			}), task.Spec{})
			if err == nil {
				_, err = h.Await(ctx, child.ID)
			}
			return res, err
		}), task.Spec{})
		synctest.Wait()
		for range 20 {
			start(t, s, work(instant), task.Spec{})
		}
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if ids := held(s); slices.Contains(ids, parent.ID) || slices.Contains(ids, child.ID) || slices.Contains(ids, below.ID) {
			t.Fatalf("in memory: %v", ids)
		}
		damaged = parent.ID
		if recs, err := s.Wait(t.Context(), []task.ID{child.ID, below.ID}, false); err != nil || !recs[0].Status.Terminal() || !recs[1].Status.Terminal() {
			t.Fatalf("wait: %+v, %v", recs, err)
		}
		if done := s.Done(child.ID); done == nil {
			t.Error("who waits for its end waits for ever")
		}
		if _, err := s.Resume(t.Context(), child.ID, work(instant), task.Spec{}); err != nil {
			t.Errorf("a further run: %v", err)
		}
		if _, err := s.Wait(t.Context(), []task.ID{parent.ID}, false); !errors.Is(err, ErrUnknown) {
			t.Errorf("the damaged one: %v", err)
		}
	})
}

// What one host says of the tasks that have ended is all that the next needs: they
// are listed, found and given further runs, their names are free, and their runs count.
func TestRemember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &memLog{}
		cfg := Config{Session: "s00000000", Log: log, Held: 8, Recall: log.newest, Pools: map[string]Pool{"p": {Size: 30, PerSession: 30, PerRoot: 11}}}
		first := New(cfg)
		for n := range 20 {
			start(t, first, work(instant), task.Spec{Name: fmt.Sprint("n", n), Owner: task.ID(fmt.Sprint("o", n%2)), Pool: "p"})
			synctest.Wait()
		}
		kept := start(t, first, work(until), task.Spec{Name: "kept"})
		time.Sleep(time.Minute) // some have left the memory, and some have not
		synctest.Wait()
		if n := len(held(first)); n <= 1 || n >= 20 {
			t.Fatalf("%d are in memory", n)
		}
		want, found := listing(t, first, 0), map[string]task.Record{}
		for n := range 20 {
			found[fmt.Sprint("n", n)], _ = first.Find(fmt.Sprint("n", n))
		}
		all, live := first.Ended()
		ended := slices.Collect(all)
		born := first.Born(kept.ID)
		first.Close()
		if len(ended) != 20 || !slices.Equal(live, []task.ID{kept.ID}) {
			t.Fatalf("%d ended, live %v", len(ended), live)
		}
		s := New(cfg)
		defer s.Close()
		s.Remember(slices.Values(ended))
		if err := s.Adopt(t.Context(), []Old{{Born: born, Task: kept}}, func(task.Kind) task.Driver { return nil }); err != nil {
			t.Fatal(err)
		}
		if got := listing(t, s, 0); !slices.Equal(got, want) {
			t.Errorf("listed: %v", got)
		}
		for name, r := range found {
			for _, ref := range []string{name, string(r.ID)} {
				if got, err := s.Find(ref); err != nil || got.ID != r.ID || got.Status != r.Status {
					t.Errorf("Find(%s): %+v, %v", ref, got, err)
				}
			}
		}
		again, err := s.Resume(t.Context(), found["n3"].ID, work(instant), task.Spec{Pool: "p"})
		if err != nil || again.Name != "n3" || again.Resumes != 1 {
			t.Errorf("a further run: %+v, %v", again, err)
		}
		var limit *LimitError
		if _, err := s.Start(t.Context(), work(instant), task.Spec{Owner: "o1", Pool: "p"}); !errors.As(err, &limit) || limit.Limit != "per_root" {
			t.Errorf("a twelfth run below one: %v", err)
		}
		for range 9 {
			synctest.Wait()
			if got := start(t, s, work(instant), task.Spec{Name: "n3", Pool: "p"}); got.Name != "n3" {
				t.Errorf("the name %s", got.Name)
			}
		}
		if _, err := s.Start(t.Context(), work(instant), task.Spec{Pool: "p"}); !errors.As(err, &limit) || limit.Limit != "per_session" {
			t.Errorf("a run more than the session may have: %v", err)
		}
	})
}

// Only a task whose end is recorded, whose run is over, and which nothing in memory needs may be evicted (RG-07): each
// condition alone keeps it.
func TestStays(t *testing.T) {
	s := New(Config{})
	defer s.Close()
	now := time.Now()
	past := now.Add(-time.Hour)
	over := make(chan struct{})
	close(over)
	for name, c := range map[string]struct {
		change func(*entry, *task.Record)
		wait   time.Duration
		stays  bool
	}{
		"ended":            {func(*entry, *task.Record) {}, 0, false},
		"running":          {func(_ *entry, r *task.Record) { r.Status = task.Running }, 0, true},
		"pending":          {func(_ *entry, r *task.Record) { r.Status, r.EndTime = task.Pending, nil }, 0, true},
		"end-unreported":   {func(e *entry, _ *task.Record) { e.live = make(chan struct{}) }, 0, true},
		"further-run":      {func(e *entry, _ *task.Record) { e.pinned = 1 }, 0, true},
		"child":            {func(e *entry, _ *task.Record) { e.children = []*entry{{}} }, 0, true},
		"just-ended":       {func(_ *entry, r *task.Record) { r.EndTime = &now }, evictGrace, false},
		"just-recalled":    {func(e *entry, _ *task.Record) { e.recalled = now }, evictGrace, false},
		"step-of-running":  {func(e *entry, r *task.Record) { r.Key = "step"; e.up.Store(recorded(task.Running)) }, 0, true},
		"step-of-ended":    {func(e *entry, r *task.Record) { r.Key = "step"; e.up.Store(recorded(task.Completed)) }, 0, false},
		"child-of-running": {func(e *entry, _ *task.Record) { e.up.Store(recorded(task.Running)) }, 0, false},
	} {
		e, r := &entry{live: over}, task.Record{Status: task.Completed, EndTime: &past}
		c.change(e, &r)
		e.rec.Store(&r)
		if wait, stays := s.stays(e, now, false); wait != c.wait || stays != c.stays {
			t.Errorf("%s: stays %v, %v, want %v, %v", name, stays, wait, c.stays, c.wait)
		}
	}
}

func recorded(s task.Status) *entry {
	e := &entry{}
	e.rec.Store(&task.Record{Status: s})
	return e
}
