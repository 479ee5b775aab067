package supervise

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memLog is a log in memory whose n-th append can fail.
type memLog struct {
	mu      sync.Mutex
	entries []lifecycle.Entry
	letters []task.Message
	fail    func(n int) error // nil: never
	appends int
}

func (l *memLog) AppendAll(ctx context.Context, entries []lifecycle.Entry) ([]task.Seq, []error) {
	return each(ctx, entries, l.Append)
}

// each is a log's AppendAll by its Append.
func each(ctx context.Context, entries []lifecycle.Entry, one func(context.Context, lifecycle.Entry) (task.Seq, error)) ([]task.Seq, []error) {
	seqs, errs := make([]task.Seq, len(entries)), make([]error, len(entries))
	for i, e := range entries {
		seqs[i], errs[i] = one(ctx, e)
	}
	return seqs, errs
}

func (l *memLog) Post(_ context.Context, m task.Message) (task.Seq, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.letters = append(l.letters, m)
	return task.Seq(len(l.entries) + len(l.letters)), nil
}

func (l *memLog) Append(_ context.Context, e lifecycle.Entry) (task.Seq, error) {
	l.mu.Lock()
	l.appends++
	if l.fail != nil {
		if err := l.fail(l.appends); err != nil {
			l.mu.Unlock()
			return 0, err
		}
	}
	l.entries = append(l.entries, e)
	seq := task.Seq(len(l.entries))
	l.mu.Unlock()
	if e.Committed != nil {
		e.Committed(seq)
	}
	return seq, nil
}

func (l *memLog) notifications(run task.RunID) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.entries {
		if e.Notification != nil && e.Notification.Run == run {
			n++
		}
	}
	return n
}

// work is a driver made of a function.
type work func(ctx context.Context, h task.Host) (task.Result, error)

func (work) Kind() task.Kind             { return task.LocalAgent }
func (work) Check(json.RawMessage) error { return nil }
func (work) Adopts(r task.Record) bool   { return r.Process != nil || r.Checkpoint != nil }
func (w work) Run(ctx context.Context, h task.Host) (task.Result, error) {
	return w(ctx, h)
}

func until(ctx context.Context, _ task.Host) (task.Result, error) {
	<-ctx.Done()
	return task.Result{}, context.Cause(ctx)
}

func instant(context.Context, task.Host) (task.Result, error) { return task.Result{Text: "done"}, nil }

func start(t testing.TB, s *Supervisor, d task.Driver, spec task.Spec) task.Record {
	t.Helper()
	rec, err := s.Start(context.Background(), d, spec)
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

func TestLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &memLog{}
		var ended []task.Record
		s := New(Config{Session: "s00000000", Log: log, Ended: func(r task.Record, _ lifecycle.Notification) { ended = append(ended, r) }})
		defer s.Close()
		settled := false
		rec := start(t, s, work(func(_ context.Context, h task.Host) (task.Result, error) {
			if h.Record().Status != task.Running {
				t.Error("the driver runs while the record says", h.Record().Status)
			}
			h.Progress(task.Progress{ToolUseCount: 3})
			code := 0
			return task.Result{Text: "42", ExitCode: &code, Settle: func() { settled = true }}, nil
		}), task.Spec{Name: "one", Owner: "s00000000", Backgrounded: true})
		if rec.Status != task.Pending && rec.Status != task.Completed && rec.Status != task.Running {
			t.Errorf("status after the start: %s", rec.Status)
		}
		recs, err := s.Wait(t.Context(), []task.ID{rec.ID}, false)
		if err != nil || recs[0].Status != task.Completed || *recs[0].ExitCode != 0 || recs[0].EndTime == nil || !recs[0].Notified {
			t.Fatalf("ended as %+v, %v", recs, err)
		}
		if recs[0].Progress == nil || recs[0].Progress.ToolUseCount != 3 {
			t.Errorf("progress of the end: %+v", recs[0].Progress)
		}
		if !settled {
			t.Error("Settle was not called")
		}
		synctest.Wait()
		if len(ended) != 1 || log.notifications(rec.Run) != 1 {
			t.Errorf("%d ends, %d notifications", len(ended), log.notifications(rec.Run))
		}
		last := log.entries[len(log.entries)-1]
		if last.Answer != "42" || last.Notification.Owner != "s00000000" || last.Notification.Acked {
			t.Errorf("terminal event: %+v %+v", last.Answer, last.Notification)
		}
	})
}

