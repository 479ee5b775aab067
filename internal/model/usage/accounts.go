package usage

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/drover-dev/drover/agent"
)

// The limits that a turn may run into, as [agent.LimitError] names them.
const (
	LimitUSD    = "max_budget_usd"
	LimitTokens = "max_budget_tokens"
	LimitOutput = "max_budget_output"
)

// The estimate for a call without earlier ones to compare with, in tokens.
const (
	firstContext = 20_000 // a prompt, and the text before every prompt
	firstOutput  = 4_000
	longOutput   = 32_000 // the longest answer of a model without a given limit
)

// Budget limits spending. A zero field does not limit.
type Budget struct {
	USD    float64
	Tokens int64 // read and written, the cache's included
	Output int64 // bytes in output files
}

// Config configures an [Accounts]. The zero Config counts in memory, by the
// zero Table.
type Config struct {
	Table  Table
	Budget Budget // of the whole session
	// Path is the file that each call is written to, see [FileName]. Calls that
	// it has already are counted, and against the budget too unless Fresh is set.
	// Empty: calls are not written.
	Path  string
	Fresh bool
	// Note is called once for each model whose price is unknown under a budget in
	// dollars, or whose figures are estimated under any budget.
	// It may be called by several goroutines. nil: the notes are lost.
	Note func(text string)
	Now  func() time.Time // nil: time.Now
}

// Node is an agent that spends. Its spending counts for its ancestors too.
type Node struct {
	ID     string
	Type   string
	Parent string // ID of a node that was made before; empty or unknown: the session
	Budget Budget // of the agent and all below it

	// HandBack says that the agent hands back its partial result when a budget ends.
	// The cost of its latest call is kept for that.
	HandBack bool
}

// BudgetError says that a budget is used up. It wraps an [*agent.LimitError]
// with the limit's name.
type BudgetError struct {
	Limit  string // LimitUSD, LimitTokens or LimitOutput
	Agent  string // owner of the budget; empty: the session
	Budget Budget
	Spent  Budget

	// Of a start that did not fit: the shares that are set aside for other running
	// agents, and the requested budget.
	Held, Needs Budget
}

func (e *BudgetError) Error() string {
	whose := ""
	if e.Agent != "" {
		whose = " of " + e.Agent
	}
	of, spent, nearly := e.number(e.Budget)+e.unit(), e.number(e.Spent), e.Spent.below(e.Budget, e.Limit)
	if e.Needs != (Budget{}) {
		return fmt.Sprintf(
			"the budget%s of %s has no room for this: %s is spent, %s is set aside for what runs, and a start needs %s",
			whose,
			of,
			spent,
			e.number(e.Held),
			e.number(e.Needs),
		)
	}
	if nearly {
		return fmt.Sprintf("the budget%s of %s is nearly spent (%s), and the rest is kept for a last answer", whose, of,
			spent)
	}
	return fmt.Sprintf("the budget%s of %s is spent (%s)", whose, of, spent)
}

// number returns the part of a budget that the error is about, and unit the name of its unit.
func (e *BudgetError) number(b Budget) string {
	switch e.Limit {
	case LimitTokens:
		return fmt.Sprint(b.Tokens)
	case LimitOutput:
		return fmt.Sprint(b.Output)
	}
	return Dollars(b.USD)
}

func (e *BudgetError) unit() string {
	return map[string]string{LimitTokens: " tokens", LimitOutput: " bytes of output"}[e.Limit]
}

func (b Budget) below(limit Budget, what string) bool {
	switch what {
	case LimitTokens:
		return b.Tokens < limit.Tokens
	case LimitOutput:
		return b.Output < limit.Output
	}
	return b.USD < limit.USD
}

// Unwrap returns the error that an agent loop handles.
func (e *BudgetError) Unwrap() error { return &agent.LimitError{Limit: e.Limit, Text: e.Error()} }

// Dollars formats an amount for people: cents, and more places for a small one.
func Dollars(usd float64) string {
	if usd > 0 && usd < 0.01 {
		return "<$0.01"
	}
	return fmt.Sprintf("$%.2f", usd)
}

// Accounts holds the money of one session. Its methods may be called by several
// goroutines.
type Accounts struct {
	table Table
	note  func(string)
	now   func() time.Time

	mu      sync.Mutex
	root    *node
	nodes   map[string]*node  // by ID
	before  map[string]amount // spending under earlier hosts, by label of ID
	longest map[string]int64  // output seen of a model, in tokens
	noted   map[string]bool   // notes that were sent
	ledger  *Ledger
	file    *file         // nil: none
	problem error         // of the file; said by the next Reserve
	changed chan struct{} // closed when a call has ended, and made anew
}

