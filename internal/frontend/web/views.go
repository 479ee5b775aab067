package web

import (
	"bytes"
	"cmp"
	"embed"
	"fmt"
	"html/template"
	"net/url"
	"strings"
	"time"

	"github.com/drover-dev/drover/internal/api/attention"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/model/usage"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/platform/figures"
	"github.com/drover-dev/drover/task"
)

//go:embed assets
var assets embed.FS

// views are the templates of the page. Foreign text passes through excerpt, which makes every character visible, and
// html/template escapes it.
type views struct{ t *template.Template }

func newViews() (views, error) {
	t, err := template.New("").Funcs(template.FuncMap{"exact": excerpt.ExactLine, "prose": excerpt.Prose, "href": href,
		"odd": func(n int) bool { return n%2 == 1 }}).
		ParseFS(assets, "assets/*.html")
	return views{t}, err
}

// text executes a template. The text of a failed one says so.
func (v views) text(name string, data any) string {
	var b bytes.Buffer
	if err := v.t.ExecuteTemplate(&b, name, data); err != nil {
		return template.HTMLEscapeString(fmt.Sprintf("this cannot be shown: %v", err))
	}
	return b.String()
}

func (v views) session(i control.Info, problem string) string {
	return v.text("session", map[string]any{"Info": i, "ID": pieceID(i.Session, ""), "Problem": cmp.Or(problem, i.Problem),
		"Title": line(cmp.Or(i.Title, string(i.Session)), 80)})
}

func (v views) more(n int) string { return v.text("more", n) }

// row is a task in the tree.
type row struct {
	ID              string
	Record          task.Record
	Depth           int // 8 at most
	Name, State     string
	Class           string
	Doing, Kind     string
	Tokens, Cost    string
	Budget          string     // of the task and its subtree; empty: none
	Quiet           *time.Time // of the last sign of life; nil: recent
	Begun, Finished *time.Time
	Steps           *graph // of a workflow, on its page
}

func (v views) task(r task.Record, now time.Time) string { return v.text("task", rowOf(r, now)) }

func rowOf(r task.Record, now time.Time) row {
	o := row{ID: pieceID(r.Session, r.ID), Record: r, Depth: min(max(r.Depth, 1), 8),
		Kind: line(cmp.Or(r.Traits().Noun, string(r.Kind)), 40),
		Name: line(cmp.Or(r.Name, r.Description, r.Command, string(r.ID)), 80), Begun: r.StartTime, Finished: r.EndTime}
	o.State, o.Class = stateOf(r, now)
	if r.Status == task.Running {
		if r.Traits().Work != task.ByCommand && !r.AwaitingApproval {
			o.Doing = line(r.Activity(), 120)
		}
		if r.LastHeard != nil && now.Sub(*r.LastHeard) >= quietAfter && !r.Idle {
			o.Quiet = r.LastHeard
		}
	}
	if u := r.Used(); u != nil {
		if u.TotalTokens > 0 {
			o.Tokens = figures.Count(u.TotalTokens)
		}
		if u.CostUSD != nil {
			o.Cost = usage.Dollars(*u.CostUSD)
		}
	}
	o.Budget = budget(r.Budget)
	return o
}

// stateOf returns the state of a task in words, and the class of its colour.
func stateOf(r task.Record, now time.Time) (text, class string) {
	switch _, why, parked := r.ParkedUntil(now); {
	case r.Status.Terminal():
		return line(r.Outcome(), 160), string(r.Status)
	case r.HostStopped:
		return "host suspended", "waits"
	case r.Stopping:
		return "stopping", "waits"
	case r.AwaitingApproval:
		return "needs your answer", "asks"
	case r.Paused:
		return "paused", "waits"
	case parked:
		return line("waits for a limit: "+why, 120), "waits"
	case r.Status == task.Pending && r.On != "":
		return line("waits for worker "+r.On, 120), "waits"
	case r.Status == task.Pending:
		return "waits to start", "waits"
	case r.WaitsFor != "":
		return line("waits for "+r.WaitsFor, 120), "waits"
	case r.Idle:
		return "waits for a message", "idle"
	case r.Worker != "":
		return line("running at "+r.Worker, 120), "running"
	}
	return "running", "running"
}

// need is an item that needs the user.
type need struct {
	control.AttentionItem
	Element string
	Title   string
	Call    string // the whole call with every character visible
	Choices []task.ChoiceOption
	Typed   bool // a text answers it
	Form    bool // a JSON object answers it
}

func (v views) need(i control.AttentionItem) string {
	n := need{AttentionItem: i, Element: needID(i), Title: titles()[i.Kind]}
	if q := i.Request; q != nil {
		n.Title = line(q.Title(""), 100)
		n.Call = excerpt.Call(q.Input, q.Hidden)
		n.Typed, n.Form = q.Kind == task.Choice, q.Kind == task.Form
		n.Choices = choicesOf(*q)
	}
	return v.text("need", n)
}

// budget is the budget of a task and its subtree.
func budget(b task.Budget) string {
	var parts []string
	if b.USD > 0 {
		parts = append(parts, usage.Dollars(b.USD))
	}
	if b.Tokens > 0 {
		parts = append(parts, figures.Count(b.Tokens)+" tokens")
	}
	if b.WallMS > 0 {
		parts = append(parts, (time.Duration(b.WallMS) * time.Millisecond).String())
	}
	if b.OutputBytes > 0 {
		parts = append(parts, figures.Bytes(b.OutputBytes)+" of output")
	}
	return strings.Join(parts, ", ")
}

// titles are the titles of items by kind.
func titles() map[attention.Kind]string {
	return map[attention.Kind]string{attention.Blocked: "A session is blocked", attention.Question: "Question",
		attention.Plan: "Plan to approve", attention.Stalled: "Waits for input", attention.Parked: "Waits for a limit",
		attention.Failure: "Failed", attention.Made: "Files that other programs obey"}
}

func line(text string, limit int) string { return excerpt.Line(excerpt.Exact(text), limit) }

// shownPiece is a piece in a new page. Its HTML comes from a template.
type shownPiece struct {
	ID, Key string
	HTML    template.HTML
}

func shown(pieces []piece) []shownPiece {
	out := make([]shownPiece, len(pieces))
	for n, p := range pieces {
		out[n] = shownPiece{p.ID, p.Key, template.HTML(p.HTML)} //nolint:gosec // the template has escaped it
	}
	return out
}

// href is the path of a page of a session, or of one of its tasks.
func href(kind string, ids ...task.ID) string {
	path := "/" + kind
	for _, id := range ids {
		path += "/" + url.PathEscape(string(id))
	}
	return path
}

// head is the top of the page of a task.
func (v views) head(r task.Record, now time.Time) string {
	o := rowOf(r, now)
	o.Steps = stepsOf(r)
	return v.text("head", o)
}
