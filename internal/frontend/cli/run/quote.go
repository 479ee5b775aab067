package run

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/frontend/cli/console"
	"github.com/drover-dev/drover/internal/model/modelinfo"
	ledger "github.com/drover-dev/drover/internal/model/usage"
	"github.com/drover-dev/drover/task"
)

// quoteOnly says what an agent would likely use, by the runs of its type in the project: with the
// wanted model, else with any.
func (a *app) quoteOnly(req control.AgentRequest, asJSON bool) error {
	places, err := a.SessionFolders(false)
	if err != nil {
		return err
	}
	var past ledger.Past
	for _, place := range places {
		_, err := ledger.Read(filepath.Join(place.Dir(), ledger.FileName), func(c ledger.Call) {
			c.Session = string(place.ID())
			past.Add(c)
		})
		if err != nil {
			a.Hint(err.Error())
		}
	}
	got := past.Quote(req.Type, cmp.Or(modelinfo.Full(req.Model), req.Model))
	q := task.Quote{LikeRuns: got.Like}
	if r := got.Tokens; r != nil {
		q.Tokens = &task.Range{Low: r.Low, Likely: r.Likely, High: r.High}
	}
	if r := got.USD; r != nil {
		q.USD = &task.Range{Low: r.Low, Likely: r.Likely, High: r.High}
	}
	if asJSON {
		return console.PrintJSON(a.Stdout, q)
	}
	return a.Println(quoteText(q))
}

// sayQuote says what an agent will likely use.
func (a *app) sayQuote(q *task.Quote) {
	if q != nil {
		a.Note("quote: %s", quoteText(*q))
	}
}

// sayBill says what an agent has used.
func (a *app) sayBill(ctx context.Context, s control.API, id task.ID) {
	rec, err := s.Get(ctx, string(id))
	if err != nil || rec.Usage == nil {
		a.Note("bill: not known")
		return
	}
	u := rec.Used()
	tokens, cost := "tokens not known", "cost not known"
	if !u.TokensUnknown {
		tokens = console.Count(u.InputTokens+u.OutputTokens+u.CacheRead+u.CacheWrite) + " tokens"
	}
	if u.CostUSD != nil {
		cost = ledger.Dollars(*u.CostUSD)
	}
	a.Note("bill: %s, %s", tokens, cost)
}

// quoteText is a quote as a line.
func quoteText(q task.Quote) string {
	tokens, cost := "tokens not known", "cost not known"
	if r := q.Tokens; r != nil {
		tokens = fmt.Sprintf("%s tokens (%s to %s)", console.Count(int64(r.Likely)), console.Count(int64(r.Low)),
			console.Count(int64(r.High)))
	}
	if r := q.USD; r != nil {
		cost = fmt.Sprintf("%s (%s to %s)", ledger.Dollars(r.Likely), ledger.Dollars(r.Low), ledger.Dollars(r.High))
	}
	runs := "1 run"
	if q.LikeRuns != 1 {
		runs = fmt.Sprintf("%d runs", q.LikeRuns)
	}
	return fmt.Sprintf("%s, %s, by %s of this type and model", tokens, cost, runs)
}
