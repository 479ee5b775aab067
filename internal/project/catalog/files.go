package catalog

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/drover-dev/drover/internal/project/definitions"
	"github.com/drover-dev/drover/subagent"
)

// Config says where definitions come from.
type Config struct {
	Places []definitions.Place // the first wins; see [Places]

	Given  []byte // JSON before all files, as of --agents; see [ParseJSON]
	Remote []byte // JSON after all files, as of [Fetch]

	Earlier []Problem // found by earlier steps, such as [Plugins]

	// Path is the search path of programs: programs of [subagent.Vendors] in it become agents too.
	// Empty: none do.
	Path string

	// Trusted says whether what the files of a project's folder would execute
	// may run. It is asked again whenever something has changed, and only for
	// folders whose agents would execute something. nil: files that exist at the
	// first look have the trust of their place, and later changes have none.
	Trusted func(root string) bool

	// Also are further files whose change makes Trusted be asked again, such as
	// the one in which trust is kept.
	Also []string
}

// Files is a catalog that follows its files. It may be used by several
// goroutines at once, and starts none.
type Files struct {
	cfg Config
	now func() time.Time

	mu      sync.Mutex
	seen    scan // guarded by mu, like all below
	found   []Entry
	told    []Problem
	catalog subagent.Catalog
}

// New makes a catalog. It reads nothing yet.
func New(c Config) *Files { return &Files{cfg: c, now: time.Now} }

// Current is all agents that count now, the built-in ones included. Files and
// folders are looked at each time, and those that have changed are read.
func (f *Files) Current() subagent.Catalog {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refresh()
	return f.catalog
}

// Entries returns all entries that were found, by name, the effective one before
// the ones that it hides.
func (f *Files) Entries() []Entry {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refresh()
	return slices.Clone(f.found)
}

// Problems returns the faults of the files in their present state, in the order of
// the files.
func (f *Files) Problems() []Problem {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refresh()
	return slices.Clone(f.told)
}

// Replace takes JSON as the remote catalog from now on.
func (f *Files) Replace(remote []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cfg.Remote = remote
	if f.seen.done {
		f.decide()
	}
}

func (f *Files) refresh() {
	if f.seen.current() {
		return
	}
	f.seen = look(f.cfg, f.seen, f.now())
	f.decide()
}

// decide finds out which of the definitions with one name counts.
func (f *Files) decide() {
	all, told := jsonEntries("--agents", definitions.Given, f.cfg.Given)
	told = append(told, f.cfg.Earlier...)
	for _, file := range f.seen.files {
		told = append(told, file.problems...)
		if file.ok {
			all = append(all, file.entry)
			told = append(told, file.waiting()...)
		}
	}
	remote, more := jsonEntries("remote catalog", definitions.Remote, f.cfg.Remote)
	all, told = append(all, remote...), append(told, more...)
	told = append(told, f.seen.problems...)
	for _, d := range subagent.Builtin().All() {
		all = append(all, Entry{Definition: d, Level: definitions.BuiltIn})
	}
	for _, v := range subagent.Vendors() {
		if d, ok := v.On(func(program string) bool { return Program(f.cfg.Path, program) != "" }); ok {
			all = append(all, Entry{Definition: d, Level: definitions.BuiltIn})
		}
	}
	first := map[string]Entry{}
	var count []subagent.Definition
	for i := range all {
		e := &all[i]
		winner, taken := first[e.Name]
		if !taken {
			first[e.Name], count = *e, append(count, e.Definition)
			continue
		}
		e.HiddenBy = winner.Source
		if e.Level != definitions.BuiltIn {
			told = append(told, Problem{
				File:     e.Source,
				Severity: Note,
				What:     fmt.Sprintf("agent %q is hidden by that in %s", e.Name, winner.Source),
				Fix:      "rename one of them if both are wanted",
			})
		}
	}
	slices.SortStableFunc(all, func(a, b Entry) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortStableFunc(told,
		func(a, b Problem) int { return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line)) })
	f.found, f.told, f.catalog = all, told, subagent.NewCatalog(count...)
}

// jsonEntries returns the entries of a JSON text. It removes from the entries of a
// server everything that would execute: the user has not reviewed it.
func jsonEntries(from string, level definitions.Level, data []byte) ([]Entry, []Problem) {
	if len(data) == 0 {
		return nil, nil
	}
	entries, problems, err := ParseJSON(from, data)
	if err != nil {
		return nil, []Problem{{File: from, Severity: Error, What: err.Error()}}
	}
	for i := range entries {
		e := &entries[i]
		e.Level = level
		if waits := e.executes(); level == definitions.Remote && len(waits) > 0 {
			e.inert()
			problems = append(problems, Problem{
				File:     from,
				Severity: Warning,
				What:     fmt.Sprintf("agent %q: %s of a remote catalog have no effect", e.Name, listed(waits)),
			})
		}
	}
	return entries, problems
}

// executes are the keys by which a definition would have something executed.
func (e *Entry) executes() []string {
	var out []string
	if len(e.Hooks) > 0 {
		out = append(out, "hooks")
	}
	if len(e.MCPServers) > 0 {
		out = append(out, "mcpServers")
	}
	if e.ACP != nil && e.ACP.Command != "" {
		out = append(out, "acp")
	}
	return out
}

// inert takes away what would execute something. An agent of another vendor stays one, without
// its program.
func (e *Entry) inert() {
	e.Waits = e.executes()
	e.Hooks, e.MCPServers = nil, nil
	if e.ACP != nil {
		e.ACP = &subagent.ACP{}
	}
}

// Program finds a program in a list of folders, as of PATH; empty: it is not there. Folders
// that are not absolute are not looked at.
func Program(path, name string) string {
	for _, dir := range filepath.SplitList(path) {
		at := filepath.Join(dir, name)
		if !filepath.IsAbs(dir) || strings.ContainsRune(name, '/') {
			continue
		}
		if info, err := os.Stat(at); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return at
		}
	}
	return ""
}

// stamp is the identity, the size and the times of a file or folder. A missing file
// has the zero stamp.
type stamp struct{ unix.Stat_t }

// stampOf follows links, so that what they lead to counts.
func stampOf(path string) stamp {
	var st stamp
	if err := unix.Stat(path, &st.Stat_t); err != nil {
		return stamp{}
	}
	st.Atim = unix.Timespec{} // a read does not change the file
	return st
}

// settled reports whether a change after a look could not have left the stamp
// as it was. Clocks of file systems are coarse, up to two seconds.
func (s stamp) settled(now time.Time) bool {
	sec, nsec := s.Ctim.Unix()
	return now.Sub(time.Unix(sec, nsec)) > 3*time.Second
}
