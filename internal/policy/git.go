package policy

import (
	"bytes"
	"encoding/binary"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// bounds of what is read of a repository. With more it is not understood.
const (
	maxConfig = 256 << 10
	maxIndex  = 64 << 20
)

// gitCommand is where the command of git stands behind the options of git itself, and 0 if it is not git.
func gitCommand(ws []word) int {
	if len(ws) == 0 || filepath.Base(ws[0].text) != "git" {
		return 0
	}
	for i := 1; i < len(ws); i++ {
		switch w := ws[i]; {
		case slices.Contains([]string{"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path", "--config-env"},
			w.text):
			i++
		case !strings.HasPrefix(w.text, "-") && !w.split:
			return i
		}
	}
	return 0
}

// gitPlace says why git could run a program that a repository, and not the user, has chosen.
func (g *Gate) gitPlace(ws []word, dirs []string) string {
	at := gitCommand(ws)
	own := ws[1:max(at, 1)]
	if at == 0 {
		own = ws[1:]
	}
	for i := 0; i < len(own); i++ {
		w := own[i]
		switch {
		case !w.plain():
			return "a word of git that is known only when it runs"
		case slices.Contains([]string{"--no-pager", "-P", "--no-optional-locks", "--literal-pathspecs", "--version"}, w.text):
		case w.text == "-C" && i+1 < len(own) && own[i+1].plain() && strange(own[i+1].text) == "":
			i++
			for k, dir := range dirs {
				real, err := resolve(g.expand(own[i].text, dir))
				if err != nil || !g.inside(real) {
					return "git would run in a folder outside the working directories"
				}
				dirs = slices.Clone(dirs)
				dirs[k] = real
			}
		case w.text == "-c" && i+1 < len(own) && own[i+1].plain():
			i++
			key, value, _ := strings.Cut(strings.ToLower(own[i].text), "=")
			if section, _, _ := strings.Cut(key, "."); section != "color" && !(key == "core.pager" && (value == "cat" ||
				value == "")) &&
				key != "core.quotepath" && !(key == "log.diffmerges" && value == "off") {
				return "git with a setting that is not known to be harmless"
			}
		default:
			return "an option of git that is not known to be harmless: " + w.text
		}
	}
	first := ""
	for _, dir := range dirs {
		top, why := g.scan(dir)
		if why != "" {
			return why
		}
		if first == "" {
			first = top
		}
		if top != first {
			return "git after cd would read the configuration of another repository"
		}
	}
	return ""
}

// scan looks for the repository that git would use in a folder, going up as git does. What the configuration of the
// user is his own; the configuration of the repository is read. It returns the work tree, and why git could run a
// program
// that the repository has chosen.
func (g *Gate) scan(dir string) (top, why string) {
	dir, err := resolve(dir)
	if err != nil {
		return "", "the git repository cannot be found"
	}
	there := func(path ...string) bool { _, err := os.Lstat(filepath.Join(path...)); return err == nil }
	for ; !there(dir, ".git"); dir = filepath.Dir(dir) {
		if there(dir, "HEAD") && there(dir, "objects") {
			return "", "the directory is itself a git repository"
		}
		if dir == "/" {
			return "", ""
		}
	}
	git := filepath.Join(dir, ".git")
	info, err := os.Lstat(git)
	switch {
	case err == nil && info.Mode().IsRegular():
		if git, why = g.linked(git); why != "" {
			return "", why
		}
	case err != nil || !info.IsDir():
		return "", "the git repository is elsewhere"
	}
	common := git
	if text, err := os.ReadFile(filepath.Join(git, "commondir")); err == nil {
		if common = strings.TrimSpace(string(text)); !filepath.IsAbs(common) {
			common = filepath.Join(git, common)
		}
	}
	for _, file := range []string{filepath.Join(common, "config"), filepath.Join(common, "config.worktree"),
		filepath.Join(git, "config.worktree")} {
		if why := gitConfigured(file); why != "" {
			return "", why
		}
	}
	if there(common, "hooks", "post-index-change") { // the only hook of a command that reads
		return "", "the git repository has a hook that runs when git reads"
	}
	// git asks each repository in the work tree for its state, by its own configuration.
	index, ok := slurp(filepath.Join(git, "index"), maxIndex)
	if !ok || bytes.Contains(index, []byte("\x00\x00\xe0\x00")) || bytes.Contains(index, []byte("link\x00\x00\x00")) {
		return "", "the git repository holds others, or an index that is not understood"
	}
	return dir, ""
}

// linked follows a .git file. Outside the roots it must be a work tree that the repository knows: only its owner can
// have made that.
func (g *Gate) linked(dot string) (git, why string) {
	text, ok := slurp(dot, maxConfig)
	dir, named := strings.CutPrefix(strings.TrimRight(string(text), "\r\n"), "gitdir: ")
	if !ok || !named {
		return "", "the git repository is elsewhere"
	}
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(filepath.Dir(dot), dir)
	}
	real, err := resolve(dir)
	if err != nil {
		return "", "the git repository cannot be found"
	}
	if g.inside(real) {
		return real, ""
	}
	text, _ = slurp(filepath.Join(real, "gitdir"), maxConfig)
	if there, err := resolve(strings.TrimSpace(string(text))); err != nil || there != dot {
		return "", "the git repository is outside the working directories, and does not know this work tree"
	}
	return real, ""
}

