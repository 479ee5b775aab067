// Package parking holds the agents of a provider whose usage limit is used up, and wakes them when
// it is reset.
//
// A [Queue] belongs to a session. [Queue.Model] wraps the model of an agent: a call that the provider
// refuses with a reset more than a minute away ([agent.ModelError] of kind usage_limit) parks the
// agent instead of failing, and every other agent of the provider before its next call. At the
// reset the agent that has waited longest calls first; when it has its answer the others follow,
// one after the other. There is one timer for each provider that is parked.
//
// The queue keeps no state on disk: that an agent is parked is a fact of its task.
package parking

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/platform/daypart"
	"github.com/drover-dev/drover/task"
)

// wakeGap is the time between two agents that are woken after the first.
const wakeGap = time.Second

// resetSlack is by how much two calls may be told different resets of the same limit.
const resetSlack = time.Minute

// Queue has the parked agents of one session. Its methods may be called by several goroutines.
type Queue struct {
	window daypart.Part
	budget float64

	mu        sync.Mutex
	providers map[string]*provider // one per provider; there are only as many as providers
}

// New returns an empty queue. Agents are woken in the window; the agents of a provider may spend budget
// US dollars together after a wake, 0: any.
func New(window daypart.Part, budget float64) *Queue {
	return &Queue{window: window, budget: budget, providers: map[string]*provider{}}
}

// Close stops the timers. Who waits is released by the end of its context.
func (q *Queue) Close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, pr := range q.providers {
		if pr.timer != nil {
			pr.timer.Stop()
		}
	}
}

// Holds reports whether agents wait for a reset.
func (q *Queue) Holds() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, pr := range q.providers {
		if len(pr.waiting) > 0 {
			return true
		}
	}
	return false
}

// Restore parks a provider as an earlier host has recorded it.
func (q *Queue) Restore(p task.Parked) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if pr := q.provider(p.Provider); p.Until.After(pr.parked.Until) {
		pr.park(p)
	}
}

// Wake wakes the agents of a provider now, whatever the window: the user says that the limit is
// lifted. It reports whether any was parked.
func (q *Queue) Wake(provider string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	pr := q.provider(provider)
	if len(pr.waiting) == 0 {
		return false
	}
	if pr.held && pr.first == nil {
		pr.parked.Until = time.Now()
		pr.wakeNext()
	}
	return true
}

// provider is the state of one provider. Its fields are guarded by the mutex of the queue.
type provider struct {
	q       *Queue
	parked  task.Parked // since the last usage limit; zero: there was none
	held    bool        // calls wait
	first   *waiter     // the first that was woken, until its call has ended
	waiting []*waiter   // who waits, oldest first
	timer   *time.Timer // until the wake, or between two that are woken

	woken []*spender // since the last wake
}

// waiter is one agent that waits.
type waiter struct {
	woken chan struct{} // closed when it may call
	moved chan struct{} // closed when the reset has moved
}

// spender is an agent that was woken.
type spender struct {
	cost func() (usd float64, known bool)
	base float64 // that it had spent before
}

// provider returns the state of a provider. The caller holds mu.
func (q *Queue) provider(name string) *provider {
	pr := q.providers[name]
	if pr == nil {
		pr = &provider{q: q}
		q.providers[name] = pr
	}
	return pr
}

// park holds all calls until the next wake after a reset. The caller holds mu of the queue.
func (pr *provider) park(p task.Parked) {
	p.Until = pr.q.window.Next(p.Reset)
	pr.parked, pr.held, pr.first, pr.woken = p, true, nil, nil
	for _, w := range pr.waiting {
		close(w.moved)
		w.moved = make(chan struct{})
	}
	pr.after(time.Until(p.Until))
}

// after sets the one timer of the provider. The caller holds mu of the queue.
func (pr *provider) after(d time.Duration) {
	if pr.timer == nil {
		pr.timer = time.AfterFunc(d, pr.wake)
		return
	}
	pr.timer.Reset(d)
}

// wake wakes the agent that has waited longest: while calls are held it alone, to try whether they
// may go on.
func (pr *provider) wake() {
	pr.q.mu.Lock()
	defer pr.q.mu.Unlock()
	if pr.held && time.Now().Before(pr.parked.Until) { // it was parked again while the timer ran out
		return
	}
	pr.wakeNext()
}

// wakeNext lets the agent that has waited longest call; when none waits, calls are held no more.
// The caller holds mu of the queue.
func (pr *provider) wakeNext() {
	if len(pr.waiting) == 0 {
		pr.held = false
		return
	}
	next := pr.waiting[0]
	pr.waiting = slices.Delete(pr.waiting, 0, 1)
	close(next.woken)
	if pr.held {
		pr.first = next
		return
	}
	if len(pr.waiting) > 0 {
		pr.after(wakeGap)
	}
}

// leave removes a waiter; a waiter that was woken meanwhile has ended its call.
func (pr *provider) leave(w *waiter) {
	pr.q.mu.Lock()
	defer pr.q.mu.Unlock()
	if i := slices.Index(pr.waiting, w); i >= 0 {
		pr.waiting = slices.Delete(pr.waiting, i, i+1)
		return
	}
	pr.ended(w, context.Canceled)
}

// ended takes in how the call of a waiter has ended. With any answer to the first that was
// woken, calls are held no more; where it brought none, the next tries. The caller holds mu of the queue.
func (pr *provider) ended(w *waiter, err error) {
	if w == nil || pr.first != w {
		return
	}
	pr.first = nil
	if err == nil {
		pr.held = false
		if len(pr.waiting) > 0 {
			pr.after(wakeGap)
		}
		return
	}
	pr.wakeNext()
}

