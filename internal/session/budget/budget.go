// Package budget limits what agents spend: money, tokens, output and time.
//
// [Budgets] reserves the budget of an agent before the agent is started, counts the spending of
// trees of agents, and releases the unused rest at the end of an agent; [Limits] warns one
// agent when most of a limit is used. The agents of a tree together never get more than the
// agent at its top has.
//
// The package does not know prices; package usage does, which also ends agents that have spent
// their budget.
package budget

import (
	"cmp"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/engine/journal"
	"github.com/drover-dev/drover/internal/engine/supervise"
	"github.com/drover-dev/drover/internal/model/usage"
	"github.com/drover-dev/drover/internal/options"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
)

// Tasks is what budgets need of the supervisor.
type Tasks interface {
	Get(id task.ID) (task.Record, bool)
	Clock(id task.ID) (used, limit time.Duration)
}

// Budgets are the budgets of a session's agents. Its methods may be called by several
// goroutines.
type Budgets struct {
	tasks    Tasks
	place    home.Session
	accounts *usage.Accounts // nil: nothing is counted
	top      options.Agents  // the budgets of each top-level agent with all below it
	quotes   quotes
}

// New returns the budgets of a session. A nil accounts counts nothing; top has the budgets of each
// top-level agent with all below it.
func New(tasks Tasks, place home.Session, accounts *usage.Accounts, top options.Agents) *Budgets {
	return &Budgets{tasks: tasks, place: place, accounts: accounts, top: top}
}

// Agent is an agent that is about to be started.
type Agent struct {
	ID    task.ID // of an agent that gets a further run; empty: a new one
	Asker task.ID // the caller that starts it; empty: a client
	Depth int
	Model string
	Def   subagent.Definition
}

// of returns the limits of an agent: the smaller limit of its definition and, at the top, of
// the settings.
func (b *Budgets) of(a Agent) task.Budget {
	got := a.Def.Budget
	if a.Depth == 1 {
		top := b.top
		got.USD, got.Tokens = Tighter(got.USD, top.BudgetUSD), Tighter(got.Tokens, top.BudgetTokens)
		got.OutputBytes = Tighter(got.OutputBytes, top.BudgetOutput)
		got.WallMS = Tighter(got.WallMS, top.BudgetWall.Milliseconds())
	}
	return got
}

