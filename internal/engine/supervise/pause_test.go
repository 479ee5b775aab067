package supervise

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drover-dev/drover/task"
)

// cold is a driver whose process can stand still.
type cold struct {
	work
	did *[]string
}

func (c cold) Freeze(p task.Process) error { *c.did = append(*c.did, "freeze"); return nil }
func (c cold) Thaw(p task.Process) error   { *c.did = append(*c.did, "thaw"); return nil }
func (cold) Launches()                     {}

// steps is an agent that asks before each step.
func steps(n *int, step <-chan struct{}) work {
	return func(ctx context.Context, h task.Host) (task.Result, error) {
		for range step {
			if err := h.WaitWhilePaused(ctx); err != nil {
				return task.Result{}, err
			}
			*n++
		}
		return task.Result{Text: "done"}, nil
	}
}

// While a tree is paused its agents make no step, their places are free, what
// they start stands still from its first moment, and no time limit passes.
func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Session: "s00000000", Log: &memLog{}, Pools: map[string]Pool{"one": {Size: 1}}})
		defer s.Close()
		n, step := 0, make(chan struct{})
		root := start(t, s, steps(&n, step), task.Spec{Pool: "one", Timeout: time.Hour})
		var did []string
		command := cold{work(func(ctx context.Context, h task.Host) (task.Result, error) {
			if err := h.Begun(task.Process{PID: 1}); err != nil {
				return task.Result{}, err
			}
			<-ctx.Done()
			return task.Result{}, context.Cause(ctx)
		}), &did}
		child := start(t, s, command, task.Spec{Parent: root.ID})
		step <- struct{}{}
		synctest.Wait()
		time.Sleep(50 * time.Minute)
		recs, err := s.Pause(t.Context(), root.ID)
		if err != nil || len(recs) != 2 || recs[0].ID != root.ID || recs[1].ID != child.ID || !recs[0].Paused || !recs[1].Paused {
			t.Fatalf("paused %+v, %v", recs, err)
		}
		if again, err := s.Pause(t.Context(), root.ID); err != nil || len(again) != 2 {
			t.Errorf("a second time: %+v, %v", again, err)
		}
		step <- struct{}{}
		late := start(t, s, command, task.Spec{Parent: root.ID})
		other := start(t, s, work(instant), task.Spec{Pool: "one"})
		if _, err := s.Wait(t.Context(), []task.ID{other.ID}, false); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if rec, _ := s.Get(late.ID); n != 1 || !rec.Paused || slices.Contains(did, "thaw") {
			t.Errorf("while paused: %d steps, %v, %+v", n, did, rec)
		}
		time.Sleep(10 * time.Hour)
		recs, err = s.Thaw(t.Context(), root.ID)
		if err != nil || len(recs) != 3 || slices.ContainsFunc(recs, func(r task.Record) bool { return r.Paused || r.Status != task.Running }) {
			t.Fatalf("thawed %+v, %v", recs, err)
		}
		synctest.Wait()
		if n != 2 || did[len(did)-1] != "thaw" || did[len(did)-2] != "thaw" {
			t.Errorf("afterwards: %d steps, %v", n, did)
		}
		time.Sleep(11 * time.Minute) // ten were left
		if rec, _ := s.Get(root.ID); rec.Cause != nil {
			t.Errorf("a limit that passes within a step ended the run: %+v", rec.Cause)
		}
		close(step)
		recs, err = s.Wait(t.Context(), []task.ID{root.ID}, false)
		if err != nil || recs[0].Paused {
			t.Errorf("ended as %+v, %v", recs, err)
		}
	})
}

// The time limit of a task ends it after a pause as it would have before.
func TestPauseDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Session: "s00000000", Log: &memLog{}})
		defer s.Close()
		rec := start(t, s, work(until), task.Spec{Timeout: time.Hour})
		time.Sleep(50 * time.Minute)
		for _, do := range []func(context.Context, task.ID) ([]task.Record, error){s.Pause, s.Thaw} {
			if _, err := do(t.Context(), rec.ID); err != nil {
				t.Fatal(err)
			}
			time.Sleep(9 * time.Minute)
		}
		if now, _ := s.Get(rec.ID); now.Status != task.Running {
			t.Errorf("ended before its time: %+v", now.Cause)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if now, _ := s.Get(rec.ID); now.Cause == nil || now.Cause.Reason != task.ReasonTimeout {
			t.Errorf("did not end at its time: %+v", now)
		}
	})
}

// A paused agent can be stopped, and what has ended or is unknown cannot be
// paused.
func TestPauseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Session: "s00000000", Log: &memLog{}, Pools: map[string]Pool{"one": {Size: 1}}})
		defer s.Close()
		n, step := 0, make(chan struct{}, 1)
		rec := start(t, s, steps(&n, step), task.Spec{Pool: "one"})
		synctest.Wait()
		if _, err := s.Pause(t.Context(), rec.ID); err != nil {
			t.Fatal(err)
		}
		step <- struct{}{}
		synctest.Wait()
		if _, err := s.Stop(t.Context(), []task.ID{rec.ID}, StopRequest{Cause: task.Cause{Actor: task.ByUser, Reason: task.ReasonStopped}}); err != nil {
			t.Fatal(err)
		}
		if now, _ := s.Get(rec.ID); now.Status != task.Killed || now.Paused || n != 0 {
			t.Errorf("ended as %+v after %d steps", now, n)
		}
		if recs, err := s.Pause(t.Context(), rec.ID); err != nil || len(recs) != 0 {
			t.Errorf("paused after the end: %+v, %v", recs, err)
		}
		if _, err := s.Thaw(t.Context(), "a00000000"); !errors.Is(err, ErrUnknown) {
			t.Errorf("unknown: %v", err)
		}
		again, err := s.Resume(t.Context(), rec.ID, work(instant), task.Spec{Pool: "one"})
		if err != nil || again.Paused {
			t.Fatalf("resumed %+v, %v", again, err)
		}
		if recs, err := s.Wait(t.Context(), []task.ID{rec.ID}, false); err != nil || recs[0].Status != task.Completed {
			t.Errorf("the further run ended as %+v, %v", recs, err)
		}
	})
}
