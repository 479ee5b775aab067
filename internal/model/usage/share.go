package usage

import (
	"math"
	"slices"
)

// Reserved is the share of every budget above an agent that is set aside for its
// start. It shrinks as the agent and its descendants spend. It counts against
// further starts only: calls are refused by spent money alone, so that no call
// waits for money that may come back.
type Reserved struct {
	accounts *Accounts
	above    *node
	limit    amount // budget of the agent, its spending in earlier runs included
	left     amount // guarded by the accounts's mu, like node
	node     *node  // nil: not given to an agent yet
}

// Budget returns the budget of the agent: the wanted one, or as much of it as was left.
func (r *Reserved) Budget() Budget { return r.limit.budget() }

// Reserve sets an agent's budget aside from all budgets above it, or from none. The
// agent gets as much of its wanted budget as is left; if its first call does not
// fit, the error is a [*BudgetError]. Reserve sets one call aside for an agent
// without a budget of its own. A node with the ID of a known agent is a further run
// of it, which continues under its budget. The caller gives the reservation to the
// agent, or releases it.
func (p *Accounts) Reserve(n Node, model string) (*Reserved, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	above, wants, spent := p.node(n.Parent), n.Budget.amount(), amount{}
	if known := p.nodes[n.ID]; known != nil {
		above, spent = known.parent, known.spent
		was := known.limit
		known.limit = wants
		err := known.spentUp(amount{})
		if known.limit = was; err != nil {
			return nil, err
		}
		wants = wants.with(spent, func(limit, spent int64) int64 {
			if limit == 0 {
				return 0
			}
			return limit - spent
		})
	}
	for n := above; n != nil; n = n.parent {
		if err := n.spentUp(amount{}); err != nil {
			return nil, err
		}
	}
	needs := p.first(above, model)
	least := needs.with(wants, func(call, own int64) int64 {
		if own > 0 {
			return min(call, own)
		}
		return call
	})
	room, tightest := above.room()
	if err := short(tightest, room, least); err != nil {
		return nil, err
	}
	granted := wants.with(room, smaller)
	r := &Reserved{accounts: p, above: above, limit: granted.with(spent, func(own, spent int64) int64 {
		if own == 0 {
			return 0
		}
		return own + spent
	})}
	r.left = granted.with(least, func(own, call int64) int64 {
		if own > 0 {
			return own
		}
		return call
	})
	above.shares = append(above.shares, r)
	return r, nil
}

// first estimates the first call of an agent: it reads no more than the agent that
// starts it.
func (p *Accounts) first(above *node, model string) amount {
	n := &node{}
	if above.context > 0 {
		n.context = min(above.context, firstContext)
	}
	return p.expect(n, model, 0).amount
}

// Give gives the reservation to the agent, whose ID is known now.
func (r *Reserved) Give(n Node) {
	r.accounts.mu.Lock()
	defer r.accounts.mu.Unlock()
	if r.node != nil || !r.drop() {
		return
	}
	r.node = r.accounts.enter(n)
	r.node.limit = r.limit
	r.node.shares = append(r.node.shares, r)
}

// Release gives the reservation back. A second call does nothing.
func (r *Reserved) Release() {
	r.accounts.mu.Lock()
	defer r.accounts.mu.Unlock()
	r.drop()
}

// drop removes the reservation from its node. The caller holds the mu of the accounts.
func (r *Reserved) drop() bool {
	at := r.above
	if r.node != nil {
		at = r.node
	}
	before := len(at.shares)
	at.shares = slices.DeleteFunc(at.shares, func(o *Reserved) bool { return o == r })
	return len(at.shares) < before
}

// Ended says that the run of an agent has ended: the unspent rest of its reservation
// is free for others.
func (p *Accounts) Ended(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := p.nodes[id]; n != nil {
		n.shares = slices.DeleteFunc(n.shares, func(r *Reserved) bool { return r.node == n })
	}
}

// Restore adds an agent of an earlier host with its use under that host: its
// calls in the file and its bytes of output. Parents come before their
// children. A known agent stays as it is.
func (p *Accounts) Restore(n Node, output int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.nodes[n.ID] != nil {
		return
	}
	was := p.before[label(n.ID)]
	was.bytes = output
	for m := p.enter(n); m != p.root; m = m.parent { // the session's was counted when the file was read
		m.spent.add(was)
	}
}

