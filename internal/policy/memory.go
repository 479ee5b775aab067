package policy

import (
	"os"
	"path/filepath"
	"sync"
	"syscall"
)

// bounds of what is remembered; beyond them it begins anew.
const (
	maxPrograms = 1 << 10
	maxScans    = 1 << 8
	maxAnswers  = 1 << 10
)

// Memory keeps what is slow to find out about programs and repositories, so
// that it is found out again only when a file that it depends on has changed. The
// gates of a session may share one; its use may overlap.
type Memory struct {
	mu       sync.Mutex
	programs map[string]identity   // by the name and the places it is looked for; guarded by mu
	scans    map[string]repository // by folder; guarded by mu
	answers  map[answer]bool       // guarded by mu

	// The texts of this package, each read when something in it is first asked for.
	known    func() *table
	git      func() *table
	harmless func() map[string]bool // settings of git
}

// NewMemory returns an empty one.
func NewMemory() *Memory {
	return &Memory{programs: map[string]identity{}, scans: map[string]repository{}, answers: map[answer]bool{},
		known: sync.OnceValue(func() *table {
			t := indexed(programsText, false)
			t.entries[":"] = t.entries["true"]
			return t
		}),
		git:      sync.OnceValue(func() *table { return indexed(gitText, true) }),
		harmless: sync.OnceValue(func() map[string]bool { return gitKeys(gitKeysText) }),
	}
}

// answer is a place that an answer has opened for one use of it.
type answer struct {
	real string
	edit bool
}

func (m *Memory) admit(real string, edit bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.answers) >= maxAnswers {
		clear(m.answers)
	}
	m.answers[answer{real, edit}] = true
}

func (m *Memory) admitted(real string, edit bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.answers[answer{real, edit}]
}

// mark tells whether a file is the same as before. The zero mark is a file that
// is not there.
type mark struct {
	dev, ino    uint64
	size        int64
	sec, nsec   int64 // changed
	csec, cnsec int64 // its inode changed
	mode        uint32
}

func markOf(path string) mark {
	var st syscall.Stat_t
	if err := syscall.Lstat(path, &st); err != nil {
		return mark{}
	}
	return markStat(&st)
}

// places remembers how the files were that an answer depends on.
type places struct {
	paths []string
	marks []mark
}

func (p *places) add(path string) mark {
	m := markOf(path)
	p.paths, p.marks = append(p.paths, path), append(p.marks, m)
	return m
}

func (p *places) same() bool {
	for i, path := range p.paths {
		if markOf(path) != p.marks[i] {
			return false
		}
	}
	return true
}

// identity is where a name leads.
type identity struct {
	on     places
	path   string // empty: nowhere
	inside bool   // the first one that is found could be changed from within the roots
}

// identify looks a name up as the shell would.
func (g *Gate) identify(name, dir string) identity {
	key := name
	if g.ownPath {
		key += "\x00" + dir
	}
	m := g.memory
	m.mu.Lock()
	id, ok := m.programs[g.pathKey+key]
	m.mu.Unlock()
	if ok && id.on.same() {
		return id
	}
	id = g.lookup(name, dir)
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.programs) >= maxPrograms {
		clear(m.programs)
	}
	m.programs[g.pathKey+key] = id
	return id
}

func (g *Gate) lookup(name, dir string) identity {
	var id identity
	for _, entry := range filepath.SplitList(g.rules.Path) {
		if !filepath.IsAbs(entry) {
			entry = filepath.Join(dir, entry)
		}
		id.on.add(entry)
		full := filepath.Join(entry, name)
		if _, err := os.Lstat(full); err != nil {
			continue
		}
		id.on.add(full)
		here, err := resolve(entry)
		if err != nil || g.inside(here) {
			id.inside = true
			return id
		}
		real, err := resolve(full)
		info, err2 := os.Stat(full)
		switch {
		case err != nil || g.inside(real):
			id.inside = true
			return id
		case err2 != nil || info.IsDir() || info.Mode()&0o111 == 0:
			continue
		}
		id.path = real
		return id
	}
	return id
}
