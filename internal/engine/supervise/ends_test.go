package supervise

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/task"
)

// A parent whose child was ended by the stop of the whole tree does not go on meanwhile:
// its own stop is all that it hears.
func TestAwaitInAStoppedTree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Session: "s00000000", Log: &memLog{}})
		defer s.Close()
		slow := work(func(ctx context.Context, _ task.Host) (task.Result, error) {
			<-ctx.Done()
			time.Sleep(time.Hour)
			return task.Result{}, context.Cause(ctx)
		})
		told := make(chan error, 1)
		root := start(t, s, work(func(ctx context.Context, h task.Host) (task.Result, error) {
			quick, err := h.Spawn(ctx, work(until), task.Spec{})
			if err == nil {
				_, err = h.Spawn(ctx, slow, task.Spec{})
			}
			if err != nil {
				t.Error(err)
			}
			_, err = h.Await(ctx, quick.ID)
			told <- err
			return until(ctx, h)
		}), task.Spec{})
		synctest.Wait()
		if _, err := s.Stop(t.Context(), []task.ID{root.ID}, StopRequest{Cause: byUser.Cause, Limit: 2 * time.Hour}); err != nil {
			t.Fatal(err)
		}
		var stop *task.StopError
		if err := <-told; !errors.As(err, &stop) {
			t.Errorf("the wait for a child ended with %v", err)
		}
	})
}

// Who is stopped while it waits to have its place again leaves the line: the next place
// that is free is for somebody who lives.
func TestStoppedOnItsWayBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Session: "s00000000", Log: &memLog{}, Pools: map[string]Pool{"p": {Size: 1}}})
		defer s.Close()
		end := make(chan struct{})
		away := start(t, s, work(func(ctx context.Context, h task.Host) (task.Result, error) {
			c, err := h.Spawn(ctx, work(func(context.Context, task.Host) (task.Result, error) { <-end; return task.Result{}, nil }), task.Spec{})
			if err == nil {
				_, err = h.Await(ctx, c.ID)
			}
			return task.Result{}, err
		}), task.Spec{Pool: "p"})
		synctest.Wait()
		holder := start(t, s, work(until), task.Spec{Pool: "p"})
		synctest.Wait()
		close(end)
		synctest.Wait() // away is in the line now
		for _, id := range []task.ID{away.ID, holder.ID} {
			if _, err := s.Stop(t.Context(), []task.ID{id}, byUser); err != nil {
				t.Fatal(err)
			}
		}
		next := start(t, s, work(until), task.Spec{Pool: "p"})
		synctest.Wait()
		if r, _ := s.Get(next.ID); r.Status != task.Running {
			t.Errorf("the place is free, and the next task is %s", r.Status)
		}
	})
}

// An end that a full disk has refused for long is tried again several times when the
// session closes, and not only once.
func TestEndIsTriedAgainAtTheClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var full atomic.Bool
		log := &memLog{fail: func(int) error {
			if full.Load() {
				return errors.New("disk full")
			}
			return nil
		}}
		s := New(Config{Session: "s00000000", Log: log})
		end := make(chan struct{})
		r := start(t, s, work(func(context.Context, task.Host) (task.Result, error) { <-end; return task.Result{}, nil }), task.Spec{})
		synctest.Wait()
		full.Store(true)
		close(end)
		time.Sleep(time.Minute) // the tries are far apart by now
		closed := make(chan struct{})
		go func() { defer close(closed); s.Close() }()
		time.Sleep(2 * firstWait)
		full.Store(false)
		<-closed
		if log.notifications(r.Run) != 1 {
			t.Error("its end is not recorded")
		}
	})
}

// The record of a task has the beginning of a long prompt, of its first run and of the next.
func TestLongPrompt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &memLog{}
		s := New(Config{Session: "s00000000", Log: log})
		defer s.Close()
		prompt := strings.Repeat("a line of a log\n", 10_000)
		r := start(t, s, work(instant), task.Spec{Prompt: "first " + prompt})
		if _, err := s.Wait(t.Context(), []task.ID{r.ID}, false); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Resume(t.Context(), r.ID, work(instant), task.Spec{Prompt: "second " + prompt}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Wait(t.Context(), []task.ID{r.ID}, false); err != nil {
			t.Fatal(err)
		}
		if now, _ := s.Get(r.ID); !strings.HasPrefix(r.Prompt, "first a line") || !strings.HasPrefix(now.Prompt, "second a line") {
			t.Errorf("the prompts begin with %.20q and %.20q", r.Prompt, now.Prompt)
		}
		for _, e := range log.entries {
			if len(e.Task.Prompt) > lifecycle.MaxRecordPrompt {
				t.Errorf("%s has %d bytes of the prompt", e.Verb, len(e.Task.Prompt))
			}
		}
	})
}
