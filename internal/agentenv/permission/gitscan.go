package permission

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
	maxConfig   = 256 << 10
	maxIndex    = 64 << 20
	maxIncludes = 20
	maxModules  = 64
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
	g        *Gate
	includes int
	modules  int
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
	sc.config(filepath.Join(common, "config"), top)
	sc.config(filepath.Join(common, "config.worktree"), top)
	if common != gitdir {
		sc.config(filepath.Join(gitdir, "config.worktree"), top)
	}
	// The only hook of a command that reads: it runs when the index is refreshed.
	if sc.on.add(filepath.Join(common, "hooks", "post-index-change")) != (mark{}) {
		sc.doubt("the git repository has a hook that runs when git reads")
	}
	sc.index(top, gitdir)
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

// index looks for repositories in the work tree: git asks each for its state,
// by its own configuration.
func (sc *scanner) index(top, gitdir string) {
	if names, _ := filepath.Glob(filepath.Join(quoteGlob(gitdir), "sharedindex.*")); len(names) > 0 {
		sc.doubt("the index of the git repository is in parts")
	}
	sc.on.add(gitdir)
	file := filepath.Join(gitdir, "index")
	if m := sc.on.add(file); m == (mark{}) {
		return
	}
	data, ok := slurp(file, maxIndex)
	if !ok {
		sc.doubt("the index of the git repository cannot be read")
		return
	}
	for _, path := range gitlinks(data) {
		if sc.modules++; sc.modules > maxModules || !filepath.IsLocal(path) {
			sc.doubt("the git repository holds others, which cannot all be looked at")
			return
		}
		sub := filepath.Join(top, path)
		dot := filepath.Join(sub, ".git")
		if sc.on.add(dot) != (mark{}) {
			sc.tree(sub, dot)
		}
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

// gitlinks are the paths of an index that are repositories. What cannot be read
// of it yields a path that nobody accepts. The format is that of git's
// index-format document, versions 2 to 4.
func gitlinks(data []byte) []string {
	const mode = "\x00\x00\xe0\x00"
	if !bytes.Contains(data, []byte(mode)) {
		return nil
	}
	for _, hash := range []int{20, 32} {
		if links, ok := indexEntries(data, hash, mode); ok {
			return links
		}
	}
	return []string{".."}
}

func indexEntries(data []byte, hash int, mode string) (links []string, ok bool) {
	if len(data) < 12 || string(data[:4]) != "DIRC" {
		return nil, false
	}
	version, n := binary.BigEndian.Uint32(data[4:]), binary.BigEndian.Uint32(data[8:])
	at, name := 12, ""
	for range n {
		head := 40 + hash + 2
		if at+head > len(data) {
			return nil, false
		}
		start := at
		link := string(data[at+24:at+28]) == mode
		flags := binary.BigEndian.Uint16(data[at+40+hash:])
		if at += head; flags&0x4000 != 0 {
			at += 2
		}
		if version == 4 {
			drop, used := varint(data[min(at, len(data)):])
			if at += used; used == 0 || drop > len(name) {
				return nil, false
			}
			name = name[:len(name)-drop]
		} else {
			name = ""
		}
		end := bytes.IndexByte(data[min(at, len(data)):], 0)
		if end < 0 {
			return nil, false
		}
		name += string(data[at : at+end])
		if at += end + 1; version != 4 {
			at = start + (at-1-start+8)/8*8
		}
		if flags&0xfff < 0xfff && int(flags&0xfff) != len(name) {
			return nil, false
		}
		if link {
			links = append(links, name)
		}
	}
	return links, true
}

// varint is git's own kind of number with many bytes.
func varint(data []byte) (n, used int) {
	for i, c := range data {
		if i > 4 {
			break
		}
		if i > 0 {
			n++
		}
		n = n<<7 | int(c&0x7f)
		if c&0x80 == 0 {
			return n, i + 1
		}
	}
	return 0, 0
}

// config reads one file of settings, and those that it includes, whatever the
// condition.
func (sc *scanner) config(file, top string) {
	if sc.on.add(file) == (mark{}) {
		return
	}
	if sc.includes++; sc.includes > maxIncludes {
		sc.doubt("the configuration of the git repository includes too much")
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
		case (section == "include" || section == "includeif") && strings.HasSuffix(s.key, ".path"):
			sc.include(file, s.value, top)
		case s.key == "core.worktree":
			sc.worktree(file, s.value, top)
		case s.key == "core.bare" && s.value == "false", s.key == "core.fsmonitor" && (s.value == "false" || s.value == ""):
		case !sc.g.memory.gitHarmless(s.key, s.value):
			sc.doubt("the git repository sets " + s.key + ", which may name a program")
		case section == "alias":
			sc.aliases = append(sc.aliases, rest)
		}
	}
}

func (sc *scanner) include(file, path, top string) {
	if strings.HasPrefix(path, "%(") {
		sc.doubt("the configuration of the git repository includes a file of where git is installed")
		return
	}
	if strings.HasPrefix(path, "~") {
		if path = sc.g.expand(path, ""); strings.HasPrefix(path, "/~") {
			sc.doubt("the configuration of the git repository includes a file that cannot be found")
			return
		}
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(file), path)
	}
	sc.config(path, top)
}

