package trust

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/platform/saferoot"
)

// lockPatience is how long somebody else may hold the file.
const lockPatience = 5 * time.Second

// Store is the file with the trusted folders. Its methods may be called by
// several goroutines and processes.
type Store struct{ path string }

// At is the store in a file, which need not exist; its folder must.
func At(path string) Store { return Store{path} }

// Change is how a file differs from when the folder was trusted.
type Change struct {
	File string `json:"file"`
	How  string `json:"how"` // added, changed or removed
}

// State is the state of trust of a folder.
type State struct {
	Folder     string   `json:"folder"`     // absolute, links resolved
	Trusted    bool     `json:"trusted"`    // exactly these files
	Changed    []Change `json:"changed"`    // since it was trusted; empty if it never was
	Effects    []Item   `json:"effects"`    // what its files would have done
	Unreadable []Item   `json:"unreadable"` // files that cannot be looked at: while there are some it cannot be trusted

	digest string
	sums   map[string]string
}

// Needed reports whether there is anything that waits for trust.
func (s State) Needed() bool { return !s.Trusted && len(s.Effects)+len(s.Unreadable) > 0 }

// content is the file.
type content struct {
	Version int              `json:"v"`
	Folders map[string]entry `json:"folders"`
}

type entry struct {
	Digest string            `json:"digest"`
	Files  map[string]string `json:"files"` // SHA-256 by name, to tell what changed
	At     time.Time         `json:"granted"`
}

// ErrBlind is returned, wrapped, for a folder that cannot be trusted as it is.
var ErrBlind = errors.New("some of its files cannot be looked at")

// Check looks at the given folder itself, not at one above.
// If the store cannot be read, no folder is trusted.
func (s Store) Check(folder string) (State, error) {
	folder, err := real(folder)
	if err != nil {
		return State{}, err
	}
	found, err := look(folder)
	if err != nil {
		return State{}, err
	}
	st := State{
		Folder:     folder,
		Changed:    []Change{},
		Effects:    append([]Item{}, found.items...),
		Unreadable: append([]Item{}, found.blind...),
		digest:     found.digest(),
		sums:       found.sums,
	}
	c, err := s.read()
	if err != nil {
		return st, err
	}
	e, ok := c.Folders[folder]
	if !ok {
		return st, nil
	}
	st.Trusted = e.Digest == st.digest && len(st.Unreadable) == 0
	st.Changed = changes(e.Files, st.sums)
	return st, nil
}

func changes(was, is map[string]string) []Change {
	out := []Change{}
	for name, sum := range is {
		switch old, known := was[name]; {
		case !known:
			out = append(out, Change{name, "added"})
		case old != sum:
			out = append(out, Change{name, "changed"})
		}
	}
	for name := range was {
		if _, there := is[name]; !there {
			out = append(out, Change{name, "removed"})
		}
	}
	slices.SortFunc(out, func(a, b Change) int { return cmp.Compare(a.File, b.File) })
	return out
}

// Grant trusts a folder with the files that Check found, and no others: if they
// have changed since, it is not trusted.
func (s Store) Grant(ctx context.Context, st State) error {
	if len(st.Unreadable) > 0 {
		return fmt.Errorf("trust %s: %w: %s %s", st.Folder, ErrBlind, st.Unreadable[0].File, st.Unreadable[0].What)
	}
	return s.change(ctx, func(c *content) {
		c.Folders[st.Folder] = entry{Digest: st.digest, Files: st.sums, At: time.Now().UTC().Truncate(time.Second)}
	})
}

// Keep trusts a folder again whose user has just had file written, with data in it:
// a folder that was trusted before, or had nothing to trust, stays trusted if nothing
// else has changed. It reports whether the folder is trusted now.
func (s Store) Keep(ctx context.Context, before State, file string, data []byte) (bool, error) {
	now, err := s.Check(before.Folder)
	if err != nil || now.Trusted {
		return err == nil, err
	}
	ours := func(c Change) bool { return c.File == file && now.sums[file] == sum(data) }
	alone := !slices.ContainsFunc(changes(before.sums, now.sums), func(c Change) bool { return !ours(c) })
	if before.Needed() || len(before.Unreadable) > 0 || !alone {
		return false, nil
	}
	err = s.Grant(ctx, now)
	return err == nil, err
}

// Revoke takes the trust in a folder back, and reports whether there was any.
func (s Store) Revoke(ctx context.Context, folder string) (bool, error) {
	folder, err := real(folder)
	if err != nil {
		return false, err
	}
	var had bool
	err = s.change(ctx, func(c *content) {
		_, had = c.Folders[folder]
		delete(c.Folders, folder)
	})
	return had, err
}

// real returns the one name of a folder. A missing folder keeps the given name.
func real(folder string) (string, error) {
	abs, err := filepath.Abs(folder)
	if err != nil {
		return "", fmt.Errorf("find folder %s: %w", folder, err)
	}
	resolved, err := filepath.EvalSymlinks(abs)
	if errors.Is(err, fs.ErrNotExist) {
		return abs, nil
	}
	if err != nil {
		return "", fmt.Errorf("find folder %s: %w", folder, err)
	}
	return resolved, nil
}

func (s Store) read() (content, error) {
	empty := content{Version: 1, Folders: map[string]entry{}}
	data, err := home.ReadFile(s.path, maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return empty, nil
	}
	if err != nil {
		return empty, fmt.Errorf("read trusted folders: %w", err)
	}
	c := content{}
	if err := json.Unmarshal(data, &c); err != nil {
		return empty, fmt.Errorf("read trusted folders: %s is damaged: %w (move it away, and trust your folders again)",
			s.path, err)
	}
	if c.Version != 1 {
		return empty, fmt.Errorf(
			"read trusted folders: %s has version %d, which this Drover does not know (use a newer one)",
			s.path,
			c.Version,
		)
	}
	if c.Folders == nil {
		c.Folders = empty.Folders
	}
	return c, nil
}

// change rewrites the file under the lock.
func (s Store) change(ctx context.Context, f func(*content)) error {
	unlock, err := lock(ctx, s.path+".lock")
	if err != nil {
		return err
	}
	defer unlock()
	c, err := s.read()
	if err != nil {
		return err
	}
	f(&c)
	data, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return fmt.Errorf("write trusted folders: %w", err)
	}
	return home.WriteAtomic(s.path, append(data, '\n'))
}

// lock waits for the lock of a file that exists only to be locked.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, lockPatience, errors.New("another process holds it"))
	defer cancel()
	unlock, err = home.Await(ctx, func() (func(), error) { return home.LockFile(saferoot.Dir(filepath.Dir(path)), path) })
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return unlock, nil
}
