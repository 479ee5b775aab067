package supervise

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/drover-dev/drover/task"
)

// A parent that has ended and goes on finds the child that it had for a key, also when
// that has left the memory meanwhile: nothing is done twice.
func TestKeyedChildComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &memLog{}
		s := New(Config{Session: "s00000000", Log: log, Held: 2, Recall: log.newest})
		defer s.Close()
		parent := start(t, s, work(until), task.Spec{})
		child := start(t, s, work(instant), task.Spec{Parent: parent.ID, Key: "build/1"})
		synctest.Wait()
		if _, err := s.Stop(t.Context(), []task.ID{parent.ID}, StopRequest{}); err != nil {
			t.Fatal(err)
		}
		for range 10 {
			start(t, s, work(instant), task.Spec{})
		}
		synctest.Wait()
		time.Sleep(time.Minute)
		synctest.Wait()
		for _, id := range held(s) {
			if id == child.ID {
				t.Fatal("the child is in memory: the test shows nothing")
			}
		}
		if _, err := s.Resume(t.Context(), parent.ID, work(until), task.Spec{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if again := start(t, s, work(instant), task.Spec{Parent: parent.ID, Key: "build/1"}); again.ID != child.ID || again.Status != task.Completed {
			t.Errorf("the child is %s (%s), and was %s", again.ID, again.Status, child.ID)
		}
	})
}

// What was thawed by itself below a paused task stays so when the next host takes both
// up.
func TestAdoptedStaysThawed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Session: "s00000000", Log: &memLog{}})
		defer s.Close()
		now := time.Now()
		old := func(id, parent task.ID, paused bool) Old {
			return Old{Born: 1, Task: task.Record{ID: id, Run: task.RunID("run_" + id), Kind: task.LocalAgent, Status: task.Running, Keep: true, Parent: parent,
				Paused: paused, StartTime: &now, Process: &task.Process{PID: 1}}}
		}
		tasks := []Old{old("a00000001", "", true), old("a00000002", "a00000001", false)}
		if err := s.Adopt(t.Context(), tasks, func(task.Kind) task.Driver { return work(until) }); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for id, want := range map[task.ID]bool{"a00000001": true, "a00000002": false} {
			if r, ok := s.Get(id); !ok || r.Paused != want {
				t.Errorf("%s is paused: %v, want %v", id, r.Paused, want)
			}
		}
	})
}

// A pause does not count against the time limit, under the next host neither.
func TestAdoptedPausedHasTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Session: "s00000000", Log: &memLog{}})
		defer s.Close()
		begin := time.Now().Add(-2 * time.Hour)
		rec := task.Record{ID: "b00000001", Run: "run_1", Kind: task.LocalBash, Status: task.Running, Paused: true, Keep: true, Session: "s00000000",
			StartTime: &begin, CreateTime: begin, TimeoutMS: time.Hour.Milliseconds(), Process: &task.Process{PID: 1}}
		if err := s.Adopt(t.Context(), []Old{{Born: 1, Task: rec}}, func(task.Kind) task.Driver { return work(until) }); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Thaw(t.Context(), rec.ID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if r, _ := s.Get(rec.ID); r.Status != task.Running {
			t.Errorf("it has run out of time by its pause: %s, %+v", r.Status, r.Cause)
		}
	})
}
