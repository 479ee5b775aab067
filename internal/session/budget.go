package session

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/agentenv/usage"
	"github.com/drover-dev/drover/internal/session/environment"
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

// node is the agent as the purse knows it. Its budget was given to the purse when
// it was started.
func (k *kit) node() usage.Node {
	return usage.Node{ID: string(k.me.id), Type: k.def.Name, Parent: string(k.me.s.spender(k.me.parent)), HandBack: k.me.depth > 0}
}

// limits are those of which most is used.
func (k *kit) limits() []environment.Item {
	var due []environment.Item
	most := int64(k.me.maxTurns)
	if most == 0 {
		most = agent.DefaultMaxTurns
	}
	if used := k.turns.replies.Load(); nearly(used, most) {
		due = append(due, environment.Item{Key: fmt.Sprint("turns ", k.turns.turn.Load()), Line: fmt.Sprintf("- %d of the %d answers that you may give are used: %d left", used, most, most-used)})
	}
	if p := k.me.s.cfg.Agents.Purse; p != nil {
		for _, share := range p.Shares(string(k.me.id)) {
			due = append(due, k.spent(share)...)
		}
	}
	return append(due, k.late()...)
}

func (k *kit) spent(share usage.Share) (due []environment.Item) {
	whose := "your budget, of which the agents below you spend too"
	switch share.Agent {
	case "":
		whose = "the budget of the session"
	case string(k.me.id):
	default:
		whose = "the budget that you share with agent " + share.Agent
	}
	if b, used := share.Budget.USD, share.Spent.USD; nearly(used, b) {
		due = append(due, environment.Item{Key: "usd " + share.Agent, Line: fmt.Sprintf("- %s of %s are used (%s): %s left", usage.Dollars(used), usage.Dollars(b), whose, usage.Dollars(max(0, b-used)))})
	}
	if b, used := share.Budget.Tokens, share.Spent.Tokens; nearly(used, b) {
		due = append(due, environment.Item{Key: "tokens " + share.Agent, Line: fmt.Sprintf("- %d of %d tokens are used (%s): %d left", used, b, whose, max(0, b-used))})
	}
	if b, used := share.Budget.Output, share.Spent.Output; nearly(used, b) {
		due = append(due, environment.Item{Key: "output " + share.Agent, Line: fmt.Sprintf("- %d of %d bytes of output are used (%s): %d left", used, b, whose, max(0, b-used))})
	}
	return due
}

// late is the time limits of the agent and of those above it that are nearly up.
func (k *kit) late() (due []environment.Item) {
	whose := "you"
	for id := k.me.id; id != ""; {
		used, limit := k.me.s.sup.Clock(id)
		due = append(due, nearlyUp(id, whose, used, limit)...)
		r, _ := k.me.s.sup.Get(id)
		id = r.Parent
		whose = fmt.Sprintf("agent %s, which ends you with it,", id)
	}
	return due
}

func nearlyUp(id task.ID, whose string, used, limit time.Duration) []environment.Item {
	if !nearly(int64(used), int64(limit)) {
		return nil
	}
	text := fmt.Sprintf("- %s of the %s that %s may work are used: %s left", rounded(used), rounded(limit), whose, rounded(max(0, limit-used)))
	return []environment.Item{{Key: "wall " + string(id), Line: text}}
}

func rounded(d time.Duration) time.Duration {
	return d.Round(min(time.Second, max(time.Millisecond, d/100)))
}

// nearly says that 80 % of a limit are used; 0 is no limit.
func nearly[N int64 | float64](used, limit N) bool { return limit > 0 && used*5 >= limit*4 }