// Knows reports whether the accounts have an agent.
func (p *Accounts) Knows(id string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.nodes[id] != nil
}

// Printed counts output below an agent; an empty ID is the session's.
func (p *Accounts) Printed(id string, bytes int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.node(id).spend(amount{bytes: bytes})
}

// Remaining returns how much output an agent and all below it may still write; ok is false
// without a limit.
func (p *Accounts) Remaining(id string) (bytes int64, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	bytes = math.MaxInt64
	for n := p.node(id); n != nil; n = n.parent {
		if n.limit.bytes > 0 {
			bytes, ok = min(bytes, max(0, n.limit.bytes-n.spent.bytes)), true
		}
	}
	return bytes, ok
}

// Of returns the use of an agent itself, without agents below it, in all its runs.
func (p *Accounts) Of(id string) Sum {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.ledger.rows[ByAgentID][label(id)]; s != nil {
		return *s
	}
	return Sum{}
}

// spend counts an amount for a node and all above it, and takes it from their shares.
// The caller holds the mu of the accounts.
func (n *node) spend(a amount) {
	for ; n != nil; n = n.parent {
		n.spent.add(a)
		rest := a
		for _, r := range n.shares {
			if r.node != n { // of a start that is under way
				continue
			}
			used := rest.with(r.left, smaller)
			r.left.sub(used)
			rest.sub(used)
		}
	}
}

// own returns the unspent share of a node itself, and waiting the shares of starts
// below it.
func (n *node) own() (own, waiting amount) {
	for _, r := range n.shares {
		if r.node == n {
			own.add(r.left)
		} else {
			waiting.add(r.left)
		}
	}
	return own, waiting
}

// promised returns the sum of the shares of all below a node.
func (n *node) promised() amount {
	_, sum := n.own()
	for _, c := range n.children {
		sum.add(c.open())
	}
	return sum
}

// open returns the amount that a node and all below it may still use of the budgets above:
// the shares below it come out of its own share as far as that reaches.
func (n *node) open() amount {
	own, _ := n.own()
	return own.with(n.promised(), func(x, y int64) int64 { return max(x, y) })
}

func smaller(x, y int64) int64 { return min(x, y) }

// unlimited is the room without a budget.
const unlimited = math.MaxInt64

// room returns how much a start below a node may set aside so that it fits into every
// budget above, and the nodes whose budgets leave the least of each limit. A start takes
// from the share of its own node before it takes from the budgets above.
func (n *node) room() (room amount, tightest [3]*node) {
	room = amount{unlimited, unlimited, unlimited}
	slack := amount{}
	for ; n != nil; n = n.parent {
		held := n.promised()
		free := n.limit.with(n.spent, func(limit, spent int64) int64 { return limit - spent })
		free.sub(held)
		free.add(slack)
		for i, d := range dimensions() {
			if *d(&n.limit) != 0 && *d(&free) < *d(&room) {
				*d(&room), tightest[i] = max(0, *d(&free)), n
			}
		}
		own, _ := n.own()
		own.sub(held)
		slack.add(own.with(amount{}, func(x, zero int64) int64 { return max(x, zero) }))
	}
	return room, tightest
}

// dimensions are the parts of an amount.
func dimensions() [3]func(*amount) *int64 {
	return [...]func(*amount) *int64{func(a *amount) *int64 { return &a.nanos },
		func(a *amount) *int64 { return &a.tokens }, func(a *amount) *int64 { return &a.bytes }}
}

// short returns an error if the room is less than the least amount for a start.
func short(tightest [3]*node, room, least amount) error {
	for i, d := range dimensions() {
		if n := tightest[i]; n != nil && *d(&room) < max(1, *d(&least)) {
			return &BudgetError{
				Limit:  [...]string{LimitUSD, LimitTokens, LimitOutput}[i],
				Agent:  n.ID,
				Budget: n.limit.budget(),
				Spent:  n.spent.budget(),
				Held:   n.promised().budget(),
				Needs:  least.budget(),
			}
		}
	}
	return nil
}
