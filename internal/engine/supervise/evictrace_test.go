package supervise

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/task"
)

// Who comes a moment behind another that has brought a task back has it too, and does
// not hear that there is none.
func TestEvictAskedTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &memLog{}
		s := New(Config{Session: "s00000000", Log: log, Held: 1, Recall: log.newest})
		defer s.Close()
		old := start(t, s, work(instant), task.Spec{})
		synctest.Wait()
		for range 5 {
			start(t, s, work(instant), task.Spec{})
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if slices.Contains(held(s), old.ID) {
			t.Fatal("it is in memory: the test shows nothing")
		}
		for n := range 2 { // both have seen it gone
			if e := s.recall(old.ID); e == nil || e.id != old.ID {
				t.Errorf("the one that comes as number %d hears that there is no such task", n+1)
			}
		}
	})
}

// What is brought back, found and forgotten by many at once is there all the time, and
// once.
func TestEvictRaces(t *testing.T) {
	log := &memLog{}
	s := New(Config{Session: "s00000000", Log: log, Held: 1, Grace: time.Nanosecond, Recall: log.newest})
	defer s.Close()
	var ids []task.ID
	for range 4 {
		r := start(t, s, work(instant), task.Spec{Name: "n"})
		ids = append(ids, r.ID)
		<-s.Done(r.ID)
	}
	var wg sync.WaitGroup
	ctx := t.Context()
	for n := range 6 {
		wg.Go(func() {
			for i := range 1000 {
				id := ids[(n+i)%len(ids)]
				switch n {
				case 0: // brings back, and lets others go
					_, _ = s.Resume(ctx, id, work(instant), task.Spec{})
				case 1, 2:
					if _, err := s.Wait(ctx, []task.ID{id}, false); err != nil {
						t.Errorf("Wait: %v", err)
						return
					}
				case 3:
					if r, err := s.Find(string(id)); err != nil || r.ID != id {
						t.Errorf("Find: %s, %v", r.ID, err)
						return
					}
				case 4:
					if r, err := s.Find(string(id[:8])); err != nil || r.ID != id {
						t.Errorf("Find by the beginning: %s, %v", r.ID, err)
						return
					}
				default:
					if got := listing(t, s, 0); !slices.Equal(got, ids) {
						t.Errorf("listed %v, want %v", got, ids)
						return
					}
				}
			}
		})
	}
	wg.Wait()
}

// A task does not leave the memory while a further run of it is being recorded.
func TestResumeStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &slowLog{enter: make(chan struct{}), leave: make(chan struct{})}
		s := New(Config{Session: "s00000000", Log: log, Held: 1, Recall: log.newest})
		defer s.Close()
		old := start(t, s, work(instant), task.Spec{})
		synctest.Wait()
		time.Sleep(time.Minute)
		resumed := make(chan error)
		go func() {
			_, err := s.Resume(t.Context(), old.ID, work(until), task.Spec{})
			resumed <- err
		}()
		<-log.enter
		for range 5 { // each end is an occasion to let it go
			start(t, s, work(instant), task.Spec{})
			time.Sleep(time.Minute)
			synctest.Wait()
		}
		if !slices.Contains(held(s), old.ID) {
			t.Error("it has left the memory meanwhile")
		}
		close(log.leave)
		if err := <-resumed; err != nil {
			t.Fatal(err)
		}
		receipt, err := s.Stop(t.Context(), []task.ID{old.ID}, byUser)
		if r, _ := s.Get(old.ID); err != nil || r.Status != task.Killed || r.Resumes != 1 {
			t.Errorf("it is %s: %+v, %v", r.Status, receipt, err)
		}
	})
}

// slowLog holds up the record of a further run.
type slowLog struct {
	memLog
	enter, leave chan struct{}
}

func (l *slowLog) Append(ctx context.Context, e lifecycle.Entry) (task.Seq, error) {
	if e.Verb == task.Resume {
		close(l.enter)
		<-l.leave
	}
	return l.memLog.Append(ctx, e)
}

// Tasks that end one after the other leave the memory together: each time costs a copy
// of all that there are.
func TestEvictTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &memLog{}
		s := New(Config{Session: "s00000000", Log: log, Held: 8, Recall: log.newest})
		defer s.Close()
		const n = 400
		times, before := 0, 0
		look := func() {
			time.Sleep(10 * time.Millisecond)
			synctest.Wait()
			s.mu.RLock()
			defer s.mu.RUnlock()
			if now := len(s.past.order); now != before {
				times, before = times+1, now
			}
		}
		for range n {
			start(t, s, work(instant), task.Spec{})
			look()
		}
		for range 5000 {
			look()
		}
		if before != n-7 && before != n-8 || times > 4 {
			t.Errorf("%d of %d left the memory in %d steps", before, n, times)
		}
	})
}

// A task that is given run after run holds up nobody that has ended behind it.
func TestEvictBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &memLog{}
		s := New(Config{Session: "s00000000", Log: log, Held: 2, Recall: log.newest})
		defer s.Close()
		again := start(t, s, work(instant), task.Spec{})
		synctest.Wait()
		for range 20 {
			start(t, s, work(instant), task.Spec{})
			synctest.Wait()
		}
		for range 30 {
			time.Sleep(10 * time.Second)
			if _, err := s.Resume(t.Context(), again.ID, work(instant), task.Spec{}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		if n := len(held(s)); n > 4 {
			t.Errorf("%d are in memory", n)
		}
	})
}
