package console

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/task"
)

// TablePage is how many tasks a table shows unless more are asked for.
const TablePage = 200

// NameChars is how much of a name a table shows.
const NameChars = 30

// modelColumn is where the model stands if anything on the page has one.
const modelColumn = 6

func (a *Console) TaskRows(records []task.Record, depth []int, session bool) [][]string {
	now := a.Now()
	rows := [][]string{{"ID", "NAME", "KIND", "STATUS", "AGE", "TIME", "TOKENS", "EXIT", "COMMAND"}}
	for i, r := range records {
		rows = append(rows, []string{
			strings.Repeat("  ", depth[i]) + Cell(string(r.ID), 40), Cell(r.Name, NameChars), Cell(string(r.Kind), 30),
			Status(now, r),
			Age(now, r.CreateTime), Span(r.Duration(now)), Tokens(r), Exit(r), Doing(r),
		})
	}
	if slices.ContainsFunc(records, func(r task.Record) bool { return r.Why() != "" }) {
		at := len(rows[0]) - 1
		rows[0] = slices.Insert(rows[0], at, "REASON")
		for i, r := range records {
			rows[i+1] = slices.Insert(rows[i+1], at, Cell(r.Why(), 60))
		}
	}
	if slices.ContainsFunc(records, func(r task.Record) bool { return r.Model != "" }) {
		rows[0] = slices.Insert(rows[0], modelColumn, "MODEL")
		for i, r := range records {
			rows[i+1] = slices.Insert(rows[i+1], modelColumn, Cell(r.Model, 26))
		}
	}
	if session {
		rows[0] = slices.Insert(rows[0], 1, "SESSION")
		for i, r := range records {
			rows[i+1] = slices.Insert(rows[i+1], 1, Cell(string(r.Session), 40))
		}
	}
	return rows
}

// List merges the tasks of sessions, newest first. A limit of 0 is none; more
// tells that the limit hid some. A session that does not answer is noted on
// stderr and hinders no other.
func (a *Console) List(ctx context.Context, ended, all bool, limit int) (records []task.Record, more bool, err error) {
	sessions, err := a.Known(ctx, !ended, all)
	if err != nil {
		return nil, false, fmt.Errorf("list sessions: %w", err)
	}
	sessions = slices.DeleteFunc(slices.Clone(sessions), func(s Session) bool {
		i := s.Info()
		return !i.Live && i.Tasks.Total == 0 && i.EndTime != nil
	})
	records = []task.Record{}
	for block := range slices.Chunk(sessions, asked) {
		if limit > 0 && len(records) >= limit {
			// What ended before the oldest task on the page cannot get onto it.
			oldest := records[limit-1].CreateTime
			n := len(block)
			block = slices.DeleteFunc(block, func(s Session) bool { return EndedBefore(s.Info().EndTime, oldest) })
			more = more || len(block) < n
		}
		ask := func(ctx context.Context, api control.API) (control.Page, error) {
			return api.List(ctx, control.ListRequest{All: ended, Limit: limit})
		}
		pages, errs := Each(ctx, block, ask)
		if ctx.Err() != nil {
			return nil, false, context.Cause(ctx)
		}
		for i, page := range pages {
			if HostGone(errs[i]) { // it died while it was asked, and has left something to ask
				page, errs[i] = a.ListLeft(ctx, block[i], all, ask)
			}
			if errs[i] != nil {
				a.Note("%v", errs[i])
			}
			if block[i].Info().Stopped {
				a.Note("the host of session %s is suspended, as by Ctrl-Z: its log is shown (`fg` in its terminal continues it)",
					block[i].Info().Session)
			}
			if page.Problem != "" {
				a.Note("session %s: %s", block[i].Info().Session, page.Problem)
			}
			more = more || page.Next != 0
			records = append(records, page.Tasks...)
		}
		slices.SortStableFunc(records, func(x, y task.Record) int { return y.CreateTime.Compare(x.CreateTime) })
		if limit > 0 && len(records) > limit {
			records, more = records[:limit], true
		}
	}
	return records, more, nil
}

// ListLeft asks for a listing of a session anew.
func (a *Console) ListLeft(ctx context.Context, s Session, all bool,
	ask func(context.Context, control.API) (control.Page, error)) (control.Page, error) {
	known, err := a.Known(ctx, false, all)
	if err != nil {
		return control.Page{}, fmt.Errorf("list sessions: %w", err)
	}
	same := slices.DeleteFunc(slices.Clone(known), func(k Session) bool { return k.Info().Session != s.Info().Session })
	pages, errs := Each(ctx, same, ask)
	if len(same) == 0 {
		return control.Page{}, nil // somebody has removed it
	}
	return pages[0], errs[0]
}

func EndedBefore(end *time.Time, t time.Time) bool { return end != nil && end.Before(t) }

