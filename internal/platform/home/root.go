package home

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/drover-dev/drover/internal/platform/saferoot"
	"github.com/drover-dev/drover/task"
)

// Root is the state directory of one user. Make it with [Find] or [At].
type Root struct{ dir string }

// Find names the state directory: $DROVER_HOME, else $XDG_STATE_HOME/drover,
// else ~/.local/state/drover. env returns the variables of the process,
// never variables from a project's files. A relative
// path would mean another place in every folder: in DROVER_HOME it is refused, in
// XDG_STATE_HOME ignored, as the standard of that variable says.
func Find(env func(string) string) (Root, error) {
	if dir := env("DROVER_HOME"); dir != "" {
		if !filepath.IsAbs(dir) {
			return Root{}, fmt.Errorf("DROVER_HOME is not an absolute path: %q (set it to one, or unset it)", dir)
		}
		return At(dir), nil
	}
	if dir := env("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return At(filepath.Join(dir, "drover")), nil
	}
	dir := env("HOME")
	if !filepath.IsAbs(dir) {
		return Root{}, fmt.Errorf("no home directory is known: HOME is %q (set HOME or DROVER_HOME to an absolute path)", dir)
	}
	return At(filepath.Join(dir, ".local", "state", "drover")), nil
}

// Config names the folder of the user's configuration: $XDG_CONFIG_HOME/drover, else
// ~/.config/drover; empty where neither is an absolute path.
func Config(env func(string) string) string {
	if dir := env("XDG_CONFIG_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "drover")
	}
	if dir := env("HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, ".config", "drover")
	}
	return ""
}

// At returns the state directory at an absolute path.
func At(dir string) Root { return Root{filepath.Clean(dir)} }

// Dir is the absolute path of the state directory.
func (r Root) Dir() string { return r.dir }

// AgentCache keeps the latest answer of a server of agents.
func (r Root) AgentCache() string { return filepath.Join(r.dir, "agents-remote.json") }

// CredentialsFile is where the set-up page keeps the addresses and keys of models.
func (r Root) CredentialsFile() string { return filepath.Join(r.dir, "credentials.json") }

// TrustFile holds which folders are trusted.
func (r Root) TrustFile() string { return filepath.Join(r.dir, "trust.json") }

// Todos is the directory of one to-do list.
func (r Root) Todos(list string) string { return filepath.Join(r.dir, "todos", element(list)) }

// OutputsFile holds the size of the outputs of all sessions at the time of the latest
// measurement.
func (r Root) OutputsFile() string { return filepath.Join(r.dir, "outputs.json") }

// Workspaces is the folder in which tasks of other machines work.
func (r Root) Workspaces() string { return filepath.Join(r.dir, "worker") }

// Worktrees is where isolated checkouts live.
func (r Root) Worktrees() string { return filepath.Join(r.dir, "worktrees") }

// Merges is the folder of journals of merges, and of the checkouts that they are made in.
func (r Root) Merges() string { return filepath.Join(r.dir, "merges") }

func (r Root) projects() string { return filepath.Join(r.dir, "projects") }

// Below opens files in the state directory without following a link in it.
func (r Root) Below() saferoot.Dir { return saferoot.Dir(r.dir) }

// ReadFile is [ReadFile] of a file of the state directory, and follows no link in
// that.
func (r Root) ReadFile(path string, most int64) ([]byte, error) {
	return ReadBelow(r.Below(), path, most)
}

// WriteAtomic is [WriteAtomic] of a file of the state directory, and follows no
// link in that.
func (r Root) WriteAtomic(path string, data []byte) error { return WriteBelow(r.Below(), path, data) }

// Ensure creates the state directory. It refuses a directory that is not this user's
// or that others can write to.
func (r Root) Ensure() error {
	if !filepath.IsAbs(r.dir) {
		return fmt.Errorf("state directory is not an absolute path: %q", r.dir)
	}
	// The root alone may be a link: people move their state to another disk.
	target, err := filepath.EvalSymlinks(r.dir)
	if errors.Is(err, fs.ErrNotExist) {
		target = r.dir
	} else if err != nil {
		return fmt.Errorf("open state directory: %w", err)
	}
	top, err := ensureRoot(target)
	if err != nil {
		return fmt.Errorf("open state directory: %w", err)
	}
	defer top.Close()
	projects, err := ensure(top, filepath.Base(r.projects()))
	if err != nil {
		return fmt.Errorf("open state directory: %w", err)
	}
	projects.Close()
	return nil
}

// Project returns the project of a folder. It makes the folder absolute and resolves
// its links, so that two ways to it are one project.
func (r Root) Project(folder string) Project {
	if abs, err := filepath.Abs(folder); err == nil {
		folder = abs
	}
	folder = filepath.Clean(folder)
	if real, err := filepath.EvalSymlinks(folder); err == nil {
		folder = real
	}
	return Project{root: r, folder: folder, dir: filepath.Join(r.projects(), projectName(folder))}
}

// Projects returns every project that has been used here, in the order of
// their folders. It skips directories that name no folder.
func (r Root) Projects() ([]Project, error) {
	names, err := r.Below().Names(r.projects())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list projects: %w", err)
	}
	var out []Project
	for _, name := range names {
		p := Project{root: r, dir: filepath.Join(r.projects(), name)}
		if p.folder, err = p.readFolder(); err != nil || projectName(p.folder) != name {
			continue
		}
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b Project) int { return cmp.Compare(a.folder, b.folder) })
	return out, nil
}

