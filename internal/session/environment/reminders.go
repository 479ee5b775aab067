package environment

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/task"
)

// AboutChars is the length of a description in a list for a model.
const AboutChars = 240

// Reminders are texts that an agent reads in addition to its conversation: lists, of which it reads
// new items. They are appended to the conversation, so that a growing list does not invalidate
// the cached prefix of a request.
type Reminders struct {
	lists    []List
	critical string
	news     func() []string

	mu    sync.Mutex
	known map[string]bool // guarded by mu: keys of items, after the name of their list
}

// List is a list that may grow.
type List struct {
	Name     string
	Head     string
	Foot     string
	Volatile bool // a compaction restores it by other means
	Files    bool // it is read from files, and only when a turn begins
	Items    func() []Item
}

// Item is a line of a list. The agent reads each key once.
type Item struct{ Key, Line string }

// NewReminders returns the reminders of an agent. critical is repeated at the start of every
// turn, and news returns texts that are read once.
func NewReminders(critical string, news func() []string, lists ...List) *Reminders {
	return &Reminders{critical: critical, news: news, lists: lists, known: map[string]bool{}}
}

// Add adds a list, before the first turn.
func (r *Reminders) Add(l List) { r.lists = append(r.lists, l) }

// GoOn takes over what an agent has read that had the conversation before, by its reminders.
func (r *Reminders) GoOn(from *Reminders) {
	from.mu.Lock()
	known := maps.Clone(from.known)
	from.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known = known
}

var _ agent.Reminders = (*Reminders)(nil)

// Due implements [agent.Reminders].
func (r *Reminders) Due(_ context.Context, start bool) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var texts []string
	for _, l := range r.lists {
		if l.Files && !start {
			continue
		}
		var lines []string
		for _, it := range l.Items() {
			if key := l.Name + " " + it.Key; !r.known[key] {
				r.known[key] = true
				lines = append(lines, it.Line)
			}
		}
		if len(lines) > 0 {
			texts = append(texts, Reminder(l.Head+"\n"+strings.Join(lines, "\n")+l.Foot))
		}
	}
	for _, text := range r.news() {
		texts = append(texts, Reminder(text))
	}
	if start && r.critical != "" {
		texts = append(texts, Reminder(r.critical))
	}
	return texts
}

// Forgotten implements [agent.Reminders]. Present items of a volatile list stay known; the keys of
// removed items would be kept forever.
func (r *Reminders) Forgotten() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.lists {
		stays := map[string]bool{}
		if l.Volatile {
			for _, it := range l.Items() {
				stays[l.Name+" "+it.Key] = true
			}
		}
		for key := range r.known {
			if strings.HasPrefix(key, l.Name+" ") && !stays[key] {
				delete(r.known, key)
			}
		}
	}
}

// Know records that the agent has learned of an item by other means, such as the result of the
// call that created it.
func (r *Reminders) Know(list, key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known[list+" "+key] = true
}

// Reminder marks a text that does not come from the user. Parts of it may come from anywhere.
func Reminder(text string) string { return excerpt.Element("system-reminder", text) }

// TaskItems returns the lines of tasks.
func TaskItems(live []task.Record) []Item {
	items := make([]Item, len(live))
	for i, r := range live {
		items[i] = Item{
			string(r.ID),
			fmt.Sprintf("- [%s] %s (%s): %s", r.ID, r.Kind, r.Status, excerpt.Line(r.Description, AboutChars)),
		}
	}
	return items
}

// RunningTasks returns the running tasks for the text after a compaction.
// told ends the sentence that promises to tell of their ends.
func RunningTasks(live []task.Record, told string) string {
	if len(live) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("## Running Background Tasks\n")
	for _, r := range live {
		fmt.Fprintf(&b, "- %s: %s (%s)\n", r.ID, excerpt.Line(r.Description, AboutChars), r.Kind)
	}
	b.WriteString("\nTaskOutput reads what they have printed or answered. You will be told when one ends" + told + ".")
	return excerpt.Inert(b.String())
}
