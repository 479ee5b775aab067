package supervise

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/task"
)

var byUser = StopRequest{Cause: task.Cause{Actor: task.ByUser, Reason: task.ReasonStopped}}

// gateLog holds the creation of children until the test says how it goes on.
type gateLog struct {
	memLog
	at   chan task.ID // who has come to the gate
	gate chan error
}

func (l *gateLog) Append(ctx context.Context, e lifecycle.Entry) (task.Seq, error) {
	if e.Verb == task.Create && e.Task.Depth == 2 {
		l.at <- e.Task.ID
		if err := <-l.gate; err != nil {
			return 0, err
		}
	}
	return l.memLog.Append(ctx, e)
}

func (l *gateLog) AppendAll(ctx context.Context, entries []lifecycle.Entry) ([]task.Seq, []error) {
	return each(ctx, entries, l.Append)
}

// stories is what the log says of each task, in order.
func (l *memLog) stories() map[task.ID][]task.Verb {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[task.ID][]task.Verb{}
	for _, e := range l.entries {
		out[e.Task.ID] = append(out[e.Task.ID], e.Verb)
	}
	return out
}

func (l *memLog) verbs(id task.ID) []task.Verb { return l.stories()[id] }

func (l *memLog) sane(id task.ID) error { return sane(id, l.verbs(id)) }

// sane says what is wrong with the story of a task that has ended: it begins
// with its creation and has one end.
func sane(id task.ID, verbs []task.Verb) error {
	ends := 0
	for _, v := range verbs {
		if v == task.Complete || v == task.Fail || v == task.Stop {
			ends++
		}
	}
	if len(verbs) == 0 || verbs[0] != task.Create || ends != 1 {
		return fmt.Errorf("task %s has the story %v", id, verbs)
	}
	return nil
}