// Tighter returns the smaller of two limits, of which 0 is none.
func Tighter[N int64 | float64 | time.Duration](a, b N) N {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// Reserve reserves the budget of an agent before its start, and writes its limits into the
// spec. The caller gives the reservation to the agent with Give, or releases it. If nothing is
// counted the reservation is empty.
func (b *Budgets) Reserve(spec *task.Spec, a Agent) (Reservation, error) {
	spec.Budget = b.of(a)
	if spec.Budget.WallMS > 0 {
		spec.Timeout = time.Duration(
			Tighter(spec.Timeout.Milliseconds(), b.timeLeft(a.Asker, spec.Budget.WallMS)),
		) * time.Millisecond
		spec.Budget.WallMS = spec.Timeout.Milliseconds()
	}
	p := b.accounts
	if p == nil {
		return Reservation{}, nil
	}
	node := usage.Node{ID: string(a.ID), Type: a.Def.Name, Parent: string(b.spender(a.Asker)), HandBack: true,
		Budget: usage.Budget{USD: spec.Budget.USD, Tokens: spec.Budget.Tokens, Output: spec.Budget.OutputBytes}}
	share, err := p.Reserve(node, a.Model)
	if err != nil {
		return Reservation{}, err
	}
	got := share.Budget()
	spec.Budget.USD, spec.Budget.Tokens, spec.Budget.OutputBytes = got.USD, got.Tokens, got.Output
	return Reservation{share, node}, nil
}

// Reservation is the reserved budget of an agent that is being started. The zero value is
// empty.
type Reservation struct {
	share *usage.Reserved // nil: nothing is counted
	node  usage.Node
}

// Give assigns the reservation to the agent with an ID.
func (r Reservation) Give(id task.ID) {
	if r.share != nil {
		r.node.ID = string(id)
		r.share.Give(r.node)
	}
}

// Release releases the reservation: the agent was not started.
func (r Reservation) Release() {
	if r.share != nil {
		r.share.Release()
	}
}

// timeLeft returns a time limit, or the remaining time of the agents above if that is less; in
// milliseconds, and never 0.
func (b *Budgets) timeLeft(above task.ID, limit int64) int64 {
	for above != "" {
		if used, most := b.tasks.Clock(above); most > 0 {
			limit = min(limit, max(1, (most-used).Milliseconds()))
		}
		r, _ := b.tasks.Get(above)
		above = r.Parent
	}
	return limit
}

// spender returns the agent whose budget a task spends: itself, or the nearest one above it
// that has one.
func (b *Budgets) spender(id task.ID) task.ID {
	for id != "" && !b.accounts.Knows(string(id)) {
		r, _ := b.tasks.Get(id)
		id = r.Parent
	}
	return id
}

// Restore adds what trees have spent under earlier hosts.
func (b *Budgets) Restore(states []journal.State, ended iter.Seq[supervise.Ended]) {
	p := b.accounts
	if p == nil {
		return
	}
	output := map[task.ID]int64{}
	var spend []supervise.Ended
	count := func(g supervise.Ended) {
		if g.Kind.Traits().Work == task.ByCommand {
			output[g.Parent] += g.OutputBytes
			return
		}
		output[g.ID] += g.OutputBytes
		if g.ID != b.place.ID() {
			spend = append(spend, g)
		}
	}
	for g := range ended {
		count(g)
	}
	for _, st := range states {
		r := st.Task
		g := supervise.NewEnded(st.Born, "", &r)
		if !r.Status.Terminal() { // its size was not recorded
			if info, err := b.place.Below().For(r.OutputFile).Lstat(r.OutputFile); err == nil {
				g.OutputBytes = info.Size()
			}
		}
		count(g)
	}
	slices.SortFunc(spend, func(a, b supervise.Ended) int { return cmp.Compare(a.Born, b.Born) })
	for _, g := range spend {
		p.Restore(usage.Node{ID: string(g.ID), Type: g.AgentType, Parent: string(g.Parent),
			Budget: usage.Budget{USD: g.Budget.USD, Tokens: g.Budget.Tokens, Output: g.Budget.OutputBytes}}, output[g.ID])
	}
}

// metered is the output of a task below an agent with an output budget. Its limit is where that
// budget ends at the time of the call of Limit; other tasks may use the budget meanwhile.
type metered struct {
	supervise.OutputFile
	accounts *usage.Accounts
	node     string

	mu   sync.Mutex
	seen int64 // bytes counted so far; guarded by mu
}

// Output counts the output of a task, if there is a budget for it.
func (b *Budgets) Output(r task.Record, f supervise.OutputFile) supervise.OutputFile {
	p := b.accounts
	if p == nil {
		return f
	}
	node := string(b.spender(r.ID))
	if _, bound := p.Remaining(node); !bound {
		return f
	}
	return &metered{OutputFile: f, accounts: p, node: node, seen: f.Size()}
}

// Size counts the growth since the last call.
func (m *metered) Size() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	size := m.OutputFile.Size()
	if size > m.seen {
		m.accounts.Printed(m.node, size-m.seen)
		m.seen = size
	}
	return size
}

func (m *metered) Write(p []byte) (int, error) {
	n, err := m.OutputFile.Write(p)
	m.Size()
	return n, err
}

// Limit returns the limit of the file, or the end of the budget if that is less. It is never 0,
// which would mean none.
func (m *metered) Limit() int64 {
	size := m.Size()
	if room, ok := m.accounts.Remaining(m.node); ok {
		return max(1, min(m.OutputFile.Limit(), size+room))
	}
	return m.OutputFile.Limit()
}

func (m *metered) Close() error {
	m.Size()
	return m.OutputFile.Close()
}

// Ended releases the budget of an ended agent, before its end is visible. It does not block.
func (b *Budgets) Ended(id task.ID) {
	if b.accounts != nil {
		b.accounts.Ended(string(id))
	}
}

// Cost returns what an agent has cost since this call; known is false if a price is unknown. It
// is nil if nothing is counted.
func (b *Budgets) Cost(id task.ID) func() (usd float64, known bool) {
	p := b.accounts
	if p == nil {
		return nil
	}
	before := p.Of(string(id))
	return func() (float64, bool) {
		now := p.Of(string(id))
		return max(0, now.USD-before.USD), now.Unpriced == before.Unpriced
	}
}

// Meter counts what an agent spends, whose budget was reserved at its start; nil if nothing is
// counted. handBack: it may answer once more when its budget is spent.
func (b *Budgets) Meter(id, parent task.ID, agentType string, handBack bool) agent.Meter {
	if b.accounts == nil {
		return nil
	}
	return b.accounts.For(
		usage.Node{ID: string(id), Type: agentType, Parent: string(b.spender(parent)), HandBack: handBack},
	)
}
