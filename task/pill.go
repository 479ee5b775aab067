package task

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// PillLabel sums up the background work in a few words; empty: nothing runs. Tasks of one
// kind are counted under its name, separate kinds each under its own, and any
// other mixture together. A single remote plan shows its phase.
func PillLabel(records []Record) string {
	if phase, waits := onlyPlan(records); waits && phase == planReady {
		return "◆ ultraplan ready"
	} else if waits {
		return "◇ ultraplan needs your input"
	}
	var kinds []pillCount
	all, apart := 0, true
	for _, r := range records {
		if !r.Background() || r.IsConversation() {
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
	order := Kinds()
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
	kind  Kind
	pill  Pill
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

// The phases in which a remote plan waits for the user.
const (
	planType       = "ultraplan"
	planNeedsInput = "needs_input"
	planReady      = "plan_ready"
)

// PillNeedsView reports whether the label asks the user to look: a remote plan that is
// the only background task waits for them.
func PillNeedsView(records []Record) bool {
	_, waits := onlyPlan(records)
	return waits
}

// onlyPlan is the phase of the only background task, if it is a remote plan that waits.
func onlyPlan(records []Record) (phase string, waits bool) {
	n := 0
	for _, r := range records {
		if !r.Background() || r.IsConversation() {
			continue
		}
		n++
		phase = ""
		if p := r.Progress; p != nil && p.Remote != nil && p.Remote.Type == planType {
			phase = p.Phase
		}
	}
	return phase, n == 1 && (phase == planNeedsInput || phase == planReady)
}

// CloudSessions counts the live sessions at remote services in words, or is empty without any.
func CloudSessions(tasks []Record) string {
	c := pillCount{}
	for _, r := range tasks {
		if t := r.Traits(); t.Elsewhere == AlwaysAway && !r.Status.Terminal() {
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
