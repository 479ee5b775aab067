package todotools

import (
	"fmt"
	"strings"

	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/project/todo"
)

// maxListed is how many to-dos a model is shown at once.
const maxListed = 500

// page leaves out to-dos beyond the limit: first the oldest completed ones, then
// the newest. It returns the number of hidden ones.
func page(items []todo.Item) (shown []todo.Item, hidden int) {
	hidden = max(0, len(items)-maxListed)
	skip := hidden
	for _, it := range items {
		if skip > 0 && it.Status == todo.Completed {
			skip--
			continue
		}
		shown = append(shown, it)
	}
	return shown[:len(shown)-skip], hidden
}

func line(it todo.Item, waits []todo.ID) string {
	text := fmt.Sprintf("%s [%s] %s", it.ID, it.Status, excerpt.Line(it.Subject, todo.MaxLine))
	if it.Owner != "" {
		text += " (" + excerpt.Line(it.Owner, 80) + ")"
	}
	if len(waits) > 0 {
		text += " [waits for " + numbers(waits) + "]"
	}
	return text
}

func whole(l todo.List, it todo.Item, blocks []todo.ID) string {
	text := line(it, l.Waits(it))
	for _, f := range []struct {
		name string
		ids  []todo.ID
	}{{"Blocked by", it.BlockedBy}, {"Blocks", blocks}} {
		if len(f.ids) > 0 {
			text += "\n" + f.name + ": " + numbers(f.ids)
		}
	}
	if it.Description != "" {
		text += "\n\n" + excerpt.Plain(it.Description)
	}
	return text
}

// numbers names to-dos, but not hundreds of them.
func numbers(ids []todo.ID) string {
	const most = 20
	var names []string
	for _, id := range ids[:min(len(ids), most)] {
		names = append(names, id.String())
	}
	text := strings.Join(names, ", ")
	if len(ids) > most {
		text += fmt.Sprintf(" and %d more", len(ids)-most)
	}
	return text
}

// problems names what cannot be read, so that nothing is missed in silence.
func problems(l todo.List) string {
	const most = 10
	var b strings.Builder
	for _, p := range l.Problems[:min(len(l.Problems), most)] {
		b.WriteString("\nNote: " + excerpt.Line(p.String(), 500))
	}
	if n := len(l.Problems) - most; n > 0 {
		fmt.Fprintf(&b, "\nNote: %d more such problems", n)
	}
	return b.String()
}
