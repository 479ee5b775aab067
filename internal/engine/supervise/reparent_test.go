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

// ender ends well when it is told to, and not before.
func ender(end <-chan struct{}) work {
	return func(ctx context.Context, _ task.Host) (task.Result, error) {
		select {
		case <-end:
			return task.Result{Text: "done"}, nil
		case <-ctx.Done():
			return task.Result{}, context.Cause(ctx)
		}
	}
}

// What a task leaves goes to its parent with all below it, whatever fails: when
// the disk refuses a change, the child is stopped with its parent as ever.
func TestHandOver(t *testing.T) {
	for fail := range 6 { // which of the changes from the end on is refused; 0: none
		synctest.Test(t, func(t *testing.T) {
			log := &memLog{}
			s := New(Config{Session: "s00000000", Log: log})
			defer s.Close()
			end := make(chan struct{})
			top := start(t, s, work(until), task.Spec{Owner: "s00000000"})
			mid := start(t, s, ender(end), task.Spec{Parent: top.ID, Owner: top.ID, OnEnd: task.Reparents})
			child := start(t, s, work(until), task.Spec{Parent: mid.ID, Owner: mid.ID, Key: "k"})
			below := start(t, s, work(until), task.Spec{Parent: child.ID, Owner: child.ID})
			synctest.Wait()
			log.mu.Lock()
			n := 0
			log.fail = func(int) error {
				if n++; n == fail {
					return errors.New("disk full")
				}
				return nil
			}
			log.mu.Unlock()
			close(end)
			<-s.Done(mid.ID)
			rec, _ := s.Get(child.ID)
			deep, _ := s.Get(below.ID)
			switch {
			case rec.Status == task.Killed:
				if fail != 1 || deep.Status != task.Killed || rec.Parent != mid.ID {
					t.Errorf("fault %d: stopped as %+v", fail, rec)
				}
				return
			case rec.Parent != top.ID || rec.Owner != top.ID || rec.Depth != 2 || !rec.Backgrounded || rec.Key != "":
				t.Errorf("fault %d: left as %+v", fail, rec)
			case deep.Parent != child.ID || deep.Owner != child.ID || fail == 0 && deep.Depth != 3:
				t.Errorf("fault %d: below it stands %+v", fail, deep)
			}
			was, _ := s.Get(mid.ID)
			if len(was.LeftTasks) != 1 || was.LeftTasks[0].ID != child.ID || was.LeftTasks[0].Status != task.Running {
				t.Errorf("fault %d: it has left %+v", fail, was.LeftTasks)
			}
			receipt, err := s.Stop(t.Context(), []task.ID{top.ID}, StopRequest{Cause: task.Cause{Actor: task.ByUser, Reason: task.ReasonStopped}})
			if err != nil || len(receipt.Stopped) < 3 {
				t.Errorf("fault %d: a stop of the new parent: %+v, %v", fail, receipt, err)
			}
			for _, id := range []task.ID{child.ID, below.ID} {
				if r, _ := s.Get(id); r.Status != task.Killed {
					t.Errorf("fault %d: %s is %s after the stop", fail, id, r.Status)
				}
			}
		})
	}
}

// Two that end at the same moment, one below the other, leave what runs to the one
// above both: it is theirs no more, and is not stopped.
func TestHandOverTwice(t *testing.T) {
	for range 300 {
		s := New(Config{Session: "s00000000", Log: &memLog{}})
		end := make(chan struct{})
		top := start(t, s, work(until), task.Spec{Owner: "s00000000"})
		one := start(t, s, ender(end), task.Spec{Parent: top.ID, Owner: top.ID, OnEnd: task.Reparents})
		two := start(t, s, ender(end), task.Spec{Parent: one.ID, Owner: one.ID, OnEnd: task.Reparents})
		child := start(t, s, work(until), task.Spec{Parent: two.ID, Owner: two.ID})
		close(end)
		<-s.Done(one.ID)
		<-s.Done(two.ID)
		rec, _ := s.Get(child.ID)
		s.Close()
		if rec.Status.Terminal() || rec.Parent != top.ID || rec.Owner != top.ID || rec.Depth != 2 {
			t.Fatalf("it was left as %s %+v, below %s", rec.Status, rec.Cause, rec.Parent)
		}
	}
}