// projectName is readable first and unique second: the last two elements of
// the folder, and a part of its digest.
func projectName(folder string) string {
	parts := strings.Split(strings.Trim(folder, "/"), "/")
	if len(parts) > 2 {
		parts = parts[len(parts)-2:]
	}
	var slug strings.Builder
	for _, c := range strings.ToLower(strings.Join(parts, "-")) {
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9':
			slug.WriteRune(c)
		case slug.Len() > 0 && !strings.HasSuffix(slug.String(), "-"):
			slug.WriteByte('-')
		}
	}
	name := strings.Trim(slug.String(), "-")
	if len(name) > 40 {
		name = strings.Trim(name[len(name)-40:], "-")
	}
	if name == "" {
		name = "root"
	}
	sum := sha256.Sum256([]byte(folder))
	return name + "-" + hex.EncodeToString(sum[:4])
}

// Project is the place of one folder's work. Make it with [Root.Project].
type Project struct {
	root   Root
	folder string
	dir    string
}

// Root is the state directory that the project is in.
func (p Project) Root() Root { return p.root }

// Folder is the absolute path that the project is about, links resolved.
func (p Project) Folder() string { return p.folder }

// Dir is where the project's sessions are kept.
func (p Project) Dir() string { return p.dir }

// Memory is the directory of memories about the project.
func (p Project) Memory() string { return filepath.Join(p.dir, "memory") }

// SchedulesFile has the schedules of the project; without schedules it does not exist.
func (p Project) SchedulesFile() string { return filepath.Join(p.dir, "schedules.json") }

// BackgroundFile names the session that holds the project's detached tasks.
func (p Project) BackgroundFile() string { return filepath.Join(p.dir, "background") }

// LockFile is locked by a process that decides which session is the background one.
func (p Project) LockFile() string { return filepath.Join(p.dir, "lock") }

// Lock takes the project's lock, or returns [ErrLocked].
func (p Project) Lock() (unlock func(), err error) { return LockFile(p.root.Below(), p.LockFile()) }

// Ensure creates the project's directory and notes its folder there.
func (p Project) Ensure() error {
	if err := p.root.Ensure(); err != nil {
		return err
	}
	if err := p.ensure(); err != nil {
		return fmt.Errorf("open project %s: %w", p.folder, err)
	}
	if known, err := p.readFolder(); err == nil { // a file without a folder is written anew
		if known != p.folder {
			return fmt.Errorf("open project %s: %s belongs to the folder %s (move that directory away)", p.folder, p.dir, known)
		}
		return nil
	}
	if err := p.root.WriteAtomic(p.folderFile(), []byte(p.folder+"\n")); err != nil {
		return fmt.Errorf("open project %s: %w", p.folder, err)
	}
	return nil
}

func (p Project) ensure() error {
	all, err := p.root.Below().Folder(p.root.projects())
	if err != nil {
		return err
	}
	defer all.Close()
	mine, err := ensure(all, filepath.Base(p.dir))
	if err != nil {
		return err
	}
	mine.Close()
	return nil
}

func (p Project) folderFile() string { return filepath.Join(p.dir, "folder") }

func (p Project) readFolder() (string, error) {
	data, err := p.root.ReadFile(p.folderFile(), maxSmall)
	if err != nil {
		return "", err
	}
	folder, whole := strings.CutSuffix(string(data), "\n")
	if !whole || !filepath.IsAbs(folder) || strings.Contains(folder, "\x00") { // as a power cut may leave a file
		return "", fmt.Errorf("read %s: it names no folder", p.folderFile())
	}
	return folder, nil
}

// Session returns one session of the project.
func (p Project) Session(id task.ID) Session {
	return Session{project: p, id: id, dir: filepath.Join(p.dir, element(string(id)))}
}

// Sessions returns the project's sessions, newest first by the time their
// directory last changed.
func (p Project) Sessions() ([]Session, error) {
	dir, err := p.root.Below().Folder(p.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list sessions of %s: %w", p.folder, err)
	}
	defer dir.Close()
	names, err := dir.Names()
	if err != nil {
		return nil, fmt.Errorf("list sessions of %s: %w", p.folder, err)
	}
	type aged struct {
		s  Session
		at int64
	}
	var found []aged
	for _, name := range names {
		if !SessionID(name) {
			continue
		}
		info, err := dir.Lstat(name)
		if err != nil || !info.IsDir() {
			continue // removed since the directory was read, or no session
		}
		found = append(found, aged{p.Session(task.ID(name)), info.ModTime().UnixNano()})
	}
	slices.SortFunc(found, func(a, b aged) int {
		return cmp.Or(cmp.Compare(b.at, a.at), cmp.Compare(a.s.id, b.s.id))
	})
	out := make([]Session, len(found))
	for i, f := range found {
		out[i] = f.s
	}
	return out, nil
}

// SessionID reports whether a text can name a session: an ID of ours, or a UUID
// from another client.
func SessionID(s string) bool {
	if id, err := task.ParseID(s); err == nil {
		return id[0] == task.MainSessionLetter
	}
	if len(s) != 36 {
		return false
	}
	for i, r := range s {
		dash := i == 8 || i == 13 || i == 18 || i == 23
		if dash != (r == '-') || !dash && !strings.ContainsRune("0123456789abcdef", r) {
			return false
		}
	}
	return true
}

// Lookup makes a function like [os.Getenv] of a list of KEY=VALUE; of equal keys
// the last counts.
func Lookup(env []string) func(key string) string {
	return func(key string) string {
		for i := len(env) - 1; i >= 0; i-- {
			if v, ok := strings.CutPrefix(env[i], key+"="); ok {
				return v
			}
		}
		return ""
	}
}