// node is a spender; guarded by the mu of its accounts.
type node struct {
	Node
	parent   *node // nil: the session
	limit    amount
	spent    amount
	reserved amount
	flying   int    // calls under way, of all below too
	context  int64  // tokens that the latest request held
	latest   amount // cost of that call

	children []*node
	shares   []*Reserved // set aside, from the budgets above, for it and all below it
}

// amount is money, tokens and bytes of output. Money is in billionths of a
// dollar: sums must come back to zero exactly.
type amount struct{ nanos, tokens, bytes int64 }

func (a *amount) add(b amount) { *a = a.with(b, func(x, y int64) int64 { return x + y }) }
func (a *amount) sub(b amount) { *a = a.with(b, func(x, y int64) int64 { return x - y }) }

// with joins two amounts part by part.
func (a amount) with(b amount, join func(x, y int64) int64) amount {
	return amount{join(a.nanos, b.nanos), join(a.tokens, b.tokens), join(a.bytes, b.bytes)}
}

func (a amount) budget() Budget {
	return Budget{USD: float64(a.nanos) / 1e9, Tokens: a.tokens, Output: a.bytes}
}

func (b Budget) amount() amount { return amount{nanos(b.USD), b.Tokens, b.Output} }

func (b Budget) possible() bool {
	return b.Tokens >= 0 && b.Output >= 0 && b.USD >= 0 && b.USD < 1e9 // false for NaN too
}

// nanos rounds up. It returns -1 for NaN: such a budget allows nothing.
func nanos(usd float64) int64 {
	if math.IsNaN(usd) {
		return -1
	}
	return int64(math.Ceil(min(usd, 1e9) * 1e9))
}

// Open makes accounts, and counts the calls in its file. The caller closes them.
func Open(cfg Config) (*Accounts, error) {
	if !cfg.Budget.possible() {
		return nil, fmt.Errorf("a budget of %v dollars and %d tokens cannot be (give amounts above 0)", cfg.Budget.USD,
			cfg.Budget.Tokens)
	}
	p := &Accounts{table: cfg.Table, note: cfg.Note, now: cfg.Now,
		root:  &node{limit: cfg.Budget.amount()},
		nodes: map[string]*node{}, longest: map[string]int64{}, noted: map[string]bool{}, before: map[string]amount{},
		ledger: NewLedger(ByAgentID, ByModel, ByDay), changed: make(chan struct{})}
	if p.now == nil {
		p.now = time.Now
	}
	if cfg.Path == "" {
		return p, nil
	}
	_, err := Read(cfg.Path, func(c Call) {
		c.Time = c.Time.In(p.now().Location())
		p.ledger.Add(c)
		was := p.before[c.AgentID]
		was.add(p.counted(c))
		p.before[c.AgentID] = was
		if !cfg.Fresh {
			p.root.spent.add(p.counted(c))
		}
	})
	if err != nil {
		return nil, err
	}
	p.file = &file{path: cfg.Path}
	return p, nil
}

func (p *Accounts) counted(c Call) amount {
	a := amount{tokens: held(c.Usage) + c.OutputTokens}
	if c.USD != nil {
		a.nanos = nanos(*c.USD)
	}
	return a
}

// Close writes pending calls, and closes the file.
func (p *Accounts) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.file == nil {
		return nil
	}
	err := p.file.close()
	p.file = nil
	return err
}

// For returns the meter of an agent. A known node, such as the node of an agent
// that runs again or has a reservation, keeps its counts and its budget.
func (p *Accounts) For(n Node) agent.Meter {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.enter(n)
	known.Type, known.HandBack = n.Type, n.HandBack
	return &meter{accounts: p, node: known}
}

// enter returns the node of an agent, and makes it for a new agent. The caller holds mu.
func (p *Accounts) enter(n Node) *node {
	known := p.nodes[n.ID]
	if known != nil {
		return known
	}
	known = &node{Node: n, parent: p.node(n.Parent), limit: n.Budget.amount()}
	known.parent.children = append(known.parent.children, known)
	p.nodes[n.ID] = known
	return known
}

// Totals returns the use of the session, earlier hosts included.
func (p *Accounts) Totals() Sum {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ledger.Total()
}

// About returns the table's facts about a model.
func (p *Accounts) About(model string) About { return p.table.About(model) }

// Rows returns the totals by agent (ByAgentID), model or day.
func (p *Accounts) Rows(b By) []Sum {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ledger.Rows(b)
}

// Spent returns the use by a node and all below it since the accounts were opened;
// with an empty ID, the use that counts against the budget of the session.
func (p *Accounts) Spent(id string) Budget {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.root
	if id != "" {
		n = p.nodes[id]
	}
	if n == nil {
		return Budget{}
	}
	return n.spent.budget()
}

