package usage

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/test/agenttest"
)

// dear costs a dollar for a thousand tokens written, and nothing else.
const dear = "dear"

func open1(t testing.TB, cfg Config) *Accounts {
	t.Helper()
	if cfg.Table.built == nil {
		cfg.Table, _ = NewTable(map[string]Price{dear: {Output: 1000}}, nil)
	}
	p, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func wrote(tokens int64) agent.Usage { return agent.Usage{InputTokens: 10, OutputTokens: tokens} }

// spend makes one call.
func spend(m agent.Meter, model string, u agent.Usage) error {
	free, err := m.Reserve(context.Background(), model, 0)
	if err != nil {
		return err
	}
	m.Spent(model, u)
	free()
	return nil
}

func TestBudget(t *testing.T) {
	p := open1(t, Config{Budget: Budget{USD: 0.5}})
	m := p.For(Node{ID: "s00000001", Type: "main"})
	// What is reserved for a first call is far beyond the budget. It is not
	// refused for that, nor is the second.
	for range 2 {
		if err := spend(m, dear, wrote(255)); err != nil {
			t.Fatal(err)
		}
	}
	err := spend(m, dear, wrote(255))
	var limit *agent.LimitError
	if !errors.As(err, &limit) || limit.Limit != "max_budget_usd" {
		t.Fatalf("beyond the budget: %v", err)
	}
	if want := "the budget of $0.50 is spent ($0.51)"; err.Error() != want || limit.Error() != want {
		t.Errorf("err = %q, in short %q; want %q", err, limit, want)
	}
	if s := p.Totals(); s.Calls != 2 || math.Abs(s.USD-0.51) > 1e-9 || s.Output != 510 || s.Unpriced != 0 {
		t.Errorf("totals %+v", s)
	}
}

// A refused call has cost nothing and holds nothing.
func TestFreed(t *testing.T) {
	p := open1(t, Config{Budget: Budget{USD: 1}})
	m := p.For(Node{ID: "s00000001"})
	for range 100 {
		free, err := m.Reserve(t.Context(), dear, 1_000_000)
		if err != nil {
			t.Fatal(err)
		}
		free() // the call failed before it cost anything
		free()
	}
	if s := p.Spent(""); s != (Budget{}) {
		t.Errorf("spent %+v", s)
	}
	if p.root.flying != 0 || p.root.reserved != (amount{}) {
		t.Errorf("held: %+v", p.root)
	}
}

// Where a call of another may use up the rest, a call waits for it, and goes on
// if something is left.
func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			name  string
			costs int64 // of the first call, in thousandths of the budget
			ok    bool
		}{{"some-left", 300, true}, {"nothing-left", 1000, false}} {
			p := open1(t, Config{Budget: Budget{USD: 1}})
			one, two := p.For(Node{ID: "a1"}), p.For(Node{ID: "a2"})
			free, err := one.Reserve(t.Context(), dear, 0)
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() { done <- spend(two, dear, wrote(1)) }()
			synctest.Wait()
			select {
			case err := <-done:
				t.Fatalf("%s: did not wait: %v", c.name, err)
			default:
			}
			one.Spent(dear, wrote(c.costs))
			free()
			if err := <-done; (err == nil) != c.ok {
				t.Errorf("%s: %v", c.name, err)
			}
		}
	})
}