// worktree accepts the setting only where it says what is known, as in the
// repositories of submodules.
func (sc *scanner) worktree(file, path, top string) {
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(file), path)
	}
	if real, err := resolve(path); err != nil || real != top {
		sc.doubt("the git repository sets core.worktree, and works on another folder")
	}
}

// setting is one line of a configuration: section.key or section.name.key, both
// ends in small letters.
type setting struct{ key, value string }

// gitSettings reads a configuration as git does. It reports false for what git
// would refuse, or where it is not sure how git would read it.
func gitSettings(text string) ([]setting, bool) {
	text = strings.TrimPrefix(strings.ReplaceAll(text, "\r\n", "\n"), "\ufeff")
	if strings.ContainsAny(text, "\r\x00") {
		return nil, false
	}
	var out []setting
	section := ""
	for i := 0; i < len(text); {
		c := text[i]
		switch {
		case c == '\n' || c == ' ' || c == '\t':
			i++
		case c == '#' || c == ';':
			end := strings.IndexByte(text[i:], '\n')
			if end < 0 {
				return out, true
			}
			i += end
		case c == '[':
			name, n := sectionName(text[i:])
			if n == 0 {
				return nil, false
			}
			section, i = name, i+n
		default:
			end := i
			for end < len(text) && (text[end] == '-' || text[end] >= '0' && text[end] <= '9' ||
				text[end]|0x20 >= 'a' && text[end]|0x20 <= 'z') {
				end++
			}
			if end == i || section == "" {
				return nil, false
			}
			key := section + "." + strings.ToLower(text[i:end])
			value, n, ok := settingValue(text[end:])
			if !ok {
				return nil, false
			}
			out = append(out, setting{key, value})
			i = end + n
		}
	}
	return out, true
}

// sectionName reads [section "name"], and how long that was; 0: it is wrong.
func sectionName(text string) (string, int) {
	end := 1
	for end < len(text) && strings.IndexByte("]\n \"", text[end]) < 0 {
		end++
	}
	name := strings.ToLower(text[1:min(end, len(text))])
	if end >= len(text) || name == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-.") != "" {
		return "", 0
	}
	if text[end] == ']' {
		return name, end + 1
	}
	for end < len(text) && (text[end] == ' ' || text[end] == '\t') {
		end++
	}
	if end >= len(text) || text[end] != '"' {
		return "", 0
	}
	var b strings.Builder
	for i := end + 1; i+1 < len(text); i++ {
		switch text[i] {
		case '\n':
			return "", 0
		case '\\':
			i++
			b.WriteByte(text[i])
		case '"':
			if text[i+1] != ']' {
				return "", 0
			}
			return name + "." + b.String(), i + 2
		default:
			b.WriteByte(text[i])
		}
	}
	return "", 0
}

// settingValue reads what stands behind a key, to the end of its line.
func settingValue(text string) (value string, n int, ok bool) {
	i := 0
	for i < len(text) && (text[i] == ' ' || text[i] == '\t') {
		i++
	}
	if i == len(text) || text[i] == '\n' {
		return "true", i, true // a key alone
	}
	if text[i] != '=' {
		return "", 0, false
	}
	var b strings.Builder
	quoted, kept := false, 0
	for i++; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\n':
			return finish(&b, kept), i, !quoted
		case c == '\\':
			if i++; i == len(text) {
				return "", 0, false
			}
			switch text[i] {
			case '\n':
				continue
			case 'n', 't', 'b', '"', '\\':
				b.WriteByte(text[i])
				kept = b.Len()
			default:
				return "", 0, false
			}
		case c == '"':
			quoted = !quoted
			kept = b.Len()
		case !quoted && (c == '#' || c == ';'):
			end := strings.IndexByte(text[i:], '\n')
			if end < 0 {
				end = len(text) - i
			}
			return finish(&b, kept), i + end, true
		case !quoted && (c == ' ' || c == '\t'):
			if b.Len() > 0 {
				b.WriteByte(c)
			}
		default:
			b.WriteByte(c)
			kept = b.Len()
		}
	}
	return finish(&b, kept), i, !quoted
}

// finish cuts blanks at the end that were not quoted.
func finish(b *strings.Builder, kept int) string { return b.String()[:kept] }

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
