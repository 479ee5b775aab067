package usage

import (
	"math"
	"testing"
	"time"

	"github.com/drover-dev/drover/agent"
)

func table(t *testing.T, own map[string]Price) Table {
	t.Helper()
	table, notes := NewTable(own, nil)
	if len(notes) > 0 {
		t.Fatalf("notes: %q", notes)
	}
	return table
}

func TestPrices(t *testing.T) {
	own := map[string]Price{
		"claude-opus-*": {Input: 1, Output: 2}, "claude-opus-5": {Input: 3, Output: 4}, "claude-opus-5*": {Input: 5, Output: 6},
		"ollama/*": {}, "openai/gpt-4o": {Input: 7, Output: 7}, "odd-*": {Input: 1, Output: 1}, "odd-one": {Input: -1},
	}
	with, notes := NewTable(own, nil)
	if len(notes) != 1 {
		t.Errorf("notes %q; want one about odd-one", notes)
	}
	for _, c := range []struct {
		model         string
		input, output float64
		known         bool
	}{
		{"claude-sonnet-4-5-20250929", 3, 15, true}, // the built-in table, without the date
		{"claude-sonnet-4-5", 3, 15, true},
		{"anthropic/claude-sonnet-4.5", 3, 15, true},
		{"openai/anthropic/claude-haiku-4.5", 1, 5, true},
		{"claude-3-5-haiku-latest", 0.8, 4, true},
		{"gpt-5-2025-08-07", 1.25, 10, true},
		{"GPT-5-mini", 0.25, 2, true},
		{"gpt-4o", 7, 7, false}, // see below
		{"openai/gpt-4o", 7, 7, true},
		{"claude-opus-4-5-20250514", 1, 2, true}, // the settings go before
		{"claude-opus-5", 3, 4, true},            // a name before a pattern
		{"claude-opus-5-5", 5, 6, true},          // the longer pattern
		{"ollama/llama3", 0, 0, true},            // free, because the user says so
		{"script:x.yaml", 0, 0, true},
		{"odd-two", 1, 1, true},
		{"odd-one", 0, 0, false}, // a price that cannot be is none, and the pattern is not asked instead
		{"llama3", 0, 0, false},
		{"gpt-5.7", 0, 0, false}, // not taken for gpt-5
		{"claude-sonnet-9", 0, 0, false},
		{"", 0, 0, false},
	} {
		if c.model == "gpt-4o" { // the key names the provider that the name does not
			c.input, c.output, c.known = 2.5, 10, true
		}
		usd, known := with.Cost(c.model, agent.Usage{InputTokens: 1e6, OutputTokens: 1e6})
		if known != c.known || known && math.Abs(usd-c.input-c.output) > 1e-9 {
			t.Errorf("%q costs %v (known: %v); want %v and %v (known: %v)", c.model, usd, known, c.input, c.output, c.known)
		}
		if rate, ok := with.Rate(c.model); ok != known || known && math.Abs(rate-usd) > 1e-9 {
			t.Errorf("the rate of %q is %v, %v", c.model, rate, ok)
		}
	}
}

func TestCost(t *testing.T) {
	with := table(t, map[string]Price{"plain": {Input: 10, Output: 20}, "cached": {Input: 10, Output: 20, CacheRead: 3, CacheWrite: 4}})
	const m = 1_000_000
	for _, c := range []struct {
		model string
		u     agent.Usage
		want  float64
	}{
		{"plain", agent.Usage{InputTokens: m}, 10},
		{"plain", agent.Usage{OutputTokens: m / 2}, 10},
		{"plain", agent.Usage{CacheReadTokens: m}, 1},
		{"plain", agent.Usage{CacheWriteTokens: m}, 12.5},
		{"plain", agent.Usage{CacheWriteTokens: m, HourWriteTokens: m}, 20},
		{"plain", agent.Usage{CacheWriteTokens: m, HourWriteTokens: m / 2}, 16.25},
		{"cached", agent.Usage{InputTokens: m, OutputTokens: m, CacheReadTokens: m, CacheWriteTokens: m}, 37},
		{"claude-haiku-5-5", agent.Usage{InputTokens: 100_000, OutputTokens: m}, 0.51},
		{"claude-haiku-5-5", agent.Usage{InputTokens: 50_000, CacheReadTokens: 50_000, CacheWriteTokens: 1, OutputTokens: m}, 2.5 + 0.025 + 0.0025 + 0.000000625},
	} {
		if got, known := with.Cost(c.model, c.u); !known || math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s %+v costs %v, %v; want %v", c.model, c.u, got, known, c.want)
		}
	}
}

func TestWindows(t *testing.T) {
	with, notes := NewTable(nil, map[string]int64{"claude-*": 150_000, "claude-opus-5": 90_000, "llama3": 8_000, "wrong": -1})
	if len(notes) != 1 {
		t.Errorf("notes %q; want one about the window of wrong", notes)
	}
	for model, want := range map[string]int64{
		"claude-sonnet-4-5-20250929": 150_000, "claude-opus-5": 90_000, "openai/llama3": 8_000, "gpt-4o": 128_000, "wrong": 0, "script:x": 0,
	} {
		if got, ok := with.Window(model); got != want || ok != (want > 0) {
			t.Errorf("the window of %s is %d, %v; want %d", model, got, ok, want)
		}
	}
	if n, ok := table(t, nil).Window("claude-haiku-4-5-20251001"); !ok || n != 200_000 {
		t.Errorf("built in: %d, %v", n, ok)
	}
}

// The table of the program must make sense, whoever edits it.
func TestBuiltIn(t *testing.T) {
	built := builtIn()
	if _, err := time.Parse(time.DateOnly, built.AsOf()); err != nil {
		t.Errorf("the table has no day: %v", err)
	}
	for name, r := range built.built {
		if !r.price.possible() || r.price.Input <= 0 || r.price.Output < r.price.Input || r.price.CacheRead > r.price.Input || r.window < 10_000 {
			t.Errorf("%s: %+v", name, r)
		}
		if r.from > 0 && (r.long.Input <= r.price.Input || r.from > r.window) {
			t.Errorf("%s: the price of long requests makes no sense: %+v", name, r)
		}
	}
	for _, usual := range []string{"claude-sonnet-4-5-20250929", "claude-opus-4-5-20251101", "claude-haiku-4-5-20251001"} {
		if _, ok := built.Price(usual, 0); !ok {
			t.Errorf("what an alias means, %s, has no price", usual)
		}
	}
}

func TestUndated(t *testing.T) {
	for name, want := range map[string]string{
		"a-20250929": "a", "a-2025-09-29": "a", "a-latest": "a", "a-2025092": "a-2025092", "a-4-5": "a-4-5", "-20250929": "-20250929", "a_20250929": "a_20250929", "": "",
	} {
		if got := undated(name); got != want {
			t.Errorf("undated(%q) = %q; want %q", name, got, want)
		}
	}
}