func TestEndings(t *testing.T) {
	tests := map[string]struct {
		run    work
		spec   task.Spec
		stop   bool
		status task.Status
		reason task.Reason
	}{
		"panic":   {run: func(context.Context, task.Host) (task.Result, error) { panic("boom") }, status: task.Failed, reason: task.ReasonPanic},
		"goexit":  {run: func(context.Context, task.Host) (task.Result, error) { runtime.Goexit(); return task.Result{}, nil }, status: task.Failed, reason: task.ReasonPanic},
		"error":   {run: func(context.Context, task.Host) (task.Result, error) { return task.Result{}, errors.New("bad") }, status: task.Failed, reason: task.ReasonError},
		"timeout": {run: until, spec: task.Spec{Timeout: time.Minute}, status: task.Failed, reason: task.ReasonTimeout},
		"stopped": {run: until, stop: true, status: task.Killed, reason: task.ReasonStopped},
		// Whoever finishes well although a stop was asked for has completed.
		"ended-well": {run: func(ctx context.Context, _ task.Host) (task.Result, error) { <-ctx.Done(); return task.Result{}, nil }, stop: true, status: task.Completed, reason: task.ReasonDone},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := New(Config{Log: &memLog{}})
				defer s.Close()
				rec := start(t, s, tt.run, tt.spec)
				if tt.stop {
					synctest.Wait()
					receipt, err := s.Stop(t.Context(), []task.ID{rec.ID}, StopRequest{Cause: task.Cause{Actor: task.ByUser, Reason: task.ReasonStopped}})
					if err != nil || len(receipt.Stopped) != 1 || receipt.Stopped[0].Status != tt.status {
						t.Fatalf("receipt %+v, %v", receipt, err)
					}
					again, err := s.Stop(t.Context(), []task.ID{rec.ID}, StopRequest{})
					if err != nil || again.Stopped[0].Status != tt.status {
						t.Fatalf("second stop: %+v, %v", again, err)
					}
				}
				recs, err := s.Wait(t.Context(), []task.ID{rec.ID}, true)
				if err != nil || recs[0].Status != tt.status || recs[0].Cause.Reason != tt.reason {
					t.Fatalf("%+v %v, want %s %s", recs[0], err, tt.status, tt.reason)
				}
			})
		})
	}
}

// A tree of three levels ends from the leaves to the root, and a task that is
// being stopped can start nothing more.
func TestTree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &memLog{}
		s := New(Config{Log: log})
		defer s.Close()
		var mu sync.Mutex
		var order []int
		leave := func(depth int, ctx context.Context) (task.Result, error) {
			<-ctx.Done()
			mu.Lock()
			order = append(order, depth)
			mu.Unlock()
			return task.Result{}, context.Cause(ctx)
		}
		var grow func(depth int) work
		grow = func(depth int) work {
			return func(ctx context.Context, h task.Host) (task.Result, error) {
				if depth < 3 {
					for range 3 {
						if _, err := h.Spawn(ctx, grow(depth+1), task.Spec{}); err != nil {
							return task.Result{}, err
						}
					}
				}
				res, err := leave(depth, ctx)
				if _, spawn := h.Spawn(context.Background(), work(instant), task.Spec{}); !errors.Is(spawn, ErrFrozen) {
					t.Errorf("spawn after the stop: %v", spawn)
				}
				return res, err
			}
		}
		root := start(t, s, grow(1), task.Spec{})
		synctest.Wait()
		receipt, err := s.Stop(t.Context(), []task.ID{root.ID}, StopRequest{Cause: task.Cause{Actor: task.ByUser, Reason: task.ReasonStopped}})
		if err != nil || len(receipt.Stopped) != 13 || len(receipt.Survivors) != 0 {
			t.Fatalf("%d stopped, %d survivors, %v", len(receipt.Stopped), len(receipt.Survivors), err)
		}
		if last := receipt.Stopped[12]; last.ID != root.ID || last.Status != task.Killed {
			t.Errorf("the root ends last: %+v", last)
		}
		if order[len(order)-1] != 1 || order[0] != 3 {
			t.Errorf("order of depths %v", order)
		}
		if live, total := s.Live(); live != 0 || total != 13 {
			t.Errorf("%d of %d are live", live, total)
		}
	})
}

func TestOrphans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Log: &memLog{}})
		defer s.Close()
		var child task.Record
		rec := start(t, s, work(func(ctx context.Context, h task.Host) (task.Result, error) {
			var err error
			child, err = h.Spawn(ctx, work(until), task.Spec{})
			return task.Result{}, err
		}), task.Spec{})
		recs, err := s.Wait(t.Context(), []task.ID{rec.ID}, false)
		if err != nil || recs[0].Status != task.Completed {
			t.Fatal(recs, err)
		}
		got, _ := s.Get(child.ID)
		if got.Status != task.Killed || got.Cause.Reason != task.ReasonParentEnded {
			t.Errorf("the child of an ended parent is %s (%+v)", got.Status, got.Cause)
		}
	})
}

