package usage

import (
	"math"
	"slices"
)

// Reserved is what is set aside for an agent that is to be started, of every
// budget above it. It shrinks by what the agent and those below it spend. It
// stands against further starts: calls are refused by what is spent alone, so
// nobody waits for money that may come back.
type Reserved struct {
	accounts *Accounts
	above    *node
	limit    amount // that the agent gets, with what it has spent in earlier runs
	left     amount // guarded by the accounts's mu, like node
	node     *node  // nil: not given to an agent yet
}

// Budget is the agent's budget: the wanted one, or the rest of it.
func (r *Reserved) Budget() Budget { return r.limit.budget() }

// Reserve reserves what an agent may use, of all budgets above it or of none. Of
// the budget of the node it gets what is left; where that is not even its first
// call, the error is a [*BudgetError]. For an agent without a budget of its own
// one call is set aside. A node with the ID of an agent that is known is a further
// run of it, which goes on under its budget. The caller gives the reservation to
// the agent, or releases it.
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

// first is what the first call of an agent will cost at most, as far as anything is
// known: it reads no more than the one who starts it does.
func (p *Accounts) first(above *node, model string) amount {
	n := &node{}
	if above.context > 0 {
		n.context = min(above.context, firstContext)
	}
	return p.expect(n, model, 0).amount
}

// Give puts the reservation on an agent, whose ID is known now.
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

// drop takes the reservation from where it stands. The caller holds the accounts's mu.
func (r *Reserved) drop() bool {
	at := r.above
	if r.node != nil {
		at = r.node
	}
	before := len(at.shares)
	at.shares = slices.DeleteFunc(at.shares, func(o *Reserved) bool { return o == r })
	return len(at.shares) < before
}

// Ended says that the run of an agent has ended: what was set aside for it and not
// spent is free for others.
func (p *Accounts) Ended(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := p.nodes[id]; n != nil {
		n.shares = slices.DeleteFunc(n.shares, func(r *Reserved) bool { return r.node == n })
	}
}

// Restore takes in an agent of an earlier host with all that it spent then, the
// calls that the file holds and bytes of output. Parents come before their
// children. One that is known already stays as it is.
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

// Knows reports whether an agent has spent, may, or did.
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

// Remaining is how much output there may still be below an agent; ok is false where
// nothing limits it.
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

// Of is what an agent has used itself, without those below it, in all its runs.
func (p *Accounts) Of(id string) Sum {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.ledger.rows[ByAgentID][label(id)]; s != nil {
		return *s
	}
	return Sum{}
}

// spend counts for a node and all above it, and takes it from what is set aside.
// The caller holds the accounts's mu.
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

// own is what is set aside for a node itself and not spent, and waiting what is
// for starts below it.
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

// promised is what is set aside for all below a node.
func (n *node) promised() amount {
	_, sum := n.own()
	for _, c := range n.children {
		sum.add(c.open())
	}
	return sum
}

// open is what a node and all below it may still use of what is above: what those
// below hold comes out of its own share as far as that goes.
func (n *node) open() amount {
	own, _ := n.own()
	return own.with(n.promised(), func(x, y int64) int64 { return max(x, y) })
}

func smaller(x, y int64) int64 { return min(x, y) }

// unlimited is room where no budget is.
const unlimited = math.MaxInt64

// room is how much a start below a node may set aside, so that it fits into every
// budget above, and whose budget leaves the least of each. What a node holds of
// its own share comes from no other.
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

// short is an error if there is less room than the least that is needed.
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
