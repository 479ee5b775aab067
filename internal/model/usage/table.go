package usage

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/model/choose"
	"github.com/drover-dev/drover/internal/model/modelinfo"
)

// Price is the price of a model, in US dollars per million tokens, as the settings
// have it.
type Price struct {
	Input, Output float64
	CacheRead     float64 // 0: a tenth of Input
	CacheWrite    float64 // for minutes; 0: one and a quarter of Input
}

// hourRate is what providers charge for writing to the cache for an hour, against writing for five
// minutes: twice the input against one and a quarter of it.
const hourRate = 1.6

// Table knows prices and windows. It is only read, so several goroutines may
// use one. The zero Table knows only models that are files, which are free.
type Table struct {
	asOf   string
	own    map[string]Price // of the settings, by pattern
	built  map[string]row   // by name without provider and date
	widths map[string]int64 // of the settings, by pattern
}

// row is a model of the built-in table.
type row struct {
	price  Price
	long   Price // of requests above from
	from   int64 // tokens; 0: no such price
	window int64 // 0: not known
}

// NewTable puts prices and windows of the settings, by name or pattern, over
// the built-in table. An impossible price makes the price of its model unknown, and an
// impossible window is ignored; NewTable returns messages for the user about them.
func NewTable(own map[string]Price, windows map[string]int64) (Table, []string) {
	t := builtIn()
	t.own, t.widths = map[string]Price{}, map[string]int64{}
	var notes []string
	for pattern, p := range own {
		t.own[pattern] = p
		if !p.possible() {
			notes = append(notes, fmt.Sprintf(
				"models.prices: what %q costs cannot be true, so its price is not known (give dollars per million tokens, 0 or more)",
				pattern,
			))
		}
	}
	for pattern, n := range windows {
		if n <= 0 {
			notes = append(notes,
				fmt.Sprintf("models.windows: %d tokens for %q is ignored (give the tokens that it can read)", n, pattern))
			continue
		}
		t.widths[pattern] = n
	}
	slices.Sort(notes)
	return t, notes
}

// AsOf returns the day of the built-in prices, such as 2026-11-21.
func (t Table) AsOf() string { return t.asOf }

// Price returns the price of a model in a request with so many tokens; false if
// it is unknown. Models that are files are free.
func (t Table) Price(model string, context int64) (Price, bool) {
	if choose.Free(model) {
		return Price{}, true
	}
	names := spellings(model)
	if p, ok := choose.Best(t.own, names...); ok {
		return p, p.possible()
	}
	r, ok := t.row(names)
	if ok && r.from > 0 && context > r.from {
		return r.long, true
	}
	return r.price, ok
}

// About holds a table's facts about a model.
type About struct {
	Title         string // as people call it
	Window        int64  // tokens; 0: not known
	Input, Output float64
}

// About returns the facts about a model.
func (t Table) About(model string) About {
	p, _ := t.Price(model, 0)
	window, _ := t.Window(model)
	return About{modelinfo.Title(model), window, p.Input, p.Output}
}

// Rate returns one figure to compare the prices of models by: dollars for
// a million tokens read and a million written.
func (t Table) Rate(model string) (float64, bool) {
	p, ok := t.Price(model, 0)
	return p.Input + p.Output, ok
}

// Cost returns the price of one call in US dollars; false if it is unknown.
func (t Table) Cost(model string, u agent.Usage) (usd float64, known bool) {
	p, known := t.Price(model, u.InputTokens+u.CacheReadTokens+u.CacheWriteTokens)
	if !known {
		return 0, false
	}
	if p.CacheRead == 0 {
		p.CacheRead = p.Input / 10
	}
	if p.CacheWrite == 0 {
		p.CacheWrite = p.Input * 5 / 4
	}
	return (p.Input*float64(u.InputTokens) + p.Output*float64(u.OutputTokens) +
		p.CacheRead*float64(u.CacheReadTokens) +
		p.CacheWrite*(float64(u.CacheWriteTokens)+(hourRate-1)*float64(u.HourWriteTokens))) / 1e6, true
}

// Window returns how many tokens a model can read; false if that is unknown.
func (t Table) Window(model string) (int64, bool) {
	names := spellings(model)
	if n, ok := choose.Best(t.widths, names...); ok {
		return n, true
	}
	r, _ := t.row(names)
	return r.window, r.window > 0
}

func (t Table) row(names []string) (row, bool) {
	for _, n := range names {
		if r, ok := t.built[plainName(n)]; ok {
			return r, true
		}
	}
	return row{}, false
}

// possible returns false for a negative price, and for a price that is too large for sums.
func (p Price) possible() bool {
	for _, x := range []float64{p.Input, p.Output, p.CacheRead, p.CacheWrite} {
		if math.IsNaN(x) || x < 0 || x > 1e6 {
			return false
		}
	}
	return true
}

// spellings returns the ways to write a model's name: with and without provider, and
// with and without its date.
func spellings(model string) []string {
	var out []string
	for _, n := range choose.Forms(model) {
		out = append(out, n)
		if u := undated(n); u != n {
			out = append(out, u)
		}
	}
	return out
}

// plainName returns the key of a name in the built-in table: some names have a version
// with dots, some with dashes.
func plainName(name string) string {
	return strings.ReplaceAll(strings.ToLower(name), ".", "-")
}

// undated cuts a suffix that does not change the model: a date, such as -20250929 or
// -2025-08-07, or -latest.
func undated(name string) string {
	if n, ok := strings.CutSuffix(name, "-latest"); ok {
		return n
	}
	for _, form := range []string{"-dddddddd", "-dddd-dd-dd"} {
		if i := len(name) - len(form); i > 0 && shaped(name[i:], form) {
			return name[:i]
		}
	}
	return name
}

// shaped reports whether s has digits where the form has a d, and is the same
// elsewhere.
func shaped(s, form string) bool {
	for i := range form {
		digit := s[i] >= '0' && s[i] <= '9'
		if form[i] == 'd' && !digit || form[i] != 'd' && s[i] != form[i] {
			return false
		}
	}
	return true
}

// builtIn returns the table that is part of the program.
func builtIn() Table {
	t := Table{asOf: modelinfo.AsOf(), built: map[string]row{}}
	for _, m := range modelinfo.Models() {
		t.built[plainName(m.Name)] = row{price: Price(m.Price), long: Price(m.Long), from: m.From, window: m.Window}
	}
	return t
}
