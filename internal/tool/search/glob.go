package search

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/bmatcuk/doublestar/v4"
	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/tool/confine"
	"github.com/drover-dev/drover/internal/tool/strict"
)

const globSchema = `{"type":"object","properties":{` +
	`"pattern":{"type":"string","description":"Glob such as **/*.go"},` +
	`"path":{"type":"string","description":"Folder to begin in; default the project folder"}` +
	`},"required":["pattern"],"additionalProperties":false}`

type globInput struct {
	Pattern string `json:"pattern" strict:"filled"`
	Path    string `json:"path"`
}

// GlobResult is the structured result of Glob.
type GlobResult struct {
	Filenames []string `json:"filenames"` // absolute
	NumFiles  int      `json:"numFiles"`
	Truncated bool     `json:"truncated"`
}

type globTool struct {
	finder
	spec agent.ToolSpec
}

func (t *globTool) Spec() agent.ToolSpec { return t.spec }
func (t *globTool) Parallel() bool       { return true }
func (t *globTool) ReadOnly() bool       { return true }

// Aliases are the names of the same tool in other dialects.
func (t *globTool) Aliases() []string { return []string{"glob"} }

func (t *globTool) Call(ctx context.Context, c agent.Call) (agent.Output, error) {
	in, err := strict.Decode[globInput](c.Input)
	if err == nil && !doublestar.ValidatePattern(in.Pattern) {
		err = errors.New(`field "pattern" is not a glob: a bracket or brace is not closed`)
	}
	if err != nil {
		return refuse("Glob", "", err), nil
	}
	// The part without wildcards is a folder: so a pattern may be absolute, and
	// a narrow one does not look at the whole tree.
	base, pattern := doublestar.SplitPattern(in.Pattern)
	if !filepath.IsAbs(base) {
		base = filepath.Join(cmp.Or(in.Path, "."), base)
	}
	place, err := t.area.Find(base)
	if err != nil {
		return refuse("Glob", base, err), nil
	}
	names, err := list(ctx, place)
	if ctx.Err() != nil {
		return agent.Output{}, context.Cause(ctx)
	}
	if err != nil {
		return refuse("Glob", base, err), nil
	}
	found, err := newest(place, names, pattern)
	if err != nil {
		return refuse("Glob", base, err), nil
	}
	all := len(found)
	found = slices.DeleteFunc(found, func(d dated) bool { return !t.mayRead(d.path) })
	out := t.answer(found, len(names) >= maxListed)
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

func (t *globTool) answer(found []dated, partial bool) agent.Output {
	res := GlobResult{Filenames: []string{}, NumFiles: len(found), Truncated: partial || len(found) > MaxFiles}
	var b strings.Builder
	for _, f := range found[:min(len(found), MaxFiles)] {
		res.Filenames = append(res.Filenames, f.path)
		b.WriteString(t.short(f.path) + "\n")
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
