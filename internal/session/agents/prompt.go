package agents

import (
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"time"

	"github.com/drover-dev/drover/subagent"
)

// systemPrompt puts what an agent must know of its place, and what the project
// has written down for agents, behind its instructions. It has the same bytes
// over the whole session: what comes before the conversation must stay
// a cacheable prefix.
func (s *Set) systemPrompt(def subagent.Definition, me Caller) string {
	git := "no"
	if _, err := os.Stat(filepath.Join(me.Cwd, ".git")); err == nil {
		git = "yes"
	}
	text := fmt.Sprintf(
		"%s\n\n<environment>\nWorking folder: %s\nGit repository: %s\nSystem: %s\nDate: %s\n</environment>",
		strings.TrimSpace(def.Prompt),
		me.Cwd,
		git,
		goruntime.GOOS,
		s.cfg.Started.Format(time.DateOnly),
	)
	text += me.teammate.brief(s.leader(me))
	if notes := s.cfg.Notes; notes != "" && !def.OmitNotes {
		text += "\n\n" + notes
	}
	return text
}
