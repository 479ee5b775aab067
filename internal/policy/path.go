package policy

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"

	"github.com/bmatcuk/doublestar/v4"
	"github.com/drover-dev/drover/agent"
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

// forms are how a path may be called by a rule: as it was written and as it
// resolves, without regard to letter case, which some file systems do not have.
func (g *Gate) forms(path, cwd string) []string {
	full := g.expand(path, cwd)
	out := []string{strings.ToLower(filepath.Clean(full))}
	if real, err := resolve(full); err == nil {
		if real = strings.ToLower(real); real != out[0] {
			out = append(out, real)
		}
	}
	return g.copied(out)
}

// copied adds how the original of a file is called to the names of a copy.
func (g *Gate) copied(out []string) []string {
	for i := 0; i < len(out); i++ { // a copy may be one of a copy
		for _, c := range g.rules.Copies {
			of, at := strings.ToLower(filepath.Clean(c.Of)), strings.ToLower(filepath.Clean(c.At))
			rest, in := strings.CutPrefix(out[i], at)
			if form := of + rest; in && (rest == "" || rest[0] == '/') && !slices.Contains(out, form) && len(out) < maxForms {
				out = append(out, form)
			}
		}
	}
	return out
}

// maxForms bounds what a path may be called.
const maxForms = 32

// pathMatch reports whether a ban speaks of the path.
func (g *Gate) pathMatch(r rule, path, cwd string) bool {
	return r.all || matchForms(r, g.forms(path, cwd))
}

// MayRead reports whether no ban speaks of the file, for tools that list or
// search: they leave out what may not be read. Rules that ask count as bans, since
// a list cannot ask for each of its lines.
func (g *Gate) MayRead(path string) bool {
	if !g.bans {
		return true
	}
	forms := g.forms(path, g.rules.Cwd)
	for _, list := range [][]rule{g.deny, g.ask} {
		for _, r := range list {
			if r.covers("Read") && (r.all || matchForms(r, forms)) {
				return false
			}
		}
	}
	return true
}

// MayOpen reports whether no ban speaks of a file that is open: neither of the
// place where it is now, nor of the same file under another name. Tools ask it
// after they have opened a file, when nobody can exchange it any more.
func (g *Gate) MayOpen(f *os.File, edit bool) bool {
	info, err := f.Stat()
	if err != nil {
		return false
	}
	if len(g.deny) == 0 {
		return true
	}
	tool := "Read"
	if edit {
		tool = "Edit"
	}
	forms := g.forms(f.Name(), g.rules.Cwd)
	for _, r := range g.deny {
		if r.covers(tool) && (r.all || matchForms(r, forms) || sameFile(r, info)) {
			return false
		}
	}
	return true
}

// MayUse reports whether a tool may use a place outside of the roots, given by its path without
// links: the rules or the mode allow it, or an answer has allowed a call that was to use it in the
// same way. Tools ask it when they know where a path leads, so that a link that has come between
// decision and use opens nothing.
func (g *Gate) MayUse(tool, real string) bool {
	edit := kindOf(tool) == editTool
	return g.memory.admitted(real, edit) || g.with().rule(request{tool: tool, path: real}).Decision == Allow
}

// admit remembers where a call leads that an answer has allowed, if it is outside of the roots.
func (g *Gate) admit(c agent.Call) {
	if c.Name == watching {
		c, _ = watched(c)
	}
	r := g.request(c)
	kind := kindOf(r.tool)
	if kind != readTool && kind != listTool && kind != editTool {
		return
	}
	if real, err := resolve(g.expand(r.path, g.rules.Cwd)); err == nil && !g.inside(real) {
		g.memory.admit(real, kind == editTool)
	}
}

// sameFile reports whether a rule names the file itself, by whatever name.
func sameFile(r rule, info os.FileInfo) bool {
	for _, path := range r.named {
		if other, err := os.Stat(path); err == nil && os.SameFile(info, other) {
			return true
		}
	}
	return false
}

// approvePath looks for what allows a file tool to use the path.
func (g *Gate) approvePath(tool, path string, edit bool) Verdict {
	real := ""
	ask := func(why string) Verdict {
		return Verdict{Decision: Ask, Reason: why, candidate: g.pathRule(tool, real)}
	}
	firm := func(why string) Verdict {
		return Verdict{Decision: Ask, Reason: why, UserOnly: true, candidate: g.pathRule(tool, real)}
	}
	if why := strange(path); why != "" {
		return firm("the path needs a look: " + why)
	}
	if strings.HasPrefix(path, "~") && g.expand(path, "") == "/"+path {
		return firm("the path begins with ~, and is not in a known home")
	}
	full := g.expand(path, g.rules.Cwd)
	var err error
	if real, err = resolve(full); err != nil {
		return Verdict{Decision: Deny, Reason: "the path cannot be resolved: " + err.Error()}
	}
	inside := g.inside(real)
	guarded := edit && (persistent(g.below(real)) || persistent(g.below(filepath.Clean(full))))
	for _, r := range g.allow {
		if !r.covers(tool) || guarded && (r.all || wild(r)) {
			continue
		}
		if r.all && (inside || r.tool == tool) {
			return Verdict{Decision: Allow, Reason: "allowed by the rule " + r.text, Rule: r.text}
		}
		for _, glob := range r.globs {
			ok, err := doublestar.Match(glob, real)
			if itself, _ := doublestar.Match(
				strings.TrimSuffix(glob, "/**"),
				real,
			); ok && err == nil &&
				!(itself && strings.HasSuffix(glob,
					"/**") && kindOf(tool) != listTool) { // to list a folder is to list what is in it
				return g.special(real, edit, Verdict{Decision: Allow, Reason: "allowed by the rule " + r.text, Rule: r.text})
			}
		}
	}
	switch {
	case tool == "Grep" && g.bans && g.mayHold(real) && !g.rules.Filtered:
		// What the search passes over is not known here.
		return ask("a search may read files that are denied")
	case !inside && !edit && systemFile(real):
		return Verdict{Decision: Allow, Reason: "a file of the system that everybody may read"}
	case !inside:
		v := ask("the path is outside the working directories, to which --add-dir adds a folder")
		v.outside = true
		return v
	case guarded:
		return firm("other programs run or obey what stands in this file")
	case edit && g.rules.Mode != AcceptEdits:
		return g.special(real, edit, ask("no rule allows "+tool+" here"))
	}
	return g.special(real, edit, Verdict{Decision: Allow, Reason: "inside the working directories"})
}

