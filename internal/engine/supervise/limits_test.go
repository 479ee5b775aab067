package supervise

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drover-dev/drover/task"
)

// refusedBy is the limit that an error names, and for how long.
func refusedBy(err error) (limit string, wait time.Duration) {
	var l *LimitError
	if !errors.As(err, &l) {
		return fmt.Sprint(err), 0
	}
	return l.Limit, l.Wait
}

// A root starts so many within any minute, is told when it may go on, and takes
// nothing from another root (G2). Further runs count, refused and failed starts do
// not.
func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := errors.New("disk full")
		log := &memLog{}
		s := New(Config{Session: "s00000000", Log: log, Pools: map[string]Pool{"p": {Size: 9, Rate: 3}}})
		defer s.Close()
		of := func(owner task.ID) task.Spec { return task.Spec{Pool: "p", Owner: owner} }
		try := func(owner task.ID) error {
			_, err := s.Start(t.Context(), work(instant), of(owner))
			return err
		}
		first := start(t, s, work(instant), of("one"))
		time.Sleep(20 * time.Second)
		breaks := func(fail func(int) error) {
			log.mu.Lock()
			defer log.mu.Unlock()
			log.fail = fail
		}
		breaks(func(int) error { return full })
		if err := try("one"); !errors.Is(err, full) {
			t.Fatal(err)
		}
		breaks(nil)
		start(t, s, work(instant), of("one"))
		if _, err := s.Resume(t.Context(), first.ID, work(instant), of("one")); err != nil {
			t.Fatal(err)
		}
		for range 2 { // what is refused does not push the next start away
			err := try("one")
			if limit, wait := refusedBy(err); limit != "rate" || wait != 40*time.Second {
				t.Fatalf("the fourth start within a minute: %v", err)
			}
			if want := "too many starts: 3 within a minute are allowed, and the next is possible in 40 s"; err.Error() != want {
				t.Errorf("%q, want %q", err, want)
			}
		}
		if _, err := s.Resume(t.Context(), first.ID, work(instant), of("one")); err == nil {
			t.Error("a further run passed the rate")
		}
		if err := try("two"); err != nil {
			t.Errorf("another root: %v", err)
		}
		time.Sleep(40 * time.Second)
		if err := try("one"); err != nil {
			t.Errorf("when the time has come: %v", err)
		}
		if limit, wait := refusedBy(try("one")); limit != "rate" || wait != 20*time.Second {
			t.Errorf("after that: %s, %s", limit, wait)
		}
	})
}

// All roots of a session together start so many, those of earlier hosts included.
func TestPerSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Session: "s00000000", Log: &memLog{}, Pools: map[string]Pool{"p": {Size: 9, PerSession: 3, Rate: 2}}})
		defer s.Close()
		old := task.Record{ID: "a00000001", Run: "r1", Kind: task.LocalAgent, Status: task.Completed, Pool: "p", CreateTime: time.Now()}
		if err := s.Adopt(t.Context(), []Old{{Born: 1, Task: old}}, nil); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			start(t, s, work(instant), task.Spec{Pool: "p", Owner: old.ID}) // the rate begins anew with the host
		}
		_, err := s.Start(t.Context(), work(instant), task.Spec{Pool: "p"})
		if limit, _ := refusedBy(err); limit != "per_session" {
			t.Errorf("start over the limit of the session: %v", err)
		}
		if _, err := s.Start(t.Context(), work(instant), task.Spec{}); err != nil {
			t.Errorf("a task of no pool: %v", err)
		}
	})
}

// Where every agent starts twenty more and waits for them, the caps end it: each
// start beyond them is refused by name, and everything that began ends.
func TestRunaway(t *testing.T) {
	for _, c := range []struct {
		name string
		pool Pool
		runs int
		by   []string
	}{
		{"root", Pool{Size: 10, Depth: 3, PerRoot: 200}, 200, []string{"depth", "per_root"}},
		{"rate", Pool{Size: 10, Depth: 3, PerRoot: 200, Rate: 60}, 60, []string{"rate"}},
		{"session", Pool{Size: 10, Depth: 3, PerRoot: 200, PerSession: 30}, 30, []string{"per_session"}},
		{"depth", Pool{Size: 10, Depth: 3, PerRoot: 500}, 420, []string{"depth"}},
		{"one-place", Pool{Size: 1, Depth: 3, PerRoot: 200}, 200, []string{"per_root"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := New(Config{Session: "s00000000", Log: &memLog{}, Pools: map[string]Pool{"p": c.pool}})
				defer s.Close()
				refused := make(chan string, 10_000)
				var breed work
				breed = func(ctx context.Context, h task.Host) (task.Result, error) {
					var children []task.ID
					for range 20 {
						child, err := h.Spawn(ctx, breed, task.Spec{Pool: "p"})
						if err != nil {
							limit, _ := refusedBy(err)
							refused <- limit
							continue
						}
						children = append(children, child.ID)
					}
					for _, id := range children {
						if _, err := h.Await(ctx, id); err != nil {
							return task.Result{}, err
						}
					}
					return task.Result{}, nil
				}
				top := start(t, s, breed, task.Spec{Owner: "s00000000"})
				if recs, err := s.Wait(t.Context(), []task.ID{top.ID}, false); err != nil || recs[0].Status != task.Completed {
					t.Fatalf("%+v, %v", recs, err)
				}
				live, total := s.Live()
				if live != 0 || total != c.runs+1 {
					t.Errorf("%d alive of %d, want none of %d and the one at the top", live, total, c.runs)
				}
				for _, r := range s.List(0) {
					if r.Status != task.Completed {
						t.Errorf("%s: %s %s", r.ID, r.Status, r.Error)
					}
				}
				close(refused)
				by := map[string]int{}
				for limit := range refused {
					by[limit]++
				}
				for _, limit := range c.by {
					if by[limit] == 0 {
						t.Errorf("nothing was refused by %s: %v", limit, by)
					}
				}
				if p := s.pools["p"]; p.taken != 0 || p.line.Len()+p.back.Len() != 0 {
					t.Errorf("places are still taken: %d, %d in line", p.taken, p.line.Len()+p.back.Len())
				}
			})
		})
	}
}