// slurp reads a regular file. An absent file is empty.
func slurp(path string, limit int64) ([]byte, bool) {
	info, err := os.Stat(path)
	if os.IsNotExist(err) {
		return nil, true
	}
	if err != nil || !info.Mode().IsRegular() || info.Size() > limit {
		return nil, false
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, false
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	return data, err == nil && int64(len(data)) <= limit
}

// gitConfigured says why a configuration may name a program, another path or something to fetch. It is read as git
// writes it: quotes, escapes and comments behind a value are not understood.
func gitConfigured(file string) string {
	data, ok := slurp(file, maxConfig)
	if !ok || strings.ContainsAny(string(data), "\r\x00\ufeff") {
		return "the configuration of the git repository cannot be read"
	}
	const odd = "the configuration of the git repository is written in an unusual way"
	section := ""
	for line := range strings.SplitSeq(string(data), "\n") {
		line = strings.ToLower(strings.Trim(line, " \t"))
		if line == "" || line[0] == '#' || line[0] == ';' {
			continue
		}
		if line[0] == '[' {
			name, sub, named := strings.Cut(strings.TrimSuffix(line[1:], "]"), ` "`)
			if line[len(line)-1] != ']' || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" ||
				named != strings.HasSuffix(sub, `"`) ||
				strings.ContainsAny(strings.TrimSuffix(sub, `"`), `"\`) {
				return odd
			}
			if section = name; named {
				section += ".*"
			}
			continue
		}
		key, value, _ := strings.Cut(line, "=")
		key, value = strings.TrimRight(key, " \t"), strings.TrimLeft(value, " \t")
		if section == "" || strings.Trim(key, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" || strings.ContainsAny(value,
			"\"\\#;") {
			return odd
		}
		if !gitHarmless(section, key, value) {
			return "the git repository sets " + section + "." + key + ", which may name a program"
		}
	}
	return ""
}

// gitHarmless reports settings by which git, when it reads, runs no program, follows no other path and fetches nothing.
// A pager runs only for a terminal, which a command of an agent has not.
func gitHarmless(section, key, value string) bool {
	if strings.Contains(value, "%") {
		return false // a format may check signatures
	}
	switch section {
	case "user", "author", "committer", "color", "color.*", "advice", "init", "push", "pull", "rerere", "gc", "branch",
		"pager", "column", "commit", "fetch", "rebase", "gui", "submodule", "i18n", "tag":
		return key != "templatedir" && key != "editor" && key != "template"
	case "branch.*":
		return key != "mergeoptions"
	case "remote.*":
		return slices.Contains([]string{"url", "pushurl", "fetch", "push", "prune", "prunetags", "tagopt", "mirror",
			"gh-resolved", "skipfetchall"}, key)
	case "submodule.*":
		return key == "active" || key == "url" || key == "branch"
	case "core":
		switch key {
		case "bare", "fsmonitor":
			return value == "false" || value == ""
		case "repositoryformatversion", "filemode", "logallrefupdates", "ignorecase", "precomposeunicode", "symlinks",
			"autocrlf", "eol", "safecrlf", "quotepath", "abbrev", "pager", "whitespace", "longpaths", "untrackedcache",
			"commitgraph", "preloadindex", "protectntfs", "protecthfs", "compression", "trustctime":
			return true
		}
	case "diff", "log", "merge", "status":
		return slices.Contains([]string{"renames", "renamelimit", "algorithm", "colormoved", "mnemonicprefix", "noprefix",
			"date", "decorate", "follow", "abbrevcommit", "conflictstyle", "ff", "showuntrackedfiles", "short", "branch",
			"interhunkcontext", "context"}, key)
	case "extensions":
		return key == "worktreeconfig" || key == "objectformat"
	}
	return false
}

// gitOptions are long options of any command of git by which it runs another program or writes where they say.
const gitOptions = "output ext-diff textconv show-signature open-files-in-pager upload-pack receive-pack exec config " +
	"config-env template reference no-index output-directory separate-git-dir extcmd strategy edit-description " +
	"remerge-diff parseopt lost-found paginate"

// gitUnsafe says what speaks against the words of a command of git: options by which it runs another program or writes
// where they say.
func gitUnsafe(ws []word) string {
	if len(ws) == 0 {
		return ""
	}
	sub, rest := ws[0].text, ws[1:]
	first := ""
	if len(rest) > 0 {
		first = rest[0].text
	}
	switch sub {
	case "filter-branch", "difftool", "mergetool", "instaweb", "daemon", "shell", "remote-ext", "upload-pack",
		"receive-pack", "credential", "send-email", "imap-send", "web--browse", "help":
		return "git " + sub + " runs other programs"
	case "submodule":
		if first == "foreach" {
			return "git submodule foreach runs its words"
		}
	case "bisect":
		if first == "run" || first == "visualize" || first == "view" {
			return "git bisect " + first + " runs another program"
		}
	}
	unsafe := func(why string) string { return "options of git that could write or run something: " + why }
	for _, w := range rest {
		a := w.text
		if a == "--" {
			break
		}
		if w.marked() {
			return "a word is known only when the command runs"
		}
		if strings.Contains(a, "::") {
			return "a transport that runs a program"
		}
		if format := strings.NewReplacer("%+", "%", "%-", "%", "% ", "%").Replace(a); strings.Contains(format, "%G") ||
			strings.Contains(a, "signature") {
			return "a format that checks signatures"
		}
		long, is := strings.CutPrefix(a, "--")
		long, value, _ := strings.Cut(long, "=")
		for bad := range strings.FieldsSeq(gitOptions) {
			// git takes any beginning of a long option that is unique.
			if is && len(long) > 1 && strings.HasPrefix(bad, long) {
				return unsafe(a)
			}
		}
		if is && strings.HasPrefix("diff-merges", long) && len(long) > 5 && strings.HasPrefix(value, "r") {
			return unsafe(a)
		}
		letters := map[string]string{"grep": "O", "clone": "uc", "fetch": "uc", "pull": "uc", "ls-remote": "u",
			"rebase": "xs", "format-patch": "o", "archive": "o", "config": "f"}[sub]
		if !is && strings.HasPrefix(a, "-") && strings.ContainsAny(a, letters) {
			return unsafe(a)
		}
	}
	return ""
}

// gitReads says why a command of git may do more than read what may be read.
func (j *judge) gitReads(ws []word) (why string, firm bool) {
	if why := j.g.gitPlace(ws, j.line.dirs); why != "" {
		return why, true
	}
	at := gitCommand(ws)
	if at == 0 {
		return "git without a command", true
	}
	if why := gitUnsafe(ws[at:]); why != "" {
		return why, true
	}
	sub, rest := ws[at].text, ws[at+1:]
	words := text(rest)
	is := func(pattern string) bool { return regexp.MustCompile(pattern).MatchString(words) }
	changes := false // something
	switch sub {
	case "ls-files", "ls-tree", "describe", "rev-parse", "rev-list", "shortlog", "merge-base", "for-each-ref",
		"name-rev", "count-objects", "check-ignore", "show-ref", "blame", "annotate", "cat-file", "status", "log",
		"whatchanged", "diff", "show", "grep":
	case "branch":
		changes = !is(`^((-a|-r|-vv?|--all|--remotes|--show-current|--list|-l|--(sort|format|color)=[^ ]+)( |$))*` +
			`((--list|-l|--(no-)?(contains|merged)|--points-at)( [^- ][^ ]*)?)?$`)
	case "tag":
		changes = !is(`^((-l|--list|-n[0-9]*|--(sort|format)=[^ ]+)( |$))*((-l|--list|--contains|--merged)( [^- ][^ ]*)?)?$`)
	case "remote":
		changes = !is(`^(-v|--verbose|get-url [^- ][^ ]*|)$`)
	case "stash", "worktree":
		changes = !is(`^list( |$)`)
	case "reflog":
		changes = !is(`^(list|show|HEAD|-[^ ]*|)( |$)`)
	case "config":
		changes = !is(`^(--get|--get-all|--get-regexp|--list|-l|get|list)( |$)|^[^- ]+\.[^ ]+$`)
	default:
		return "no rule allows git " + sub, false
	}
	if changes {
		return "git " + sub + " with words that may change or fetch something", true
	}
	if j.g.bans && gitShows(sub, words) {
		switch apart, named := j.g.gitNames(rest, j.line.dirs, j.g.mayHold); {
		case !named:
			return "git would show a file of which a rule may speak; name the files after --", false
		case !apart:
			return "git would show files by a pattern, or a folder in which a rule speaks of one", false
		}
	}
	return j.gitFiles(rest), false
}

// gitFiles says why a file that words of git name may not be read. A revision with a path names that path.
func (j *judge) gitFiles(rest []word) string {
	for _, w := range rest {
		if strings.HasPrefix(w.text, "-") {
			continue
		}
		forms := []string{w.text}
		if _, path, ok := strings.Cut(w.text, ":"); ok {
			forms = append(forms, path)
		}
		for _, form := range forms {
			if why := j.readable(form, false); why != "" && form != "" {
				return "git would read " + form + ": " + why
			}
		}
	}
	return ""
}

// gitShows reports commands of git that show, or write to other places, the content of files that they do not name.
func gitShows(sub, words string) bool {
	is := func(pattern string) bool { return regexp.MustCompile(pattern).MatchString(words) }
	switch sub {
	case "cat-file", "whatchanged", "archive", "format-patch", "fast-export", "bundle", "difftool", "range-diff",
		"checkout-index", "request-pull", "send-email", "unpack-file", "diff-tree", "diff-index", "diff-files":
		return true
	case "clone":
		return !is(`://|@`)
	case "worktree":
		return is(`^add( |$)`)
	case "status", "commit":
		return is(`(^| )(-[a-z]*v|--verbose)`)
	case "log", "stash", "reflog":
		return is(`(^| )(-[pucWm]( |$)|-[LU]|--(patch|cc|unified|word-diff|color-words))`)
	case "diff", "show", "grep":
		return !is(`(^| )--(stat|name-only|name-status|numstat|shortstat|summary|files-with-matches)`)
	}
	return false
}

// gitNames reports whether words name files after --, and whether they are plain files and folders apart from those
// of which holds speaks.
func (g *Gate) gitNames(rest []word, dirs []string, holds func(real string) bool) (apart, named bool) {
	paths := slices.IndexFunc(rest, func(w word) bool { return w.text == "--" })
	if paths < 0 || paths+1 == len(rest) {
		return false, false
	}
	for _, w := range rest[paths+1:] {
		for _, dir := range dirs {
			if real, err := resolve(g.expand(w.text, dir)); err != nil || holds(real) || w.text == "" ||
				strings.ContainsAny(w.text, ":*?[") {
				return false, true
			}
		}
	}
	return true, true
}

// committed returns a file of a commit of which a ban on reading speaks and that a command of git may show. A file that
// only earlier commits have is not found: their trees are not read.
func (g *Gate) committed(r rule, c command, l line) string {
	at := gitCommand(c.words)
	if at == 0 || kindOf(r.tool) == editTool || len(r.globs) == 0 || !gitShows(c.words[at].text, text(c.words[at+1:])) {
		return ""
	}
	if apart, _ := g.gitNames(c.words[at+1:], l.dirs, func(real string) bool { return holds(r, real) }); apart {
		return ""
	}
	for _, dir := range l.dirs {
		for i, w := range c.words[:at] {
			if w.text == "-C" && i+1 < at {
				dir = g.expand(c.words[i+1].text, dir)
			}
		}
		if file := g.tracked(r, dir); file != "" {
			return file
		}
	}
	return ""
}

// tracked returns a file in the index of the repository of a folder of which a ban speaks.
func (g *Gate) tracked(r rule, dir string) string {
	dir, err := resolve(dir)
	if err != nil {
		return ""
	}
	top := dir
	for ; top != "/"; top = filepath.Dir(top) {
		if _, err := os.Lstat(filepath.Join(top, ".git")); err == nil {
			break
		}
	}
	git := filepath.Join(top, ".git")
	if text, ok := slurp(git, maxConfig); ok {
		if there, linked := strings.CutPrefix(strings.TrimSpace(string(text)), "gitdir: "); linked {
			if git = there; !filepath.IsAbs(there) {
				git = filepath.Join(top, there)
			}
		}
	}
	index, ok := slurp(filepath.Join(git, "index"), maxIndex)
	names, known := indexed(index)
	if !ok || !known {
		return "what the rule names may be"
	}
	for _, name := range names {
		if matchForms(r, g.copied([]string{strings.ToLower(top + "/" + name)})) {
			return name
		}
	}
	return ""
}

// indexed returns the names in an index of git of version 2 or 3 with SHA-1; Documentation/gitformat-index of git 2.52.
func indexed(index []byte) (names []string, known bool) {
	const head, fixed = 12, 62 // bytes of the header; of an entry before its name
	if len(index) == 0 {
		return nil, true
	}
	if len(index) < head || string(index[:4]) != "DIRC" || binary.BigEndian.Uint32(index[4:]) > 3 {
		return nil, false
	}
	count := binary.BigEndian.Uint32(index[8:])
	for rest := index[head:]; count > 0; count-- {
		if len(rest) < fixed {
			return nil, false
		}
		at := fixed
		if rest[60]&0x40 != 0 { // extended flags
			at += 2
		}
		end := bytes.IndexByte(rest[min(at, len(rest)):], 0)
		if end < 0 || int(binary.BigEndian.Uint16(rest[60:])&0xfff) != min(end, 0xfff) {
			return nil, false
		}
		names = append(names, string(rest[at:at+end]))
		if at = (at + end + 8) / 8 * 8; at > len(rest) {
			return nil, false
		}
		rest = rest[at:]
	}
	return names, true
}
