package cli

import (
	"bytes"
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

// paint colors the names of teammates in a table whose rows, behind the head, are
// those of the records: after the columns were laid out, which would count what
// cannot be seen.
func paint(text []byte, records []task.Record) []byte {
	lines := bytes.SplitAfter(text, []byte("\n"))
	for i, r := range records {
		code := colorCode(r)
		if name := cell(r.Name, nameChars); code != "" && i+1 < len(lines) {
			lines[i+1] = bytes.Replace(lines[i+1], []byte(name), []byte("\x1b["+code+"m"+name+"\x1b[0m"), 1)
		}
	}
	return bytes.Join(lines, nil)
}

// colorCode is how a terminal is told the color of a teammate; empty: it has none.
func colorCode(r task.Record) string {
	if r.Team == nil {
		return ""
	}
	return map[string]string{"red": "31", "green": "32", "yellow": "33", "blue": "34", "magenta": "35", "cyan": "36"}[r.Team.Color]
}