// A hundred starts at once with ten places: ten work, ninety say their place, all
// come to their end, and those first in line come first.
func TestHundredQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Session: "s00000000", Log: &memLog{}, Pools: map[string]Pool{"p": {Size: 10, Queue: 1000}}})
		defer s.Close()
		gate := make(chan struct{})
		began := make(chan task.ID, 100)
		d := work(func(ctx context.Context, h task.Host) (task.Result, error) {
			began <- h.Record().ID
			<-gate
			return task.Result{}, nil
		})
		var ids []task.ID
		for range 100 {
			ids = append(ids, start(t, s, d, task.Spec{Pool: "p", Owner: "s00000000"}).ID)
		}
		synctest.Wait()
		if len(began) != 10 {
			t.Fatalf("%d work at the same time, want 10", len(began))
		}
		for i, id := range ids[10:] {
			r, _ := s.Get(id)
			if want := fmt.Sprintf("queued, place %d", i+1); r.Status != task.Pending || r.Progress == nil || r.Progress.Message != want {
				t.Errorf("number %d: %s %+v, want %q", i+11, r.Status, r.Progress, want)
			}
		}
		for i := range 100 {
			if i%10 == 0 { // they begin ten by ten, each ten in any order
				synctest.Wait()
			}
			gate <- struct{}{}
		}
		recs, err := s.Wait(t.Context(), ids, false)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range recs {
			if r.Status != task.Completed {
				t.Errorf("%s: %s %s", r.ID, r.Status, r.Error)
			}
		}
	})
}

// A chain of agents six deep that wait for each other comes to its end with one
// place.
func TestDeepChain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Session: "s00000000", Log: &memLog{}, Pools: map[string]Pool{"p": {Size: 1, Depth: 6}}})
		defer s.Close()
		deepest := ""
		var nest work
		nest = func(ctx context.Context, h task.Host) (task.Result, error) {
			child, err := h.Spawn(ctx, nest, task.Spec{Pool: "p"})
			if err != nil {
				deepest, _ = refusedBy(err)
				return task.Result{}, nil
			}
			_, err = h.Await(ctx, child.ID)
			return task.Result{}, err
		}
		top := start(t, s, nest, task.Spec{Pool: "p", Owner: "s00000000"})
		if recs, err := s.Wait(t.Context(), []task.ID{top.ID}, false); err != nil || recs[0].Status != task.Completed {
			t.Fatalf("%+v, %v", recs, err)
		}
		if _, total := s.Live(); total != 6 || deepest != "depth" {
			t.Errorf("%d agents, and then %q", total, deepest)
		}
	})
}

// A run whose time is up has a moment more, which a stop still ends; it has failed
// by its time in any case.
func TestOvertime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Session: "s00000000", Log: &memLog{}})
		defer s.Close()
		causes := make(chan error, 1)
		d := work(func(ctx context.Context, h task.Host) (task.Result, error) {
			<-ctx.Done()
			over, done := h.(task.Overtimer).Overtime(time.Minute)
			defer done()
			if over.Err() != nil {
				return task.Result{}, errors.New("there is no overtime")
			}
			<-over.Done()
			causes <- context.Cause(over)
			return task.Result{Text: "half"}, context.Cause(ctx)
		})
		for _, stops := range []bool{false, true} {
			began := time.Now()
			r := start(t, s, d, task.Spec{Owner: "s00000000", Timeout: time.Second})
			if stops {
				time.Sleep(2 * time.Second)
				if _, err := s.Stop(t.Context(), []task.ID{r.ID}, StopRequest{Cause: task.Cause{Actor: task.ByUser}}); err != nil {
					t.Fatal(err)
				}
			}
			recs, err := s.Wait(t.Context(), []task.ID{r.ID}, false)
			if err != nil || recs[0].Status != task.Failed || recs[0].Cause.Reason != task.ReasonTimeout {
				t.Errorf("%+v, %v", recs, err)
			}
			var stop *task.StopError
			if cause := <-causes; errors.As(cause, &stop) != stops {
				t.Errorf("the overtime ended by %v", cause)
			}
			if took := time.Since(began); stops != (took < time.Minute) {
				t.Errorf("it took %s", took)
			}
		}
	})
}
