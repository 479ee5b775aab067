package catalog

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/drover-dev/drover/internal/platform/untrusted"
	"github.com/drover-dev/drover/internal/project/definitions"
)

// Bounds of a scan.
const (
	MaxFiles   = 500 // in all places together
	maxEntries = 5000
	maxDepth   = 4        // folders in folders
	maxTotal   = 32 << 20 // bytes of all files
)

// scan is what one look at all places has found. A later one takes over what
// has not changed.
type scan struct {
	done     bool
	settled  bool
	stamps   []mark
	files    []*file // in the order of precedence
	problems []Problem
	bytes    int64           // of the files so far
	full     bool            // there are more files than count
	trust    map[string]bool // by root, as far as asked
}

type mark struct {
	path  string
	stamp stamp
}

// file is one definition on disk.
type file struct {
	path     string
	place    definitions.Place
	stamp    stamp
	settled  bool
	parsed   Entry // the last that could be read
	ok       bool  // there is one
	trusted  bool
	entry    Entry     // parsed, without what waits for trust
	problems []Problem // of what the file has now
}

// current reports whether all is as it was.
func (s *scan) current() bool {
	return s.done && s.settled && !slices.ContainsFunc(s.stamps, func(m mark) bool { return stampOf(m.path) != m.stamp })
}

// look looks at all places.
func look(c Config, before scan, now time.Time) scan {
	l := &looker{
		cfg:    c,
		now:    now,
		first:  !before.done,
		before: map[string]*file{},
		scan:   scan{done: true, settled: true, trust: map[string]bool{}},
	}
	for _, f := range before.files {
		l.before[f.path] = f
	}
	for _, path := range c.Also {
		l.mark(path)
	}
	for _, p := range c.Places {
		l.place(p)
	}
	return l.scan
}

type looker struct {
	scan
	cfg    Config
	now    time.Time
	first  bool
	before map[string]*file
}

// mark takes the stamp of a file or folder, before that is read.
func (l *looker) mark(path string) stamp {
	st := stampOf(path)
	l.stamps = append(l.stamps, mark{path, st})
	l.settled = l.settled && st.settled(l.now)
	return st
}

func (l *looker) say(path string, s Severity, what, fix string) {
	l.problems = append(l.problems, Problem{File: path, Severity: s, What: what, Fix: fix})
}

func (l *looker) place(p definitions.Place) {
	if l.mark(p.Path()) == (stamp{}) {
		if _, err := os.Lstat(p.Path()); err == nil {
			l.say(p.Path(), Warning, "it is a link to nothing", "fix the link")
		}
		return
	}
	root, err := os.OpenRoot(p.Root)
	if err != nil {
		l.say(p.Path(), Warning, "agents of this folder cannot be read: "+plain(err), "")
		return
	}
	defer func() { _ = root.Close() }()
	l.folder(root, p, p.Dir, 0)
}

func (l *looker) folder(root *os.Root, p definitions.Place, dir string, depth int) {
	path := filepath.Join(p.Root, dir)
	entries, err := list(root, dir)
	if err != nil {
		l.say(path, Warning, "agents of this folder cannot be read: "+plain(err), "")
		return
	}
	if len(entries) > maxEntries {
		l.say(path, Warning, fmt.Sprintf("only %d entries of this folder are looked at", maxEntries),
			"put other files elsewhere")
		entries = entries[:maxEntries]
	}
	for _, e := range entries {
		name := filepath.Join(dir, e.Name())
		switch {
		case p.Only == "" && strings.HasPrefix(e.Name(), "."), p.Only != "" && p.Only != e.Name():
		case e.IsDir() && depth >= maxDepth:
			l.say(filepath.Join(path, e.Name()), Warning, "folders so deep are not looked at", "move it up")
		case e.IsDir():
			l.mark(filepath.Join(path, e.Name()))
			l.folder(root, p, name, depth+1)
		case p.Only != "", strings.HasSuffix(e.Name(), ".md"):
			l.file(root, p, name)
		case e.Type()&fs.ModeSymlink != 0:
			l.link(root, filepath.Join(path, e.Name()), name)
		}
	}
}