// With one place and agents nested three deep that wait for each other nobody
// may wait for ever.
func TestPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Log: &memLog{}, Pools: map[string]Pool{"agents": {Size: 1, Depth: 3, PerRoot: 20}}})
		defer s.Close()
		var busy, most int
		var mu sync.Mutex
		count := func(by int) {
			mu.Lock()
			busy += by
			most = max(most, busy)
			mu.Unlock()
		}
		var nest func(depth int) work
		nest = func(depth int) work {
			return func(ctx context.Context, h task.Host) (task.Result, error) {
				count(1)
				defer count(-1)
				child, err := h.Spawn(ctx, nest(depth+1), task.Spec{Pool: "agents"})
				var limit *LimitError
				if errors.As(err, &limit) {
					return task.Result{Text: err.Error()}, nil
				}
				if err != nil {
					return task.Result{}, err
				}
				count(-1)
				_, err = h.Await(ctx, child.ID)
				count(1)
				return task.Result{}, err
			}
		}
		var ids []task.ID
		for range 4 {
			ids = append(ids, start(t, s, nest(1), task.Spec{Pool: "agents"}).ID)
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
		if most != 1 {
			t.Errorf("%d tasks worked at the same time in a pool of 1", most)
		}
		if _, total := s.Live(); total != 12 {
			t.Errorf("%d tasks, want 4 trees of 3", total)
		}
		s.pools["agents"].roots["x"] = &started{runs: 20}
		var limit *LimitError
		if _, err := s.Start(t.Context(), work(instant), task.Spec{Pool: "agents", Owner: "x"}); !errors.As(err, &limit) || limit.Limit != "per_root" {
			t.Errorf("start over the limit of a root: %v", err)
		}
	})
}

func TestQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Log: &memLog{}, Pools: map[string]Pool{"p": {Size: 1, Queue: 2}}})
		defer s.Close()
		first := start(t, s, work(until), task.Spec{Pool: "p"})
		synctest.Wait()
		second := start(t, s, work(instant), task.Spec{Pool: "p"})
		third := start(t, s, work(instant), task.Spec{Pool: "p"})
		synctest.Wait()
		var limit *LimitError
		if _, err := s.Start(t.Context(), work(instant), task.Spec{Pool: "p"}); !errors.As(err, &limit) {
			t.Errorf("start into a full queue: %v", err)
		}
		got, _ := s.Get(third.ID)
		if got.Status != task.Pending || got.Progress == nil || got.Progress.Message != "queued, place 2" {
			t.Errorf("waiting task: %s %+v", got.Status, got.Progress)
		}
		if _, err := s.Stop(t.Context(), []task.ID{second.ID}, StopRequest{Cause: task.Cause{Actor: task.ByUser}}); err != nil {
			t.Fatal(err)
		}
		if got, _ := s.Get(second.ID); got.Status != task.Killed || got.StartTime != nil {
			t.Errorf("stopped while waiting: %+v", got)
		}
		if _, err := s.Stop(t.Context(), []task.ID{first.ID}, StopRequest{}); err != nil {
			t.Fatal(err)
		}
		if recs, err := s.Wait(t.Context(), []task.ID{third.ID}, false); err != nil || recs[0].Status != task.Completed {
			t.Errorf("next in line: %+v, %v", recs, err)
		}
	})
}

func TestPromote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &memLog{}
		s := New(Config{Log: log})
		defer s.Close()
		done := make(chan struct{})
		rec := start(t, s, work(func(context.Context, task.Host) (task.Result, error) { <-done; return task.Result{}, nil }), task.Spec{Owner: "s1"})
		freed := make(chan task.Record)
		go func() {
			r, err := s.Await(context.Background(), rec.ID)
			if err != nil {
				t.Error(err)
			}
			freed <- r
		}()
		synctest.Wait()
		for range 2 {
			if r, err := s.Promote(t.Context(), rec.ID); err != nil || !r.Backgrounded || r.Status != task.Running {
				t.Fatal(r, err)
			}
		}
		if r := <-freed; r.Status != task.Running || !r.Backgrounded {
			t.Errorf("the waiter got %+v", r)
		}
		close(done)
		if _, err := s.Wait(t.Context(), []task.ID{rec.ID}, false); err != nil {
			t.Fatal(err)
		}
		if n := log.entries[len(log.entries)-1].Notification; n.Acked || n.Owner != "s1" {
			t.Errorf("after the promotion the owner is owed a notification: %+v", n)
		}
		var move *task.MoveError
		if _, err := s.Promote(t.Context(), rec.ID); !errors.As(err, &move) {
			t.Errorf("promotion of an ended task: %v", err)
		}
	})
}

