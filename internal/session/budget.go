package session

import (
	"fmt"
	"sync/atomic"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/usage"
	"github.com/drover-dev/drover/task"
)

// limitList is what an agent is told of its limits, each once when most of it is
// used.
const limitList = "limits"

// turnCount is how far an agent is in its turn.
type turnCount struct {
	turn    atomic.Int64 // which one of the run
	replies atomic.Int64 // in it
}

func (c *turnCount) on(e agent.Event) {
	switch e.Kind {
	case agent.TurnStartEvent:
		c.turn.Add(1)
		c.replies.Store(0)
	case agent.ReplyDoneEvent:
		c.replies.Add(1)
	}
}

// node is the agent as the purse knows it. The settings give a budget to those at
// the top, which all below them spend of.
func (k *kit) node() usage.Node {
	n := usage.Node{ID: string(k.me.id), Type: k.def.Name, Parent: string(k.me.parent), HandBack: k.me.depth > 0}
	if k.me.depth == 1 {
		n.Budget = k.me.s.cfg.Agents.Budget
	}
	return n
}

// limits are those of which most is used.
func (k *kit) limits() []item {
	var due []item
	most := int64(k.me.maxTurns)
	if most == 0 {
		most = agent.DefaultMaxTurns
	}
	if used := k.turns.replies.Load(); nearly(used, most) {
		due = append(due, item{fmt.Sprint("turns ", k.turns.turn.Load()), fmt.Sprintf("- %d of the %d answers that you may give are used: %d left", used, most, most-used)})
	}
	if p := k.me.s.cfg.Agents.Purse; p != nil {
		for _, share := range p.Shares(string(k.me.id)) {
			due = append(due, k.spent(share)...)
		}
	}
	return due
}

func (k *kit) spent(share usage.Share) (due []item) {
	whose := "your budget, of which the agents below you spend too"
	switch share.Agent {
	case "":
		whose = "the budget of the session"
	case string(k.me.id):
	default:
		whose = "the budget that you share with agent " + share.Agent
	}
	if b, used := share.Budget.USD, share.Spent.USD; nearly(used, b) {
		due = append(due, item{"usd " + share.Agent, fmt.Sprintf("- %s of %s are used (%s): %s left", usage.Dollars(used), usage.Dollars(b), whose, usage.Dollars(max(0, b-used)))})
	}
	if b, used := share.Budget.Tokens, share.Spent.Tokens; nearly(used, b) {
		due = append(due, item{"tokens " + share.Agent, fmt.Sprintf("- %d of %d tokens are used (%s): %d left", used, b, whose, max(0, b-used))})
	}
	return due
}

// nearly says that 80 % of a limit are used; 0 is no limit.
func nearly[N int64 | float64](used, limit N) bool { return limit > 0 && used*5 >= limit*4 }

// afford refuses a start by an agent that has nothing left to spend.
func (s *Session) afford(id task.ID) error {
	if s.cfg.Agents.Purse == nil {
		return nil
	}
	return s.cfg.Agents.Purse.Afford(string(id))
}