// spent is what the woken agents have spent together since they were.
func (pr *provider) spent() (usd float64) {
	for _, s := range pr.woken {
		now, _ := s.cost() // calls without a price are not counted
		usd += max(0, now-s.base)
	}
	return usd
}

// Agent is an agent whose calls may be parked.
type Agent struct {
	Provider string
	// Park records that the agent is parked, and waits; see [task.Parker].
	Park func(ctx context.Context, p task.Parked, wait func(context.Context) error) error
	// Recorded: an earlier host has recorded that it is parked, and it may not be any more.
	Recorded bool
	Cost     func() (usd float64, known bool) // its spending so far; nil: not counted
}

// Model wraps the model of an agent.
func (q *Queue) Model(m agent.Model, a Agent) agent.Model {
	return &model{Model: m, q: q, a: a, recorded: a.Recorded}
}

// model is the model of one agent in one run.
type model struct {
	agent.Model
	q *Queue
	a Agent

	mu       sync.Mutex
	me       *spender // that it is since it was woken; nil: it was not
	recorded bool     // see [Agent]
}

// handBack is the purpose of the last call of an agent at a limit.
const handBack = "hand_back"

// Reply waits while the provider is parked, and makes the call.
func (m *model) Reply(ctx context.Context, req *agent.Request, on func(agent.Part)) (*agent.Reply, error) {
	for {
		w, err := m.await(ctx, on)
		if err != nil {
			return nil, err
		}
		if err := m.allowed(req.Purpose); err != nil {
			m.answered(w, err)
			return nil, err
		}
		reply, err := m.Model.Reply(ctx, req, on)
		if again := m.answered(w, err); !again {
			return reply, err
		}
	}
}

// answered takes in how a call has ended, and reports whether it is made again after the reset.
func (m *model) answered(w *waiter, err error) (again bool) {
	m.q.mu.Lock()
	defer m.q.mu.Unlock()
	pr := m.q.provider(m.a.Provider)
	limit := (*agent.ModelError)(nil)
	if !errors.As(err, &limit) || limit.Kind != "usage_limit" {
		pr.ended(w, err)
		return false
	}
	if p := (task.Parked{Reset: limit.Until.UTC(), Provider: m.a.Provider, Why: limit.Text}); !pr.held ||
		pr.first != nil && pr.first == w || p.Reset.Sub(pr.parked.Reset) > resetSlack {
		pr.park(p)
	}
	return true
}

// await waits until the provider is not parked. The waiter is nil if it was not.
func (m *model) await(ctx context.Context, on func(agent.Part)) (*waiter, error) {
	q := m.q
	for {
		q.mu.Lock()
		pr := q.provider(m.a.Provider)
		if !pr.held && len(pr.waiting) == 0 {
			parked := pr.parked
			q.mu.Unlock()
			return nil, m.unrecord(ctx, parked)
		}
		w := &waiter{woken: make(chan struct{}), moved: make(chan struct{})}
		moved := w.moved
		pr.waiting = append(pr.waiting, w)
		if pr.held && pr.first == nil && !time.Now().Before(pr.parked.Until) { // no agent waited
			pr.wakeNext()
		}
		parked := pr.parked
		q.mu.Unlock()
		if on != nil {
			on(agent.Part{Kind: agent.RetryPart, Retry: agent.Retry{After: max(0, time.Until(parked.Until)),
				Why: agent.ModelError{Kind: "usage_limit", Text: Text(parked, time.Now()), Until: parked.Reset}}})
		}
		again := false
		m.mu.Lock()
		m.recorded = false
		m.mu.Unlock()
		err := m.a.Park(ctx, parked, func(ctx context.Context) error {
			select {
			case <-w.woken:
			case <-moved:
				again = true
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			return nil
		})
		if err != nil || again {
			pr.leave(w)
		}
		if err != nil {
			return nil, err
		}
		if !again {
			m.woken(pr)
			return w, nil
		}
	}
}

// unrecord takes back once that the agent is parked, as an earlier host has recorded.
func (m *model) unrecord(ctx context.Context, p task.Parked) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.recorded {
		return nil
	}
	m.recorded = false
	return m.a.Park(ctx, p, func(context.Context) error { return nil })
}

// woken begins to count what the agent spends.
func (m *model) woken(pr *provider) {
	if m.a.Cost == nil {
		return
	}
	m.q.mu.Lock()
	defer m.q.mu.Unlock()
	base, _ := m.a.Cost()
	me := &spender{cost: m.a.Cost, base: base}
	pr.woken = append(pr.woken, me)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.me = me
}

// allowed refuses calls of agents that were woken and have spent the budget of a wake. They may
// still hand back what they have.
func (m *model) allowed(purpose string) error {
	most := m.q.budget
	m.mu.Lock()
	me := m.me
	m.mu.Unlock()
	if most <= 0 || me == nil || purpose == handBack {
		return nil
	}
	m.q.mu.Lock()
	defer m.q.mu.Unlock()
	pr := m.q.provider(m.a.Provider)
	if !slices.Contains(pr.woken, me) {
		return nil
	}
	if used := pr.spent(); used >= most {
		return &agent.LimitError{Limit: "wake_budget", Text: fmt.Sprintf(
			"the agents that were woken after a usage limit of %s have spent $%.2f, and limits.wakeBudget is $%.2f "+
				"(resume the agent to let it go on)", m.a.Provider, used, most)}
	}
	return nil
}

// Text says in one line what holds a parked agent.
func Text(p task.Parked, now time.Time) string {
	text := "parked until " + task.Clock(p.Until, now) + ": " + p.Why
	if p.Until.After(p.Reset) {
		text += " (limits.wakeWindow)"
	}
	return text
}
