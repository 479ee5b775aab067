package watch

import (
	"cmp"
	"slices"
	"strings"

	"github.com/drover-dev/drover/internal/frontend/cli/console"
	"github.com/drover-dev/drover/internal/model/modelinfo"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/task"
)

func (a *app) taskRows(records []task.Record, depth []int, session bool) [][]string {
	now := a.Now()
	rows := [][]string{{"ID", "NAME", "KIND", "STATUS", "AGE", "TIME", "TOKENS", "EXIT", "COMMAND"}}
	for i, r := range records {
		rows = append(rows, []string{
			strings.Repeat("  ", depth[i]) + console.Cell(string(r.ID), 40), console.Cell(r.Name, console.NameChars),
			console.Cell(r.Word(), 30),
			console.Status(now, r),
			console.Ago(now, r.CreateTime), console.Span(r.Duration(now)), console.Tokens(r), console.Exit(r), doing(r),
		})
	}
	if slices.ContainsFunc(records, func(r task.Record) bool { return r.Why() != "" }) {
		at := len(rows[0]) - 1
		rows[0] = slices.Insert(rows[0], at, "REASON")
		for i, r := range records {
			rows[i+1] = slices.Insert(rows[i+1], at, console.Cell(r.Why(), 60))
		}
	}
	if slices.ContainsFunc(records, func(r task.Record) bool { return r.Model != "" }) {
		rows[0] = slices.Insert(rows[0], modelColumn, "MODEL")
		for i, r := range records {
			rows[i+1] = slices.Insert(rows[i+1], modelColumn, console.Cell(modelinfo.Title(r.Model), 26))
		}
	}
	if session {
		rows[0] = slices.Insert(rows[0], 1, "SESSION")
		for i, r := range records {
			rows[i+1] = slices.Insert(rows[i+1], 1, console.Cell(string(r.Session), 40))
		}
	}
	return rows
}

// family puts children after their parents and returns the depth of each. A task
// whose parent is not listed is at the top.
func family(records []task.Record) ([]task.Record, []int) {
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

// ofTasks colours a table of tasks: their states, and the names of teammates.
func ofTasks(rows [][]string, records []task.Record) console.Paint {
	states, names := console.ByState(rows, "STATUS"), slices.Index(rows[0], "NAME")
	return func(row, col int) string {
		if row > 0 && col == names {
			return colorCode(records[row-1])
		}
		return states(row, col)
	}
}

// colorCode is the code of a teammate's color; empty: it has none.
func colorCode(r task.Record) string {
	if r.Team == nil {
		return ""
	}
	return map[string]string{"red": "31", "green": "32", "yellow": "33", "blue": "34", "magenta": "35",
		"cyan": "36"}[r.Team.Color]
}

// modelColumn is the place of the column MODEL, which a table has if a task has a model.
const modelColumn = 6

// doing is the work of a task. For a running agent it ends with its present activity: the summary
// of the agent, or else its own message.
func doing(r task.Record) string {
	if r.Team != nil && r.Status == task.Running {
		return mateDoing(r)
	}
	if p := r.Progress; p != nil && r.Status == task.Running && r.Traits().Work != task.ByCommand && !r.Idle {
		if now := excerpt.Line(cmp.Or(p.Summary, p.Message), 50); now != "" {
			return console.Cell(console.Work(r), 30) + ": " + now
		}
	}
	return console.Cell(console.Work(r), 60)
}

// mateDoing is the work of a live teammate with its present activity.
func mateDoing(r task.Record) string {
	return console.Cell(console.Work(r), 30) + ": " + icon(r) + " " + excerpt.Line(r.Activity(), 50)
}

// icon shows whether a teammate rests or works.
func icon(r task.Record) string {
	if r.Idle {
		return "…"
	}
	return "▶"
}