// A driver that passes its tasks on loses none of them, also where its own task is moved to the
// background at the same time: its record names what has gone to its parent.
func TestPassOn(t *testing.T) {
	for _, promoted := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := New(Config{Session: "s00000000", Log: &memLog{}})
			defer s.Close()
			end := make(chan struct{})
			top := start(t, s, work(until), task.Spec{Owner: "s00000000"})
			mid := start(t, s, work(func(ctx context.Context, h task.Host) (task.Result, error) {
				res, err := ender(end)(ctx, h)
				if promoted { // its decision is made
					if _, err := s.Promote(ctx, h.Record().ID); err != nil {
						t.Error(err)
					}
				}
				res.PassOn = true
				return res, err
			}), task.Spec{Parent: top.ID, Owner: top.ID})
			child := start(t, s, work(until), task.Spec{Parent: mid.ID, Owner: mid.ID, Command: "make test"})
			synctest.Wait() // until it runs
			close(end)
			<-s.Done(mid.ID)
			was, _ := s.Get(mid.ID)
			rec, _ := s.Get(child.ID)
			if rec.Status != task.Running || rec.Owner != top.ID || rec.Parent != top.ID || was.Backgrounded != promoted {
				t.Errorf("promoted %v: %s %+v, of %s", promoted, rec.Status, rec.Cause, rec.Owner)
			}
			if len(was.LeftTasks) != 1 || was.LeftTasks[0].ID != child.ID || was.LeftTasks[0].About != "make test" {
				t.Errorf("promoted %v: it names %+v", promoted, was.LeftTasks)
			}
		})
	}
}

// The end of an agent whose host has died names the tasks that died with it, and those whose end
// it had not read.
func TestLostNames(t *testing.T) {
	agent := task.Record{ID: "a00000001", Run: "run_a", Kind: task.LocalAgent, Status: task.Running, Owner: "s00000000"}
	unread := task.Record{ID: "b00000002", Run: "run_b", Kind: task.LocalBash, Status: task.Completed, Parent: agent.ID, Owner: agent.ID}
	lost := task.Record{ID: "b00000003", Run: "run_c", Kind: task.LocalBash, Status: task.Running, Parent: agent.ID, Owner: agent.ID}
	log := &memLog{}
	s := New(Config{Session: "s00000000", Log: log, Unseen: func(context.Context, task.ID) ([]lifecycle.Notification, error) {
		return []lifecycle.Notification{{Task: unread.ID, Run: unread.Run}}, nil
	}})
	defer s.Close()
	old := []Old{{Born: 1, Task: agent}, {Born: 2, Task: unread}, {Born: 3, Task: lost}}
	if err := s.Adopt(t.Context(), old, func(task.Kind) task.Driver { return nil }); err != nil {
		t.Fatal(err)
	}
	rec, _ := s.Get(agent.ID)
	if l := rec.LeftTasks; len(l) != 2 || l[0].ID != unread.ID || l[0].Status != task.Completed || l[1].ID != lost.ID || l[1].Status != task.Killed {
		t.Errorf("it names %+v", l)
	}
}

// A task leaves nothing when it is stopped, when the one above it is being stopped,
// when the host closes, or when it was not to.
func TestLeavesNothing(t *testing.T) {
	for name, stop := range map[string]func(*Supervisor, task.ID, task.ID, chan struct{}){
		"stopped": func(s *Supervisor, _, mid task.ID, _ chan struct{}) {
			_, _ = s.Stop(context.Background(), []task.ID{mid}, StopRequest{})
		},
		"above": func(s *Supervisor, top, _ task.ID, _ chan struct{}) {
			_, _ = s.Stop(context.Background(), []task.ID{top}, StopRequest{})
		},
		"closing": func(s *Supervisor, _, _ task.ID, _ chan struct{}) { s.Close() },
		"not-to":  func(_ *Supervisor, _, _ task.ID, end chan struct{}) { close(end) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := &memLog{}
				s := New(Config{Session: "s00000000", Log: log})
				defer s.Close()
				end, how := make(chan struct{}), task.Reparents
				if name == "not-to" {
					how = "stop"
				}
				top := start(t, s, work(until), task.Spec{})
				mid := start(t, s, ender(end), task.Spec{Parent: top.ID, OnEnd: how})
				child := start(t, s, work(until), task.Spec{Parent: mid.ID})
				synctest.Wait()
				stop(s, top.ID, mid.ID, end)
				<-s.Done(mid.ID)
				if r, _ := s.Get(child.ID); r.Status != task.Killed || r.Parent != mid.ID {
					t.Errorf("it was left as %+v", r)
				}
			})
		})
	}
}

