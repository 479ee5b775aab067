// Package attention decides which tasks of a session need their user, and in what order.
//
// It is a pure function of records: serving the list, waiting for changes and answering are
// elsewhere. A list is limited by [MaxItems] and [MaxAge].
package attention

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/task"
)

// The limits of a list.
const (
	MaxItems = 200
	MaxAge   = 7 * 24 * time.Hour // of a failure that the user has not seen
	maxText  = 400                // bytes of the texts of an item
)

// Kind is why an item needs the user.
type Kind string

// The kinds, in the order of a list.
const (
	Blocked  Kind = "session_blocked" // starts or saves of the session fail
	Question Kind = "question"        // an agent or an MCP server asks
	Plan     Kind = "plan"            // a plan waits for approval
	Stalled  Kind = "stalled"         // a command waits for input
	Parked   Kind = "parked"          // a provider's limit delays an agent
	Failure  Kind = "failure"         // it ended badly, and the user has not seen it
	Made     Kind = "made"            // while it ran, files appeared or changed that other programs obey
)

// Kinds returns the kinds in the order of a list: those that block most come first.
func Kinds() []Kind { return []Kind{Blocked, Question, Plan, Stalled, Parked, Failure, Made} }

// Past reports whether an item is about the end of a task, and goes when the user has seen it.
func (i Item) Past() bool { return i.Kind == Failure || i.Kind == Made }

// Item is one thing that needs the user. ID names the question, or else the task, which
// has at most one such item; else of the session.
type Item struct {
	ID      string         `json:"id"`
	Kind    Kind           `json:"kind"`
	Session task.ID        `json:"session_id"`
	Task    task.ID        `json:"task_id,omitempty"`
	Run     task.RunID     `json:"run_id,omitempty"`
	Name    string         `json:"name,omitempty"`
	What    string         `json:"what,omitempty"` // the task, in a line
	Why     string         `json:"why"`            // the need, in a line
	Since   time.Time      `json:"since,omitzero"`
	Until   time.Time      `json:"until,omitzero"`     // a question is denied, or a limit ends
	Blocks  int            `json:"blocks"`             // tasks that wait for it, itself included
	Answer  []string       `json:"answer"`             // commands, each of which resolves it
	Request *task.Question `json:"question,omitempty"` // an answer must have its digest
}

// Facts are the input of a list.
type Facts struct {
	Session   task.ID
	Tasks     []task.Record
	Questions []task.Question // all open ones, also of a main agent that is not a task
	Problem   string          // of the session; empty: it has none
	Since     time.Time       // of the problem
	// Waits describes the wait of a command; false: it does not wait. Nil: no command waits.
	Waits func(task.Record) (line string, since time.Time, ok bool)
}

// Items returns what needs the user, the most blocking first, and how many items exceed the
// limit.
func Items(f Facts, now time.Time) (items []Item, more int) {
	items = []Item{}
	known := make(map[task.ID]task.Record, len(f.Tasks))
	for _, r := range f.Tasks {
		known[r.ID] = r
	}
	if f.Problem != "" {
		items = append(items, Item{ID: string(f.Session), Kind: Blocked, Session: f.Session, What: "the whole session",
			Why: line(f.Problem), Since: f.Since, Blocks: live(f.Tasks), Answer: []string{"drover doctor"}})
	}
	for _, q := range f.Questions {
		items = append(items, question(f.Session, q, known))
	}
	for _, r := range f.Tasks {
		if i, ok := ofTask(f, r, known, now); ok {
			items = append(items, i)
		}
	}
	order := Kinds()
	slices.SortStableFunc(items, func(a, b Item) int { return compare(order, a, b) })
	if more = len(items) - MaxItems; more > 0 {
		return items[:MaxItems], more
	}
	return items, 0
}

// Merge merges the lists of several sessions, in the same order and with the same limits.
func Merge(lists ...[]Item) (items []Item, more int) {
	items = slices.Concat(lists...)
	order := Kinds()
	slices.SortStableFunc(items, func(a, b Item) int { return compare(order, a, b) })
	if more = len(items) - MaxItems; more > 0 {
		return items[:MaxItems], more
	}
	return items, 0
}

// compare sorts the most blocking first: by kind, by the number of waiting tasks, by the time
// limit of the answer, then the oldest. Among failures the newest is first.
func compare(order []Kind, a, b Item) int {
	var deadline int
	switch {
	case a.Until.IsZero() && !b.Until.IsZero():
		deadline = 1
	case !a.Until.IsZero() && b.Until.IsZero():
		deadline = -1
	default:
		deadline = a.Until.Compare(b.Until)
	}
	since := a.Since.Compare(b.Since)
	if a.Kind == Failure {
		since = -since
	}
	return cmp.Or(slices.Index(order, a.Kind)-slices.Index(order, b.Kind), b.Blocks-a.Blocks, deadline, since,
		cmp.Compare(a.ID, b.ID))
}

func live(tasks []task.Record) (n int) {
	for _, r := range tasks {
		if !r.Status.Terminal() {
			n++
		}
	}
	return n
}