// A parent is stopped while its children come up: what was admitted ends with
// it, and nothing comes after.
func TestStopWhileSpawning(t *testing.T) {
	for range 300 {
		log := &memLog{}
		s := New(Config{Log: log})
		begun := make(chan struct{})
		var late atomic.Int32
		root := start(t, s, work(func(ctx context.Context, h task.Host) (task.Result, error) {
			var children sync.WaitGroup
			for i := range 4 {
				children.Go(func() {
					for n := 0; ; n++ {
						if i == 0 && n == 1 {
							close(begun)
						}
						if n == 50 { // the stop is late on a busy machine
							<-ctx.Done()
						}
						_, err := h.Spawn(context.WithoutCancel(ctx), work(until), task.Spec{})
						if errors.Is(err, ErrFrozen) {
							return
						}
						if err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			<-ctx.Done()
			children.Wait()
			if _, err := h.Spawn(context.WithoutCancel(ctx), work(instant), task.Spec{}); !errors.Is(err, ErrFrozen) {
				late.Add(1)
			}
			return task.Result{}, context.Cause(ctx)
		}), task.Spec{})
		<-begun
		receipt, err := s.Stop(t.Context(), []task.ID{root.ID}, byUser)
		if err != nil || len(receipt.Survivors) != 0 {
			t.Fatalf("receipt %+v, %v", receipt, err)
		}
		live, total := s.Live()
		if live != 0 || late.Load() != 0 {
			t.Fatalf("%d of %d tasks are live after the stop, %d began after it", live, total, late.Load())
		}
		stories := log.stories()
		for _, r := range s.List(0) {
			if err := sane(r.ID, stories[r.ID]); err != nil {
				t.Fatal(err)
			}
			if r.Status != task.Killed {
				t.Fatalf("%s is %s", r.ID, r.Status)
			}
		}
		s.Close()
	}
}

// A child whose first event is under way when the stop comes has either both
// its creation and its end in the log, or nothing.
func TestStopBeforeCreate(t *testing.T) {
	for name, fault := range map[string]error{"durable": nil, "refused": errors.New("disk full")} {
		t.Run(name, func(t *testing.T) {
			log := &gateLog{at: make(chan task.ID, 1), gate: make(chan error)}
			s := New(Config{Log: log})
			defer s.Close()
			spawned := make(chan error, 1)
			root := start(t, s, work(func(ctx context.Context, h task.Host) (task.Result, error) {
				_, err := h.Spawn(context.WithoutCancel(ctx), work(until), task.Spec{})
				spawned <- err
				return until(ctx, h)
			}), task.Spec{})
			child := <-log.at
			stopped := make(chan task.Receipt, 1)
			go func() {
				receipt, err := s.Stop(t.Context(), []task.ID{root.ID}, byUser)
				if err != nil {
					t.Error(err)
				}
				stopped <- receipt
			}()
			s.mu.RLock()
			e := s.tasks[child]
			s.mu.RUnlock()
			for frozen := false; !frozen && t.Context().Err() == nil; runtime.Gosched() {
				e.mu.Lock() // its own, and not that of its parent: the stop has found it
				frozen = e.frozen != nil
				e.mu.Unlock()
			}
			log.gate <- fault
			if err := <-spawned; !errors.Is(err, fault) {
				t.Errorf("spawn: %v", err)
			}
			receipt := <-stopped
			if fault != nil {
				if got := log.verbs(child); len(got) != 0 {
					t.Errorf("a task that never was has the story %v", got)
				}
				return
			}
			if err := log.sane(child); err != nil {
				t.Error(err)
			}
			if rec, _ := s.Get(child); rec.Status != task.Killed || len(receipt.Stopped) != 2 {
				t.Errorf("the child is %s, receipt %+v", rec.Status, receipt)
			}
		})
	}
}

// Two clients that stop the same tree get the same answer, whatever the task is
// doing.
func TestStopTwice(t *testing.T) {
	check := func(t *testing.T, s *Supervisor, id task.ID, begin func()) {
		t.Helper()
		var clients sync.WaitGroup
		receipts := make([]task.Receipt, 2)
		for i := range receipts {
			clients.Go(func() {
				var err error
				if receipts[i], err = s.Stop(t.Context(), []task.ID{id}, byUser); err != nil {
					t.Error(err)
				}
			})
		}
		if begin != nil {
			synctest.Wait() // both wait for a task that has not begun
			begin()
		}
		clients.Wait()
		again, err := s.Stop(t.Context(), []task.ID{id}, byUser)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range append(receipts, again) {
			if len(r.Survivors) != 0 || len(r.Stopped) != len(again.Stopped) {
				t.Fatalf("receipts differ: %+v and %+v", r, again)
			}
			for i, line := range r.Stopped {
				if want := again.Stopped[i]; line.ID != want.ID || line.Status != task.Killed || *line.Cause != *want.Cause {
					t.Errorf("lines differ: %+v and %+v", line, want)
				}
			}
		}
		if got := again.Stopped[len(again.Stopped)-1]; got.ID != id || got.Cause.Actor != task.ByUser {
			t.Errorf("the task ended as %+v", got)
		}
	}
	t.Run("tree", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := New(Config{Log: &memLog{}})
			defer s.Close()
			rec := start(t, s, work(func(ctx context.Context, h task.Host) (task.Result, error) {
				for range 2 {
					if _, err := h.Spawn(ctx, work(until), task.Spec{}); err != nil {
						return task.Result{}, err
					}
				}
				return until(ctx, h)
			}), task.Spec{})
			synctest.Wait()
			check(t, s, rec.ID, nil)
		})
	})
	t.Run("start", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := New(Config{Log: &memLog{}})
			defer s.Close()
			rec, begin, err := s.Record(t.Context(), work(until), task.Spec{})
			if err != nil {
				t.Fatal(err)
			}
			check(t, s, rec.ID, begin)
		})
	})
}

