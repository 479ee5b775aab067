package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/model/usage"
	"github.com/drover-dev/drover/test/modeltest"
)

// usualBytes are those of a token of English text and JSON, for estimates.
const usualBytes = 3.6

func tokensOf(n int) int { return int(math.Ceil(float64(n) / usualBytes)) }

// Bounds of what an agent reads before its prompt, in tokens.
const (
	maxFewTools = 2000
	maxGeneral  = 4000
)

// TestAgentOverhead bounds what the first request of each type of agent holds beside the prompt.
func TestAgentOverhead(t *testing.T) {
	kinds := []string{"general-purpose", "explore", "plan", "task", "rubber-duck", "code-review", "research",
		"verification", "rem-agent"}
	p := newPlace(t, build(t))
	var mu sync.Mutex
	next := 0
	m, err := modeltest.New(func(_ context.Context, r *modeltest.Request) modeltest.Answer {
		mu.Lock()
		defer mu.Unlock()
		if r.Agent() != "main" || next == len(kinds) {
			return modeltest.Text("done")
		}
		next++
		return modeltest.Call("Agent", asks(kinds[next-1], "PROMPT"))
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	p.env = append(p.env, "ANTHROPIC_BASE_URL="+m.URL, "ANTHROPIC_API_KEY=sk-test")
	p.good("-p", "PROMPT", anything)
	t.Logf("%-16s %6s %6s %6s %6s %6s %6s", "agent", "tools", "system", "rest", "bytes", "tokens", "cached")
	for _, kind := range append([]string{"main"}, kinds...) {
		all := of(m, kind)
		if len(all) == 0 {
			t.Errorf("no request of %s", kind)
			continue
		}
		s := asSent(t, all[0])
		rest := len(s.messages) - len("PROMPT")
		sum := len(s.tools) + len(s.system) + rest
		t.Logf("%-16s %6d %6d %6d %6d %6d %5.1f%%", kind, len(s.tools), len(s.system), rest, sum, tokensOf(sum),
			100*float64(len(s.tools)+len(s.system))/float64(len(s.all())))
		most := maxFewTools
		switch kind {
		case "general-purpose", "main":
			most = maxGeneral
		}
		if tokensOf(sum) > most {
			t.Errorf("%s reads about %d tokens before its prompt, want %d at most", kind, tokensOf(sum), most)
		}
	}
}

const (
	fleetTurn   = 20 * time.Second // as long as a call of a model and a short command
	fleetModel  = "claude-sonnet-4-5-20250929"
	leastCached = 1024 // tokens: the provider caches no shorter beginning
)

// TestFleetCost measures what agents of one type cost by the table of prices that an agent starts with
// one reply, and waits for.
func TestFleetCost(t *testing.T) {
	for _, f := range []*fleet{{agents: 10, turns: 20, lines: 50}, {agents: 1, turns: 120, lines: 400}} {
		t.Run(fmt.Sprintf("%d agents of %d turns", f.agents, f.turns), f.test)
	}
}

// fleet answers for its agents and remembers when.
type fleet struct {
	agents, turns int
	lines         int // of the result of a turn

	mu                sync.Mutex
	arrived, answered map[*modeltest.Request]time.Time
	turn              map[*modeltest.Request]int // read once: requests are long
}

func (f *fleet) test(t *testing.T) {
	p := newPlace(t, build(t))
	f.arrived, f.answered = map[*modeltest.Request]time.Time{}, map[*modeltest.Request]time.Time{}
	f.turn = map[*modeltest.Request]int{}
	m, err := modeltest.New(f.answer)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	p.env = append(p.env, "ANTHROPIC_BASE_URL="+m.URL, "ANTHROPIC_API_KEY=sk-test")
	p.file("AGENTS.md", strings.Repeat("A rule of the project that every agent has to know.\n", 40))
	p.good("-p", "send them", anything, "--model="+fleetModel)
	if want := f.agents*f.turns + 2; len(f.arrived) != want {
		t.Fatalf("%d requests, want %d", len(f.arrived), want)
	}
	b := f.bill(t)
	t.Logf("%d requests, %d bytes in sum; tokens: %d written for 5 min, %d for 1 h, %d read, %d neither",
		len(f.arrived), b.bytes, b.short, b.long, b.read, b.plain)
	t.Logf("cacheable %.1f %%; first requests of siblings that read the beginning: %d of %d",
		100*float64(b.read)/float64(b.read+b.short+b.long+b.plain), b.shared, f.agents-1)
	t.Logf("input of %s: $%.4f", fleetModel, b.usd)
}

func (f *fleet) answer(ctx context.Context, r *modeltest.Request) modeltest.Answer {
	at, turn := time.Now(), turnOf(r)
	f.mu.Lock()
	f.arrived[r], f.turn[r] = at, turn
	f.mu.Unlock()
	if turn == 0 { // as long as a model reads
		select {
		case <-time.After(300 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	f.mu.Lock()
	f.answered[r] = time.Now()
	f.mu.Unlock()
	switch {
	case r.Agent() != "main" && turn < f.turns-1:
		line := fmt.Sprintf("echo %s turn %d; yes a line of some output | head -n %d", r.AgentID(), turn, f.lines)
		return modeltest.Call("Bash", bash(line))
	case turn > 0:
		return modeltest.Text("done")
	}
	var calls modeltest.Answer
	for i := range f.agents {
		call := modeltest.ToolUse("", "Agent", asks("general-purpose", fmt.Sprintf("part %d", i), "max_turns", f.turns))
		calls.Blocks = append(calls.Blocks, call)
	}
	return calls
}

// turnOf is how many answers the conversation of a request has.
func turnOf(r *modeltest.Request) (n int) {
	p, err := r.Params()
	if err != nil {
		return 0
	}
	for _, m := range p.Messages {
		if m.Role() == agent.Assistant {
			n++
		}
	}
	return n
}

// bill is what requests cost, in tokens by how they are paid.
type bill struct {
	bytes                    int
	read, short, long, plain int
	shared                   int // first requests that read what a sibling has written
	usd                      float64
}

// entry of the cache of a provider.
type entry struct {
	until time.Duration
	keeps time.Duration
	from  *modeltest.Request
}

// bill has the requests read and write the cache of a provider, in the order of a fleet whose
// turns take as long as they usually do.
func (f *fleet) bill(t *testing.T) (b bill) {
	t.Helper()
	all := slices.SortedFunc(maps.Keys(f.arrived), func(x, y *modeltest.Request) int {
		if d := f.when(x) - f.when(y); d != 0 {
			return int(d)
		}
		return f.arrived[x].Compare(f.arrived[y])
	})
	cache := map[string]entry{}
	table, _ := usage.NewTable(nil, nil)
	for _, r := range all {
		now, marks := f.when(r), marksOf(t, r)
		hit, by := 0, entry{}
		for _, m := range marks {
			e, ok := cache[m.prefix]
			if !ok || e.until < now || f.when(e.from) == now && f.arrived[r].Before(f.answered[e.from]) {
				continue
			}
			hit, by = m.at, e
			cache[m.prefix] = entry{now + e.keeps, e.keeps, e.from}
		}
		if hit > 0 && f.turn[r] == 0 && by.from.AgentID() != r.AgentID() {
			b.shared++
		}
		last, u := hit, agent.Usage{CacheReadTokens: int64(tokensOf(hit))}
		for _, m := range marks {
			if m.keeps == 0 || m.at <= hit || tokensOf(m.at) < leastCached {
				continue
			}
			n := tokensOf(m.at) - tokensOf(last)
			if u.CacheWriteTokens += int64(n); m.keeps > 5*time.Minute {
				u.HourWriteTokens += int64(n)
				b.long += n
			} else {
				b.short += n
			}
			last = m.at
			cache[m.prefix] = entry{now + m.keeps, m.keeps, r}
		}
		size := marks[len(marks)-1].at
		u.InputTokens = int64(tokensOf(size) - tokensOf(last))
		b.bytes += size
		b.read, b.plain = b.read+int(u.CacheReadTokens), b.plain+int(u.InputTokens)
		b.usd += dollars(t, table, u)
	}
	return b
}

func dollars(t *testing.T, table usage.Table, u agent.Usage) float64 {
	t.Helper()
	usd, ok := table.Cost(fleetModel, u)
	if !ok {
		t.Fatalf("%s has no price", fleetModel)
	}
	return usd
}

// when is the time of a request on the clock of the fleet.
func (f *fleet) when(r *modeltest.Request) time.Duration {
	if r.Agent() == "main" {
		return time.Duration(f.turn[r]) * fleetTurn * time.Duration(f.turns+1)
	}
	return time.Duration(f.turn[r]+1) * fleetTurn
}

// place of a request up to which a provider may have it in its cache.
type placeMark struct {
	at     int
	prefix string        // a checksum of all before
	keeps  time.Duration // 0: it is not marked
}

// marksOf are the ends of the blocks of a request, with their marks.
func marksOf(t *testing.T, r *modeltest.Request) (out []placeMark) {
	t.Helper()
	type control struct {
		Cache *struct {
			TTL string `json:"ttl"`
		} `json:"cache_control"`
	}
	keeps := func(c control) time.Duration {
		switch {
		case c.Cache == nil:
			return 0
		case c.Cache.TTL == "1h":
			return time.Hour
		}
		return 5 * time.Minute
	}
	var body struct {
		control
		Tools    []json.RawMessage `json:"tools"`
		System   []json.RawMessage `json:"system"`
		Messages []struct {
			Role    string            `json:"role"`
			Content []json.RawMessage `json:"content"`
		} `json:"messages"`
	}
	if err := json.Unmarshal(r.Body, &body); err != nil {
		t.Fatal(err)
	}
	size, sum := 0, sha256.New()
	add := func(role string, blocks []json.RawMessage) {
		for _, raw := range blocks {
			var c control
			if err := json.Unmarshal(raw, &c); err != nil {
				t.Fatal(err)
			}
			block := append([]byte(role), withoutMarks.ReplaceAll(raw, nil)...)
			size += len(block)
			sum.Write(block)
			out = append(out, placeMark{size, string(sum.Sum(nil)), keeps(c)})
		}
	}
	add("", body.Tools)
	add("", body.System)
	for _, m := range body.Messages {
		add(m.Role, m.Content)
	}
	if last := &out[len(out)-1]; last.keeps == 0 {
		last.keeps = keeps(body.control)
	}
	return out
}

// TestOldResults: a long conversation loses its old results in few steps, and can read them again.
func TestOldResults(t *testing.T) {
	const turns = 60
	p := newPlace(t, build(t))
	var mu sync.Mutex
	n := 0
	m, err := modeltest.New(func(_ context.Context, r *modeltest.Request) modeltest.Answer {
		mu.Lock()
		defer mu.Unlock()
		if n++; n <= turns {
			return modeltest.Call("Bash", bash(fmt.Sprintf("echo begin %d; yes a line of some output | head -n 150", n)))
		}
		if file := found(r, `Read (/\S+) to see it again`); n == turns+1 && file != "" {
			return modeltest.Call("Read", map[string]any{"file_path": file})
		}
		return modeltest.Text("done")
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	p.env = append(p.env, "ANTHROPIC_BASE_URL="+m.URL, "ANTHROPIC_API_KEY=sk-test")
	small := set(t, object{"models": object{"windows": object{"claude-*": 40_000}}})
	p.good("-p", "work", anything, "--max-turns=100", small)
	all := of(m, "main")
	steps, before := 0, asSent(t, all[0])
	for _, r := range all[1:] {
		s := asSent(t, r)
		if common(before.all(), s.all()) < len(before.all()) {
			steps++
		}
		before = s
	}
	if steps == 0 || steps > turns/10 {
		t.Errorf("%d of %d requests change what was said before", steps, len(all))
	}
	last := all[len(all)-1].LastText()
	if !strings.Contains(last, "a line of some output") || !strings.Contains(last, "begin ") {
		t.Errorf("the result is not read again: %.300s", last)
	}
	if n := len(before.all()); n > 200_000 {
		t.Errorf("the last request has %d bytes", n)
	}
	p.good("-p", "and on", anything, "--continue", small)
	opened := asSent(t, of(m, "main")[len(all)])
	if n := common(before.all(), opened.all()); n < len(before.all()) {
		t.Errorf("a session that is opened again changes what was said before from byte %d of %d", n, len(before.all()))
	}
}
