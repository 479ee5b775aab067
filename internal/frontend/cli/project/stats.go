package project

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/internal/frontend/cli/console"
	ledger "github.com/drover-dev/drover/internal/model/usage"
	"github.com/drover-dev/drover/internal/platform/excerpt"
)

// stats is the request and the result of `drover stats`.
type stats struct {
	By      ledger.By    `json:"by"`
	Since   *time.Time   `json:"since"`
	Rows    []ledger.Sum `json:"rows"`
	Total   ledger.Sum   `json:"total"`
	Skipped int          `json:"skipped_lines"` // that could not be read
	Unread  int          `json:"unread_files"`

	all      bool
	unpriced []string // models whose price is not known
}

func (a *app) statsCommand() *cobra.Command {
	var by, since string
	var all, asJSON bool
	cmd := &cobra.Command{
		Use: "stats [--by agent|day|project|model|session] [--since D] [--all-projects] [--json]",
		Long: "Sum the model calls of this project's sessions, live ones included: tokens, cost, and the time that models\n" +
			"took to answer. INPUT is all input tokens, CACHED the part of them that came from the provider's cache.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			s := stats{all: all}
			var err error
			if s.By, err = ledger.ParseBy(by); err != nil {
				return console.Usage("--by "+err.Error(), "the first is the default")
			}
			s.all = s.all || s.By == ledger.ByProject
			if since != "" {
				at, err := sinceTime(since, time.Now())
				if err != nil {
					return err
				}
				s.Since = &at
			}
			if err := a.addUp(&s); err != nil {
				return err
			}
			if asJSON {
				return console.PrintJSON(a.Stdout, s)
			}
			a.tellGaps(&s)
			return a.printStats(&s)
		},
	}
	f := cmd.Flags()
	f.StringVar(&by, "by", "agent", "group by agent (type), day, project (of all projects), model or session")
	f.StringVar(&since, "since", "", "calls since a duration ago, such as 36h or 7d, or since a day, such as 2026-11-01")
	f.BoolVar(&all, "all-projects", false, "include the sessions of all projects")
	f.BoolVar(&asJSON, "json", false, "print one JSON object")
	_ = cmd.RegisterFlagCompletionFunc("by", cobra.FixedCompletions([]string{"agent", "day", "project", "model",
		"session"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// sinceTime reads a time ago, or a day.
func sinceTime(text string, now time.Time) (time.Time, error) {
	if d, ok := longAgo(text); ok {
		return now.Add(-d), nil
	}
	for _, form := range []string{time.DateOnly, time.RFC3339} {
		if at, err := time.ParseInLocation(form, text, time.Local); err == nil {
			return at, nil
		}
	}
	return time.Time{}, console.Usage(fmt.Sprintf("--since %q: not a time", text),
		"give one ago such as 36h or 7d, or a day such as 2026-11-01")
}

// longAgo reads a duration above zero; days and weeks stand alone.
func longAgo(text string) (time.Duration, bool) {
	for unit, day := range map[string]int{"d": 1, "w": 7} {
		if digits, ok := strings.CutSuffix(text, unit); ok {
			n, err := strconv.ParseUint(digits, 10, 16)
			return time.Duration(n) * time.Duration(day) * 24 * time.Hour, err == nil && n > 0
		}
	}
	d, err := time.ParseDuration(text)
	return d, err == nil && d > 0
}

// addUp reads what sessions have kept. A call whose price was not known when it
// was made is priced by what the settings say now.
func (a *app) addUp(s *stats) error {
	set, err := a.Settings("")
	if err != nil {
		return err
	}
	table, notes := console.PriceTable(set.Models)
	for _, n := range notes {
		a.Hint(n)
	}
	places, err := a.SessionFolders(s.all)
	if err != nil {
		return err
	}
	sums := ledger.NewLedger(s.By, ledger.ByModel)
	for _, place := range places {
		skipped, err := ledger.Read(filepath.Join(place.Dir(), ledger.FileName), func(c ledger.Call) {
			if s.Since != nil && c.Time.Before(*s.Since) {
				return
			}
			if usd, known := table.Cost(c.Model, c.Usage); c.USD == nil && known {
				c.USD = &usd
			}
			c.Time, c.Project, c.Session = c.Time.Local(), place.Project().Folder(), string(place.ID())
			sums.Add(c)
		})
		s.Skipped += skipped
		if err != nil {
			s.Unread++
			a.Hint(err.Error())
		}
	}
	s.Rows, s.Total = sums.Rows(s.By), sums.Total()
	for _, r := range sums.Rows(ledger.ByModel) {
		if r.Unpriced > 0 {
			s.unpriced = append(s.unpriced, r.Key)
		}
	}
	return nil
}

// tellGaps says on stderr what the figures do not hold.
func (a *app) tellGaps(s *stats) {
	if s.Total.Unpriced > 0 {
		a.Hint(fmt.Sprintf("the price of %d of %d calls is not known: %s (set models.prices in the settings)", s.Total.Unpriced,
			s.Total.Calls, excerpt.Line(strings.Join(s.unpriced, ", "), 300)))
	}
	if s.Total.Estimated > 0 {
		a.Hint(fmt.Sprintf("the provider reported no plausible figures for %d calls; the most that they can have used is counted",
			s.Total.Estimated))
	}
	if s.Skipped > 0 {
		a.Hint(fmt.Sprintf("%d lines could not be read and are not counted", s.Skipped))
	}
}

func (a *app) printStats(s *stats) error {
	if s.Total.Calls == 0 {
		text := "No model has been called here yet."
		if s.Since != nil {
			text = "No model has been called here since " + s.Since.Format("2006-01-02 15:04") + "."
		}
		if !s.all {
			text += " --all-projects looks everywhere."
		}
		return a.Println(text)
	}
	rows := [][]string{{strings.ToUpper(string(s.By)), "CALLS", "INPUT", "CACHED", "OUTPUT", "COST", "TIME"}}
	s.Total.Key = "TOTAL"
	for _, r := range append(s.Rows, s.Total) {
		rows = append(rows, []string{cmp.Or(excerpt.Line(r.Key, 60), "-"), fmt.Sprint(r.Calls),
			console.Count(r.Input + r.CacheRead + r.CacheWrite), console.Count(r.CacheRead),
			console.Count(r.Output), cost(r), took(r)})
	}
	return a.Table(rows, console.Headed)
}

// cost is the known cost, which is a lower bound if a price is unknown.
func cost(s ledger.Sum) string {
	switch {
	case s.Unpriced == s.Calls:
		return "unknown"
	case s.Unpriced > 0:
		return "≥ " + ledger.Dollars(s.USD)
	}
	return ledger.Dollars(s.USD)
}

func took(s ledger.Sum) string {
	d := time.Duration(s.ModelMS) * time.Millisecond
	if d < 10*time.Second {
		return fmt.Sprintf("%.1fs", d.Seconds())
	}
	return d.Round(time.Second).String()
}
