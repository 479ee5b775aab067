package usage

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/drover-dev/drover/agent"
)

// start is a start that succeeds.
func start(t *testing.T, p *Accounts, n Node) agent.Meter {
	t.Helper()
	r, err := p.Reserve(Node{Parent: n.Parent, Budget: n.Budget}, dear)
	if err != nil {
		t.Fatalf("start of %s: %v", n.ID, err)
	}
	r.Give(n)
	return p.For(n)
}

// What one agent may spend is not promised to a second, and is free again when the
// first has ended.
func TestSetAside(t *testing.T) {
	p := open1(t, Config{Budget: Budget{USD: 1000}})
	top := start(t, p, Node{ID: "a1", Budget: Budget{USD: 10}})
	if err := spend(top, dear, wrote(1000)); err != nil { // from now on a call is known to cost $1
		t.Fatal(err)
	}
	one := start(t, p, Node{ID: "a2", Parent: "a1", Budget: Budget{USD: 6}})
	start(t, p, Node{ID: "a3", Parent: "a1", Budget: Budget{USD: 100}})
	if got := p.nodes["a3"].limit.budget().USD; got != 3 {
		t.Errorf("it may spend $%v; $3 were left", got)
	}
	_, err := p.Reserve(Node{Parent: "a1"}, dear)
	var full *BudgetError
	if !errors.As(err, &full) || full.Agent != "a1" {
		t.Fatalf("a start beyond what is left: %v", err)
	}
	if want := "the budget of a1 of $10.00 has no room for this: $1.00 is spent, $9.00 is set aside for what runs, and a start needs $1.00"; err.Error() != want {
		t.Errorf("refused with %q", err)
	}
	var limit *agent.LimitError
	if !errors.As(err, &limit) || limit.Limit != LimitUSD {
		t.Errorf("the limit is %v", limit)
	}
	if err := spend(one, dear, wrote(2000)); err != nil { // out of its own share
		t.Fatal(err)
	}
	if got := p.nodes["a1"].promised().nanos; got != 7e9 {
		t.Errorf("%d is set aside", got)
	}
	start(t, p, Node{ID: "a4", Parent: "a2"}) // of the share of a2, which has $4
	p.Ended("a2")
	p.Ended("a4")
	if room, _ := p.nodes["a1"].room(); room.nanos != 4e9 {
		t.Errorf("%d is free after the end", room.nanos)
	}
	back, err := p.Reserve(Node{Parent: "a1", Budget: Budget{USD: 4}}, dear)
	if err != nil {
		t.Fatal(err)
	}
	back.Release()
	back.Release()
	back.Give(Node{ID: "a5", Parent: "a1"})
	if room, _ := p.nodes["a1"].room(); room.nanos != 4e9 || p.nodes["a5"] != nil {
		t.Errorf("what was given back is held: %d", room.nanos)
	}
}

// A further run goes on under the budget of the agent, and has set aside what is
// left of it.
func TestSetAsideAgain(t *testing.T) {
	p := open1(t, Config{})
	top := start(t, p, Node{ID: "a1", Budget: Budget{USD: 100}})
	own := Node{ID: "a2", Parent: "a1", Budget: Budget{USD: 5}}
	m := start(t, p, own)
	for _, m := range []agent.Meter{top, m, m} {
		if err := spend(m, dear, wrote(1000)); err != nil {
			t.Fatal(err)
		}
	}
	p.Ended("a2")
	r, err := p.Reserve(own, dear)
	if err != nil {
		t.Fatal(err)
	}
	r.Give(own)
	if held := p.nodes["a1"].promised().nanos; held != 3e9 || r.Budget().USD != 5 {
		t.Errorf("%d is set aside of %+v", held, r.Budget())
	}
	p.Ended("a2")
	own.Budget.USD = 2
	if _, err := p.Reserve(own, dear); err == nil || !strings.Contains(err.Error(), "of a2 of $2.00 is spent") {
		t.Errorf("beyond its budget: %v", err)
	}
	own.Budget.USD = 9 // the user gives it more
	if _, err := p.Reserve(own, dear); err != nil {
		t.Error(err)
	}
}

// A tree has spent what it has spent, also under earlier hosts.
func TestRestore(t *testing.T) {
	path := filepath.Join(t.TempDir(), FileName)
	top, below := Node{ID: "a1", Budget: Budget{USD: 3, Output: 100}}, Node{ID: "a2", Parent: "a1"}
	p := open1(t, Config{Path: path})
	start(t, p, Node{ID: "a1"})
	if err := spend(start(t, p, below), dear, wrote(2000)); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, fresh := range []bool{false, true} {
		if err := os.WriteFile(path, left, 0o600); err != nil {
			t.Fatal(err)
		}
		p := open1(t, Config{Path: path, Fresh: fresh, Budget: Budget{USD: 100}})
		p.Restore(top, 30)
		p.Restore(below, 50)
		p.Restore(below, 50)
		if got := p.Spent("a1"); got.USD != 2 || got.Output != 80 {
			t.Errorf("the tree has spent %+v", got)
		}
		if got := p.Spent("").USD; got != map[bool]float64{false: 2, true: 0}[fresh] {
			t.Errorf("the session has spent %v", got)
		}
		if room, ok := p.Remaining("a2"); !ok || room != 20 {
			t.Errorf("room for %d bytes, %v", room, ok)
		}
		if err := spend(p.For(below), dear, wrote(1000)); err != nil {
			t.Fatal(err)
		}
		if err := spend(p.For(below), dear, wrote(1)); err == nil || !strings.Contains(err.Error(), "the budget of a1 of $3.00 is spent") {
			t.Errorf("a call beyond the budget of the tree: %v", err)
		}
		if got := p.Of("a2").USD; got != 3 {
			t.Errorf("the agent itself: %v", got)
		}
	}
}

