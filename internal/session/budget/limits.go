package budget

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/model/usage"
	"github.com/drover-dev/drover/internal/session/environment"
	"github.com/drover-dev/drover/task"
)

// Limits are the limits of one agent in a run, with the warnings about them.
type Limits struct {
	budgets *Budgets
	id      task.ID
	replies int64 // replies per turn

	turn atomic.Int64 // number of the turn in the run
	used atomic.Int64 // replies in the turn
}

// Limits returns the limits of an agent that may give a number of replies in a turn; 0: the usual.
func (b *Budgets) Limits(id task.ID, maxTurns int) *Limits {
	if maxTurns == 0 {
		maxTurns = agent.DefaultMaxTurns
	}
	return &Limits{budgets: b, id: id, replies: int64(maxTurns)}
}

// On counts the events in the conversation of the agent.
func (l *Limits) On(e agent.Event) {
	switch e.Kind {
	case agent.TurnStartEvent:
		l.turn.Add(1)
		l.used.Store(0)
	case agent.ReplyDoneEvent:
		l.used.Add(1)
	}
}

// Due returns the limits that are nearly used up.
func (l *Limits) Due() []environment.Item {
	var due []environment.Item
	if used, most := l.used.Load(), l.replies; nearly(used, most) {
		due = append(due, environment.Item{
			Key:  fmt.Sprint("turns ", l.turn.Load()),
			Line: fmt.Sprintf("- %d of the %d answers that you may give are used: %d left", used, most, most-used),
		})
	}
	if p := l.budgets.accounts; p != nil {
		for _, share := range p.Shares(string(l.id)) {
			due = append(due, l.spent(share)...)
		}
	}
	return append(due, l.late()...)
}

func (l *Limits) spent(share usage.Share) (due []environment.Item) {
	whose := "your budget, of which the agents below you spend too"
	switch share.Agent {
	case "":
		whose = "the budget of the session"
	case string(l.id):
	default:
		whose = "the budget that you share with agent " + share.Agent
	}
	if b, used := share.Budget.USD, share.Spent.USD; nearly(used, b) {
		due = append(due, environment.Item{
			Key: "usd " + share.Agent,
			Line: fmt.Sprintf("- %s of %s are used (%s): %s left", usage.Dollars(used), usage.Dollars(b), whose,
				usage.Dollars(max(0, b-used))),
		})
	}
	if b, used := share.Budget.Tokens, share.Spent.Tokens; nearly(used, b) {
		due = append(due, environment.Item{
			Key:  "tokens " + share.Agent,
			Line: fmt.Sprintf("- %d of %d tokens are used (%s): %d left", used, b, whose, max(0, b-used)),
		})
	}
	if b, used := share.Budget.Output, share.Spent.Output; nearly(used, b) {
		due = append(due, environment.Item{
			Key:  "output " + share.Agent,
			Line: fmt.Sprintf("- %d of %d bytes of output are used (%s): %d left", used, b, whose, max(0, b-used)),
		})
	}
	return due
}

// late returns the time limits of the agent and of those above it that are nearly reached.
func (l *Limits) late() (due []environment.Item) {
	whose := "you"
	for id := l.id; id != ""; {
		used, limit := l.budgets.tasks.Clock(id)
		due = append(due, nearlyUp(id, whose, used, limit)...)
		r, _ := l.budgets.tasks.Get(id)
		id = r.Parent
		whose = fmt.Sprintf("agent %s, which ends you with it,", id)
	}
	return due
}

func nearlyUp(id task.ID, whose string, used, limit time.Duration) []environment.Item {
	if !nearly(int64(used), int64(limit)) {
		return nil
	}
	text := fmt.Sprintf("- %s of the %s that %s may work are used: %s left", rounded(used), rounded(limit), whose,
		rounded(max(0, limit-used)))
	return []environment.Item{{Key: "wall " + string(id), Line: text}}
}

func rounded(d time.Duration) time.Duration {
	return d.Round(min(time.Second, max(time.Millisecond, d/100)))
}

// nearly reports whether 80 % of a limit are used; 0: no limit.
func nearly[N int64 | float64](used, limit N) bool { return limit > 0 && used*5 >= limit*4 }
