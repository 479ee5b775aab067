package agents

import (
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"time"

	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/subagent"
)

// systemPrompt appends facts about the agent's place and the project's instructions to the
// agent's own instructions. Its bytes are the same during the whole session, so that it stays a
// cacheable prefix.
func (s *Set) systemPrompt(def subagent.Definition, me Caller) string {
	git, system := "no", goruntime.GOOS
	if _, err := os.Stat(filepath.Join(me.Cwd, ".git")); err == nil || me.workspace != nil && me.workspace.Git {
		git = "yes"
	}
	if me.workspace != nil {
		system = me.workspace.System
	}
	text := strings.TrimSpace(def.Prompt) + "\n\n" + excerpt.Element("environment", fmt.Sprintf(
		"Working folder: %s\nGit repository: %s\nSystem: %s\nDate: %s",
		excerpt.ExactLine(me.Cwd), git, excerpt.Line(system, 60), s.Info.StartTime.Format(time.DateOnly)))
	text += me.teammate.brief(s.leader(me))
	if notes := s.cfg.Notes; notes != "" && !def.OmitNotes {
		text += "\n\n" + notes
	}
	return text
}