// Family puts children behind their parents and tells how deep each is. A task
// whose parent is not listed stands at the top.
func Family(records []task.Record) ([]task.Record, []int) {
	listed := map[task.ID]bool{}
	children := map[task.ID][]task.Record{}
	for _, r := range records {
		listed[r.ID] = true
	}
	var tops []task.Record
	for _, r := range records {
		if r.Parent != "" && r.Parent != r.ID && listed[r.Parent] {
			children[r.Parent] = append(children[r.Parent], r)
		} else {
			tops = append(tops, r)
		}
	}
	out := make([]task.Record, 0, len(records))
	depth := make([]int, 0, len(records))
	var add func(r task.Record, d int)
	add = func(r task.Record, d int) {
		if !listed[r.ID] {
			return
		}
		listed[r.ID] = false
		out, depth = append(out, r), append(depth, d)
		for _, c := range children[r.ID] {
			add(c, d+1)
		}
	}
	for _, r := range tops {
		add(r, 0)
	}
	for _, r := range records { // of a damaged record that is its own ancestor
		add(r, 0)
	}
	return out, depth
}

// MostReason is how many characters of why a task ended as it did are shown.
const MostReason = 500

// NoteEnd says what else is to be known of the end of a task.
func (a *Console) NoteEnd(r task.Record) {
	for _, text := range r.Notes {
		a.Note("task %s: %s", r.ID, excerpt.Line(text, MostReason))
	}
}

// NoteRenamed says that a task has not got the name that was asked for.
func (a *Console) NoteRenamed(r *task.Record) {
	if r != nil && r.AskedName != "" {
		a.Note("%s", r.Renamed())
	}
}

// CodeOf is the exit code that tells how a task ended: the command's own, 128+n
// for a signal, 124 for a time-out; of work without a code 0, 1, or 4 when it
// was stopped.
func CodeOf(r task.Record) int {
	var why task.Cause
	if r.Cause != nil {
		why = *r.Cause
	}
	switch {
	case r.Status == task.Completed:
		return 0
	case why.Reason == task.ReasonTimeout:
		return CodeTimedOut
	case why.Reason == task.ReasonStart:
		return codeNoStart
	case r.ExitCode != nil && *r.ExitCode > 0:
		return *r.ExitCode
	case signalNumber(why.Signal) > 0:
		return 128 + signalNumber(why.Signal)
	case r.Status == task.Killed:
		return codeStopped
	}
	return CodeFailed
}

// signalNumber is the number of a signal such as SIGTERM or SIGRTMIN+1, or 0.
func signalNumber(name string) int {
	const firstRealTime = 34
	if name == "SIGRTMIN" {
		return firstRealTime
	}
	if plus, ok := strings.CutPrefix(name, "SIGRTMIN+"); ok {
		n, err := strconv.ParseUint(plus, 10, 5)
		if err != nil {
			return 0
		}
		return firstRealTime + int(n)
	}
	return int(unix.SignalNum(name))
}

func (a *Console) PrintReceipt(r task.Receipt, asJSON bool) error {
	if asJSON {
		return PrintJSON(a.Stdout, r)
	}
	rows := [][]string{{"STOPPED", "STATUS", "CAUSE", "SIGNALS", "AFTER"}}
	for _, s := range r.Stopped {
		var signals []string
		for _, sent := range s.Signals {
			signals = append(signals, fmt.Sprintf("%s@%s", Cell(sent.Signal, 20),
				Span(time.Duration(sent.AfterMS)*time.Millisecond)))
		}
		rows = append(rows, []string{
			Cell(string(s.ID), 40), Cell(string(s.Status), 20), cause(s.Cause), Cell(strings.Join(signals, " "), 100),
			Span(time.Duration(s.EndedAfterMS) * time.Millisecond),
		})
	}
	if len(r.Survivors) > 0 {
		rows = append(rows, []string{"SURVIVED", "TASK", "WHY", "COMMAND"})
		for _, s := range r.Survivors {
			rows = append(rows, []string{fmt.Sprint("pid ", s.PID), Cell(string(s.Task), 40), Cell(s.Why, 60),
				Cell(s.Command, 60)})
		}
	}
	return a.Table(rows, ByState(rows, "STATUS"))
}

// OfTasks colours a table of tasks: their states, and the names of teammates.
func OfTasks(rows [][]string, records []task.Record) paint {
	states, names := ByState(rows, "STATUS"), slices.Index(rows[0], "NAME")
	return func(row, col int) string {
		if row > 0 && col == names {
			return colorCode(records[row-1])
		}
		return states(row, col)
	}
}

// colorCode is how a terminal is told the color of a teammate; empty: it has none.
func colorCode(r task.Record) string {
	if r.Team == nil {
		return ""
	}
	return map[string]string{"red": "31", "green": "32", "yellow": "33", "blue": "34", "magenta": "35",
		"cyan": "36"}[r.Team.Color]
}

// Displayed is a question with its input as people are shown it.
type Displayed struct {
	task.Question
	Display string `json:"display,omitempty"`
}

// Listed is a record whose questions are displayed.
type Listed struct {
	task.Record
	Questions []Displayed `json:"questions,omitempty"`
}

func WithDisplay(r task.Record) Listed {
	l := Listed{Record: r}
	for _, q := range r.Questions {
		l.Questions = append(l.Questions, Displayed{q, excerpt.Call(q.Input, q.Hidden)})
	}
	return l
}
