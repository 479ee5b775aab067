package supervise

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/task"
)

// heldLog holds the appends of further runs until the test lets them go.
type heldLog struct {
	memLog
	at   chan struct{} // an append has come
	gate chan struct{} // it may go on
}

func newHeldLog() *heldLog { return &heldLog{at: make(chan struct{}), gate: make(chan struct{})} }

func (l *heldLog) Append(ctx context.Context, e lifecycle.Entry) (task.Seq, error) {
	if e.Verb == task.Resume {
		close(l.at)
		<-l.gate
	}
	return l.memLog.Append(ctx, e)
}

// A host does not retire while a further run is being recorded, which it would end.
func TestRetireWhileResuming(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newHeldLog()
		s := New(Config{Session: "s00000000", Log: log})
		defer s.Close()
		rec := start(t, s, work(instant), task.Spec{})
		_, _ = s.Wait(t.Context(), []task.ID{rec.ID}, false)
		resumed := make(chan error, 1)
		go func() { _, err := s.Resume(t.Context(), rec.ID, work(until), task.Spec{}); resumed <- err }()
		<-log.at
		if s.Retire() {
			t.Error("it retires")
		}
		close(log.gate)
		if err := <-resumed; err != nil {
			t.Error(err)
		}
	})
}

// A stop waits for a further run that is being recorded in its tree, and ends it.
func TestStopWhileResuming(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newHeldLog()
		s := New(Config{Session: "s00000000", Log: log})
		defer s.Close()
		kid := make(chan task.ID, 1)
		root := start(t, s, work(func(ctx context.Context, h task.Host) (task.Result, error) {
			r, _ := h.Spawn(ctx, work(instant), task.Spec{})
			_, _ = h.Await(ctx, r.ID)
			kid <- r.ID
			return until(ctx, h)
		}), task.Spec{})
		id := <-kid
		resumed := make(chan error, 1)
		go func() { _, err := s.Resume(t.Context(), id, work(until), task.Spec{}); resumed <- err }()
		<-log.at
		stopped := make(chan task.Receipt, 1)
		go func() {
			receipt, _ := s.Stop(t.Context(), []task.ID{root.ID}, byUser)
			stopped <- receipt
		}()
		synctest.Wait()
		close(log.gate)
		receipt := <-stopped
		if err := <-resumed; err != nil {
			t.Error(err)
		}
		if live, _ := s.Live(); live > 0 {
			t.Errorf("%d tasks live on in a tree that is stopped", live)
		}
		if len(receipt.Stopped) != 2 || receipt.Stopped[0].ID != id || receipt.Stopped[0].Status != task.Killed || len(receipt.Survivors) != 0 {
			t.Errorf("receipt %+v", receipt)
		}
	})
}

// Those that are stopped together are waited for together, and each has its own line.
func TestStopTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Session: "s00000000", Log: &memLog{}})
		defer s.Close()
		slow := func(d time.Duration) work {
			return func(ctx context.Context, h task.Host) (task.Result, error) {
				<-ctx.Done()
				time.Sleep(d)
				return task.Result{Signals: []task.SignalSent{{Signal: "SIGTERM"}, {Signal: "SIGKILL", AfterMS: 500}}, Left: []task.Survivor{{PID: 77}}}, context.Cause(ctx)
			}
		}
		ids := []task.ID{start(t, s, slow(5*time.Second), task.Spec{}).ID, start(t, s, slow(time.Second), task.Spec{}).ID}
		synctest.Wait()
		receipt, err := s.Stop(t.Context(), ids, byUser)
		if err != nil || len(receipt.Survivors) != 2 || len(receipt.Stopped) != 2 {
			t.Fatalf("receipt %+v, %v", receipt, err)
		}
		for i, took := range []int64{5000, 1000} {
			if line := receipt.Stopped[i]; len(line.Signals) != 2 || line.EndedAfterMS != took {
				t.Errorf("line %+v, want 2 signals within %d ms", line, took)
			}
		}
		free := make(chan struct{})
		ids = nil
		for range 20 {
			ids = append(ids, start(t, s, work(func(ctx context.Context, h task.Host) (task.Result, error) {
				<-free
				return task.Result{}, context.Cause(ctx)
			}), task.Spec{}).ID)
		}
		begun := time.Now()
		receipt, _ = s.Stop(t.Context(), ids, byUser)
		if took := time.Since(begun); took > 16*time.Second || len(receipt.Survivors) != 20 {
			t.Errorf("the stop took %s, and names %d survivors", took, len(receipt.Survivors))
		}
		close(free)
	})
}
