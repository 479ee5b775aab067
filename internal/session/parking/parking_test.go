package parking_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/platform/daypart"
	"github.com/drover-dev/drover/internal/session/parking"
	"github.com/drover-dev/drover/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// provider answers from a moment on; before, its limit is used up. It knows the order of the
// calls.
type provider struct {
	mu    sync.Mutex
	reset time.Time
	calls []string
	takes time.Duration
}

// Reply answers a call of the agent that its request names.
func (p *provider) Reply(ctx context.Context, req *agent.Request, _ func(agent.Part)) (*agent.Reply, error) {
	p.mu.Lock()
	p.calls = append(p.calls, fmt.Sprintf("%s %s", req.AgentID, time.Now().UTC().Format("15:04:05")))
	reset := p.reset
	p.mu.Unlock()
	if time.Now().Before(reset) {
		return nil, &agent.ModelError{Kind: "usage_limit", Text: "too many requests", Until: reset}
	}
	select {
	case <-time.After(p.takes):
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	return &agent.Reply{StopReason: "end_turn"}, nil
}

func (p *provider) took() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := slices.Clone(p.calls)
	p.calls = nil
	return out
}

// worker is an agent with its record.
type worker struct {
	mu     sync.Mutex
	parked *task.Parked
	usd    float64
	model  agent.Model
	id     string
}

func (w *worker) held() *task.Parked {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.parked
}

func work(q *parking.Queue, p agent.Model, id string) *worker {
	w := &worker{id: id}
	w.model = q.Model(p, parking.Agent{Provider: "anthropic",
		Park: func(ctx context.Context, p task.Parked, wait func(context.Context) error) error {
			set := func(p *task.Parked) {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.parked = p
			}
			set(&p)
			err := wait(ctx)
			set(nil)
			return err
		},
		Cost: func() (float64, bool) {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.usd, true
		}})
	return w
}

func (w *worker) call(ctx context.Context, purpose string) error {
	_, err := w.model.Reply(ctx, &agent.Request{AgentID: w.id, Purpose: purpose}, nil)
	if err == nil {
		w.mu.Lock()
		w.usd++
		w.mu.Unlock()
	}
	return err
}

// One call is refused; no other is made until the reset. Then one agent calls, and the others
// behind its answer, one after the other.
func TestWake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reset := time.Now().Add(3 * time.Hour)
		p := &provider{reset: reset, takes: 10 * time.Second}
		queue := parking.New(daypart.Part{}, 0)
		defer queue.Close()
		var all sync.WaitGroup
		workers := make([]*worker, 4)
		for i := range workers {
			workers[i] = work(queue, p, fmt.Sprint(i))
			all.Go(func() {
				if err := workers[i].call(t.Context(), ""); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		if got := p.took(); len(got) != 1 {
			t.Errorf("%d calls were made before the reset, want 1: %v", len(got), got)
		}
		for i, w := range workers {
			if at := w.held(); at == nil || !at.Until.Equal(reset) || at.Why == "" || at.Provider != "anthropic" {
				t.Errorf("agent %d: %+v", i, at)
			}
		}
		if !queue.Holds() {
			t.Error("nobody is parked")
		}
		all.Wait()
		at := func(after time.Duration) string { return reset.Add(after).UTC().Format("15:04:05") }
		want := []string{"0 " + at(0), "1 " + at(11*time.Second), "2 " + at(12*time.Second), "3 " + at(13*time.Second)}
		if got := p.took(); !slices.Equal(got, want) {
			t.Errorf("calls %v, want %v", got, want)
		}
		if queue.Holds() {
			t.Error("somebody is parked still")
		}
	})
}

// The limit is used up again: the first that is woken parks all anew, and their records say so.
func TestAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := time.Now().Add(time.Hour), time.Now().Add(6*time.Hour)
		p := &provider{reset: first}
		queue := parking.New(daypart.Part{}, 0)
		defer queue.Close()
		a, b := work(queue, p, "a"), work(queue, p, "b")
		var all sync.WaitGroup
		all.Go(func() { _ = a.call(t.Context(), "") })
		synctest.Wait()
		all.Go(func() { _ = b.call(t.Context(), "") })
		synctest.Wait()
		p.mu.Lock()
		p.reset = second
		p.mu.Unlock()
		time.Sleep(time.Until(first) + time.Minute)
		synctest.Wait()
		if got := p.took(); len(got) != 2 {
			t.Errorf("calls %v, want the first and the one that was woken", got)
		}
		for _, w := range []*worker{a, b} {
			if at := w.held(); at == nil || !at.Until.Equal(second) {
				t.Errorf("agent %s: %+v, want parked until %v", w.id, at, second)
			}
		}
		all.Wait()
	})
}

// A parked agent can be stopped, and one that is stopped while it is the first that was woken lets the next try.
func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &provider{reset: time.Now().Add(time.Hour), takes: time.Minute}
		queue := parking.New(daypart.Part{}, 0)
		defer queue.Close()
		stopped := errors.New("stopped")
		ctxs := make([]context.CancelCauseFunc, 3)
		errs := make([]error, 3)
		var all sync.WaitGroup
		for i := range 3 {
			ctx, stop := context.WithCancelCause(t.Context())
			defer stop(nil)
			ctxs[i] = stop
			w := work(queue, p, fmt.Sprint(i))
			all.Go(func() { errs[i] = w.call(ctx, "") })
			synctest.Wait()
		}
		ctxs[1](stopped)
		synctest.Wait()
		if !errors.Is(errs[1], stopped) {
			t.Errorf("a parked agent that was stopped: %v", errs[1])
		}
		time.Sleep(time.Hour + time.Second)
		ctxs[0](stopped) // within its call
		all.Wait()
		if !errors.Is(errs[0], stopped) || errs[2] != nil {
			t.Errorf("the first that was woken: %v; the next: %v", errs[0], errs[2])
		}
	})
}

// A host that was restarted calls nobody before the time that the record of a task has.
func TestRestore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		until := time.Now().Add(2 * time.Hour)
		p := &provider{}
		queue := parking.New(daypart.Part{}, 0)
		defer queue.Close()
		queue.Restore(task.Parked{Until: until, Reset: until, Provider: "anthropic", Why: "limit"})
		if err := work(queue, p, "a").call(t.Context(), ""); err != nil || time.Now().Before(until) {
			t.Errorf("the call ended at %v with %v, want one at %v", time.Now(), err, until)
		}
	})
}

// What the woken agents may spend together is bounded; they may still hand back what they have,
// and an agent that was not parked is not concerned.
func TestBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &provider{reset: time.Now().Add(time.Hour)}
		queue := parking.New(daypart.Part{}, 3)
		defer queue.Close()
		a, b, fresh := work(queue, p, "a"), work(queue, p, "b"), work(queue, p, "c")
		var all sync.WaitGroup
		for _, w := range []*worker{a, b} {
			all.Go(func() {
				if err := w.call(t.Context(), ""); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if err := a.call(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		limit := (*agent.LimitError)(nil)
		if err := b.call(t.Context(), ""); !errors.As(err, &limit) || limit.Limit != "wake_budget" ||
			!strings.Contains(err.Error(), "$3.00") {
			t.Errorf("beyond the budget: %v", err)
		}
		if err := b.call(t.Context(), "hand_back"); err != nil {
			t.Errorf("handing back: %v", err)
		}
		if err := fresh.call(t.Context(), ""); err != nil {
			t.Errorf("an agent that was not parked: %v", err)
		}
	})
}
