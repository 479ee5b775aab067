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

// New makes the tools Glob and Grep, in this order. They keep no state, and leave out files
// that may not be read.
func New(a confine.Area) []agent.Tool { return newTools(a, "rg") }

// newTools is New with the name of the program that searches; empty: none does.
func newTools(a confine.Area, rg string) []agent.Tool {
	f := finder{area: a, rg: rg}
	f.root, _ = filepath.EvalSymlinks(a.Root) // a root that is gone shortens no path
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
	area confine.Area
	root string // without symbolic links
	rg   string // see newTools
}

// leftOut ends an answer that lacks files, lest they be taken for not existing.
const leftOut = "(some files were left out: a permission rule denies reading them)\n"

// short is how a path is shown: relative to the root if it is in it, and in one
// line.
func (f finder) short(path string) string {
	if rel, err := filepath.Rel(f.root, path); err == nil && filepath.IsLocal(rel) {
		path = rel
	}
	return strings.ReplaceAll(excerpt.Visible(path), "\n", "<U+000A>")
}

// refuse returns the error about a path as a refusal for the model.
func refuse(ctx context.Context, path string, err error) (agent.Output, error) {
	return agent.Output{}, toolkit.RefuseIn(ctx, confine.About(path, err))
}
