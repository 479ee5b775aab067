package search

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/bmatcuk/doublestar/v4"
	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/tool/confine"
	"github.com/drover-dev/drover/internal/tool/toolkit"
)

type globInput struct {
	Pattern string `json:"pattern" input:"filled"`
	Path    string `json:"path,omitempty"`
}

// GlobResult is the structured result of Glob.
type GlobResult struct {
	Filenames []string `json:"filenames"` // absolute
	NumFiles  int      `json:"numFiles"`
	Truncated bool     `json:"truncated"`
}

func (f finder) glob(ctx context.Context, _ agent.Call, in globInput) (agent.Output, error) {
	if !doublestar.ValidatePattern(in.Pattern) {
		return agent.Output{}, toolkit.Refusef(`field "pattern" is not a glob: a bracket or brace is not closed`)
	}
	// The part without wildcards is a folder: so a pattern may be absolute, and
	// a narrow one does not look at the whole tree.
	base, pattern := doublestar.SplitPattern(in.Pattern)
	if !filepath.IsAbs(base) {
		base = filepath.Join(cmp.Or(in.Path, "."), base)
	}
	place, err := f.area.Find("Glob", base)
	if err != nil {
		return refuse(ctx, base, err)
	}
	names, err := list(ctx, place)
	if err != nil || ctx.Err() != nil {
		return refuse(ctx, base, cmp.Or(err, ctx.Err()))
	}
	found, err := newest(place, names, pattern)
	if err != nil {
		return refuse(ctx, base, err)
	}
	all := len(found)
	found = slices.DeleteFunc(found, func(d dated) bool { return !f.area.Reads(d.path) })
	out := f.globbed(found, len(names) >= maxListed)
	if len(found) < all {
		out.Text += leftOut
	}
	return out, nil
}

type dated struct {
	path string
	at   time.Time
}

// newest returns the files whose name matches, the newest first.
func newest(p confine.Place, names []string, pattern string) ([]dated, error) {
	root, err := p.Open()
	if err != nil {
		return nil, missing(err)
	}
	defer func() { _ = root.Close() }()
	var found []dated
	for _, name := range names {
		if !doublestar.MatchUnvalidated(pattern, name) {
			continue
		}
		// A file that git knows may be gone, or be a folder of a submodule.
		if info, err := root.Lstat(under(p, name)); err == nil && !info.IsDir() {
			found = append(found, dated{filepath.Join(p.Path(), name), info.ModTime()})
		}
	}
	slices.SortFunc(found, func(a, b dated) int {
		return cmp.Or(b.at.Compare(a.at), strings.Compare(a.path, b.path))
	})
	return found, nil
}

func (f finder) globbed(found []dated, partial bool) agent.Output {
	res := GlobResult{Filenames: []string{}, NumFiles: len(found), Truncated: partial || len(found) > MaxFiles}
	var b strings.Builder
	for _, d := range found[:min(len(found), MaxFiles)] {
		res.Filenames = append(res.Filenames, d.path)
		b.WriteString(f.short(d.path) + "\n")
	}
	switch {
	case len(found) == 0:
		b.WriteString("No files match. Files that git ignores are not looked at.\n")
	case len(found) > MaxFiles:
		fmt.Fprintf(&b, "(the newest %d of %d files; use a narrower pattern)\n", MaxFiles, len(found))
	}
	if partial {
		fmt.Fprintf(&b, "(only the first %d files were looked at; give a path)\n", maxListed)
	}
	return agent.Output{Text: b.String(), Structured: res}
}
