package cli

import (
	"slices"
	"strings"

	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/task"
)

// icon stands for what a teammate is about: it rests, or it is at work.
func icon(r task.Record) string {
	if r.Idle {
		return "…"
	}
	return "▶"
}

// mateDoing is the work of a live teammate with what it is about.
func mateDoing(r task.Record) string {
	return cell(work(r), 30) + ": " + icon(r) + " " + excerpt.Line(r.Activity(), 50)
}

// colored reports whether stdout shows colors, and the user wants them.
func (a *app) colored() bool {
	return a.IsTerminal(a.Stdout) && !slices.ContainsFunc(a.Env, func(kv string) bool {
		value, ok := strings.CutPrefix(kv, "NO_COLOR=")
		return ok && value != "" || kv == "TERM=dumb"
	})
}

// ofTasks colours a table of tasks: their states, and the names of teammates.
func ofTasks(rows [][]string, records []task.Record) paint {
	states, names := byState(rows, "STATUS"), slices.Index(rows[0], "NAME")
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
