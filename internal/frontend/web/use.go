package web

import (
	"cmp"
	"context"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/model/usage"
	"github.com/drover-dev/drover/internal/platform/figures"
	"github.com/drover-dev/drover/task"
)

const (
	mostUsed  = 200 // sessions whose tasks are counted
	mostNamed = 20  // models in the table
)

// Call is one call of a model, of any session.
type Call struct {
	Time          time.Time // of its end
	Model         string
	Input, Output int64    // tokens; input includes cached ones
	USD           *float64 // nil: the price is unknown
}

// spentBy is the use of a model.
type spentBy struct {
	Model         string
	Calls         int
	Input, Output int64
	USD           float64
	Unpriced      int
}

func (s *spentBy) add(c Call) {
	s.Calls, s.Input, s.Output = s.Calls+1, s.Input+c.Input, s.Output+c.Output
	if c.USD == nil {
		s.Unpriced++
	} else {
		s.USD += *c.USD
	}
}

// Cost is the known cost for people.
func (s spentBy) Cost() string {
	switch {
	case s.Unpriced == s.Calls:
		return "unknown"
	case s.Unpriced > 0:
		return "at least " + usage.Dollars(s.USD)
	}
	return usage.Dollars(s.USD)
}

// InputTokens and OutputTokens are for people.
func (s spentBy) InputTokens() string  { return grouped(float64(s.Input)) }
func (s spentBy) OutputTokens() string { return grouped(float64(s.Output)) }

// span is the time of a run.
type span struct{ from, to time.Time }

// periodOf returns a period by name, or the default.
func periodOf(name string) period {
	all := periods()
	for _, one := range all {
		if one.Name == name {
			return one
		}
	}
	return all[1]
}

// use is the page of charts of tokens, cost and tasks over time.
func (s *Server) use(w http.ResponseWriter, r *http.Request) {
	p := periodOf(r.URL.Query().Get("period"))
	s.page(w, "use.html", map[string]any{"Periods": periods(), "Period": p, "Zone": s.Now().Local().Format("MST"),
		"Used": template.HTML(s.used.now(r.Context(), s, p))})
}

// chartsEvery is the maximum age of charts, since drawing them reads the use of all sessions.
const chartsEvery = 2 * time.Second

// used caches the charts of each period for all pages.
type used struct {
	mu sync.Mutex // held while charts are drawn, so that waiting pages share them
	by map[string]*drawnUse
}

type drawnUse struct {
	at   time.Time
	html string
}

// now returns the charts of a period as HTML.
func (u *used) now(ctx context.Context, s *Server, p period) string {
	u.mu.Lock()
	defer u.mu.Unlock()
	if was := u.by[p.Name]; was != nil && s.Now().Sub(was.at) < chartsEvery && s.Now().After(was.at) {
		return was.html
	}
	var b strings.Builder
	if err := s.views.t.ExecuteTemplate(&b, "used", s.uses(ctx, p)); err != nil || ctx.Err() != nil {
		return b.String() // the page is closed
	}
	if u.by == nil {
		u.by = map[string]*drawnUse{}
	}
	u.by[p.Name] = &drawnUse{s.Now(), b.String()}
	return b.String()
}

// charts sends the charts of a period when they have changed.
func (s *Server) charts(w http.ResponseWriter, r *http.Request) {
	out, free := s.begin(w, r)
	if out == nil {
		return
	}
	defer free()
	p, shown := periodOf(r.URL.Query().Get("charts")), ""
	again := time.NewTicker(time.Minute) // charts move with the time
	defer again.Stop()
	for {
		next := s.board.next()
		if html := s.used.now(r.Context(), s, p); html != shown {
			if out.Send("", "use", html) != nil {
				return
			}
			shown = html
		} else if out.Comment() != nil {
			return
		}
		if !paces(r.Context(), chartsEvery) {
			return
		}
		select {
		case <-next:
		case <-again.C:
		case <-r.Context().Done():
			return
		}
	}
}

