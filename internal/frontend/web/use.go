package web

import (
	"cmp"
	"context"
	"html/template"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/task"
)

const (
	mostUsed  = 200 // sessions whose tasks are counted for a page of charts
	mostNamed = 20  // models of its table
)

// Call is one call of a model, of any session.
type Call struct {
	Time          time.Time // when it ended
	Model         string
	Input, Output int64    // tokens; input with what came from a cache
	USD           *float64 // nil: the price is not known
}

// spentBy is what the calls of a model have used.
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

// Cost is the cost as far as prices are known.
func (s spentBy) Cost() string {
	switch {
	case s.Unpriced == s.Calls:
		return "not known"
	case s.Unpriced > 0:
		return "at least " + money(s.USD)
	}
	return money(s.USD)
}

// InputTokens and OutputTokens are for people.
func (s spentBy) InputTokens() string  { return grouped(float64(s.Input)) }
func (s spentBy) OutputTokens() string { return grouped(float64(s.Output)) }

// span is when a task ran.
type span struct{ from, to time.Time }

// periodOf is the one that a request asks for.
func periodOf(name string) period {
	all := periods()
	for _, one := range all {
		if one.Name == name {
			return one
		}
	}
	return all[1]
}

// use is the page of what models have used and how many tasks ran, over time.
func (s *Server) use(w http.ResponseWriter, r *http.Request) {
	p := periodOf(r.URL.Query().Get("period"))
	_ = s.views.t.ExecuteTemplate(w, "use.html", map[string]any{ // a client that has gone needs no page
		"Periods": periods(), "Period": p, "Zone": s.Now().Local().Format("MST"),
		"Used": template.HTML(s.used.now(r.Context(), s, p)),
	})
}

// chartsEvery is how old charts may be: to draw them, the use of all sessions is read.
const chartsEvery = 2 * time.Second

// used keeps the charts of each period as long as they may be shown, for all pages.
type used struct {
	mu sync.Mutex // held while charts are drawn: pages that wait get the same
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
		return b.String() // of a page that has gone
	}
	if u.by == nil {
		u.by = map[string]*drawnUse{}
	}
	u.by[p.Name] = &drawnUse{s.Now(), b.String()}
	return b.String()
}

// charts sends the charts of a period whenever they have changed.
func (s *Server) charts(w http.ResponseWriter, r *http.Request) {
	out, free := s.begin(w)
	if out == nil {
		return
	}
	defer free()
	p, shown := periodOf(r.URL.Query().Get("charts")), ""
	again := time.NewTicker(time.Minute) // the time goes on
	defer again.Stop()
	for {
		next := s.board.next()
		if html := s.used.now(r.Context(), s, p); html != shown {
			if out.send("", "use", html) != nil {
				return
			}
			shown = html
		} else if out.comment() != nil {
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
		case <-s.ended.Done():
			return
		}
	}
}

// uses is what the charts of a period show.
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
	large := measure{1, func(v float64) string { return short(int64(v)) }, grouped}
	dollars := measure{0.0001, money, money}
	return map[string]any{
		"Problem": problem, "Left": left, "Models": models, "Total": total, "Charts": []chart{
			charted("tokens", "Tokens", p, begin, tokens, large),
			charted("cost", "Cost in US dollars", p, begin, cost, dollars),
			charted("tasks", "Tasks that ran at once", p, begin, atOnce(spans, p, begin), count),
		},
	}
}

// ran returns when tasks ran since a time, and how many sessions were left out.
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
			left++ // it is damaged, or has just ended
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

// atOnce is the most tasks that ran at the same time, for each part of a period.
func atOnce(spans []span, p period, begin time.Time) []float64 {
	type step struct {
		at   time.Time
		more int
	}
	var steps []step
	for _, s := range spans {
		steps = append(steps, step{s.from, 1}, step{s.to, -1})
	}
	// A task that begins as another ends did not run beside it.
	slices.SortFunc(steps, func(x, y step) int { return cmp.Or(x.at.Compare(y.at), cmp.Compare(x.more, y.more)) })
	out := make([]float64, p.parts)
	now, last := 0, 0 // how many run, and from which part on
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
