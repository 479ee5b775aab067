package usage

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"
)

// Past holds the use of earlier runs of agents. It is for one goroutine at a time.
type Past struct{ runs map[runKey]*pastRun }

type runKey struct{ session, agent string }

// pastRun is one agent with all its runs.
type pastRun struct {
	agentType, model string // the model of its last call
	tokens           int64
	usd              float64
	unpriced         bool // the price of a call is not known
	end              time.Time
}

// Quote is the likely use of a run, estimated from similar runs.
type Quote struct {
	Like   int    // runs that it was made of
	Tokens *Range // read, written and from the cache; nil: not known
	USD    *Range // nil: not known
}

// Range is a likely figure, of which a tenth of the runs stayed below and a tenth went above.
type Range struct{ Low, Likely, High float64 }

const (
	leastLike = 3   // runs without which nothing is known
	mostLike  = 200 // the last ones count
)

// Add adds a call, with its session.
func (p *Past) Add(c Call) {
	if p.runs == nil {
		p.runs = map[runKey]*pastRun{}
	}
	key := runKey{c.Session, c.AgentID}
	r := p.runs[key]
	if r == nil {
		r = &pastRun{}
		p.runs[key] = r
	}
	r.agentType, r.model = c.AgentType, c.Model
	r.tokens += held(c.Usage) + c.OutputTokens
	if c.USD == nil {
		r.unpriced = true
	} else {
		r.usd += *c.USD
	}
	if c.Time.After(r.end) {
		r.end = c.Time
	}
}

// Quote estimates the use of a run of an agent type with a model; an empty model means any. The
// money is known only if at least three similar runs have a price for every call.
func (p *Past) Quote(agentType, model string) Quote {
	var like []*pastRun
	for _, r := range p.runs {
		if r.agentType == agentType && (model == "" || sameModel(r.model, model)) {
			like = append(like, r)
		}
	}
	slices.SortFunc(like, func(a, b *pastRun) int {
		return cmp.Or(b.end.Compare(a.end), cmp.Compare(a.tokens, b.tokens))
	})
	like = like[:min(len(like), mostLike)]
	q := Quote{Like: len(like)}
	var tokens, usd []float64
	for _, r := range like {
		tokens = append(tokens, float64(r.tokens))
		if !r.unpriced {
			usd = append(usd, r.usd)
		}
	}
	q.Tokens, q.USD = spread(tokens), spread(usd)
	return q
}

// sameModel reports whether two names mean one model: providers answer with another spelling of
// the requested name.
func sameModel(a, b string) bool {
	forms := func(name string) []string {
		if file, ok := strings.CutPrefix(name, "script:"); ok && file != "" {
			name = "script" // models of all scripts are one
		}
		all := spellings(name)
		for i, f := range all {
			all[i] = plainName(f)
		}
		return all
	}
	of := forms(b)
	return slices.ContainsFunc(forms(a), func(f string) bool { return slices.Contains(of, f) })
}

// spread returns the range of some figures, or nil for too few.
func spread(v []float64) *Range {
	if len(v) < leastLike {
		return nil
	}
	slices.Sort(v)
	at := func(share float64) float64 { return v[int(math.Ceil(share*float64(len(v))))-1] }
	return &Range{at(0.1), at(0.5), at(0.9)}
}