// uses returns the data of the charts of a period.
func (s *Server) uses(ctx context.Context, p period) map[string]any {
	now := s.Now().Local()
	begin := p.begin(now)
	tokens, cost := make([]float64, p.parts), make([]float64, p.parts)
	by := map[string]*spentBy{}
	total := spentBy{Model: "all"}
	problem := ""
	if err := s.Used(ctx, begin, func(c Call) {
		n := p.part(begin, c.Time)
		if n < 0 || n >= p.parts {
			return
		}
		tokens[n] += float64(c.Input + c.Output)
		if c.USD != nil {
			cost[n] += *c.USD
		}
		if by[c.Model] == nil {
			by[c.Model] = &spentBy{Model: c.Model}
		}
		by[c.Model].add(c)
		total.add(c)
	}); err != nil {
		problem = err.Error()
	}
	models := make([]*spentBy, 0, len(by))
	for _, m := range by {
		models = append(models, m)
	}
	slices.SortFunc(models, func(x, y *spentBy) int {
		return cmp.Or(cmp.Compare(y.USD, x.USD), cmp.Compare(y.Input+y.Output, x.Input+x.Output),
			cmp.Compare(x.Model, y.Model))
	})
	models = models[:min(len(models), mostNamed)]
	spans, left, err := s.ran(ctx, begin, now)
	if err != nil && problem == "" {
		problem = err.Error()
	}
	count := measure{1, grouped, grouped}
	large := measure{1, func(v float64) string { return figures.Count(int64(v)) }, grouped}
	axis := func(usd float64) string { // two lines of the axis must differ
		if usd > 0 && usd < 0.01 {
			return fmt.Sprintf("$%.4f", usd)
		}
		return usage.Dollars(usd)
	}
	dollars := measure{0.0001, axis, usage.Dollars}
	return map[string]any{
		"Problem": problem, "Left": left, "Models": models, "Total": total, "Charts": []chart{
			charted("tokens", "Tokens", p, begin, tokens, large),
			charted("cost", "Cost in US dollars", p, begin, cost, dollars),
			charted("tasks", "Concurrent tasks", p, begin, atOnce(spans, p, begin), count),
		},
	}
}

// ran returns the times of tasks since a time, and the number of sessions left out.
func (s *Server) ran(ctx context.Context, since, now time.Time) (spans []span, left int, err error) {
	sessions, err := s.Sessions(ctx, false)
	if err != nil {
		return nil, 0, err
	}
	n := 0
	for _, one := range sessions {
		if i := one.Info(); !i.Live && i.EndTime != nil && i.EndTime.Before(since) {
			continue
		}
		if n++; n > mostUsed {
			left++
			continue
		}
		records, err := tasksOf(ctx, one)
		if err != nil {
			left++ // damaged, or just ended
			continue
		}
		for _, r := range records {
			if r.StartTime == nil || r.EndTime != nil && r.EndTime.Before(since) {
				continue
			}
			to := now
			if r.EndTime != nil {
				to = *r.EndTime
			}
			spans = append(spans, span{*r.StartTime, to})
		}
	}
	return spans, left, ctx.Err()
}

func tasksOf(ctx context.Context, s Session) ([]task.Record, error) {
	api, done, err := s.Open(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	page, err := api.List(ctx, control.ListRequest{All: true, Limit: mostListed})
	return page.Tasks, err
}

// atOnce is the maximum of concurrent tasks for each part of a period.
func atOnce(spans []span, p period, begin time.Time) []float64 {
	type step struct {
		at   time.Time
		more int
	}
	var steps []step
	for _, s := range spans {
		steps = append(steps, step{s.from, 1}, step{s.to, -1})
	}
	// A task that begins when another ends is not concurrent with it.
	slices.SortFunc(steps, func(x, y step) int { return cmp.Or(x.at.Compare(y.at), cmp.Compare(x.more, y.more)) })
	out := make([]float64, p.parts)
	now, last := 0, 0 // number of running tasks, and since which part
	for _, s := range steps {
		n := p.part(begin, s.at)
		for i := max(last, 0); i <= min(n, p.parts-1); i++ {
			out[i] = max(out[i], float64(now))
		}
		now, last = now+s.more, n
		if n >= 0 && n < p.parts {
			out[n] = max(out[n], float64(now))
		}
	}
	return out
}
