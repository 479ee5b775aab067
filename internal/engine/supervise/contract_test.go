package supervise

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/task"
)

// Work without a process is adopted if its driver says that it can be, and what no
// driver adopts is lost.
func TestAdopter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Session: "s00000000", Log: &memLog{}})
		defer s.Close()
		now := time.Now()
		lost := task.Record{ID: "r00000001", Run: "r1", Kind: task.RemoteAgent, Status: task.Running, StartTime: &now}
		kept := lost
		kept.ID, kept.Run, kept.Checkpoint = "r00000002", "r2", []byte(`{"v":1}`)
		seen := make(chan task.ID, 2)
		d := work(func(ctx context.Context, h task.Host) (task.Result, error) {
			seen <- h.Record().ID
			return until(ctx, h)
		})
		if err := s.Adopt(t.Context(), []Old{{Born: 1, Task: lost}, {Born: 2, Task: kept}}, func(task.Kind) task.Driver { return d }); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if r, _ := s.Get(lost.ID); r.Status != task.Killed || r.Cause.Reason != task.ReasonHostLost {
			t.Errorf("work that nobody can go on with is %+v", r)
		}
		if r, _ := s.Get(kept.ID); r.Status != task.Running || len(seen) != 1 || <-seen != kept.ID {
			t.Errorf("work that can be gone on with is %+v", r)
		}
	})
}

// A stop that an earlier host had begun is done by the next one: what was asked to
// end does not go on.
func TestStopGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &memLog{}
		s := New(Config{Session: "s00000000", Log: log})
		defer s.Close()
		now := time.Now()
		old := task.Record{ID: "b00000001", Run: "r1", Kind: task.LocalBash, Status: task.Running, StartTime: &now, Keep: true, Stopping: true, Process: &task.Process{PID: 1}}
		if err := s.Adopt(t.Context(), []Old{{Born: 1, Task: old}}, func(task.Kind) task.Driver { return work(until) }); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if r, _ := s.Get(old.ID); r.Status != task.Killed || r.Stopping || r.Cause.Reason != task.ReasonStopped {
			t.Errorf("%s, %+v", r.Status, r.Cause)
		}
	})
}

// A child is found by its key in a later host too, ended or not: nothing is done
// twice.
func TestKeysKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &memLog{}
		s := New(Config{Session: "s00000000", Log: log})
		parent := start(t, s, work(func(ctx context.Context, h task.Host) (task.Result, error) {
			if _, err := h.Spawn(ctx, work(instant), task.Spec{Key: "build"}); err != nil {
				return task.Result{}, err
			}
			return until(ctx, h)
		}), task.Spec{})
		synctest.Wait()
		var old []Old
		for born, r := range s.List(0) {
			old = append([]Old{{Born: born, Task: r}}, old...)
		}
		s.Close()

		s = New(Config{Session: "s00000000", Log: log})
		defer s.Close()
		if err := s.Adopt(t.Context(), old, func(task.Kind) task.Driver { return nil }); err != nil {
			t.Fatal(err)
		}
		got := make(chan task.Record, 2)
		_, err := s.Resume(t.Context(), parent.ID, work(func(ctx context.Context, h task.Host) (task.Result, error) {
			for _, key := range []string{"build", "test"} {
				r, err := h.Spawn(ctx, work(instant), task.Spec{Key: key})
				if err != nil {
					return task.Result{}, err
				}
				got <- r
			}
			return task.Result{}, nil
		}), task.Spec{})
		if err != nil {
			t.Fatal(err)
		}
		first, second := <-got, <-got
		if first.ID != old[1].Task.ID || first.Status != task.Completed || first.Key != "build" {
			t.Errorf("the child by its key is %+v, was %+v", first, old[1].Task)
		}
		if second.ID == first.ID || second.Status != task.Pending {
			t.Errorf("a new key gave %+v", second)
		}
	})
}

// Nobody is owed word of the end of a silent task; what it tells before reaches its
// owner.
func TestSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &memLog{}
		var owed []lifecycle.Notification
		s := New(Config{Session: "s00000000", Log: log, Recorded: func(n lifecycle.Notification) { owed = append(owed, n) }})
		defer s.Close()
		rec := start(t, s, work(func(ctx context.Context, h task.Host) (task.Result, error) {
			return task.Result{}, h.Tell(ctx, task.MonitorEvent, "a line", task.Next)
		}), task.Spec{Owner: "s00000000", Backgrounded: true, Silent: true})
		if _, err := s.Wait(t.Context(), []task.ID{rec.ID}, false); err != nil {
			t.Fatal(err)
		}
		if len(owed) != 1 || !owed[0].Acked {
			t.Errorf("notifications %+v", owed)
		}
		if len(log.letters) != 1 || log.letters[0].From != string(rec.ID) || log.letters[0].To != "s00000000" || log.letters[0].Priority != task.Next {
			t.Errorf("letters %+v", log.letters)
		}
	})
}

// steered is work that takes messages.
type steered struct {
	work
	got chan string
}

func (d steered) Steer(_ context.Context, _ task.ID, text string) error {
	d.got <- text
	return nil
}

func TestSteer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Session: "s00000000", Log: &memLog{}})
		defer s.Close()
		d := steered{until, make(chan string, 1)}
		rec, deaf := start(t, s, d, task.Spec{}), start(t, s, work(until), task.Spec{})
		synctest.Wait()
		if err := s.Steer(t.Context(), rec.ID, "left"); err != nil || <-d.got != "left" {
			t.Errorf("steered: %v", err)
		}
		if err := s.Steer(t.Context(), deaf.ID, "left"); !errors.Is(err, ErrNotSteerable) {
			t.Errorf("work that takes none: %v", err)
		}
		if _, err := s.Stop(t.Context(), []task.ID{rec.ID}, StopRequest{}); err != nil {
			t.Fatal(err)
		}
		if err := s.Steer(t.Context(), rec.ID, "left"); !errors.Is(err, ErrNotSteerable) {
			t.Errorf("work that has ended: %v", err)
		}
		if err := s.Steer(t.Context(), "a00000000", "left"); !errors.Is(err, ErrUnknown) {
			t.Errorf("unknown work: %v", err)
		}
	})
}
