package permit

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/bmatcuk/doublestar/v4"
)

const magicPath = "it stands for another place"

// strange says why a path should be seen by somebody before it is used.
func strange(path string) string {
	if !utf8.ValidString(path) || strings.ContainsFunc(path, hidden) {
		return "it has characters that do not show"
	}
	if strings.ContainsAny(path, "\\$%") || strings.Contains(path, "://") || strings.HasPrefix(path, "file:") {
		return "it may mean something else than it says"
	}
	parts := strings.Split(filepath.Clean(path), "/")
	if len(parts) > 3 && parts[0] == "" && parts[1] == "proc" {
		for _, p := range parts[3:] {
			if p == "root" || p == "cwd" || p == "fd" || p == "map_files" {
				return magicPath
			}
		}
	}
	if len(parts) > 2 && parts[1] == "dev" && parts[2] == "fd" {
		return magicPath
	}
	return ""
}

// hidden reports characters that a person cannot see: controls, marks of
// writing direction, those without width, and what JSON makes of broken text.
func hidden(c rune) bool {
	return unicode.IsControl(c) || unicode.In(c, unicode.Cf, unicode.Zl, unicode.Zp) || c == 0xA0 || c == utf8.RuneError
}

// resolve follows every link of an absolute path, also of one whose end does
// not exist yet: what would be opened or created is what counts.
func resolve(path string) (string, error) {
	rest := strings.Split(path, "/")
	at := "/"
	for links := 0; len(rest) > 0; {
		part := rest[0]
		rest = rest[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			at = filepath.Dir(at)
			continue
		}
		next := filepath.Join(at, part)
		info, err := os.Lstat(next)
		switch {
		case errors.Is(err, os.ErrNotExist):
			at = next
		case err != nil:
			return "", err
		case info.Mode()&os.ModeSymlink == 0:
			at = next
		default:
			if links++; links > 40 {
				return "", errors.New("too many links")
			}
			target, err := os.Readlink(next)
			if err != nil {
				return "", err
			}
			if filepath.IsAbs(target) {
				at = "/"
			}
			rest = append(strings.Split(target, "/"), rest...)
		}
	}
	return at, nil
}

// expand makes a path absolute as the file tools do, with ~ for the home
// directory, because a person who wrote a ban on it meant that.
func (g *Gate) expand(path, cwd string) string {
	if path == "~" || strings.HasPrefix(path, "~/") {
		if g.rules.Home != "" {
			return g.rules.Home + path[1:]
		}
	}
	if filepath.IsAbs(path) {
		return path
	}
	return cwd + "/" + path
}

// pathMatch reports whether a ban speaks of the path: as it was written or as
// it resolves, and without regard to letter case, which some file systems do
// not have.
func (g *Gate) pathMatch(r rule, path, cwd string) bool {
	if r.all {
		return true
	}
	full := g.expand(path, cwd)
	forms := []string{strings.ToLower(filepath.Clean(full))}
	if real, err := resolve(full); err == nil {
		forms = append(forms, strings.ToLower(real))
	}
	for _, glob := range r.globs {
		glob = strings.ToLower(glob)
		for _, form := range forms {
			if ok, err := doublestar.Match(glob, form); ok || err != nil {
				return true
			}
			// A ban on a directory holds for what is in it.
			if ok, _ := doublestar.Match(glob+"/**", form); ok {
				return true
			}
		}
	}
	return false
}

// MayRead reports whether no ban speaks of the file, for tools that list or
// search: they leave out what may not be read.
func (g *Gate) MayRead(path string) bool {
	for _, r := range append(slices.Clone(g.deny), g.ask...) {
		if r.covers("Read") && g.pathMatch(r, path, g.rules.Cwd) {
			return false
		}
	}
	return true
}

// approvePath looks for what allows a file tool to use the path.
func (g *Gate) approvePath(tool, path string, edit bool) Verdict {
	ask := func(why string) Verdict { return Verdict{Decision: Ask, Reason: why} }
	if why := strange(path); why != "" {
		return ask("the path needs a look: " + why)
	}
	if strings.HasPrefix(path, "~") && g.expand(path, "") == "/"+path {
		return ask("the path begins with ~, and is not in a known home")
	}
	real, err := resolve(g.expand(path, g.rules.Cwd))
	if err != nil {
		return ask("the path cannot be resolved")
	}
	guarded := edit && persistent(g.below(real))
	for _, r := range g.allow {
		if !r.covers(tool) || guarded && (r.all || wild(r)) {
			continue
		}
		if r.all {
			return Verdict{Allow, "allowed by the rule " + r.text, r.text}
		}
		for _, glob := range r.globs {
			ok, err := doublestar.Match(glob, real)
			if itself, _ := doublestar.Match(strings.TrimSuffix(glob, "/**"), real); ok && err == nil && !(itself && strings.HasSuffix(glob, "/**")) {
				return Verdict{Allow, "allowed by the rule " + r.text, r.text}
			}
		}
	}
	switch {
	case tool == "Grep" && g.bansReading():
		// What the search passes over is not known here.
		return ask("a search may read files that are denied")
	case !g.inside(real):
		return ask("the path is outside the working directories")
	case guarded:
		return ask("other programs run or obey what stands in this file")
	case edit && g.rules.Mode != AcceptEdits:
		return ask("no rule allows " + tool + " here")
	}
	return Verdict{Decision: Allow, Reason: "inside the working directories"}
}

func wild(r rule) bool { return strings.ContainsAny(r.text, "*?[{") }

// inside reports whether a resolved path is a root or below one.
func (g *Gate) inside(real string) bool {
	for _, root := range g.roots {
		if real == root || root == "/" || strings.HasPrefix(real, root+"/") {
			return true
		}
	}
	return false
}

// below is the part of a resolved path that lies in its innermost root: a root
// may itself be in a place that is guarded.
func (g *Gate) below(real string) string {
	short := real
	for _, root := range g.roots {
		if rest, ok := strings.CutPrefix(real, root+"/"); ok && len(rest) < len(short) {
			short = rest
		}
	}
	return short
}

// persistent reports files by which one edit could make other programs run
// code later; no broad permission covers them, whether they exist or not.
func persistent(path string) bool {
	for _, part := range strings.Split(strings.ToLower(path), "/") {
		switch part {
		case ".git", ".gitattributes", ".gitmodules", ".gitconfig", ".husky", ".hg",
			".drover", ".claude", ".cursor", ".codex", ".gemini", ".agents", ".mcp.json",
			".vscode", ".idea", ".zed", ".devcontainer", ".github", ".gitlab-ci.yml", ".circleci",
			"venv", ".venv", ".envrc", ".direnv", ".npmrc", ".yarnrc", ".yarnrc.yml", ".pnp.cjs",
			".profile", ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases",
			".zshrc", ".zshenv", ".zprofile", ".zlogin", ".kshrc", ".inputrc", ".ssh", ".config", ".local",
			".pre-commit-config.yaml", ".ripgreprc", ".editorconfig":
			return true
		}
	}
	switch filepath.Base(path) {
	case "HEAD", "config.worktree":
		return true
	}
	return false
}
