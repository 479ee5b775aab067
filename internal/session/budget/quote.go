package budget

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/drover-dev/drover/internal/model/usage"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/task"
)

const (
	quoteAge      = time.Minute // how long a reading is used again: many agents may start at once
	quoteSessions = 200         // the newest of the project are read
)

// quotes has what earlier runs in the project have used.
type quotes struct {
	mu   sync.Mutex
	past *usage.Past
	read time.Time
}

// Quote returns the likely use of a run of an agent type with a model, by the runs of the
// project that are over.
func (b *Budgets) Quote(agentType, model string) task.Quote {
	q := &b.quotes
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.past == nil || time.Since(q.read) > quoteAge {
		q.past, q.read = b.past(), time.Now()
	}
	return quoted(q.past.Quote(agentType, model))
}

// quoted is a quote as records have it.
func quoted(q usage.Quote) task.Quote {
	out := task.Quote{LikeRuns: q.Like}
	if r := q.Tokens; r != nil {
		out.Tokens = &task.Range{Low: r.Low, Likely: r.Likely, High: r.High}
	}
	if r := q.USD; r != nil {
		out.USD = &task.Range{Low: r.Low, Likely: r.Likely, High: r.High}
	}
	return out
}

// past reads the ledgers of the project. A file that cannot be read counts as none: the quote says
// of how many runs it was made.
func (b *Budgets) past() *usage.Past {
	own := b.place
	places, _ := own.Project().Sessions()
	files := make(map[home.Session]time.Time, len(places))
	for _, p := range places {
		if info, err := os.Stat(ledger(p)); err == nil {
			files[p] = info.ModTime()
		}
	}
	places = slices.SortedFunc(maps.Keys(files), func(a, b home.Session) int { return files[b].Compare(files[a]) })
	past := &usage.Past{}
	for _, p := range places[:min(len(places), quoteSessions)] {
		_, _ = usage.Read(ledger(p), func(c usage.Call) {
			if p.ID() == own.ID() {
				if r, ok := b.tasks.Get(task.ID(c.AgentID)); ok && !r.Status.Terminal() {
					return // it is still at work
				}
			}
			c.Session = string(p.ID())
			past.Add(c)
		})
	}
	return past
}

func ledger(p home.Session) string { return filepath.Join(p.Dir(), usage.FileName) }

// FanOut says what agents that are at work together will likely use, of which some quotes are not
// known; it is empty where all of them are not.
func FanOut(quotes []task.Quote) string {
	tokens, usd := [2]float64{}, [2]float64{} // the sum, and how many are not known
	for _, q := range quotes {
		add(&tokens, q.Tokens)
		add(&usd, q.USD)
	}
	n := float64(len(quotes))
	if tokens[1] == n && usd[1] == n {
		return ""
	}
	say := func(sum [2]float64, format func(float64) string) string {
		switch {
		case sum[1] == n:
			return "not known"
		case sum[1] > 0:
			return fmt.Sprintf("at least %s (not known of %.0f)", format(sum[0]), sum[1])
		}
		return format(sum[0])
	}
	return fmt.Sprintf("quote: the %.0f agents now at work will likely use %s tokens, cost %s", n,
		say(tokens, func(v float64) string { return fmt.Sprintf("%.0f", v) }), say(usd, usage.Dollars))
}

func add(sum *[2]float64, r *task.Range) {
	if r == nil {
		sum[1]++
		return
	}
	sum[0] += r.Likely
}