func TestFind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Log: &memLog{}})
		defer s.Close()
		a := start(t, s, work(instant), task.Spec{Name: "docs"})
		b := start(t, s, work(instant), task.Spec{Name: "docs"})
		if a.Name != "docs" || b.Name != "docs-2" {
			t.Errorf("names %q and %q", a.Name, b.Name)
		}
		for _, ref := range []string{string(b.ID), "docs-2", string(b.ID[:8])} {
			if r, err := s.Find(ref); err != nil || r.ID != b.ID {
				t.Errorf("Find(%q) = %s, %v", ref, r.ID, err)
			}
		}
		for _, ref := range []string{"", "a", "nothing", "../x"} {
			if _, err := s.Find(ref); !errors.Is(err, ErrUnknown) {
				t.Errorf("Find(%q): %v", ref, err)
			}
		}
		var same, other task.Record
		for same.ID == "" { // two IDs that share a beginning
			other = start(t, s, work(instant), task.Spec{})
			for _, r := range s.List(0) {
				if r.ID != other.ID && r.ID[:2] == other.ID[:2] {
					same = r
				}
			}
		}
		var several *AmbiguousError
		if _, err := s.Find(string(same.ID[:2])); !errors.As(err, &several) || len(several.Matches) < 2 {
			t.Errorf("a beginning that fits two: %v", err)
		}
	})
}

// Whatever append fails, every start either is refused or reaches one durable
// end with one notification. The sweep ends when a run meets no fault.
func TestFaults(t *testing.T) {
	full := errors.New("disk full")
	for n := 1; ; n++ {
		met := false
		synctest.Test(t, func(t *testing.T) {
			log := &memLog{}
			log.fail = func(i int) error {
				if i == n || i == n+1 { // a fault that lasts a while
					met = true
					return full
				}
				return nil
			}
			s := New(Config{Log: log})
			var ids []task.ID
			for i, d := range []work{instant, until, func(ctx context.Context, h task.Host) (task.Result, error) {
				c, err := h.Spawn(ctx, work(instant), task.Spec{})
				if err != nil {
					return task.Result{}, err
				}
				_, err = h.Await(ctx, c.ID)
				return task.Result{}, err
			}} {
				rec, err := s.Start(t.Context(), d, task.Spec{Owner: "s1", Backgrounded: true, Name: fmt.Sprint(i)})
				if err != nil {
					if !errors.Is(err, full) {
						t.Errorf("fault %d: start: %v", n, err)
					}
					continue
				}
				ids = append(ids, rec.ID)
				if i == 1 {
					if _, err := s.Stop(t.Context(), []task.ID{rec.ID}, StopRequest{Cause: task.Cause{Actor: task.ByUser}}); err != nil {
						t.Errorf("fault %d: stop: %v", n, err)
					}
				}
			}
			recs, err := s.Wait(t.Context(), ids, false)
			if err != nil {
				t.Fatalf("fault %d: wait: %v", n, err)
			}
			for _, r := range recs {
				if !r.Status.Terminal() || log.notifications(r.Run) != 1 {
					t.Errorf("fault %d: %s is %s with %d notifications", n, r.ID, r.Status, log.notifications(r.Run))
				}
			}
			s.Close()
		})
		if !met {
			if n < 10 {
				t.Fatalf("the sweep ended after %d appends", n)
			}
			return
		}
	}
}

// unprinted is the output file of a task that prints nothing.
type unprinted struct{ noOutput }

func (unprinted) Close() error { return nil }
func (unprinted) Lost() string { return "" }

// Who reads the output of a task that runs finds its file.
func TestOutputBeforeBegin(t *testing.T) {
	var s *Supervisor
	opened := make(chan task.Record, 1)
	s = New(Config{Log: &memLog{}, Output: func(r task.Record, _ bool) (OutputFile, error) {
		now, _ := s.Get(r.ID)
		opened <- now
		return unprinted{}, nil
	}})
	defer s.Close()
	start(t, s, work(instant), task.Spec{})
	if r := <-opened; r.Status != task.Pending || r.StartTime != nil {
		t.Errorf("the output is opened of a task that is %s since %v", r.Status, r.StartTime)
	}
}
