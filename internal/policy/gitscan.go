package policy

import (
	"bytes"
	"encoding/binary"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// bounds of what is read of a repository; what has more is not understood.
const (
	maxConfig = 256 << 10
	maxIndex  = 64 << 20
)

// repository is what a scan found.
type repository struct {
	on      places
	why     string   // why git could run a program that the repository has chosen
	top     string   // the work tree; empty: none
	aliases []string // that it sets
}

// scan looks for the repository that git would use in a folder. Configuration of
// the user himself is his own; what the repository says is read.
func (g *Gate) scan(dir string) repository {
	m := g.memory
	m.mu.Lock()
	r, ok := m.scans[g.rootKey+dir]
	m.mu.Unlock()
	if ok && r.on.same() {
		return r
	}
	sc := scanner{g: g}
	sc.find(dir)
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.scans) >= maxScans {
		clear(m.scans)
	}
	m.scans[g.rootKey+dir] = sc.repository
	return sc.repository
}

type scanner struct {
	repository
	g *Gate
}

func (sc *scanner) doubt(why string) {
	if sc.why == "" {
		sc.why = why
	}
}

// find goes up as git does: at each folder first .git, then whether the folder
// is itself a repository.
func (sc *scanner) find(dir string) {
	dir, err := resolve(dir)
	if err != nil {
		sc.doubt("the git repository cannot be found")
		return
	}
	for ; ; dir = filepath.Dir(dir) {
		dot := filepath.Join(dir, ".git")
		if sc.on.add(dot) != (mark{}) {
			sc.top = dir
			sc.tree(dir, dot)
			return
		}
		head, objects := sc.on.add(filepath.Join(dir, "HEAD")), sc.on.add(filepath.Join(dir, "objects"))
		if head != (mark{}) && objects != (mark{}) {
			sc.doubt("the directory is itself a git repository")
			return
		}
		if dir == "/" {
			return
		}
	}
}

// tree reads what belongs to a work tree.
func (sc *scanner) tree(top, dot string) {
	gitdir := dot
	info, err := os.Lstat(dot)
	switch {
	case err != nil:
		sc.doubt("the git repository cannot be read")
		return
	case info.Mode().IsRegular():
		if gitdir = sc.linked(top, dot); gitdir == "" {
			return
		}
	case !info.IsDir():
		sc.doubt("the git repository is elsewhere")
		return
	}
	common := gitdir
	sc.on.add(filepath.Join(gitdir, "commondir"))
	if text, err := os.ReadFile(filepath.Join(gitdir, "commondir")); err == nil {
		if common = strings.TrimSpace(string(text)); !filepath.IsAbs(common) {
			common = filepath.Join(gitdir, common)
		}
	}
	sc.config(filepath.Join(common, "config"))
	sc.config(filepath.Join(common, "config.worktree"))
	if common != gitdir {
		sc.config(filepath.Join(gitdir, "config.worktree"))
	}
	// The only hook of a command that reads: it runs when the index is refreshed.
	if sc.on.add(filepath.Join(common, "hooks", "post-index-change")) != (mark{}) {
		sc.doubt("the git repository has a hook that runs when git reads")
	}
	sc.index(gitdir)
}

// linked follows a .git file. Outside the roots it must be a work tree that the
// repository knows: only its owner can have made that.
func (sc *scanner) linked(top, dot string) string {
	text, err := os.ReadFile(dot)
	dir, ok := strings.CutPrefix(strings.TrimRight(string(text), "\r\n"), "gitdir: ")
	if err != nil || !ok {
		sc.doubt("the git repository is elsewhere")
		return ""
	}
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(top, dir)
	}
	real, err := resolve(dir)
	if err != nil {
		sc.doubt("the git repository cannot be found")
		return ""
	}
	if sc.g.inside(real) {
		return real
	}
	back := filepath.Join(real, "gitdir")
	sc.on.add(back)
	text, err = os.ReadFile(back)
	if there, err2 := resolve(strings.TrimSpace(string(text))); err != nil || err2 != nil || there != dot {
		sc.doubt("the git repository is outside the working directories, and does not know this work tree")
		return ""
	}
	return real
}

// index looks for repositories in the work tree: git asks each for its state, by its own
// configuration, which is not looked at.
func (sc *scanner) index(gitdir string) {
	if names, _ := filepath.Glob(filepath.Join(quoteGlob(gitdir), "sharedindex.*")); len(names) > 0 {
		sc.doubt("the index of the git repository is in parts")
	}
	sc.on.add(gitdir)
	file := filepath.Join(gitdir, "index")
	if m := sc.on.add(file); m == (mark{}) {
		return
	}
	data, ok := slurp(file, maxIndex)
	switch {
	case !ok:
		sc.doubt("the index of the git repository cannot be read")
	case holdsLinks(data):
		sc.doubt("the git repository holds others")
	}
}