// question is the item of an open question.
func question(session task.ID, q task.Question, known map[task.ID]task.Record) Item {
	r := known[q.Task]
	i := Item{ID: q.ID, Kind: Question, Session: session, Task: q.Task, Run: r.Run, Name: r.Name,
		What: line(cmp.Or(what(r), q.Agent)), Since: q.At, Until: q.Until, Blocks: blocks(r, known), Request: &q}
	switch q.Kind {
	case task.Choice:
		i.Why = "asks: " + q.Tool
		i.Answer = []string{"drover approvals answer " + q.ID + " TEXT", "drover approvals deny " + q.ID}
	case task.Form:
		i.Why = "a form of an MCP server: " + q.Tool
		i.Answer = []string{"drover approvals answer " + q.ID + " JSON", "drover approvals deny " + q.ID}
	default:
		i.Why = "permission for " + q.Tool
		i.Answer = []string{"drover approvals allow " + q.ID, "drover approvals deny " + q.ID}
	}
	if q.Reason != "" {
		i.Why += ": " + q.Reason
	}
	i.Why = line(i.Why)
	if q.IsPlan() {
		i.Kind = Plan
	}
	return i
}

// ofTask is the item of a task other than a question.
func ofTask(f Facts, r task.Record, known map[task.ID]task.Record, now time.Time) (Item, bool) {
	i := Item{ID: string(r.ID), Session: f.Session, Task: r.ID, Run: r.Run, Name: r.Name, What: line(what(r)),
		Since: r.CreateTime, Blocks: blocks(r, known)}
	p := r.Progress
	switch {
	case failed(r, now):
		i.Kind, i.Why, i.Since, i.Blocks = Failure, line(ending(r)), *r.EndTime, 0
		i.Answer = []string{"drover attention seen " + string(r.ID), "drover logs -n 20 " + string(r.ID)}
	case len(r.Made) > 0 && !r.Seen && r.EndTime != nil && now.Sub(*r.EndTime) <= MaxAge:
		i.Kind, i.Since, i.Blocks = Made, *r.EndTime, 0
		i.Why = line("files were made or changed that other programs obey: " + strings.Join(r.Made, ", "))
		i.Answer = []string{"drover attention seen " + string(r.ID)}
	case r.Status != task.Running || r.Stopping || r.Paused:
		return i, false
	case r.Parked != nil:
		i.Kind, i.Why, i.Until = Parked, line(r.Parked.Why), r.Parked.Until
		i.Answer = []string{"drover resume " + string(r.ID), "drover stop " + string(r.ID)}
	case p == nil:
		return i, false
	case p.Phase == "plan_ready":
		i.Kind, i.Why = Plan, "its plan is ready"
		i.Answer = []string{"drover attach " + string(r.ID), "drover send " + string(r.ID) + " TEXT"}
	case p.Phase == "needs_input":
		i.Kind, i.Why = Question, line(cmp.Or(p.Message, "it needs your input"))
		i.Answer = []string{"drover send " + string(r.ID) + " TEXT"}
	case p.Phase == "needs_authentication": // its agent elsewhere wants its user to sign in there
		i.Kind, i.Why = Question, line(cmp.Or(p.Message, "it needs you to authenticate"))
		i.Answer = []string{"drover send " + string(r.ID) + " TEXT"}
	case p.ParkedUntil != nil && p.ParkedUntil.After(now):
		i.Kind, i.Why, i.Until = Parked, line(cmp.Or(p.Message, "a limit of the provider holds it")), *p.ParkedUntil
		i.Answer = []string{"drover stop " + string(r.ID)}
	case f.Waits != nil && r.Traits().Work == task.ByCommand && r.Backgrounded:
		text, since, ok := f.Waits(r)
		if !ok {
			return i, false
		}
		i.Kind, i.Why, i.Since = Stalled, line(text), since
		i.Answer = []string{"drover stop " + string(r.ID)}
		if r.TTY {
			i.Answer = slices.Insert(i.Answer, 0, "drover send "+string(r.ID)+" TEXT")
		}
	default:
		return i, false
	}
	return i, true
}

// failed reports whether a task has ended badly and its user has not seen that. A caller that
// waited for a foreground task has seen its end, and one that stopped a task knows it.
func failed(r task.Record, now time.Time) bool {
	switch {
	case r.Seen || !r.Backgrounded || r.Silent || r.EndTime == nil || now.Sub(*r.EndTime) > MaxAge:
		return false
	case r.Status == task.Failed:
		return true
	case r.Status != task.Killed || r.Cause == nil:
		return false
	}
	switch r.Cause.Reason {
	case task.ReasonStopped, task.ReasonInterrupt, task.ReasonClosing, task.ReasonParentEnded:
		return false
	}
	return slices.Contains([]task.Actor{task.ByRuntime, task.ByKeeper, task.ByUnknown}, r.Cause.Actor)
}

// ending describes why a task has ended.
func ending(r task.Record) string {
	text := cmp.Or(r.Error, string(r.Status))
	if r.Cause == nil {
		return text
	}
	if r.Error == "" {
		text = string(r.Cause.Reason)
	}
	if r.Cause.Signal != "" {
		text += ", " + r.Cause.Signal
	}
	if r.Cause.Detail != "" && r.Cause.Detail != r.Error {
		text += ": " + r.Cause.Detail
	}
	return fmt.Sprintf("%s (%s)", r.Status, text)
}

// blocks returns how many tasks wait for one: itself, and the ancestors that wait for their
// foreground children.
func blocks(r task.Record, known map[task.ID]task.Record) int {
	n := 1
	for !r.Backgrounded && r.Parent != "" && n <= len(known) {
		up, ok := known[r.Parent]
		if !ok {
			break
		}
		r = up
		n++
	}
	return n
}

func what(r task.Record) string { return cmp.Or(r.Description, r.Command, r.Prompt) }

func line(text string) string { return lifecycle.Shortened(text, maxText) }
