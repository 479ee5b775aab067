package assemble

import (
	"strings"

	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/project/memory"
	"github.com/drover-dev/drover/internal/session/agents"
)

// remember gives agents the memory of the project: it is read once, so that
// the text before the conversation has the same bytes over the whole session.
func remember(a *agents.Config, c Config, project home.Project, tell func(string, ...any)) {
	set := c.Settings.Memory
	if !set.On() {
		return
	}
	store := memory.At(project.Memory())
	text, notes := store.Brief()
	for _, n := range notes {
		tell("%s", n)
	}
	if text != "" {
		a.Notes = strings.TrimSpace(a.Notes + "\n\n" + text)
	}
	if dir := store.Dir(); !strings.ContainsAny(dir, `\*?[]{}(),`) { // else agents are asked about it
		a.Rules.Allow = append(a.Rules.Allow, "Read("+dir+"/**)")
	}
	a.Memory = store
}
