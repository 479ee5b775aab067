package supervise

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drover-dev/drover/task"
)

// A resume between the durable end and finish.
func TestResumeBeforeFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Session: "s00000000", Log: &memLog{}})
		gate := make(chan struct{})
		inSettle := make(chan struct{})
		rec := start(t, s, work(func(context.Context, task.Host) (task.Result, error) {
			return task.Result{Settle: func() { close(inSettle); <-gate }}, nil
		}), task.Spec{})
		<-inSettle
		go func() { synctest.Wait(); close(gate) }()
		if _, err := s.Resume(t.Context(), rec.ID, work(until), task.Spec{}); err != nil {
			t.Fatal(err)
		}
		go s.Close()
		got, err := s.Wait(t.Context(), []task.ID{rec.ID}, false)
		if err != nil || got[0].Status != task.Killed {
			t.Errorf("%s %v", got[0].Status, err)
		}
		s.Close()
	})
}

// Stop of an agent that waits for its child, with another in the line.
func TestStopWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Session: "s00000000", Log: &memLog{}, Pools: map[string]Pool{"a": {Size: 1}}})
		defer s.Close()
		p := start(t, s, work(func(ctx context.Context, h task.Host) (task.Result, error) {
			c, err := h.Spawn(ctx, work(until), task.Spec{Pool: "a"})
			if err != nil {
				return task.Result{}, err
			}
			_, err = h.Await(ctx, c.ID)
			return task.Result{}, err
		}), task.Spec{Pool: "a"})
		synctest.Wait()
		start(t, s, work(until), task.Spec{Pool: "a"}) // X waits in the line
		synctest.Wait()
		was := time.Now()
		r, err := s.Stop(t.Context(), []task.ID{p.ID}, StopRequest{Cause: task.Cause{Actor: task.ByUser, Reason: task.ReasonStopped}})
		got, _ := s.Get(p.ID)
		if got.Status != task.Killed {
			t.Errorf("after %s: %s stopping=%v, receipt %+v, %v", time.Since(was), got.Status, got.Stopping, r, err)
		}
	})
}

// One parent with many parallel waits.
func TestParallel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Session: "s00000000", Log: &memLog{}, Pools: map[string]Pool{"a": {Size: 2}}})
		defer s.Close()
		var live, most atomic.Int32
		child := work(func(ctx context.Context, h task.Host) (task.Result, error) {
			n := live.Add(1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			time.Sleep(time.Second)
			live.Add(-1)
			return task.Result{}, nil
		})
		start(t, s, work(func(ctx context.Context, h task.Host) (task.Result, error) {
			done := make(chan struct{})
			for range 10 {
				go func() {
					c, _ := h.Spawn(ctx, child, task.Spec{Pool: "a"})
					_, _ = h.Await(ctx, c.ID)
					done <- struct{}{}
				}()
			}
			for range 10 {
				<-done
			}
			return task.Result{}, nil
		}), task.Spec{Pool: "a"})
		time.Sleep(time.Minute)
		if most.Load() > 2 {
			t.Errorf("%d at work at the same time in a pool of 2", most.Load())
		}
	})
}

// Close between the record and the start.
func TestCloseBetween(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Session: "s00000000", Log: &memLog{}})
		ran := false
		_, begin, err := s.Record(t.Context(), work(func(ctx context.Context, h task.Host) (task.Result, error) {
			ran = true
			return task.Result{}, context.Cause(ctx)
		}), task.Spec{})
		if err != nil {
			t.Fatal(err)
		}
		closed := false
		go func() { s.Close(); closed = true }()
		synctest.Wait()
		if closed {
			t.Error("closed before the start")
		}
		begin()
		synctest.Wait()
		if !closed {
			t.Error("not closed")
		}
		_ = ran
	})
}

// A kept child of a task, when the host closes.
func TestKeptChild(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Session: "s00000000", Log: &memLog{}})
		kept := make(chan task.ID, 1)
		start(t, s, work(func(ctx context.Context, h task.Host) (task.Result, error) {
			c, _ := h.Spawn(ctx, work(func(ctx context.Context, h task.Host) (task.Result, error) {
				<-ctx.Done()
				time.Sleep(10 * time.Millisecond)
				return task.Result{}, task.ErrDetached
			}), task.Spec{Keep: true})
			kept <- c.ID
			<-ctx.Done()
			return task.Result{}, context.Cause(ctx)
		}), task.Spec{})
		id := <-kept
		synctest.Wait()
		s.Close()
		r, _ := s.Get(id)
		if r.Stopping {
			t.Errorf("goes on without this host, and is shown as %s, stopping=%v", r.Status, r.Stopping)
		}
	})
}

// Several roots that each take the whole grace.
func TestRoots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Session: "s00000000", Log: &memLog{}})
		defer s.Close()
		var ids []task.ID
		for range 10 {
			ids = append(ids, start(t, s, work(func(ctx context.Context, h task.Host) (task.Result, error) {
				<-ctx.Done()
				time.Sleep(2 * time.Second)
				return task.Result{}, context.Cause(ctx)
			}), task.Spec{}).ID)
		}
		synctest.Wait()
		was := time.Now()
		_, _ = s.Stop(t.Context(), ids, StopRequest{Cause: task.Cause{Actor: task.ByUser}})
		if d := time.Since(was); d > 3*time.Second {
			t.Errorf("10 stubborn tasks took %s to stop", d)
		}
	})
}

// A stop between the record and the start: who is named?
func TestStopBetween(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Session: "s00000000", Log: &memLog{}})
		defer s.Close()
		rec, begin, _ := s.Record(t.Context(), work(until), task.Spec{})
		go func() {
			_, _ = s.Stop(t.Context(), []task.ID{rec.ID}, StopRequest{Cause: task.Cause{Actor: task.ByModel, Reason: task.ReasonStopped}})
		}()
		synctest.Wait()
		begin()
		synctest.Wait()
		r, _ := s.Get(rec.ID)
		if r.Cause == nil || r.Cause.Actor != task.ByModel {
			t.Errorf("stopped by the model, recorded as %+v", r.Cause)
		}
	})
}

// A background resume by somebody else than the first owner.
func TestResumeOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &memLog{}
		s := New(Config{Session: "s00000000", Log: log})
		defer s.Close()
		rec := start(t, s, work(instant), task.Spec{Owner: "", Backgrounded: true})
		synctest.Wait()
		if _, err := s.Resume(t.Context(), rec.ID, work(instant), task.Spec{Owner: "s00000000", Backgrounded: true}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		last := log.entries[len(log.entries)-1]
		if last.Notification.Owner != "s00000000" || last.Notification.Acked {
			t.Errorf("the resumer is owed nothing: %+v", *last.Notification)
		}
	})
}

// A wait whose time is up tells the record of now, not the one that it began with.
func TestWaitTimedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Session: "s00000000", Log: &memLog{}})
		defer s.Close()
		ask := make(chan struct{})
		got := make(chan outcome, 1)
		asks := asking(1, task.Question{Tool: "Bash"}, got)
		rec := start(t, s, work(func(ctx context.Context, h task.Host) (task.Result, error) {
			select {
			case <-ask:
			case <-ctx.Done():
			}
			return asks(ctx, h)
		}), task.Spec{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		time.AfterFunc(time.Second, func() { close(ask) })
		recs, err := s.Wait(ctx, []task.ID{rec.ID}, false)
		if !errors.Is(err, context.DeadlineExceeded) || len(recs) != 1 || !recs[0].AwaitingApproval {
			t.Errorf("%+v, %v", recs, err)
		}
	})
}
