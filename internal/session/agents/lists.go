package agents

import (
	"fmt"
	"slices"

	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/session/environment"
	"github.com/drover-dev/drover/subagent"
)

// The lists of which agents are reminded.
const (
	taskList  = "tasks"
	agentList = "agents"
	skillList = "skills"

	planList    = "plan mode"
	planEndList = "end of plan mode"
)

// reminders makes the reminders of an agent that has the named tools.
func (s *Set) reminders(me Caller, critical string, has func(tool string) bool) *environment.Reminders {
	r := environment.NewReminders(critical, func() []string { return s.edits.Take(me.ID) })
	if has("TaskOutput") {
		r.Add(environment.List{Name: taskList, Head: "Background tasks:", Volatile: true,
			Foot:  "\n\nTaskOutput reads the result of a task, TaskStop ends one.",
			Items: func() []environment.Item { return environment.TaskItems(s.Background(me.ID, me.Depth == 0)) }})
	}
	if has("Skill") {
		r.Add(
			environment.List{Name: skillList, Files: true, Head: "Skills that the Skill tool can load:", Items: s.skillItems},
		)
	}
	if has("Agent") {
		r.Add(environment.List{
			Name:  agentList,
			Files: true,
			Head:  "Kinds of agents that the Agent tool can start (subagent_type):",
			Items: func() []environment.Item { return s.agentItems(me) },
		})
	}
	return r
}

func (s *Set) agentItems(me Caller) []environment.Item {
	var items []environment.Item
	for _, d := range s.cfg.Catalog().All() {
		if d.NoModel || me.Spawns != nil && !slices.Contains(me.Spawns, subagent.Normalize(d.Name)) {
			continue
		}
		items = append(items, environment.Item{
			Key:  d.Name,
			Line: fmt.Sprintf("- %s: %s", excerpt.Line(d.Name, 80), excerpt.Line(d.Description, environment.AboutChars)),
		})
	}
	return items
}

func (s *Set) skillItems() []environment.Item {
	var items []environment.Item
	for _, k := range s.cfg.Skills().All() {
		items = append(items, environment.Item{
			Key:  k.Name,
			Line: fmt.Sprintf("- %s: %s", k.Name, excerpt.Line(k.Description, environment.AboutChars)),
		})
	}
	return items
}
