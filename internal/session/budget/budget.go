// Package budget gives agents what they may spend: money, tokens, output and time.
//
// [Budgets] reserves what an agent may spend before the agent is started, counts what
// trees of agents spend, and gives back at its end what an agent has not used; [Limits]
// warns one agent when most of a limit is used. It promises that the agents of a tree
// together never get more than the agent at its top has.
//
// It does not know prices; package usage does, which also ends who has spent everything.
package budget

import (
	"cmp"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/agentenv/usage"
	"github.com/drover-dev/drover/internal/engine/journal"
	"github.com/drover-dev/drover/internal/engine/supervise"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
)

// Tasks is what budgets need of the supervisor.
type Tasks interface {
	Get(id task.ID) (task.Record, bool)
	Clock(id task.ID) (used, limit time.Duration)
}

// Config is what budgets are made of.
type Config struct {
	Accounts *usage.Accounts // nil: nothing is counted
	Top      usage.Budget    // of each agent at the top with all below it; needs Accounts
	TopWall  time.Duration   // how long each agent at the top may work; 0: any time
	Tasks    Tasks
	Place    home.Session
}

// Budgets are those of the agents of a session. Its methods may be called by several
// goroutines.
type Budgets struct{ cfg Config }

// New makes the budgets of a session.
func New(cfg Config) *Budgets { return &Budgets{cfg} }

// Agent is an agent that is going to be started.
type Agent struct {
	ID    task.ID // of one that gets a further run; empty: it is new
	Asker task.ID // who starts it; empty: a client
	Depth int
	Model string
	Def   subagent.Definition
}

// of is what an agent may use: of what its definition says and, at the top, the
// settings, the smaller.
func (b *Budgets) of(a Agent) task.Budget {
	got := a.Def.Budget
	if a.Depth == 1 {
		top := b.cfg.Top
		got.USD, got.Tokens, got.OutputBytes = Tighter(
			got.USD,
			top.USD,
		), Tighter(
			got.Tokens,
			top.Tokens,
		), Tighter(
			got.OutputBytes,
			top.Output,
		)
		got.WallMS = Tighter(got.WallMS, b.cfg.TopWall.Milliseconds())
	}
	return got
}

// Tighter is the smaller of two limits, of which 0 is none.
func Tighter[N int64 | float64 | time.Duration](a, b N) N {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// Reserve reserves what an agent may use before it is started, and puts into its spec what
// it gets of its budget. The caller gives the reservation to the agent, or releases it.
// Budgets that count nothing return one that forgives both.
func (b *Budgets) Reserve(spec *task.Spec, a Agent) (Reservation, error) {
	spec.Budget = b.of(a)
	if spec.Budget.WallMS > 0 {
		spec.Timeout = time.Duration(
			Tighter(spec.Timeout.Milliseconds(), b.timeLeft(a.Asker, spec.Budget.WallMS)),
		) * time.Millisecond
		spec.Budget.WallMS = spec.Timeout.Milliseconds()
	}
	p := b.cfg.Accounts
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

// Reservation is what is reserved for an agent that is being started. The zero value is
// nothing.
type Reservation struct {
	share *usage.Reserved // nil: nothing is counted
	node  usage.Node
}

// Give lets the agent of an ID have it.
func (r Reservation) Give(id task.ID) {
	if r.share != nil {
		r.node.ID = string(id)
		r.share.Give(r.node)
	}
}

// Release gives it back: the agent was not started.
func (r Reservation) Release() {
	if r.share != nil {
		r.share.Release()
	}
}

// timeLeft is a time limit, or what is left of those above if that is less; in
// milliseconds, and never 0.
func (b *Budgets) timeLeft(above task.ID, limit int64) int64 {
	for above != "" {
		if used, most := b.cfg.Tasks.Clock(above); most > 0 {
			limit = min(limit, max(1, (most-used).Milliseconds()))
		}
		r, _ := b.cfg.Tasks.Get(above)
		above = r.Parent
	}
	return limit
}

// spender is the agent whose budget a task spends: itself, or the nearest above it that
// has one.
func (b *Budgets) spender(id task.ID) task.ID {
	for id != "" && !b.cfg.Accounts.Knows(string(id)) {
		r, _ := b.cfg.Tasks.Get(id)
		id = r.Parent
	}
	return id
}

// Restore takes in what trees have spent under earlier hosts.
func (b *Budgets) Restore(states []journal.State, ended iter.Seq[supervise.Ended]) {
	p := b.cfg.Accounts
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
		if g.ID != b.cfg.Place.ID() {
			spend = append(spend, g)
		}
	}
	for g := range ended {
		count(g)
	}
	for _, st := range states {
		r := st.Task
		g := supervise.NewEnded(st.Born, "", &r)
		if !r.Status.Terminal() { // nobody has told its size
			if info, err := b.cfg.Place.Below().For(r.OutputFile).Lstat(r.OutputFile); err == nil {
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

// metered is the output of a task that somebody above has a budget for. A command
// has the end of that budget as its limit, wherever the others are by then.
type metered struct {
	supervise.OutputFile
	accounts *usage.Accounts
	node     string

	mu   sync.Mutex
	seen int64 // bytes that were counted; guarded by mu
}

// Output counts the output of a task, if there is a budget for it.
func (b *Budgets) Output(r task.Record, f supervise.OutputFile) supervise.OutputFile {
	p := b.cfg.Accounts
	if p == nil {
		return f
	}
	node := string(b.spender(r.ID))
	if _, bound := p.Room(node); !bound {
		return f
	}
	return &metered{OutputFile: f, accounts: p, node: node, seen: f.Size()}
}

// Size counts what has come since it was last asked for.
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

// Limit is that of the file, or where the budget ends. It is never 0, which would
// be none.
func (m *metered) Limit() int64 {
	size := m.Size()
	if room, ok := m.accounts.Room(m.node); ok {
		return max(1, min(m.OutputFile.Limit(), size+room))
	}
	return m.OutputFile.Limit()
}

func (m *metered) Close() error {
	m.Size()
	return m.OutputFile.Close()
}

// Ended says that an agent has ended, before its end can be seen. It does not block.
func (b *Budgets) Ended(id task.ID) {
	if b.cfg.Accounts != nil {
		b.cfg.Accounts.Ended(string(id))
	}
}

// Cost is what an agent has cost since this call; known is false if the price of some of
// it is not. It is nil where nothing is counted.
func (b *Budgets) Cost(id task.ID) func() (usd float64, known bool) {
	p := b.cfg.Accounts
	if p == nil {
		return nil
	}
	before := p.Of(string(id))
	return func() (float64, bool) {
		now := p.Of(string(id))
		return max(0, now.USD-before.USD), now.Unpriced == before.Unpriced
	}
}

// Meter counts what an agent spends, whose budget was reserved when it was started; nil
// where nothing is counted. handBack says that it may answer once more when it has spent
// everything.
func (b *Budgets) Meter(id, parent task.ID, agentType string, handBack bool) agent.Meter {
	if b.cfg.Accounts == nil {
		return nil
	}
	return b.cfg.Accounts.For(
		usage.Node{ID: string(id), Type: agentType, Parent: string(b.spender(parent)), HandBack: handBack},
	)
}