// Output counts for all above, and ends calls as money does.
func TestOutput(t *testing.T) {
	p := open1(t, Config{})
	start(t, p, Node{ID: "a1", Budget: Budget{Output: 100}})
	m := start(t, p, Node{ID: "a2", Parent: "a1"})
	p.Printed("a2", 99)
	if err := spend(m, dear, wrote(1)); err != nil {
		t.Fatal(err)
	}
	p.Printed("a1", 1)
	err := spend(m, dear, wrote(1))
	if want := "the budget of a1 of 100 bytes of output is spent (100)"; err == nil || err.Error() != want {
		t.Errorf("err = %v", err)
	}
	if _, err := p.Reserve(Node{Parent: "a2"}, dear); err == nil {
		t.Error("an agent was started")
	}
	if _, ok := p.Remaining("a3"); ok {
		t.Error("an agent beside it is bound too")
	}
}

// Random trees: no budget is ever promised twice, no share is below nothing, a
// child never gets more than there is, and nothing is held when all have ended.
func TestAnyTree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		prices, _ := NewTable(map[string]Price{dear: {Output: 1000}}, nil)
		p, err := Open(Config{Table: prices, Budget: Budget{USD: 50}})
		if err != nil {
			t.Fatal(err)
		}
		type one struct {
			id    string
			meter agent.Meter
			live  bool
			below int
			above *one
			last  float64 // what its last call cost
		}
		var all []*one
		var open []*Reserved
		pick := func(t *rapid.T) *one {
			if len(all) == 0 {
				return nil
			}
			return rapid.SampledFrom(all).Draw(t, "agent")
		}
		calm, cancel := context.WithCancel(context.Background())
		cancel()
		t.Repeat(map[string]func(*rapid.T){
			"start": func(t *rapid.T) {
				n := Node{ID: fmt.Sprint("a", len(all)), Budget: Budget{USD: float64(rapid.IntRange(0, 20).Draw(t, "dollars")), Tokens: int64(rapid.IntRange(0, 3).Draw(t, "kilo")) * 5000}}
				above := pick(t)
				if above != nil && above.live {
					n.Parent = above.id
				} else {
					above = nil
				}
				r, err := p.Reserve(Node{Parent: n.Parent, Budget: n.Budget}, dear)
				if err != nil {
					return
				}
				if rapid.IntRange(0, 4).Draw(t, "how") == 0 { // it could not be recorded, or not yet
					open = append(open, r)
					return
				}
				r.Give(n)
				if n.Budget.USD > 0 && r.Budget().USD > n.Budget.USD+1e-9 {
					t.Fatalf("wanted %v and got %v", n.Budget, r.Budget())
				}
				all = append(all, &one{id: n.ID, meter: p.For(n), live: true, above: above})
				if above != nil {
					above.below++
				}
			},
			"call": func(t *rapid.T) {
				a := pick(t)
				if a == nil || !a.live {
					return
				}
				free, err := a.meter.Reserve(calm, dear, 0)
				if err != nil {
					return
				}
				tokens := rapid.Int64Range(1, 3000).Draw(t, "tokens")
				a.meter.Spent(dear, wrote(tokens))
				a.last = float64(tokens) / 1000
				free()
			},
			"end": func(t *rapid.T) {
				a := pick(t)
				if a == nil || !a.live || a.below > 0 {
					return
				}
				a.live = false
				if a.above != nil {
					a.above.below--
				}
				p.Ended(a.id)
			},
			"release": func(*rapid.T) {
				for _, r := range open {
					r.Release()
				}
				open = nil
			},
			"": func(t *rapid.T) {
				for id, n := range p.nodes {
					own, waiting := n.own()
					for _, d := range dimensions() {
						if *d(&own) < 0 || *d(&waiting) < 0 {
							t.Fatalf("%s has less than nothing set aside: %+v %+v", id, own, waiting)
						}
					}
				}
			},
		})
		last := 0.0
		for _, a := range all {
			last += a.last
			p.Ended(a.id)
		}
		for _, r := range open {
			r.Release()
		}
		if held := p.root.promised(); held != (amount{}) {
			t.Fatalf("held when all have ended: %+v", held)
		}
		if spent := p.Spent("").USD; spent > 50+last+1e-6 {
			t.Fatalf("spent %v of 50, the last calls cost %v", spent, last)
		}
		if room, _ := p.root.room(); math.Abs(float64(room.nanos)/1e9-max(0, 50-p.Spent("").USD)) > 1e-6 {
			t.Fatalf("%d is free, and %v is spent", room.nanos, p.Spent(""))
		}
	})
}

// At the moment of a start all promises together fit into each budget.
func TestNoDoublePromise(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, err := Open(Config{Budget: Budget{Tokens: 1_000_000}})
		if err != nil {
			t.Fatal(err)
		}
		for i := range rapid.IntRange(1, 40).Draw(t, "agents") {
			n := Node{ID: fmt.Sprint("a", i), Budget: Budget{Tokens: rapid.Int64Range(0, 300_000).Draw(t, "tokens")}}
			if i > 0 {
				n.Parent = fmt.Sprint("a", rapid.IntRange(-1, i-1).Draw(t, "parent")) // some stand at the top
			}
			r, err := p.Reserve(n, dear)
			if err != nil {
				p.For(n) // its ID is taken
				continue
			}
			r.Give(n)
			for id, m := range p.nodes {
				if held := m.promised(); m.limit.tokens > 0 && held.tokens > m.limit.tokens {
					t.Fatalf("%s has %d and promised %d", id, m.limit.tokens, held.tokens)
				}
			}
			if held := p.root.promised().tokens; held > 1_000_000 {
				t.Fatalf("the session promised %d", held)
			}
		}
	})
}