func slurp(path string, limit int64) ([]byte, bool) {
	info, err := os.Stat(path)
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

// holdsLinks reports whether an index may have an entry that is a repository: one with that
// mode. In versions 2 and 3 of the format entries begin at every eighth byte behind the head.
func holdsLinks(data []byte) bool {
	const mode, at, head = "\x00\x00\xe0\x00", 24, 12
	if len(data) < head {
		return len(data) > 0
	}
	aligned := binary.BigEndian.Uint32(data[4:]) < 4
	for from := head; ; from++ {
		i := bytes.Index(data[from:], []byte(mode))
		if i < 0 {
			return false
		}
		if from += i; !aligned || from%8 == (head+at)%8 {
			return true
		}
	}
}

// config reads one file of settings.
func (sc *scanner) config(file string) {
	if sc.on.add(file) == (mark{}) {
		return
	}
	data, ok := slurp(file, maxConfig)
	if !ok {
		sc.doubt("the configuration of the git repository cannot be read")
		return
	}
	settings, ok := gitSettings(string(data))
	if !ok {
		sc.doubt("the configuration of the git repository is written in an unusual way")
		return
	}
	for _, s := range settings {
		section, rest, _ := strings.Cut(s.key, ".")
		switch {
		case s.key == "core.bare" && s.value == "false", s.key == "core.fsmonitor" && (s.value == "false" || s.value == ""):
		case !sc.g.memory.gitHarmless(s.key, s.value):
			sc.doubt("the git repository sets " + s.key + ", which may name a program")
		case section == "alias":
			sc.aliases = append(sc.aliases, rest)
		}
	}
}

// setting is one line of a configuration: section.key or section.name.key, both
// ends in small letters.
type setting struct{ key, value string }

// gitSettings reads a configuration as git writes it. It reports false for what is written in
// another way: quotes, escapes and comments behind a value.
func gitSettings(text string) ([]setting, bool) {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-"
	if strings.ContainsAny(text, "\r\x00\ufeff") {
		return nil, false
	}
	var out []setting
	section := ""
	for line := range strings.SplitSeq(text, "\n") {
		line = strings.Trim(line, " \t")
		if line == "" || line[0] == '#' || line[0] == ';' {
			continue
		}
		if head, ok := strings.CutPrefix(line, "["); ok {
			name, sub, named := strings.Cut(strings.TrimSuffix(head, "]"), " \"")
			if named {
				if sub, ok = strings.CutSuffix(sub, "\""); !ok {
					return nil, false
				}
				sub = "." + sub
			}
			if name == "" || strings.Trim(name, letters) != "" || !strings.HasSuffix(head, "]") ||
				strings.ContainsAny(sub, "\"\\") {
				return nil, false
			}
			section = strings.ToLower(name) + sub
			continue
		}
		key, value, given := strings.Cut(line, "=")
		if key, value = strings.TrimRight(key, " \t"), strings.TrimLeft(value, " \t"); !given {
			value = "true"
		}
		if section == "" || key == "" || strings.Trim(key, letters) != "" || strings.ContainsAny(value, "\"\\#;") {
			return nil, false
		}
		out = append(out, setting{section + "." + strings.ToLower(key), value})
	}
	return out, true
}

// gitKeys reads the list of harmless settings.
func gitKeys(text string) map[string]bool {
	out := map[string]bool{}
	section := ""
	for _, line := range strings.Split(text, "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		if line[0] != ' ' {
			section, line, _ = strings.Cut(line, ":")
		}
		for _, key := range strings.Fields(line) {
			out[section+"."+key] = true
		}
	}
	return out
}

// gitHarmless reports settings that make no command of git that reads run
// another program.
func (m *Memory) gitHarmless(key, value string) bool {
	if signed(value) || key == "log.diffmerges" && strings.HasPrefix(value, "r") { // it makes objects
		return false
	}
	harmless := m.harmless()
	if harmless[key] {
		return true
	}
	first, last := strings.IndexByte(key, '.'), strings.LastIndexByte(key, '.')
	if first < 0 {
		return false
	}
	if first == last {
		return harmless[key[:first]+".*"]
	}
	return harmless[key[:first]+".*"+key[last:]] || harmless[key[:first]+".*.*"] ||
		slices.Contains([]string{"alias", "pager"}, key[:first])
}