// Afford returns a [*BudgetError] if an agent could make no call because a budget above
// it is spent, or its own; an unknown agent has only the budget of the session.
func (p *Accounts) Afford(id string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for n := p.node(id); n != nil; n = n.parent {
		if err := n.spentUp(amount{}); err != nil {
			return err
		}
	}
	return nil
}

// Share is a budget and its spent part.
type Share struct {
	Agent         string // owner of the budget, with all below it; empty: the session
	Budget, Spent Budget
}

// Shares returns the budgets that an agent spends of: its own, its ancestors', and
// the session's.
func (p *Accounts) Shares(id string) []Share {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []Share
	for n := p.node(id); n != nil; n = n.parent {
		if n.limit != (amount{}) {
			all = append(all, Share{n.ID, n.limit.budget(), n.spent.budget()})
		}
	}
	return all
}

// node returns the node with an ID, else the session's. The caller holds mu.
func (p *Accounts) node(id string) *node {
	if n := p.nodes[id]; n != nil {
		return n
	}
	return p.root
}

// meter is one agent's access to the accounts.
type meter struct {
	accounts *Accounts
	node     *node

	open []*reservation // calls under way; guarded by the accounts's mu
}

// reservation holds the expected cost of a call in progress.
type reservation struct {
	model  string
	amount amount
	worst  agent.Usage // counted if the provider gives no figures
	start  time.Time
	told   bool // the call was counted
}

// Reserve lets a call begin. It refuses the call when a budget is used up, and
// waits while running calls of other agents may use up the rest. So no call is
// refused before a budget is spent, and a budget is exceeded by at most the one
// call that each agent has in progress. An agent that hands back its result is
// refused while its latest call would still fit, see [Node.HandBack]. A caller
// must free its reservation before it asks for another, or it may wait for
// itself. The error is a [*BudgetError], the cause of ctx, or the failure to
// write an earlier call to the file.
func (m *meter) Reserve(ctx context.Context, model string, maxTokens int) (func(), error) {
	return m.reserve(ctx, model, maxTokens, m.try)
}

// ReserveLast implements [agent.LastMeter]: it neither refuses nor waits because of
// spent budgets. An agent makes one such call in a run, as its last: since the
// budget ended for it while its latest call would still have fitted, the budget is
// exceeded by that one call.
func (m *meter) ReserveLast(ctx context.Context, model string, maxTokens int) (func(), error) {
	return m.reserve(ctx, model, maxTokens, func(model string, maxTokens int) (*reservation, <-chan struct{}, error) {
		p := m.accounts
		p.mu.Lock()
		defer p.mu.Unlock()
		if err := p.write(); err != nil {
			return nil, nil, err
		}
		return m.take(p.expect(m.node, model, maxTokens)), nil, nil
	})
}

func (m *meter) reserve(ctx context.Context, model string, maxTokens int,
	try func(string, int) (*reservation, <-chan struct{}, error)) (func(), error) {
	for {
		r, wait, err := try(model, maxTokens)
		if err != nil {
			return nil, err
		}
		if r != nil {
			return sync.OnceFunc(func() { m.free(r) }), nil
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for the budget: %w", context.Cause(ctx))
		}
	}
}

// try reserves, or returns the channel that closes when another try may succeed.
func (m *meter) try(model string, maxTokens int) (*reservation, <-chan struct{}, error) {
	p := m.accounts
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.write(); err != nil {
		return nil, nil, err
	}
	r := p.expect(m.node, model, maxTokens)
	kept := amount{}
	if m.node.HandBack {
		kept = m.node.latest
	}
	for n := m.node; n != nil; n = n.parent {
		if err := n.spentUp(kept); err != nil {
			return nil, nil, err
		}
	}
	for n := m.node; n != nil; n = n.parent {
		if n.flying > 0 && n.tight(r.amount) {
			return nil, p.changed, nil
		}
	}
	return m.take(r), nil, nil
}

// take reserves the expected cost of a call. The caller holds the mu of the accounts.
func (m *meter) take(r *reservation) *reservation {
	for n := m.node; n != nil; n = n.parent {
		n.flying++
		n.reserved.add(r.amount)
	}
	m.open = append(m.open, r)
	return r
}

