package policy

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
)

// Bounds of the search for the files of patterns.
const (
	maxDeniedLook  = 200_000 // files and folders that are looked at
	maxDeniedFiles = 1000    // that are found
)

// Denied returns the files and folders that deny rules of Read name, for a sandbox that hides them, in the folder of
// the gate and in its copies. What a rule names without wildcards, or by a last /**, is in the list whether it exists
// or not; the files of other patterns are those that exist now. Notes name the rules that a sandbox cannot follow.
func (g *Gate) Denied() (paths, notes []string) {
	budget := maxDeniedLook
	for _, r := range g.deny {
		if !r.covers("Read") {
			continue
		}
		for _, glob := range g.everywhere(r) {
			path, plain := plainPath(glob)
			switch {
			case plain && g.hideable(path):
				paths = append(paths, path)
			case plain:
				notes = append(notes, fmt.Sprintf("the sandbox does not hide what the rule %s denies: %s is a folder that "+
					"commands need", r.text, path))
			default:
				var whole bool
				if paths, whole = g.search(r, glob, paths, &budget); !whole {
					notes = append(notes, fmt.Sprintf("the sandbox hides only a part of what the rule %s denies: its pattern "+
						"is about too many files (name a folder in it)", r.text))
				}
			}
		}
	}
	slices.Sort(paths)
	slices.Sort(notes)
	return slices.Compact(paths), slices.Compact(notes)
}

// everywhere returns the patterns of a rule for the folder of the gate and for its copies.
func (g *Gate) everywhere(r rule) []string {
	all := slices.Clone(r.globs)
	for i := 0; i < len(all) && len(all) < maxForms; i++ {
		for _, c := range g.rules.Copies {
			of, at := quoteGlob(filepath.Clean(c.Of)), quoteGlob(filepath.Clean(c.At))
			rest, in := strings.CutPrefix(all[i], of+"/")
			if there := at + "/" + rest; in && !slices.Contains(all, there) {
				all = append(all, there)
			}
		}
	}
	return all
}

// plainPath is the file or folder that a pattern names, if it names one, with all below it.
func plainPath(glob string) (path string, plain bool) {
	glob = strings.TrimSuffix(glob, "/**")
	bare := strings.NewReplacer(`\\`, "", `\*`, "", `\?`, "", `\[`, "", `\{`, "").Replace(glob)
	return filepath.Clean("/" + strings.NewReplacer(`\\`, `\`, `\*`, `*`, `\?`, `?`, `\[`, `[`, `\{`, `{`).Replace(glob)),
		!strings.ContainsAny(bare, `*?[{\`)
}

// hideable reports whether commands can work without a file or folder: it holds neither a root nor the home of the
// user, and is no folder of the system.
func (g *Gate) hideable(path string) bool {
	holds := func(dir string) bool { return dir != "" && (dir == path || strings.HasPrefix(dir, path+"/")) }
	return strings.Count(path, "/") > 1 && !holds(g.rules.Home) && !holds(filepath.Clean(g.rules.Cwd)) &&
		!slices.ContainsFunc(g.roots, holds) && !slices.ContainsFunc([]string{"/usr/bin", "/usr/lib", "/dev/null"}, holds)
}

// hides reports whether a sandbox hides all that a rule denies, also what comes into being later.
func (g *Gate) hides(r rule) bool {
	return r.covers("Read") && len(r.globs) > 0 &&
		!slices.ContainsFunc(g.everywhere(r), func(glob string) bool {
			path, plain := plainPath(glob)
			return !plain || !g.hideable(path)
		})
}

// search adds the files of a pattern to found. whole is false if the search has reached a bound.
func (g *Gate) search(r rule, glob string, found []string, budget *int) (_ []string, whole bool) {
	base := glob[:strings.LastIndexByte(glob[:strings.IndexAny(glob, `*?[{\`)], '/')+1]
	depth := len(glob)
	if !strings.Contains(glob, "**") {
		depth = strings.Count(glob, "/")
	}
	one := r
	one.lower = lower([]string{glob})
	err := filepath.WalkDir(filepath.Clean(base), func(path string, d fs.DirEntry, err error) error {
		if *budget--; *budget < 0 || len(found) >= maxDeniedFiles {
			return errTooMany
		}
		switch {
		case err != nil:
			return nil //nolint:nilerr // what cannot be read here cannot be read there
		case matchForms(one, []string{strings.ToLower(path)}) && g.hideable(path):
			found = append(found, path)
		case d.IsDir() && d.Name() != ".git" && strings.Count(path, "/") < depth:
			return nil
		}
		if d.IsDir() {
			return fs.SkipDir
		}
		return nil
	})
	return found, !errors.Is(err, errTooMany)
}

var errTooMany = errors.New("too many files")