// A time limit passes neither while the task is paused nor while it waits for its
// place, and both at once count once.
func TestClockStands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Session: "s00000000", Log: &memLog{}, Pools: map[string]Pool{"one": {Size: 1}}})
		defer s.Close()
		end := make(chan struct{})
		waits := work(func(ctx context.Context, h task.Host) (task.Result, error) {
			rec, err := h.Spawn(ctx, work(until), task.Spec{Timeout: 10 * time.Minute})
			if err == nil {
				_, err = h.Await(ctx, rec.ID)
			}
			if err == nil {
				<-ctx.Done()
				err = context.Cause(ctx)
			}
			return task.Result{}, err
		})
		first := start(t, s, waits, task.Spec{Pool: "one", Timeout: time.Hour})
		other := start(t, s, ender(end), task.Spec{Pool: "one"}) // it has the place while the first waits
		time.Sleep(11 * time.Minute)
		if used, limit := s.Clock(first.ID); used != 10*time.Minute || limit != time.Hour {
			t.Errorf("after the wait for a child %s of %s", used, limit)
		}
		if _, err := s.Pause(t.Context(), first.ID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		close(end)
		<-s.Done(other.ID)
		synctest.Wait()
		time.Sleep(time.Hour)
		if _, err := s.Thaw(t.Context(), first.ID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(49 * time.Minute)
		if used, _ := s.Clock(first.ID); used != 59*time.Minute {
			t.Errorf("after the pause %s", used)
		}
		time.Sleep(2 * time.Minute)
		if r, _ := s.Get(first.ID); r.Status != task.Failed || r.Cause.Reason != task.ReasonTimeout {
			t.Errorf("when its time was up: %s %+v", r.Status, r.Cause)
		}
		if used, limit := s.Clock(first.ID); used != 0 || limit != 0 {
			t.Errorf("after its end %s of %s", used, limit)
		}
	})
}

// All runs of a root count in the next host too, not only the first of each task.
func TestRunsOverHosts(t *testing.T) {
	log, pools := &memLog{}, map[string]Pool{"p": {Size: 9, PerRoot: 4, PerSession: 6}}
	s := New(Config{Session: "s00000000", Log: log, Pools: pools})
	spec := task.Spec{Pool: "p", Owner: "one"}
	first := start(t, s, work(instant), spec)
	var last task.Record
	for range 2 {
		<-s.Done(first.ID)
		if _, err := s.Resume(t.Context(), first.ID, work(instant), spec); err != nil {
			t.Fatal(err)
		}
	}
	<-s.Done(first.ID)
	last, _ = s.Get(first.ID)
	s.Close()
	s = New(Config{Session: "s00000000", Log: log, Pools: pools})
	defer s.Close()
	if err := s.Adopt(t.Context(), []Old{{Born: 1, Task: last}}, func(task.Kind) task.Driver { return nil }); err != nil {
		t.Fatal(err)
	}
	start(t, s, work(instant), spec)
	if _, err := s.Start(t.Context(), work(instant), spec); err == nil {
		t.Error("a fifth run of the root")
	} else if limit, _ := refusedBy(err); limit != "per_root" {
		t.Error(err)
	}
	spec.Owner = "two"
	for range 2 {
		start(t, s, work(instant), spec)
	}
	if limit, _ := refusedBy(func() error { _, err := s.Start(t.Context(), work(instant), spec); return err }()); limit != "per_session" {
		t.Errorf("a seventh run of the session: %s", limit)
	}
}