// list is the entries of a folder by name, a few more than count.
func list(root *os.Root, dir string) ([]fs.DirEntry, error) {
	d, err := root.Open(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = d.Close() }()
	if info, err := d.Stat(); err != nil || !info.IsDir() {
		return nil, cmp.Or(err, errors.New("it is not a folder"))
	}
	entries, err := d.ReadDir(maxEntries + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, nil
}

// link tells of a link to a folder, which is not followed: it may lead to one
// above it.
func (l *looker) link(root *os.Root, path, name string) {
	if info, err := root.Stat(name); err == nil && info.IsDir() {
		l.say(path, Warning, "it is a link to a folder, which is not followed", "put the folder itself here")
	}
}

// file takes one definition over, or reads it.
func (l *looker) file(root *os.Root, p definitions.Place, name string) {
	path := filepath.Join(p.Root, name)
	switch {
	case l.full:
		return
	case slices.ContainsFunc(l.files, func(f *file) bool { return f.path == path }):
		return // two places are one
	case len(l.files) >= MaxFiles:
		l.full = true
		l.say(path, Warning, fmt.Sprintf("only %d files are read, and not this one and those after it", MaxFiles),
			"put other files elsewhere")
		return
	}
	f := &file{path: path, place: p, stamp: l.mark(path)}
	f.settled = f.stamp.settled(l.now)
	old := l.before[path]
	if old != nil && old.settled && old.stamp == f.stamp {
		f.parsed, f.ok, f.trusted, f.problems = old.parsed, old.ok, old.trusted, old.problems
		l.bytes += f.stamp.Size
	} else {
		l.read(root, f, name, old)
	}
	if f.ok {
		l.trustIn(f)
	}
	l.files = append(l.files, f)
}

// read reads a file. An unusable file leaves the definition as it was.
func (l *looker) read(root *os.Root, f *file, name string, old *file) {
	var ok bool
	f.parsed, f.problems, ok = l.parse(root, f, name)
	had := old != nil && old.ok
	switch {
	case ok:
		f.ok = true
		f.trusted = l.first && f.place.Trusted || had && old.trusted && sameDeeds(f.parsed, old.parsed)
	case had:
		f.parsed, f.ok, f.trusted = old.parsed, true, old.trusted
		f.problems[len(f.problems)-1].What += "; the agent stays as it was before"
	}
}

func (l *looker) parse(root *os.Root, f *file, name string) (Entry, []Problem, bool) {
	data, err := untrusted.Read(root, name, maxText)
	if err == nil {
		if l.bytes += int64(len(data)); l.bytes > maxTotal {
			err = fmt.Errorf("all agents together have more than %d bytes", maxTotal)
		}
	}
	if err != nil {
		return Entry{}, []Problem{
			{File: f.path, Severity: Error, What: "the file cannot be read: " + plain(err), Fix: mendFile(err)},
		}, false
	}
	e, problems, ok := Parse(f.path, data, dialectOf(f.path, f.place))
	e.Level = f.place.Level
	return e, problems, ok
}

func mendFile(err error) string {
	switch {
	case errors.Is(err, untrusted.ErrKind):
		return "put a file here"
	case errors.Is(err, untrusted.ErrSize):
		return fmt.Sprintf("at most %d bytes are read", maxText)
	case errors.Is(err, fs.ErrPermission):
		return "make it readable"
	case strings.Contains(err.Error(), "escapes"):
		return "put the file itself here, or make it a link to one in this folder"
	}
	return ""
}

// plain takes the names of system calls and of files out of an error.
func plain(err error) string {
	if p := new(fs.PathError); errors.As(err, &p) {
		err = p.Err
	}
	if strings.Contains(err.Error(), "escapes") { // os.Root has no error for it that could be asked for
		return "a link leads out of the folder"
	}
	return err.Error()
}

// trustIn decides whether a definition may execute its hooks and servers.
func (l *looker) trustIn(f *file) {
	f.entry = f.parsed
	if len(f.entry.executes()) == 0 {
		return
	}
	if l.cfg.Trusted != nil && f.place.Level == definitions.Project {
		trusted, asked := l.trust[f.place.Root]
		if !asked {
			trusted = l.cfg.Trusted(f.place.Root)
			l.trust[f.place.Root] = trusted
		}
		// The user trusts the file as it is now: it must be the file that was read.
		f.trusted = trusted && stampOf(f.path) == f.stamp
	}
	if !f.trusted && !(f.place.Level != definitions.Project && f.place.Trusted) {
		f.entry.inert()
	}
}

// sameDeeds reports whether two definitions would execute the same.
func sameDeeds(a, b Entry) bool {
	return reflect.DeepEqual(a.Hooks, b.Hooks) && reflect.DeepEqual(a.MCPServers, b.MCPServers) &&
		reflect.DeepEqual(a.ACP, b.ACP)
}

// waiting returns the notes about parts that have no effect for want of trust.
func (f *file) waiting() []Problem {
	if len(f.entry.Waits) == 0 {
		return nil
	}
	return []Problem{
		{File: f.path, Severity: Note, What: strings.Join(f.entry.Waits, " and ") + " without effect: waits for trust",
			Fix: fmt.Sprintf("see `drover trust %s`", f.place.Root)},
	}
}
