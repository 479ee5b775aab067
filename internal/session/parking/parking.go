// Package parking holds the agents of a provider whose usage limit is used up, and wakes them when
// it is reset.
//
// A [Lot] belongs to a session. [Lot.Model] wraps the model of an agent: a call that the provider
// refuses with a reset more than a minute away ([agent.ModelError] of kind usage_limit) parks the
// agent instead of failing, and every other agent of the provider before its next call. At the
// reset the agent that has waited longest calls first; when it has its answer the others follow,
// one after the other. There is one timer for each provider that is parked.
//
// The lot keeps no state on disk: that an agent is parked is a fact of its task.
package parking

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/task"
)

// wakeGap is the time between two agents that are woken behind the first.
const wakeGap = time.Second

// resetSlack is by how much two calls may be told different resets of the same limit.
const resetSlack = time.Minute

// Config configures a lot. The zero value wakes agents at any time, and lets them spend anything.
type Config struct {
	Window Window  // in which agents are woken
	Budget float64 // US dollars that the agents of a provider may spend together after a wake; 0: any
}

// Lot has the parked agents of one session. Its methods may be called by several goroutines.
type Lot struct {
	cfg Config

	mu    sync.Mutex
	gates map[string]*gate // one per provider; there are only as many as providers
}

// New returns a lot in which nothing is parked.
func New(cfg Config) *Lot { return &Lot{cfg: cfg, gates: map[string]*gate{}} }

// Close stops the timers. Who waits is released by the end of its context.
func (l *Lot) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, g := range l.gates {
		if g.timer != nil {
			g.timer.Stop()
		}
	}
}

// Holds reports whether agents wait for a reset.
func (l *Lot) Holds() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, g := range l.gates {
		if len(g.line) > 0 {
			return true
		}
	}
	return false
}

// Restore parks a provider as an earlier host has recorded it.
func (l *Lot) Restore(p task.Parked) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if g := l.gate(p.Provider); p.Until.After(g.parked.Until) {
		g.park(p)
	}
}

// Wake wakes the agents of a provider now, whatever the window: the user says that the limit is
// lifted. It reports whether any was parked.
func (l *Lot) Wake(provider string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	g := l.gate(provider)
	if len(g.line) == 0 {
		return false
	}
	if g.shut && g.probe == nil {
		g.parked.Until = time.Now()
		g.admit()
	}
	return true
}

// gate is the door to one provider. Its fields are guarded by the mutex of the lot.
type gate struct {
	l      *Lot
	parked task.Parked // since the last usage limit; zero: there was none
	shut   bool        // calls wait
	probe  *waiter     // the first that was woken, until its call has ended
	line   []*waiter   // who waits, oldest first
	timer  *time.Timer // until the wake, or between two that are woken

	woken []*spender // since the last wake
}

// waiter is one agent that waits.
type waiter struct {
	admitted chan struct{} // closed when it may call
	moved    chan struct{} // closed when the reset has moved
}

// spender is an agent that was woken.
type spender struct {
	cost func() (usd float64, known bool)
	base float64 // that it had spent before
}

// gate returns the gate of a provider. The caller holds mu.
func (l *Lot) gate(provider string) *gate {
	g := l.gates[provider]
	if g == nil {
		g = &gate{l: l}
		l.gates[provider] = g
	}
	return g
}

// park shuts the gate until the next wake after a reset. The caller holds mu of the lot.
func (g *gate) park(p task.Parked) {
	p.Until = g.l.cfg.Window.Next(p.Reset)
	g.parked, g.shut, g.probe, g.woken = p, true, nil, nil
	for _, w := range g.line {
		close(w.moved)
		w.moved = make(chan struct{})
	}
	g.after(time.Until(p.Until))
}

// after sets the one timer of the gate. The caller holds mu of the lot.
func (g *gate) after(d time.Duration) {
	if g.timer == nil {
		g.timer = time.AfterFunc(d, g.wake)
		return
	}
	g.timer.Reset(d)
}

// wake admits the next in line: as a probe while the gate is shut.
func (g *gate) wake() {
	g.l.mu.Lock()
	defer g.l.mu.Unlock()
	if g.shut && time.Now().Before(g.parked.Until) { // it was parked again while the timer ran out
		return
	}
	g.admit()
}

// admit lets the next in line call, and opens the gate behind the last. The caller holds mu of
// the lot.
func (g *gate) admit() {
	if len(g.line) == 0 {
		g.shut = false
		return
	}
	next := g.line[0]
	g.line = slices.Delete(g.line, 0, 1)
	close(next.admitted)
	if g.shut {
		g.probe = next
		return
	}
	if len(g.line) > 0 {
		g.after(wakeGap)
	}
}

