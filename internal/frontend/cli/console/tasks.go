package console

import (
	"context"
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

// List merges the tasks of sessions, newest first. A limit of 0 is none; more reports that the limit
// hid some. A session that does not answer is noted on stderr, and the others are listed.
func (a *Console) List(ctx context.Context, ended, all bool, limit int) (records []task.Record, more bool, err error) {
	sessions, err := a.Known(ctx, !ended, all)
	if err != nil {
		return nil, false, err
	}
	sessions = slices.DeleteFunc(slices.Clone(sessions), func(s Session) bool {
		i := s.Info()
		return !i.Live && i.Tasks.Total == 0 && i.EndTime != nil
	})
	records = []task.Record{}
	for block := range slices.Chunk(sessions, asked) {
		if limit > 0 && len(records) >= limit {
			// A session that ended before the oldest task on the page adds nothing.
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
			if HostGone(errs[i]) { // it died meanwhile, and has left files
				page, errs[i] = a.listLeft(ctx, block[i], all, ask)
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

// listLeft repeats the listing of a session.
func (a *Console) listLeft(ctx context.Context, s Session, all bool,
	ask func(context.Context, control.API) (control.Page, error)) (control.Page, error) {
	known, err := a.Known(ctx, false, all)
	if err != nil {
		return control.Page{}, err
	}
	same := slices.DeleteFunc(slices.Clone(known), func(k Session) bool { return k.Info().Session != s.Info().Session })
	pages, errs := Each(ctx, same, ask)
	if len(same) == 0 {
		return control.Page{}, nil // it has been removed
	}
	return pages[0], errs[0]
}

// EndedBefore reports whether something ended before a time.
func EndedBefore(end *time.Time, t time.Time) bool { return end != nil && end.Before(t) }

// MostReason is how many characters of why a task ended as it did are shown.
const MostReason = 500

// NoteEnd notes the further facts about the end of a task.
func (a *Console) NoteEnd(r task.Record) {
	for _, text := range r.Remarks() {
		a.Note("task %s: %s", r.ID, excerpt.Line(text, MostReason))
	}
}

// CodeOf is the exit code for the end of a task: the command's own, 128+n for a signal, 124 for a
// timeout; without one 0, 1, or 4 for a stopped task.
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

// Displayed is a question with its input in the form for people.
type Displayed struct {
	task.Question
	Display string `json:"display,omitempty"`
}