// A stop that races with the natural end leaves one end with one notification, and
// what the driver lets go of afterwards is let go of once.
func TestStopAtEnd(t *testing.T) {
	log := &memLog{}
	s := New(Config{Log: log})
	defer s.Close()
	settled := map[task.Status]int{}
	for range 500 {
		var settles atomic.Int32
		ready, finish := make(chan struct{}), make(chan struct{})
		rec := start(t, s, work(func(ctx context.Context, _ task.Host) (task.Result, error) {
			res := task.Result{Settle: func() { settles.Add(1) }}
			close(ready)
			select {
			case <-finish:
				return res, nil
			case <-ctx.Done():
				return res, context.Cause(ctx)
			}
		}), task.Spec{Owner: "s1", Backgrounded: true})
		<-ready
		var race sync.WaitGroup
		race.Go(func() { close(finish) })
		race.Go(func() {
			if _, err := s.Stop(t.Context(), []task.ID{rec.ID}, byUser); err != nil {
				t.Error(err)
			}
		})
		race.Wait()
		recs, err := s.Wait(t.Context(), []task.ID{rec.ID}, false)
		if err != nil {
			t.Fatal(err)
		}
		if err := log.sane(rec.ID); err != nil || log.notifications(rec.Run) != 1 || settles.Load() != 1 {
			t.Fatalf("%v, %d notifications, settled %d times", err, log.notifications(rec.Run), settles.Load())
		}
		settled[recs[0].Status]++
	}
	if settled[task.Failed] != 0 {
		t.Errorf("ends: %v", settled)
	}
}

// Everything at once from many goroutines: no race, no task lost, no wait in vain.
func TestConcurrent(t *testing.T) {
	log := &memLog{}
	s := New(Config{Log: log, Pools: map[string]Pool{"p": {Size: 4}}})
	defer s.Close()
	var clients sync.WaitGroup
	for c := range 8 {
		clients.Go(func() {
			for i := range 20 {
				name := fmt.Sprintf("c%d-%d", c, i)
				d := work(instant)
				if i%2 == 0 {
					d = until
				}
				rec, err := s.Start(t.Context(), d, task.Spec{Name: name, Owner: "s1", Pool: "p"})
				if err != nil {
					t.Error(err)
					return
				}
				if got, err := s.Find(name); err != nil || got.ID != rec.ID {
					t.Errorf("Find(%s) = %s, %v", name, got.ID, err)
				}
				for range s.List(0) {
				}
				_, _ = s.Promote(t.Context(), rec.ID) // it may have ended
				if i%2 == 0 {
					if _, err := s.Stop(t.Context(), []task.ID{rec.ID}, byUser); err != nil {
						t.Error(err)
					}
				}
				if _, err := s.Wait(t.Context(), []task.ID{rec.ID}, false); err != nil {
					t.Error(err)
				}
			}
		})
	}
	clients.Wait()
	if live, total := s.Live(); live != 0 || total != 160 {
		t.Errorf("%d of %d are live", live, total)
	}
	for _, r := range s.List(0) {
		if err := log.sane(r.ID); err != nil {
			t.Error(err)
		}
	}
}

// What is asked of a task that is not there changes nothing and tells nobody.
func TestUnknown(t *testing.T) {
	log := &memLog{}
	s := New(Config{Log: log, Ended: func(task.Record, lifecycle.Notification) { t.Error("somebody was told of an end") }})
	defer s.Close()
	const id = "a00000000"
	_, stop := s.Stop(t.Context(), []task.ID{id}, byUser)
	_, promote := s.Promote(t.Context(), id)
	_, resume := s.Resume(t.Context(), id, work(instant), task.Spec{})
	_, await := s.Await(t.Context(), id)
	_, wait := s.Wait(t.Context(), []task.ID{id}, false)
	for _, err := range []error{stop, promote, resume, await, wait} {
		if !errors.Is(err, ErrUnknown) {
			t.Errorf("got %v", err)
		}
	}
	if _, ok := s.Get(id); ok || len(log.entries) != 0 {
		t.Errorf("%d entries in the log", len(log.entries))
	}
}

// What a limit says is read by models, which must know what they ran into.
func TestLimitTexts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Log: &memLog{}, Pools: map[string]Pool{"p": {Size: 1, Queue: 1, Depth: 1}}})
		defer s.Close()
		first := start(t, s, work(until), task.Spec{Pool: "p"})
		synctest.Wait()
		if _, err := s.Start(t.Context(), work(instant), task.Spec{Pool: "p", Parent: first.ID}); err == nil || err.Error() != "recursion rejected: tasks may be nested 1 deep" {
			t.Errorf("too deep: %v", err)
		}
		start(t, s, work(instant), task.Spec{Pool: "p"})
		if _, err := s.Start(t.Context(), work(instant), task.Spec{Pool: "p"}); err == nil || err.Error() != "max concurrent agents reached (1)" {
			t.Errorf("too many: %v", err)
		}
	})
}
