package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/drover-dev/drover/task"
)

// Pill is what runs in the background, in a few words; empty: nothing. Tasks of one
// kind are counted by its name, kinds that are counted apart each by its own, and any
// other mixture together.
func Pill(records []task.Record) string {
	var kinds []pillCount
	all, apart := 0, true
	for _, r := range records {
		if !r.Background() || r.AgentType == task.MainSession {
			continue
		}
		i := slices.IndexFunc(kinds, func(c pillCount) bool { return c.kind == r.Kind })
		if i < 0 {
			i = len(kinds)
			kinds = append(kinds, pillCount{kind: r.Kind, pill: r.Traits().Pill, teams: map[string]bool{}})
		}
		c := &kinds[i]
		c.tasks++
		if r.Team != nil {
			c.teams[r.Team.Team] = true
		}
		all++
		apart = apart && c.pill.Separate
	}
	if len(kinds) > 1 && !apart {
		return several(all, "background task")
	}
	order := task.Kinds()
	slices.SortStableFunc(kinds, func(a, b pillCount) int {
		return slices.Index(order, a.kind) - slices.Index(order, b.kind)
	})
	parts := make([]string, len(kinds))
	for i, c := range kinds {
		parts[i] = c.String()
	}
	return strings.Join(parts, ", ")
}

// pillCount is the tasks of one kind.
type pillCount struct {
	kind  task.Kind
	pill  task.Pill
	tasks int
	teams map[string]bool
}

func (c pillCount) String() string {
	n := c.tasks
	switch {
	case c.pill.Label != "":
		return c.pill.Label
	case c.pill.Teams:
		n = max(1, len(c.teams))
	}
	return c.pill.Mark + several(n, cmp.Or(c.pill.Noun, "background task"))
}

// awaySessions counts the tasks whose work is done by a remote service, or is empty
// if there are none.
func awaySessions(tasks []task.Record) string {
	c := pillCount{}
	for _, r := range tasks {
		if t := r.Traits(); t.Elsewhere == task.AlwaysAway && !r.Status.Terminal() {
			c.pill = t.Pill
			c.tasks++
		}
	}
	if c.tasks == 0 {
		return ""
	}
	return c.String()
}

func several(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
