package session

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"time"

	"github.com/drover-dev/drover/subagent"
)

//go:embed main.md
var mainPrompt string

// systemPrompt puts what an agent must know of its place, and what the project
// has written down for agents, behind its instructions. It has the same bytes
// over the whole session: what comes before the conversation must stay
// a cacheable prefix.
func systemPrompt(def subagent.Definition, me caller, notes string, started time.Time) string {
	git := "no"
	if _, err := os.Stat(filepath.Join(me.cwd, ".git")); err == nil {
		git = "yes"
	}
	text := fmt.Sprintf(
		"%s\n\n<environment>\nWorking folder: %s\nGit repository: %s\nSystem: %s\nDate: %s\n</environment>",
		strings.TrimSpace(def.Prompt),
		me.cwd,
		git,
		goruntime.GOOS,
		started.Format(time.DateOnly),
	)
	text += me.mate.brief(me.leader())
	if notes != "" && !def.OmitNotes {
		text += "\n\n" + notes
	}
	return text
}