// leave takes a waiter out of the line; one that was admitted meanwhile has ended its call.
func (g *gate) leave(w *waiter) {
	g.l.mu.Lock()
	defer g.l.mu.Unlock()
	if i := slices.Index(g.line, w); i >= 0 {
		g.line = slices.Delete(g.line, i, i+1)
		return
	}
	g.ended(w, context.Canceled)
}

// ended takes in how the call of a waiter has ended. Who waited first opens the gate by any
// answer; where it brought none, the next tries. The caller holds mu of the lot.
func (g *gate) ended(w *waiter, err error) {
	if w == nil || g.probe != w {
		return
	}
	g.probe = nil
	if err == nil {
		g.shut = false
		if len(g.line) > 0 {
			g.after(wakeGap)
		}
		return
	}
	g.admit()
}

// spent is what the woken agents have spent together since they were.
func (g *gate) spent() (usd float64) {
	for _, s := range g.woken {
		now, _ := s.cost() // what has no price is not counted
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
	Cost     func() (usd float64, known bool) // what it has spent so far; nil: nobody counts
}

// Model wraps the model of an agent.
func (l *Lot) Model(m agent.Model, a Agent) agent.Model {
	return &model{Model: m, l: l, a: a, recorded: a.Recorded}
}

// model is the model of one agent in one run.
type model struct {
	agent.Model
	l *Lot
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
		w, err := m.enter(ctx, on)
		if err != nil {
			return nil, err
		}
		if err := m.allowed(req.Purpose); err != nil {
			m.left(w, err)
			return nil, err
		}
		reply, err := m.Model.Reply(ctx, req, on)
		if again := m.left(w, err); !again {
			return reply, err
		}
	}
}

// left takes in how a call has ended, and reports whether it is made again after the reset.
func (m *model) left(w *waiter, err error) (again bool) {
	m.l.mu.Lock()
	defer m.l.mu.Unlock()
	g := m.l.gate(m.a.Provider)
	limit := (*agent.ModelError)(nil)
	if !errors.As(err, &limit) || limit.Kind != "usage_limit" {
		g.ended(w, err)
		return false
	}
	if p := (task.Parked{Reset: limit.Until.UTC(), Provider: m.a.Provider, Why: limit.Text}); !g.shut ||
		g.probe != nil && g.probe == w || p.Reset.Sub(g.parked.Reset) > resetSlack {
		g.park(p)
	}
	return true
}

// enter waits until the provider is not parked. The waiter is nil if it was not.
func (m *model) enter(ctx context.Context, on func(agent.Part)) (*waiter, error) {
	l := m.l
	for {
		l.mu.Lock()
		g := l.gate(m.a.Provider)
		if !g.shut && len(g.line) == 0 {
			parked := g.parked
			l.mu.Unlock()
			return nil, m.unrecord(ctx, parked)
		}
		w := &waiter{admitted: make(chan struct{}), moved: make(chan struct{})}
		moved := w.moved
		g.line = append(g.line, w)
		if g.shut && g.probe == nil && !time.Now().Before(g.parked.Until) { // nobody was there to be woken
			g.admit()
		}
		parked := g.parked
		l.mu.Unlock()
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
			case <-w.admitted:
			case <-moved:
				again = true
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			return nil
		})
		if err != nil || again {
			g.leave(w)
		}
		if err != nil {
			return nil, err
		}
		if !again {
			m.woken(g)
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
func (m *model) woken(g *gate) {
	if m.a.Cost == nil {
		return
	}
	m.l.mu.Lock()
	defer m.l.mu.Unlock()
	base, _ := m.a.Cost()
	me := &spender{cost: m.a.Cost, base: base}
	g.woken = append(g.woken, me)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.me = me
}

// allowed refuses calls of agents that were woken and have spent what a wake may spend. They may
// still hand back what they have.
func (m *model) allowed(purpose string) error {
	most := m.l.cfg.Budget
	m.mu.Lock()
	me := m.me
	m.mu.Unlock()
	if most <= 0 || me == nil || purpose == handBack {
		return nil
	}
	m.l.mu.Lock()
	defer m.l.mu.Unlock()
	g := m.l.gate(m.a.Provider)
	if !slices.Contains(g.woken, me) {
		return nil
	}
	if used := g.spent(); used >= most {
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