// special looks at what the file is: nothing writes to what is no file, and
// neither a mode nor a pattern opens what its owner has closed, or another file
// system that is mounted in a root.
func (g *Gate) special(real string, edit bool, v Verdict) Verdict {
	var st syscall.Stat_t
	if err := syscall.Lstat(real, &st); err != nil {
		return v // it does not exist yet
	}
	kind := st.Mode & syscall.S_IFMT
	switch {
	case edit && kind != syscall.S_IFREG && kind != syscall.S_IFDIR:
		return Verdict{Decision: Deny, Reason: "it is not a regular file"}
	case v.Decision == Allow && edit && kind == syscall.S_IFREG && st.Mode&0o222 == 0:
		return Verdict{Decision: Ask, Reason: "the file may not be written, by its mode"}
	case v.Decision == Allow && v.Rule == "" && !slices.Contains(g.devices,
		uint64(st.Dev)): //nolint:unconvert // not on every system
		return Verdict{Decision: Ask, Reason: "the file is on another file system than the working directories",
			UserOnly: true}
	}
	return v
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
	names := guardedNames()
	for part := range strings.SplitSeq(strings.ToLower(path), "/") {
		if slices.Contains(names, part) {
			return true
		}
	}
	return guardedFile(strings.ToLower(filepath.Base(path)))
}

// guardedNames are names of files, and of folders with all that is in them.
func guardedNames() []string {
	return []string{
		".git", ".gitattributes", ".gitmodules", ".gitconfig", ".husky", ".hg", ".drover", ".claude", ".cursor", ".codex",
		".gemini", ".agents", ".mcp.json", ".vscode", ".idea", ".zed", ".devcontainer", ".github", ".gitlab-ci.yml",
		".circleci", "venv", ".venv", ".envrc", ".direnv", ".npmrc", ".yarnrc", ".yarnrc.yml", ".pnp.cjs", ".profile",
		".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".zshrc", ".zshenv", ".zprofile",
		".zlogin", ".zlogout", ".kshrc", ".cshrc", ".tcshrc", ".login", ".xprofile", ".xinitrc", ".xsessionrc", ".inputrc",
		".ssh", ".config", ".local", ".pre-commit-config.yaml", "lefthook.yml", ".lefthook.yml", ".githooks", ".gitlab",
		".buildkite", ".woodpecker", ".nvim.lua", ".nvimrc", ".exrc", ".vimrc", ".vim", ".emacs", ".emacs.d",
		".dir-locals.el", ".fleet", ".windsurf", ".windsurfrules", ".cursorrules", ".clinerules", ".roo", ".continue",
		".aider.conf.yml", ".kiro", ".opencode", ".amazonq", ".crush", "claude.md", "agents.md", "gemini.md", ".gdbinit",
		".lldbinit", ".curlrc", ".wgetrc", ".netrc", ".pypirc", ".condarc", ".cargo", ".mise.toml", "mise.toml",
		".tool-versions", ".rtx.toml", ".asdfrc", ".bunfig.toml", "bunfig.toml", ".mvn", ".bundle", ".irbrc", ".pryrc",
		".pdbrc", ".pythonrc", ".pam_environment", ".selected_editor", ".gnupg", ".docker", ".kube", ".aws", ".ripgreprc",
		".editorconfig",
	}
}

// guardedFile reports names of files that are guarded where they end a path.
func guardedFile(name string) bool {
	switch name {
	case "head", "config.worktree", "activate", "jenkinsfile", "pyvenv.cfg", "sitecustomize.py", "usercustomize.py",
		"gemfile.local", ".travis.yml", "appveyor.yml", "azure-pipelines.yml", "bitbucket-pipelines.yml", ".drone.yml",
		".woodpecker.yml", "gitconfig":
		return true
	}
	return false
}

// systemFile reports files of the system that everybody may read, and in which nobody
// keeps a secret. Only root has written them.
func systemFile(real string) bool {
	switch real {
	case "/etc/os-release", "/etc/debian_version", "/etc/lsb-release", "/etc/hosts", "/etc/timezone", "/etc/shells",
		"/etc/services", "/etc/protocols", "/proc/cpuinfo", "/proc/meminfo", "/proc/version", "/proc/loadavg", "/proc/uptime":
	default:
		if real != "/usr" && !strings.HasPrefix(real, "/usr/") {
			return false
		}
		for _, part := range strings.Split(strings.TrimPrefix(real, "/usr/"), "/") {
			if part == "local" || strings.HasPrefix(part, ".") {
				return false // what an administrator has put there
			}
		}
	}
	var st syscall.Stat_t
	kind := func() uint32 { return uint32(st.Mode) & syscall.S_IFMT } //nolint:unconvert // not on every system
	return syscall.Stat(real, &st) == nil && st.Uid == 0 && st.Mode&0o004 != 0 && (kind() == syscall.S_IFREG ||
		kind() == syscall.S_IFDIR)
}
