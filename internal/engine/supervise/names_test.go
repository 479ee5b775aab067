package supervise

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drover-dev/drover/task"
)

// TestNames: a name means the newest that lives, else the newest that has ended,
// whatever has left the memory and was given a further run meanwhile.
func TestNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &memLog{}
		s := New(Config{Session: "s00000000", Log: log, Held: 1, Grace: time.Second, Recall: log.newest})
		defer s.Close()
		means := func(when string, want task.ID) {
			t.Helper()
			if r, err := s.Find("web"); err != nil || r.ID != want {
				t.Errorf("%s: %s, %v, want %s", when, r.ID, err, want)
			}
		}
		first := start(t, s, work(instant), task.Spec{Name: "web"})
		synctest.Wait()
		second := start(t, s, work(until), task.Spec{Name: "web"})
		synctest.Wait()
		means("one lives", second.ID)
		beside := start(t, s, work(until), task.Spec{Name: "web"})
		if beside.Name != "web-2" || beside.AskedName != "web" || second.AskedName != "" {
			t.Errorf("beside one that lives: %q for %q", beside.Name, beside.AskedName)
		}
		means("another was renamed", second.ID)
		if _, err := s.Resume(t.Context(), first.ID, work(until), task.Spec{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		means("an older one goes on", second.ID)
		if _, err := s.Stop(t.Context(), []task.ID{second.ID}, byUser); err != nil {
			t.Fatal(err)
		}
		means("only the older one lives", first.ID)
		third := start(t, s, work(until), task.Spec{Name: "web"})
		if third.Name != "web-3" {
			t.Errorf("beside a resumed one: %q", third.Name)
		}
		if _, err := s.Stop(t.Context(), []task.ID{first.ID}, byUser); err != nil {
			t.Fatal(err)
		}
		means("both have ended", second.ID)
		for range 3 {
			start(t, s, work(instant), task.Spec{})
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		means("both have left the memory", second.ID)
		if _, ok := s.Get(first.ID); !ok {
			t.Error("the first is gone")
		}
		means("the older one is back in memory", second.ID)
	})
}

// TestNamesAdopted: the next host takes a name as the one before did.
func TestNamesAdopted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &memLog{}
		s := New(Config{Session: "s00000000", Log: log})
		defer s.Close()
		var old []Old
		for i, id := range []task.ID{"b00000001", "b00000002", "b00000003"} {
			old = append(old, Old{Born: task.Seq(i + 1), Task: task.Record{ID: id, Run: task.NewRunID(), Kind: task.LocalBash, Name: "web",
				Status: task.Running, Keep: true, Process: &task.Process{PID: 1}}})
		}
		old[2].Task.Status = task.Completed
		for _, o := range old {
			s.remember(o)
		}
		if r, err := s.Find("web"); err != nil || r.ID != "b00000002" {
			t.Errorf("web is %s, %v", r.ID, err)
		}
		s.mu.RLock()
		defer s.mu.RUnlock()
		if got := s.uniqueName("web"); got != "web-2" {
			t.Errorf("the name %q is given", got)
		}
	})
}

// What lives is listed newest first, and a task again once it is resumed.
func TestLiving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Session: "s00000000", Log: &memLog{}})
		defer s.Close()
		first := start(t, s, work(until), task.Spec{})
		ended := start(t, s, work(instant), task.Spec{})
		last := start(t, s, work(until), task.Spec{})
		synctest.Wait()
		want := func(ids ...task.ID) {
			t.Helper()
			var got []task.ID
			for _, r := range s.Living() {
				got = append(got, r.ID)
			}
			if !slices.Equal(got, ids) {
				t.Errorf("alive are %v, want %v", got, ids)
			}
		}
		want(last.ID, first.ID)
		if _, err := s.Resume(t.Context(), ended.ID, work(until), task.Spec{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		want(last.ID, ended.ID, first.ID)
	})
}
