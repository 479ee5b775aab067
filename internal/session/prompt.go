package session

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"time"
)

//go:embed main.md
var mainPrompt string

// systemPrompt puts what an agent must know of its place behind its
// instructions. It has the same bytes over the whole session: what comes before
// the conversation must stay a cacheable prefix.
func systemPrompt(prompt string, me self, started time.Time) string {
	git := "no"
	if _, err := os.Stat(filepath.Join(me.cwd, ".git")); err == nil {
		git = "yes"
	}
	return fmt.Sprintf("%s\n\n<environment>\nWorking folder: %s\nGit repository: %s\nSystem: %s\nDate: %s\n</environment>",
		strings.TrimSpace(prompt), me.cwd, git, goruntime.GOOS, started.Format(time.DateOnly))
}
