package session

import (
	"cmp"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/drover-dev/drover/internal/agentenv/usage"
	"github.com/drover-dev/drover/internal/engine/journal"
	"github.com/drover-dev/drover/internal/engine/supervise"
	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
)

// budget is what an agent may use: of what its definition says and, at the top,
// the settings, the smaller.
func (s *Session) budget(depth int, def subagent.Definition) task.Budget {
	b := def.Budget
	if depth == 1 {
		of := s.cfg.Agents.Budget
		b.USD, b.Tokens, b.OutputBytes = tighter(b.USD, of.USD), tighter(b.Tokens, of.Tokens), tighter(b.OutputBytes, of.Output)
		b.WallMS = tighter(b.WallMS, s.cfg.Agents.BudgetWall.Milliseconds())
	}
	return b
}

// tighter is the smaller of two limits, of which 0 is none.
func tighter[N int64 | float64 | time.Duration](a, b N) N {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// reserve sets aside what an agent may use before it is started, and puts into its
// spec what it gets of its budget. The ID is that of a further run. The caller
// gives the reservation to the agent, or releases it. A session that counts
// nothing has none, which both forgive.
func (s *Session) reserve(spec *task.Spec, id task.ID, asker self, c *child) (reserved, error) {
	spec.Budget = s.budget(c.depth, c.def)
	if spec.Budget.WallMS > 0 {
		spec.Timeout = time.Duration(tighter(spec.Timeout.Milliseconds(), s.timeLeft(asker.id, spec.Budget.WallMS))) * time.Millisecond
		spec.Budget.WallMS = spec.Timeout.Milliseconds()
	}
	p := s.cfg.Agents.Purse
	if p == nil {
		return reserved{}, nil
	}
	node := usage.Node{ID: string(id), Type: c.def.Name, Parent: string(s.spender(asker.id)), HandBack: true,
		Budget: usage.Budget{USD: spec.Budget.USD, Tokens: spec.Budget.Tokens, Output: spec.Budget.OutputBytes}}
	share, err := p.SetAside(node, c.model)
	if err != nil {
		return reserved{}, err
	}
	got := share.Budget()
	spec.Budget.USD, spec.Budget.Tokens, spec.Budget.OutputBytes = got.USD, got.Tokens, got.Output
	return reserved{share, node}, nil
}

// reserved is what is set aside for an agent that is being started.
type reserved struct {
	share *usage.Reserved // nil: nothing is counted
	node  usage.Node
}

func (r reserved) give(id task.ID) {
	if r.share != nil {
		r.node.ID = string(id)
		r.share.Give(r.node)
	}
}

func (r reserved) release() {
	if r.share != nil {
		r.share.Release()
	}
}

// timeLeft is a time limit, or what is left of those above if that is less; in
// milliseconds, and never 0.
func (s *Session) timeLeft(above task.ID, limit int64) int64 {
	for above != "" {
		if used, most := s.sup.Clock(above); most > 0 {
			limit = min(limit, max(1, (most-used).Milliseconds()))
		}
		r, _ := s.sup.Get(above)
		above = r.Parent
	}
	return limit
}

// spender is the agent whose purse a task spends of: itself, or the nearest above
// it that spends.
func (s *Session) spender(id task.ID) task.ID {
	for id != "" && !s.cfg.Agents.Purse.Knows(string(id)) {
		r, _ := s.sup.Get(id)
		id = r.Parent
	}
	return id
}

// restore gives the purse what trees have spent under earlier hosts.
func (s *Session) restore(states []journal.State, ended iter.Seq[supervise.Ended]) {
	p := s.cfg.Agents.Purse
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
		if g.ID != s.cfg.Info.Session {
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
			if info, err := s.cfg.Place.Below().For(r.OutputFile).Lstat(r.OutputFile); err == nil {
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
	purse *usage.Purse
	node  string

	mu   sync.Mutex
	seen int64 // bytes that were counted; guarded by mu
}

// meter counts the output of a task, if there is a budget for it.
func (s *Session) meter(r task.Record, f supervise.OutputFile) supervise.OutputFile {
	p := s.cfg.Agents.Purse
	if p == nil {
		return f
	}
	node := string(s.spender(r.ID))
	if _, bound := p.Room(node); !bound {
		return f
	}
	return &metered{OutputFile: f, purse: p, node: node, seen: f.Size()}
}

// Size counts what has come since it was last asked for.
func (m *metered) Size() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	size := m.OutputFile.Size()
	if size > m.seen {
		m.purse.Printed(m.node, size-m.seen)
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
	if room, ok := m.purse.Room(m.node); ok {
		return max(1, min(m.OutputFile.Limit(), size+room))
	}
	return m.OutputFile.Limit()
}

func (m *metered) Close() error {
	m.Size()
	return m.OutputFile.Close()
}

// cost is what an agent has cost since now; known is false if the price of some of
// it is not.
func (s *Session) cost(id task.ID) func() (usd float64, known bool) {
	p := s.cfg.Agents.Purse
	if p == nil {
		return nil
	}
	before := p.Of(string(id))
	return func() (float64, bool) {
		now := p.Of(string(id))
		return max(0, now.USD-before.USD), now.Unpriced == before.Unpriced
	}
}
