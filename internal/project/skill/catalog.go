package skill

import (
	"fmt"
	"slices"
	"strings"

	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/project/definitions"
)

// Bounds of the texts for a model.
const (
	maxDescription = 250      // code points of a description in the list
	maxList        = 24 << 10 // bytes of the list
)

// Catalog is the skills that were found. It never changes.
type Catalog struct {
	skills []Skill // by name
	hidden []Skill // others of the same names, in the order of their places
	notes  []definitions.Note
}

// All returns the skills in the order of their names.
func (c Catalog) All() []Skill { return slices.Clone(c.skills) }

// Hidden returns the skills whose names others have.
func (c Catalog) Hidden() []Skill { return slices.Clone(c.hidden) }

// Warnings returns the faults of files, including files that were not loaded.
func (c Catalog) Warnings() []definitions.Note { return slices.Clone(c.notes) }

// Only is the catalog with the named skills and no others, and the names that no skill has.
func (c Catalog) Only(names []string) (some Catalog, unknown []string) {
	for _, name := range names {
		s, ok := c.Find(name)
		if !ok {
			unknown = append(unknown, name)
		} else if _, twice := some.Find(name); !twice {
			some.skills = append(some.skills, s)
		}
	}
	slices.SortFunc(some.skills, func(a, b Skill) int { return strings.Compare(a.Name, b.Name) })
	return some, unknown
}

// Names are the names of all skills, in order.
func (c Catalog) Names() []string {
	out := make([]string, len(c.skills))
	for i, s := range c.skills {
		out[i] = s.Name
	}
	return out
}

// Find returns a skill by its name, however that is written.
func (c Catalog) Find(name string) (Skill, bool) {
	name = Normalize(name)
	i := slices.IndexFunc(c.skills, func(s Skill) bool { return s.Name == name })
	if i < 0 || name == "" {
		return Skill{}, false
	}
	return c.skills[i], true
}

// Reminder returns the list of skills for a model: one line each, in the order of
// their names. It is empty without skills.
func (c Catalog) Reminder() string {
	if len(c.skills) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("These skills can be used with the Skill tool. Use one when its description fits the task.\n")
	for i, s := range c.skills {
		line := fmt.Sprintf("- %s: %s\n", s.Name, escape(excerpt.Line(s.Description, maxDescription)))
		if b.Len()+len(line) > maxList {
			fmt.Fprintf(&b, "(and %d more: %s)\n", len(c.skills)-i, excerpt.Line(strings.Join(c.Names()[i:], ", "), 4000))
			break
		}
		b.WriteString(line)
	}
	return b.String()
}

// escape keeps text from ending the element that it is put into.
func escape(text string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(text)
}
