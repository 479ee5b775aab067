package session

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
)

// aboutChars is how much of a description goes into a list for a model.
const aboutChars = 240

// reminders are what one agent is told beside its conversation: lists of what
// there is, of which it is told what is new. The texts go behind what was said
// before, so that a list that grows leaves the cached part of a request alone.
type reminders struct {
	lists    []list
	critical string          // said again at the start of every turn
	news     func() []string // said once

	mu   sync.Mutex
	told map[string]bool // keys of items, behind the name of their list
}

// list is something that may grow.
type list struct {
	name     string
	head     string
	foot     string
	volatile bool // what a compaction puts back by other means
	files    bool // of files, which are looked at only when a turn begins
	items    func() []item
}

type item struct{ key, line string }

var _ agent.Reminders = (*reminders)(nil)

// Due implements [agent.Reminders].
func (r *reminders) Due(_ context.Context, start bool) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var texts []string
	for _, l := range r.lists {
		if l.files && !start {
			continue
		}
		var lines []string
		for _, it := range l.items() {
			if key := l.name + " " + it.key; !r.told[key] {
				r.told[key] = true
				lines = append(lines, it.line)
			}
		}
		if len(lines) > 0 {
			texts = append(texts, reminder(l.head+"\n"+strings.Join(lines, "\n")+l.foot))
		}
	}
	for _, text := range r.news() {
		texts = append(texts, reminder(text))
	}
	if start && r.critical != "" {
		texts = append(texts, reminder(r.critical))
	}
	return texts
}

// Forgotten implements [agent.Reminders]. Of a volatile list what is there stays told; what has
// gone meanwhile would be kept for ever.
func (r *reminders) Forgotten() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.lists {
		stays := map[string]bool{}
		if l.volatile {
			for _, it := range l.items() {
				stays[l.name+" "+it.key] = true
			}
		}
		for key := range r.told {
			if strings.HasPrefix(key, l.name+" ") && !stays[key] {
				delete(r.told, key)
			}
		}
	}
}

// know says that the agent has learned of an item by other means, such as the
// result of the call that made it.
func (r *reminders) know(list, key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.told[list+" "+key] = true
}

func reminder(text string) string {
	return "<system-reminder>\n" + text + "\n</system-reminder>"
}

// The lists.
const (
	taskList  = "tasks"
	agentList = "agents"
	skillList = "skills"
)

// reminders makes those of an agent that has tools by these names.
func (s *Session) reminders(me self, critical string, has func(tool string) bool) *reminders {
	r := &reminders{told: map[string]bool{}, critical: critical, news: func() []string { return s.edits.take(me.id) }}
	if has("TaskOutput") {
		r.lists = append(r.lists, list{name: taskList, head: "Background tasks:", volatile: true,
			foot:  "\n\nTaskOutput reads the result of a task, TaskStop ends one.",
			items: func() []item { return taskItems(s.backgroundOf(me)) }})
	}
	if has("Skill") {
		r.lists = append(r.lists, list{name: skillList, files: true, head: "Skills that the Skill tool can load:", items: s.skillItems})
	}
	if has("Agent") {
		r.lists = append(r.lists, list{name: agentList, files: true, head: "Kinds of agents that the Agent tool can start (subagent_type):", items: func() []item { return s.agentItems(me) }})
	}
	return r
}

// backgroundOf is what runs or waits in the background for an agent, oldest
// first.
func (s *Session) backgroundOf(me self) []task.Record {
	var live []task.Record
	for _, r := range s.sup.List(0) {
		mine := r.Owner == me.id || r.Owner == "" && me.depth == 0
		if mine && r.Background() && r.ID != s.cfg.Info.Session {
			live = append(live, r)
		}
	}
	for i, j := 0, len(live)-1; i < j; i, j = i+1, j-1 {
		live[i], live[j] = live[j], live[i]
	}
	return live
}

func taskItems(live []task.Record) []item {
	items := make([]item, len(live))
	for i, r := range live {
		items[i] = item{string(r.ID), fmt.Sprintf("- [%s] %s (%s): %s", r.ID, r.Kind, r.Status, excerpt.Line(r.Description, aboutChars))}
	}
	return items
}

func (s *Session) agentItems(me self) []item {
	var items []item
	for _, d := range me.catalog().All() {
		if d.NoModel || me.spawns != nil && !slices.Contains(me.spawns, subagent.Normalize(d.Name)) {
			continue
		}
		items = append(items, item{d.Name, fmt.Sprintf("- %s: %s", excerpt.Line(d.Name, 80), excerpt.Line(d.Description, aboutChars))})
	}
	return items
}

func (s *Session) skillItems() []item {
	var items []item
	for _, k := range s.cfg.Agents.Skills().All() {
		items = append(items, item{k.Name, fmt.Sprintf("- %s: %s", k.Name, excerpt.Line(k.Description, aboutChars))})
	}
	return items
}

// runningTasks is what a compaction puts back of the tasks that run.
func runningTasks(live []task.Record) string {
	if len(live) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("## Running Background Tasks\n")
	for _, r := range live {
		fmt.Fprintf(&b, "- %s: %s (%s)\n", r.ID, excerpt.Line(r.Description, aboutChars), r.Kind)
	}
	b.WriteString("\nTaskOutput reads what they have printed or answered. You are told when they end.")
	return b.String()
}