// expect returns the likely cost of a call: it reads as much as the latest call, and
// writes as much as the longest answer of the model so far.
func (p *Accounts) expect(n *node, model string, maxTokens int) *reservation {
	likely, worst := agent.Usage{
		InputTokens:  n.context,
		OutputTokens: p.longest[model],
	}, agent.Usage{
		OutputTokens: int64(maxTokens),
	}
	if likely.InputTokens == 0 {
		likely.InputTokens = firstContext
	}
	if likely.OutputTokens == 0 {
		likely.OutputTokens = firstOutput
	}
	if maxTokens <= 0 {
		worst.OutputTokens = longOutput
	} else {
		likely.OutputTokens = min(likely.OutputTokens, worst.OutputTokens)
	}
	worst.InputTokens = likely.InputTokens
	usd, _ := p.table.Cost(model, likely) // without a price only tokens are reserved
	return &reservation{
		model:  model,
		amount: amount{nanos: nanos(usd), tokens: likely.InputTokens + likely.OutputTokens},
		worst:  worst,
		start:  p.now(),
	}
}

// spentUp returns an error if the node has at most the kept amount left.
func (n *node) spentUp(kept amount) error {
	e := &BudgetError{Agent: n.ID, Budget: n.limit.budget(), Spent: n.spent.budget()}
	switch {
	case n.limit.nanos != 0 && n.spent.nanos+kept.nanos >= n.limit.nanos:
		e.Limit = LimitUSD
	case n.limit.tokens != 0 && n.spent.tokens+kept.tokens >= n.limit.tokens:
		e.Limit = LimitTokens
	case n.limit.bytes != 0 && n.spent.bytes >= n.limit.bytes:
		e.Limit = LimitOutput
	default:
		return nil
	}
	return e
}

// tight reports whether the calls under way and one more may pass the limit.
func (n *node) tight(more amount) bool {
	sum := n.spent
	sum.add(n.reserved)
	sum.add(more)
	return n.limit.nanos != 0 && sum.nanos > n.limit.nanos || n.limit.tokens != 0 && sum.tokens > n.limit.tokens
}

// free ends a reservation and wakes waiting calls. Until then the cost of the call
// counts twice, which delays calls but refuses none.
func (m *meter) free(r *reservation) {
	p := m.accounts
	p.mu.Lock()
	defer p.mu.Unlock()
	m.open = slices.DeleteFunc(m.open, func(o *reservation) bool { return o == r })
	for n := m.node; n != nil; n = n.parent {
		n.flying--
		n.reserved.sub(r.amount)
	}
	close(p.changed)
	p.changed = make(chan struct{})
}

// Spent counts a call. In place of missing or impossible figures it counts the highest
// possible cost of the call.
func (m *meter) Spent(model string, u agent.Usage) {
	p := m.accounts
	p.mu.Lock()
	c, notes := m.count(model, u)
	if p.file != nil && p.problem == nil {
		p.problem = p.file.add(c)
	}
	_ = p.write() // said by the next Reserve, which tries again
	p.mu.Unlock()
	for _, text := range notes {
		if p.note != nil {
			p.note(text)
		}
	}
}

// count books a call, and returns notes about it for the user.
func (m *meter) count(model string, u agent.Usage) (c Call, notes []string) {
	p := m.accounts
	r := p.expect(m.node, model, 0) // of a call that nothing was reserved for
	if i := slices.IndexFunc(m.open, func(o *reservation) bool { return !o.told }); i >= 0 {
		r = m.open[i]
		r.told = true
	}
	c = Call{Time: p.now(), AgentID: label(m.node.ID), AgentType: label(m.node.Type), Model: label(model), Usage: u}
	c.DurationMS = max(0, c.Time.Sub(r.start).Milliseconds())
	c.Estimated = u.Estimated
	if !believable(u) {
		c.Usage, c.Estimated = r.worst, true
	}
	usd, known := p.table.Cost(model, c.Usage)
	if known {
		c.USD = &usd
	}
	m.node.spend(p.counted(c))
	var limit amount // of any budget above
	for n := m.node; n != nil; n = n.parent {
		limit.add(n.limit)
	}
	once := func(text string) {
		if !p.noted[text] {
			p.noted[text] = true
			notes = append(notes, text)
		}
	}
	if limit.nanos != 0 && !known {
		once(fmt.Sprintf("the price of model %s is not known: its calls count as tokens and not against the budget in dollars "+
			"(set models.prices)", c.Model))
	}
	if limit.nanos+limit.tokens != 0 && c.Estimated {
		once(fmt.Sprintf("the provider of model %s does not say what a call costs: what counts against the budget is estimated "+
			"by the size of what was sent and answered", c.Model))
	}
	m.node.context, m.node.latest = held(c.Usage), p.counted(c)
	if !c.Estimated {
		p.longest[model] = max(p.longest[model], c.OutputTokens)
	}
	p.ledger.Add(c)
	c.Time = c.Time.UTC()
	return c, notes
}

// write writes pending calls to the file. The caller holds mu.
func (p *Accounts) write() error {
	if p.file == nil {
		return nil
	}
	if p.problem != nil {
		return p.problem
	}
	return p.file.flush()
}
