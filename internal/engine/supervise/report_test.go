package supervise

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/task"
)

// reportLog holds one report until the test lets it go.
type reportLog struct {
	memLog
	armed atomic.Bool
	at    chan task.ID
	gate  chan struct{}
}

func (l *reportLog) Append(ctx context.Context, e lifecycle.Entry) (task.Seq, error) {
	if e.Verb == task.Report && l.armed.CompareAndSwap(true, false) {
		l.at <- e.Task.ID
		<-l.gate
	}
	return l.memLog.Append(ctx, e)
}

// reports is how many events tell of the progress of a task, before its end.
func (l *memLog) reports(id task.ID) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.entries {
		if e.Task.ID == id && e.Verb == task.Report {
			n++
		}
	}
	return n
}

// chatty says how far it is when it is told to, and ends when it is told to.
func chatty(say, end chan struct{}) work {
	return func(_ context.Context, h task.Host) (task.Result, error) {
		<-say
		h.Progress(task.Progress{ToolUseCount: 7})
		<-end
		return task.Result{}, nil
	}
}

// reporting has two tasks that have said how far they are and end, while the report of
// one is being written: that of other is next.
func reporting(t *testing.T) (s *Supervisor, log *reportLog, first, other task.ID) {
	log = &reportLog{at: make(chan task.ID), gate: make(chan struct{})}
	s = New(Config{Session: "s00000000", Log: log})
	say, end, more := make(chan struct{}), make(chan struct{}), make(chan struct{})
	close(more)
	start(t, s, chatty(more, end), task.Spec{})
	a, b := start(t, s, chatty(say, end), task.Spec{}), start(t, s, chatty(say, end), task.Spec{})
	synctest.Wait() // the reporter rests from the report of the one before, and finds both
	log.armed.Store(true)
	close(say)
	first, other = <-log.at, a.ID
	if first == a.ID {
		other = b.ID
	}
	close(end)
	if _, err := s.Wait(t.Context(), []task.ID{other}, false); err != nil {
		t.Fatal(err)
	}
	return s, log, first, other
}

// What a run has told last is in its record, whatever the reporter is at when it ends.
func TestLastProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, log, first, other := reporting(t)
		defer s.Close()
		close(log.gate)
		recs, err := s.Wait(t.Context(), []task.ID{first, other}, false)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range recs {
			if r.Progress == nil || r.Progress.ToolUseCount != 7 {
				t.Errorf("%s has ended with progress %+v", r.ID, r.Progress)
			}
		}
	})
}

// A further run begins without progress, though that of the one before was still on its
// way to the log.
func TestProgressOfAnEarlierRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, log, _, other := reporting(t)
		defer s.Close()
		if _, err := s.Resume(t.Context(), other, work(until), task.Spec{}); err != nil {
			t.Fatal(err)
		}
		close(log.gate)
		time.Sleep(time.Second)
		if r, _ := s.Get(other); r.Status != task.Running || r.Progress != nil {
			t.Errorf("the second run, which has said nothing: %s %+v", r.Status, r.Progress)
		}
		if n := log.reports(other); n > 0 {
			t.Errorf("%d reports of what is in the end of the first run", n)
		}
	})
}

// What is told once is written once, also while others tell more.
func TestProgressOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &memLog{}
		s := New(Config{Session: "s00000000", Log: log})
		defer s.Close()
		once := start(t, s, work(func(ctx context.Context, h task.Host) (task.Result, error) {
			h.Progress(task.Progress{ToolUseCount: 1})
			return until(ctx, h)
		}), task.Spec{})
		often := start(t, s, work(func(ctx context.Context, h task.Host) (task.Result, error) {
			for n := range 5 {
				time.Sleep(time.Second)
				h.Progress(task.Progress{ToolUseCount: n})
			}
			return until(ctx, h)
		}), task.Spec{})
		time.Sleep(time.Minute)
		if a, b := log.reports(once.ID), log.reports(often.ID); a != 1 || b != 5 {
			t.Errorf("%d reports of what was told once, and %d of what was told five times", a, b)
		}
	})
}

// What a full disk has refused is written with the next event.
func TestProgressRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var full atomic.Bool
		log := &memLog{fail: func(int) error {
			if full.Load() {
				return errors.New("disk full")
			}
			return nil
		}}
		s := New(Config{Session: "s00000000", Log: log})
		defer s.Close()
		say, end := make(chan struct{}), make(chan struct{})
		r := start(t, s, chatty(say, end), task.Spec{})
		synctest.Wait()
		full.Store(true)
		close(say)
		synctest.Wait()
		if log.reports(r.ID) != 0 {
			t.Fatal("the disk was not full")
		}
		full.Store(false)
		close(end)
		recs, err := s.Wait(t.Context(), []task.ID{r.ID}, false)
		if err != nil || recs[0].Progress == nil || recs[0].Progress.ToolUseCount != 7 {
			t.Errorf("it has ended with progress %+v, %v", recs[0].Progress, err)
		}
	})
}