func TestWaitEnds(t *testing.T) {
	p := open1(t, Config{Budget: Budget{USD: 1}})
	free, err := p.For(Node{ID: "a1"}).Reserve(t.Context(), dear, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer free()
	stopped := errors.New("stopped")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(stopped)
	if _, err := p.For(Node{ID: "a2"}).Reserve(ctx, dear, 0); !errors.Is(err, stopped) {
		t.Errorf("err = %v; want the cause", err)
	}
}

// Small calls run side by side once it is known that they are small.
func TestLearned(t *testing.T) {
	p := open1(t, Config{Budget: Budget{USD: 1}})
	if err := spend(p.For(Node{ID: "a0"}), dear, wrote(10)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // who would have to wait fails
	for i := range 50 {
		free, err := p.For(Node{ID: fmt.Sprintf("a%d", i+1)}).Reserve(ctx, dear, 0)
		if err != nil {
			t.Fatalf("call %d: %v", i, err)
		}
		defer free()
	}
}

// A call that may write little reserves little.
func TestReservesNoMoreThanAllowed(t *testing.T) {
	p := open1(t, Config{Budget: Budget{USD: 1}})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for i := range 10 {
		free, err := p.For(Node{ID: fmt.Sprint("a", i)}).Reserve(ctx, dear, 100)
		if err != nil {
			t.Fatalf("call %d: %v", i, err)
		}
		defer free()
	}
}

// Two calls of one meter are two calls.
func TestSharedMeter(t *testing.T) {
	p := open1(t, Config{})
	m := p.For(Node{ID: "a1"})
	for _, most := range []int{700, 300} {
		free, err := m.Reserve(t.Context(), dear, most)
		if err != nil {
			t.Fatal(err)
		}
		defer free()
	}
	m.Spent(dear, agent.Usage{})
	m.Spent(dear, agent.Usage{})
	if s := p.Totals(); s.Output != 1000 {
		t.Errorf("counted %+v; want the most of each", s)
	}
}

// What a provider says of a call is counted only if it can be true (G6).
func TestNotBelieved(t *testing.T) {
	for _, c := range []struct {
		name string
		u    agent.Usage
		max  int
		want int64
	}{
		{"missing", agent.Usage{}, 700, 700},
		{"missing-no-limit", agent.Usage{}, 0, longOutput},
		{"negative", agent.Usage{InputTokens: 5, OutputTokens: -1}, 700, 700},
		{"negative-cache", agent.Usage{OutputTokens: 1, CacheReadTokens: -1}, 700, 700},
		{"overflow", agent.Usage{OutputTokens: math.MaxInt64}, 700, 700},
		{"overflow-together", agent.Usage{InputTokens: math.MaxInt64, OutputTokens: math.MaxInt64}, 700, 700},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := open1(t, Config{})
			m := p.For(Node{ID: "a1"})
			free, err := m.Reserve(t.Context(), dear, c.max)
			if err != nil {
				t.Fatal(err)
			}
			m.Spent(dear, c.u)
			free()
			s := p.Totals()
			if s.Output != c.want || s.Input != firstContext || s.Estimated != 1 || math.Abs(s.USD-float64(c.want)/1000) > 1e-9 {
				t.Errorf("counted %+v", s)
			}
		})
	}
}

func TestUnknownPrice(t *testing.T) {
	var notes []string
	p := open1(t, Config{Budget: Budget{USD: 1, Tokens: 50}, Note: func(s string) { notes = append(notes, s) }})
	m := p.For(Node{ID: "a1"})
	for range 2 {
		if err := spend(m, "llama3", wrote(15)); err != nil {
			t.Fatal(err)
		}
	}
	if len(notes) != 1 || !strings.Contains(notes[0], "llama3") {
		t.Errorf("notes %q; want one", notes)
	}
	err := spend(m, "llama3", wrote(15))
	var limit *agent.LimitError
	if !errors.As(err, &limit) || limit.Limit != "max_budget_tokens" || err.Error() != "the budget of 50 tokens is spent (50)" {
		t.Errorf("a budget of tokens without a price: %v", err)
	}
	if s := p.Totals(); s.Unpriced != 2 || s.USD != 0 {
		t.Errorf("totals %+v; want the calls marked", s)
	}
	none := open1(t, Config{Note: func(s string) { t.Errorf("without a budget nobody asks: %s", s) }})
	if err := spend(none.For(Node{}), "llama3", wrote(1)); err != nil {
		t.Fatal(err)
	}
}

// Figures that are estimated count against a budget, and the user hears once that they are.
func TestEstimated(t *testing.T) {
	var notes []string
	p := open1(t, Config{Budget: Budget{Tokens: 50}, Note: func(s string) { notes = append(notes, s) }})
	m := p.For(Node{ID: "a1"})
	for range 2 {
		if err := spend(m, "llama3", agent.Usage{InputTokens: 20, OutputTokens: 5, Estimated: true}); err != nil {
			t.Fatal(err)
		}
	}
	if err := spend(m, "llama3", wrote(1)); err == nil {
		t.Error("the budget is spent, and a call is allowed")
	}
	if len(notes) != 1 || !strings.Contains(notes[0], "is estimated") || p.Totals().Estimated != 2 {
		t.Errorf("notes %q, %d calls are estimated", notes, p.Totals().Estimated)
	}
}

