package search

import (
	"context"
	_ "embed"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/tool/confine"
	"github.com/drover-dev/drover/internal/tool/toolkit"
)

// Bounds of an answer.
const (
	MaxFiles     = 1000     // of Glob
	DefaultLines = 250      // of Grep
	maxLine      = 500      // code points of a line that are shown
	maxText      = 96 << 10 // bytes
	maxFile      = 10 << 20 // bytes of a file that is searched
	maxListed    = 200_000  // files that are looked at
)

// Config says which files may be searched. Root is required.
type Config struct {
	Root      string   // absolute; where relative paths begin
	Dirs      []string // absolute; further folders
	NoRipgrep bool     // do not use rg, even if it is on the PATH

	// Outside reports whether a tool of this name may search a place outside of the folders, given
	// by its absolute path without symbolic links. It may be called by several goroutines. nil:
	// none may.
	Outside func(tool, real string) bool

	// MayRead is asked for every file that was found, with its absolute path;
	// files that may not be read are left out. It may be called by several
	// goroutines. nil: all.
	MayRead func(path string) bool
}

// New makes the tools Glob and Grep, in this order. They keep no state.
func New(c Config) []agent.Tool {
	f := finder{
		area:      confine.Area{Root: c.Root, Dirs: c.Dirs},
		noRipgrep: c.NoRipgrep, may: c.MayRead, outside: c.Outside,
	}
	f.root, _ = filepath.EvalSymlinks(c.Root) // a root that is gone shortens no path
	return []agent.Tool{
		toolkit.New(toolkit.Tool[globInput]{
			Name: "Glob", Description: fmt.Sprintf(globPrompt, MaxFiles), Aliases: []string{"glob"},
			Parallel: true, ReadOnly: true, Call: f.glob,
		}),
		toolkit.New(toolkit.Tool[grepInput]{
			Name: "Grep", Description: fmt.Sprintf(grepPrompt, DefaultLines), Aliases: []string{"grep"},
			Parallel: true, ReadOnly: true, Call: f.grep,
		}),
	}
}

//go:embed glob.md
var globPrompt string

//go:embed grep.md
var grepPrompt string

// finder is what both tools need.
type finder struct {
	area      confine.Area
	root      string // without symbolic links
	noRipgrep bool
	may       func(path string) bool       // nil: all may be read
	outside   func(tool, real string) bool // nil: nothing outside may be searched
}

// find is where a tool of this name is to search.
func (f finder) find(tool, path string) (confine.Place, error) {
	area := f.area
	if f.outside != nil {
		area.Outside = func(real string) bool { return f.outside(tool, real) }
	}
	return area.Find(path)
}

// leftOut ends an answer that lacks files, lest they be taken for not existing.
const leftOut = "(some files were left out: a permission rule denies reading them)\n"

func (f finder) mayRead(path string) bool { return f.may == nil || f.may(path) }

// short is how a path is shown: relative to the root if it is in it, and in one
// line.
func (f finder) short(path string) string {
	if rel, err := filepath.Rel(f.root, path); err == nil && filepath.IsLocal(rel) {
		path = rel
	}
	return strings.ReplaceAll(excerpt.Visible(path), "\n", "<U+000A>")
}

// refuse tells the model what was wrong, and where.
func refuse(ctx context.Context, path string, err error) (agent.Output, error) {
	return agent.Output{}, toolkit.RefuseIn(ctx, confine.About(path, err))
}
