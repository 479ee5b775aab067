package console

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	ledger "github.com/drover-dev/drover/internal/model/usage"
	"github.com/drover-dev/drover/internal/options"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/platform/figures"
	"github.com/drover-dev/drover/task"
)

// PriceTable is the table of prices under the user's settings.
func PriceTable(m options.Models) (ledger.Table, []string) {
	own := map[string]ledger.Price{}
	for pattern, p := range m.Prices {
		own[pattern] = ledger.Price(p)
	}
	return ledger.NewTable(own, m.Windows)
}

// Count is a number of tokens.
func Count(n int64) string { return figures.Count(n) }

// Cell is text for a column, or a dash.
func Cell(text string, limit int) string {
	return cmp.Or(excerpt.Line(text, limit), "-")
}

// Work is the description, command or prompt of a task.
func Work(r task.Record) string { return cmp.Or(r.Description, r.Command, r.Prompt) }

// silence is the time after which a table says that an agent is silent.
const silence = 30 * time.Second

// Status is the status of a task with further facts.
func Status(now time.Time, r task.Record) string {
	var facts []string
	for _, f := range []struct {
		on   bool
		word string
	}{
		{r.HostStopped, "host suspended"}, {r.Stopping, "stopping"}, {r.Paused, "paused"},
		{r.AwaitingApproval, "needs your answer"}, {r.Resting(), "idle"},
		{r.WaitsFor != "", "waits for " + excerpt.Line(r.WaitsFor, 60)},
		{!r.Status.Terminal() && !r.Backgrounded, "foreground"},
	} {
		if f.on {
			facts = append(facts, f.word)
		}
	}
	if r.Worker != "" && r.Status == task.Running {
		facts = append(facts, "at "+excerpt.Line(r.Worker, 30))
		if r.Progress != nil && r.Progress.Message != "" { // such as that the worker is out of reach
			facts = append(facts, excerpt.Line(r.Progress.Message, 50))
		}
	}
	if until, _, ok := r.ParkedUntil(now); ok && !r.Stopping {
		facts = append(facts, "parked until "+task.Clock(until, now))
	}
	if r.Status == task.Pending && r.Progress != nil && r.Progress.Message != "" {
		facts = append(facts, excerpt.Line(r.Progress.Message, 30)) // its place in the queue
	}
	// otherwise another fact says what it waits for
	if at := r.LastHeard; at != nil && now.Sub(*at) >= silence && !r.AwaitingApproval && !r.Paused && r.Parked == nil {
		facts = append(facts, "silent "+Span(now.Sub(*at)))
	}
	if len(facts) == 0 {
		return string(r.Status)
	}
	return string(r.Status) + " (" + strings.Join(facts, ", ") + ")"
}

// Exit is the exit code of a command that ended by itself.
func Exit(r task.Record) string {
	byItself := r.Cause == nil || r.Cause.Actor == task.ByItself
	if !r.Status.Terminal() || !byItself || r.ExitCode == nil || *r.ExitCode < 0 {
		return "-"
	}
	return strconv.Itoa(*r.ExitCode)
}

// Ending says how a run ended: in words, or by its exit code.
func Ending(r task.Record) string {
	if why := r.Why(); why != "" {
		return Cell(why, 100)
	}
	return Exit(r)
}

// Span is a duration in two units at most.
func Span(d time.Duration) string { return figures.Span(d) }

// Ago is how long ago a moment was, in one unit: "3m ago".
func Ago(now, then time.Time) string {
	if then.IsZero() {
		return "-"
	}
	return figures.Age(now.Sub(then)) + " ago"
}

// Tokens is the number of tokens that a task has used so far.
func Tokens(r task.Record) string {
	u := r.Used()
	if u == nil || u.TotalTokens <= 0 {
		return "-"
	}
	return Count(u.TotalTokens)
}

// Size is a number of bytes.
func Size(n int64) string { return figures.Bytes(n) }

// Plural is a number with a noun.
func Plural(n int, what string) string { return figures.Several(n, what) }

// AfterASecond notes on a terminal what a command is waiting for. The caller calls the returned function.
func (a *Console) AfterASecond(format string, v ...any) func() {
	if !a.IsTerminal(a.Stderr) {
		return func() {}
	}
	said := make(chan struct{})
	timer := time.AfterFunc(time.Second, func() {
		defer close(said)
		a.Note(format, v...)
	})
	return func() {
		if !timer.Stop() {
			<-said
		}
	}
}