// The budget of an agent binds all below it, and no one else.
func TestSubtree(t *testing.T) {
	p := open1(t, Config{Budget: Budget{USD: 100}})
	top := p.For(Node{ID: "a1", Parent: "s1", Budget: Budget{USD: 1}})
	below := p.For(Node{ID: "a2", Parent: "a1"})
	beside := p.For(Node{ID: "a3"})
	for range 2 {
		if err := spend(below, dear, wrote(600)); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range []agent.Meter{top, below} {
		if err := spend(m, dear, wrote(1)); err == nil || err.Error() != "the budget of a1 of $1.00 is spent ($1.20)" {
			t.Errorf("err = %v", err)
		}
	}
	if err := spend(beside, dear, wrote(1)); err != nil {
		t.Error(err)
	}
	if got := p.Spent("a1"); math.Abs(got.USD-1.2) > 1e-9 || got.Tokens != 1220 {
		t.Errorf("spent by the tree: %+v", got)
	}
	if rows := p.Rows(ByAgentID); len(rows) != 2 || rows[0].Key != "a2" || rows[0].Calls != 2 || rows[1].Key != "a3" {
		t.Errorf("by agent: %+v", rows)
	}
	for _, b := range []Budget{{USD: -1}, {USD: math.NaN()}, {Tokens: -1}} {
		if err := spend(p.For(Node{ID: fmt.Sprint(b), Budget: b}), dear, wrote(1)); err == nil {
			t.Errorf("the budget %+v allowed a call", b)
		}
		if _, err := Open(Config{Budget: b}); err == nil {
			t.Errorf("a session took the budget %+v", b)
		}
	}
}

// A session that goes on in another process has spent what it has spent.
func TestGoesOn(t *testing.T) {
	path := filepath.Join(t.TempDir(), FileName)
	cfg := Config{Path: path, Budget: Budget{USD: 1}}
	p := open1(t, cfg)
	if err := spend(p.For(Node{ID: "a1", Type: "explore"}), dear, wrote(1000)); err != nil {
		t.Fatal(err)
	}
	p = open1(t, cfg)
	if err := spend(p.For(Node{ID: "s1"}), dear, wrote(1)); err == nil {
		t.Error("a new host forgot what was spent")
	}
	if rows := p.Rows(ByAgentID); len(rows) != 1 || rows[0].Key != "a1" || rows[0].USD != 1 {
		t.Errorf("by agent: %+v", rows)
	}
	cfg.Fresh = true
	p = open1(t, cfg)
	if err := spend(p.For(Node{ID: "s1"}), dear, wrote(1)); err != nil {
		t.Errorf("with a budget of its own: %v", err)
	}
	if s := p.Totals(); s.Calls != 2 {
		t.Errorf("totals %+v; want those of earlier hosts too", s)
	}
	calls, _ := readAll(t, path)
	if len(calls) != 2 || calls[0].AgentType != "explore" || calls[0].Model != dear || *calls[0].USD != 1 {
		t.Errorf("kept: %+v", calls)
	}
}

// A call that cannot be written down stops the next one, until it can be.
func TestLoud(t *testing.T) {
	path := filepath.Join(t.TempDir(), FileName)
	p := open1(t, Config{Path: path})
	if err := p.file.begin(); err != nil {
		t.Fatal(err)
	}
	disk := &small{WriteCloser: p.file.f, room: 50}
	p.file.f = disk
	m := p.For(Node{ID: "a1"})
	if err := spend(m, dear, wrote(1)); err != nil {
		t.Fatal(err)
	}
	if err := spend(m, dear, wrote(2)); err == nil || !strings.Contains(err.Error(), path) {
		t.Fatalf("err = %v; want one that names the file", err)
	}
	disk.room = 1 << 20
	if err := spend(m, dear, wrote(3)); err != nil {
		t.Fatal(err)
	}
	if calls, skipped := readAll(t, path); len(calls) != 2 || skipped != 0 || calls[0].OutputTokens != 1 || calls[1].OutputTokens != 3 {
		t.Errorf("kept: %+v, %d passed over", calls, skipped)
	}
}

// The first call creates the file; where it cannot be, the second is refused.
func TestOpenRefuses(t *testing.T) {
	p, err := Open(Config{Path: filepath.Join(t.TempDir(), "no", FileName)})
	if err != nil {
		t.Fatal(err)
	}
	m := p.For(Node{ID: "a1"})
	if err := spend(m, dear, wrote(1)); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Reserve(t.Context(), dear, 0); err == nil {
		t.Error("a call was allowed though the one before it could not be kept")
	}
	if err := p.Close(); err == nil {
		t.Error("what could not be kept was not missed")
	}
}

func TestTime(t *testing.T) {
	now := time.Date(2026, 11, 20, 23, 0, 0, 0, time.UTC)
	p := open1(t, Config{Now: func() time.Time { return now }})
	m := p.For(Node{ID: "a1"})
	free, err := m.Reserve(t.Context(), dear, 0)
	if err != nil {
		t.Fatal(err)
	}
	now = now.Add(2 * time.Hour)
	m.Spent(dear, wrote(1))
	free()
	if rows := p.Rows(ByDay); len(rows) != 1 || rows[0].Key != "2026-11-21" || rows[0].ModelMS != 2*3600*1000 {
		t.Errorf("by day: %+v", rows)
	}
}

// Fifty agents side by side, each in a tree of its own depth: the budget is
// overshot by at most the last call of each (G5), and no sum is lost.
func TestSideBySide(t *testing.T) {
	dir, round := t.TempDir(), 0
	rapid.Check(t, func(t *rapid.T) {
		const agents = 50
		budget := rapid.Float64Range(0.001, 20).Draw(t, "budget")
		seed := rapid.Uint64().Draw(t, "seed")
		round++
		path := filepath.Join(dir, fmt.Sprint(round))
		prices, _ := NewTable(map[string]Price{dear: {Output: 1000}}, nil)
		p, err := Open(Config{Table: prices, Budget: Budget{USD: budget}, Path: path})
		if err != nil {
			t.Fatal(err)
		}
		last := make([]float64, agents)
		var group sync.WaitGroup
		for i := range agents {
			m := p.For(Node{ID: fmt.Sprint("a", i), Parent: fmt.Sprint("a", i/2)})
			group.Go(func() {
				random := rand.New(rand.NewPCG(seed, uint64(i)))
				for {
					free, err := m.Reserve(context.Background(), dear, 0)
					if err != nil {
						return
					}
					if random.IntN(10) == 0 { // it failed and cost nothing
						free()
						continue
					}
					n := random.Int64N(500) + 1
					last[i] = float64(n) / 1000
					m.Spent(dear, wrote(n))
					free()
				}
			})
		}
		group.Wait()
		allowed, total := budget, p.Totals()
		for _, usd := range last {
			allowed += usd
		}
		if total.USD > allowed+1e-6 || total.USD < budget-1e-6 {
			t.Fatalf("spent %v of %v; at most %v may be", total.USD, budget, allowed)
		}
		if p.root.flying != 0 || p.root.reserved != (amount{}) || math.Abs(p.Spent("").USD-total.USD) > 1e-6 {
			t.Fatalf("held: %+v", p.root)
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		sum := Sum{}
		if _, err := Read(path, func(c Call) { sum.add(c) }); err != nil || sum.Calls != total.Calls || math.Abs(sum.USD-total.USD) > 1e-6 {
			t.Fatalf("the file has %+v, %v; want %+v", sum, err, total)
		}
	})
}

// Any order of reserving, telling and freeing, also of several calls of one
// meter: nothing is let through once a budget is spent, nothing is refused or
// made to wait while nobody else is under way, and nothing is held at the end.
func TestAnyOrder(t *testing.T) {
	type flight struct {
		m    int
		free func()
		told bool
	}
	rapid.Check(t, func(t *rapid.T) {
		prices, _ := NewTable(map[string]Price{dear: {Output: 1000}}, nil)
		p, err := Open(Config{Table: prices, Budget: Budget{USD: 3}})
		if err != nil {
			t.Fatal(err)
		}
		nodes := []Node{{ID: "a"}, {ID: "b", Parent: "a", Budget: Budget{USD: 1}}, {ID: "c", Parent: "b", Budget: Budget{Tokens: 900}}, {ID: "d"}}
		above := [][]int{{0}, {1, 0}, {2, 1, 0}, {3}} // and the session
		meters := make([]agent.Meter, len(nodes))
		for i, n := range nodes {
			meters[i] = p.For(n)
		}
		var air []flight
		spent, tokens, all := make([]float64, len(nodes)), make([]int64, len(nodes)), 0.0
		none, cancel := context.WithCancel(context.Background())
		cancel()
		t.Repeat(map[string]func(*rapid.T){
			"reserve": func(t *rapid.T) {
				i := rapid.IntRange(0, len(nodes)-1).Draw(t, "agent")
				over := all >= 3-1e-9
				for _, n := range above[i] {
					b := nodes[n].Budget
					over = over || b.USD > 0 && spent[n] >= b.USD-1e-9 || b.Tokens > 0 && tokens[n] >= b.Tokens
				}
				free, err := meters[i].Reserve(none, dear, rapid.IntRange(0, 800).Draw(t, "most"))
				var limit *BudgetError
				switch refused := errors.As(err, &limit); {
				case refused != over:
					t.Fatalf("refused: %v, and the budget is spent: %v", err, over)
				case err != nil && !refused && len(air) == 0:
					t.Fatalf("it waits for nobody: %v", err)
				case err == nil:
					air = append(air, flight{i, free, false})
				}
			},
			"spent": func(t *rapid.T) {
				k := rapid.IntRange(0, len(air)).Draw(t, "flight")
				if k == len(air) || air[k].told {
					return
				}
				n := rapid.Int64Range(1, 800).Draw(t, "tokens")
				meters[air[k].m].Spent(dear, wrote(n))
				air[k].told, all = true, all+float64(n)/1000
				for _, a := range above[air[k].m] {
					spent[a], tokens[a] = spent[a]+float64(n)/1000, tokens[a]+n+10
				}
			},
			"free": func(t *rapid.T) {
				k := rapid.IntRange(0, len(air)).Draw(t, "flight")
				if k == len(air) {
					return
				}
				air[k].free()
				air = append(air[:k:k], air[k+1:]...)
			},
			"": func(t *rapid.T) {
				if p.root.flying != len(air) || math.Abs(p.Spent("").USD-all) > 1e-6 {
					t.Fatalf("%d calls under way; the accounts has %+v", len(air), p.root)
				}
			},
		})
		for _, f := range air {
			f.free()
		}
		for _, n := range append([]*node{p.root}, p.nodes["a"], p.nodes["b"], p.nodes["c"], p.nodes["d"]) {
			if n.flying != 0 || n.reserved != (amount{}) {
				t.Fatalf("held at the end: %+v", n)
			}
		}
	})
}

// A loop ends its turn in order when the budget is spent, and says why.
func TestLoopEnds(t *testing.T) {
	p := open1(t, Config{Budget: Budget{USD: 0.001}})
	call := agenttest.Use(agenttest.ToolUse("a", "NoSuchTool", `{}`))
	l, err := agent.NewLoop(agent.Config{Model: agenttest.Steps(call, call), ModelName: dear, Meter: p.For(Node{ID: "s1"})}, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := l.Turn(t.Context(), agent.TextBlock("go"))
	var limit *agent.LimitError
	if !errors.As(err, &limit) || res.Reason != LimitUSD || res.Turns != 1 || p.Totals().Calls != 1 {
		t.Errorf("the turn ended with %+v, %v; the accounts has %+v", res, err, p.Totals())
	}
}

// An agent that hands back what it has is refused while its latest call would
// still fit, and has that one call then, whatever others have spent meanwhile: so
// with calls of one size nothing is overshot, and else by that call.
func TestHandBack(t *testing.T) {
	p := open1(t, Config{Budget: Budget{USD: 100}})
	m := p.For(Node{ID: "a1", Budget: Budget{USD: 1}, HandBack: true})
	below := p.For(Node{ID: "a2", Parent: "a1"})
	for i := range 3 {
		if err := spend(m, dear, wrote(300)); err != nil {
			t.Fatalf("call %d: %v", i, err)
		}
		if i == 2 {
			break
		}
		if got := p.Shares("a2"); len(got) != 2 || got[0].Agent != "a1" || got[0].Budget.USD != 1 || got[1].Budget.USD != 100 || got[1].Agent != "" {
			t.Errorf("shares %+v", got)
		}
	}
	err := spend(m, dear, wrote(300))
	if want := "the budget of a1 of $1.00 is nearly spent ($0.90), and the rest is kept for a last answer"; err == nil || err.Error() != want {
		t.Fatalf("err = %v", err)
	}
	if err := p.Afford("a2"); err != nil {
		t.Errorf("not spent, and yet %v", err)
	}
	if err := spend(below, dear, wrote(200)); err != nil { // who hands nothing back may use it up
		t.Fatal(err)
	}
	for _, id := range []string{"a1", "a2"} {
		var spent *BudgetError
		if err := p.Afford(id); !errors.As(err, &spent) || spent.Agent != "a1" {
			t.Errorf("%s: %v", id, err)
		}
	}
	if err := p.Afford("a3"); err != nil {
		t.Errorf("an agent beside it: %v", err)
	}
	free, err := m.(agent.LastMeter).ReserveLast(t.Context(), dear, 0)
	if err != nil {
		t.Fatalf("the last call: %v", err)
	}
	m.Spent(dear, wrote(250))
	free()
	if got := p.Spent("a1"); math.Abs(got.USD-1.35) > 1e-9 {
		t.Errorf("spent %+v", got)
	}
	if p.root.flying != 0 || p.root.reserved != (amount{}) {
		t.Errorf("held: %+v", p.root)
	}
	if err := spend(m, dear, wrote(1)); err == nil || err.Error() != "the budget of a1 of $1.00 is spent ($1.35)" {
		t.Errorf("after the last call: %v", err)
	}
}
