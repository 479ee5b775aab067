package console

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	ledger "github.com/drover-dev/drover/internal/model/usage"
	"github.com/drover-dev/drover/internal/options"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/task"
)

// PartChars is how much of a call, or of its result, a line shows.
const PartChars = 200

// PriceTable is the table of prices under the user's settings.
func PriceTable(m options.Models) (ledger.Table, []string) {
	own := map[string]ledger.Price{}
	for pattern, p := range m.Prices {
		own[pattern] = ledger.Price(p)
	}
	return ledger.NewTable(own, m.Windows)
}

func Count(n int64) string {
	switch {
	case n < 1000:
		return strconv.FormatInt(n, 10)
	case n < 1_000_000:
		return fmt.Sprintf("%.1fk", float64(n)/1e3)
	}
	return fmt.Sprintf("%.1fM", float64(n)/1e6)
}

// Cell makes text fit for a column.
func Cell(text string, limit int) string {
	return cmp.Or(excerpt.Line(text, limit), "-")
}

// Work is what a task does, in a line: its description, command or prompt.
func Work(r task.Record) string { return cmp.Or(r.Description, r.Command, r.Prompt) }

// Doing is the work of a task, and of an agent at work what it is about: the
// summary that was made of it, or else what it says itself.
func Doing(r task.Record) string {
	if r.Team != nil && r.Status == task.Running {
		return mateDoing(r)
	}
	if p := r.Progress; p != nil && r.Status == task.Running && r.Traits().Work != task.ByCommand && !r.Idle {
		if now := excerpt.Line(cmp.Or(p.Summary, p.Message), 50); now != "" {
			return Cell(Work(r), 30) + ": " + now
		}
	}
	return Cell(Work(r), 60)
}

// silence is how long nothing may be heard of an agent before a table says so.
const silence = 30 * time.Second

// Status is the status with the facts beside it.
func Status(now time.Time, r task.Record) string {
	var facts []string
	for _, f := range []struct {
		on   bool
		word string
	}{
		{r.HostStopped, "host stands still"}, {r.Stopping, "stopping"}, {r.Paused, "paused"},
		{r.AwaitingApproval, "awaiting approval"}, {r.Resting(), "idle"},
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
	// else it says itself what it waits for
	if at := r.LastHeard; at != nil && now.Sub(*at) >= silence && !r.AwaitingApproval && !r.Paused && r.Parked == nil {
		facts = append(facts, "silent "+Age(now, *at))
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

func cause(c *task.Cause) string {
	if c == nil {
		return "-"
	}
	text := string(c.Reason)
	if c.Actor != task.ByItself {
		text += " by " + string(c.Actor)
	}
	if c.Signal != "" {
		text += ", " + c.Signal
	}
	return Cell(text, 60)
}

// Span is a duration in two units at most.
func Span(d time.Duration) string {
	switch d = max(d, 0); {
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%02dh", int(d.Hours())/24, int(d.Hours())%24)
}

func Age(now, then time.Time) string {
	if then.IsZero() {
		return "-"
	}
	return Span(now.Sub(then))
}

// Tokens is what a task has used so far.
func Tokens(r task.Record) string {
	var n int64
	if r.Progress != nil {
		n = r.Progress.TokenCount
	}
	if r.Usage != nil {
		n = r.Usage.TotalTokens
	}
	switch {
	case n <= 0:
		return "-"
	case n < 1000:
		return strconv.FormatInt(n, 10)
	case n < 1_000_000:
		return fmt.Sprintf("%.1fk", float64(n)/1e3)
	}
	return fmt.Sprintf("%.1fM", float64(n)/1e6)
}

func Size(n int64) string {
	switch {
	case n < 1<<10:
		return fmt.Sprintf("%d B", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	case n < 1<<30:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
}

// Plural is a number and what is counted.
func Plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// AfterASecond tells a person at a terminal what takes so long. The returned
// function must be called.
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
