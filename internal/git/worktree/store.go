package worktree

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/drover-dev/drover/internal/git/gitrun"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/platform/saferoot"
	"github.com/drover-dev/drover/internal/platform/untrusted"
	"github.com/drover-dev/drover/task"
)

// ErrGone is returned, wrapped, for a checkout that is not there any more.
var ErrGone = errors.New("the worktree is gone")

// ErrBusy is returned, wrapped, for a checkout that another process is using.
var ErrBusy = errors.New("the worktree is in use")

// Store is the folder of all checkouts. Its methods may be called from several
// goroutines and processes at the same time.
type Store struct {
	root string

	// after is called after each step, for tests that crash there; may be nil.
	after func(step string)
}

// Open returns the store at an absolute path, such as [home.Root.Worktrees].
// It touches no files; the first checkout makes the folder.
func Open(root string) *Store { return &Store{root: filepath.Clean(root)} }

func (s *Store) step(name string) {
	if s.after != nil {
		s.after(name)
	}
}

// Tree is a checkout that its holder owns, until [Store.Finish] or
// [Tree.Release]. It is held by a lock that ends with the process.
type Tree struct {
	Task   task.ID
	Path   string // absolute; the top of the checkout
	Dir    string // the folder in it that was asked for, absolute
	Branch string // drover/<task>
	Base   string // the commit that it began at
	Repo   string // the top of the work tree that it was made from
	Common string // the administrative folder of the repository: the same for all its checkouts

	// Uncommitted counts the uncommitted changes of Repo at the time when the
	// checkout was made; the checkout does not have them. -1: unknown.
	Uncommitted int

	receipt receipt
	lock    *os.File
}

// Release lets go of the checkout without looking at it. [Store.Sweep] will.
func (t *Tree) Release() {
	if t.lock != nil {
		_ = t.lock.Close()
		t.lock = nil
	}
}

// Map returns the path in the checkout of a file or folder in Repo, both absolute; false
// for a path outside of Repo.
func (t *Tree) Map(path string) (string, bool) {
	rel, err := filepath.Rel(t.Repo, path)
	if err != nil || !filepath.IsLocal(rel) {
		return "", false
	}
	return filepath.Join(t.Path, rel), true
}

// The states of a checkout in its receipt.
const (
	making = "making" // no task has it yet
	ready  = "ready"
	kept   = "kept" // its task has ended
)

// receipt is the record of a checkout. It is made before all other files and removed
// last.
type receipt struct {
	V       int       `json:"v"`
	State   string    `json:"state"`
	Task    task.ID   `json:"task_id"`
	Session task.ID   `json:"session_id,omitempty"`
	Name    string    `json:"name,omitempty"` // of the agent, for people
	Repo    string    `json:"repo"`
	Common  string    `json:"common_dir"`
	Prefix  string    `json:"prefix"` // the folder in the checkout
	Path    string    `json:"path"`
	Branch  string    `json:"branch"`
	Base    string    `json:"base_commit"`
	Created time.Time `json:"created"`
	Rescue  string    `json:"rescue_ref,omitempty"`
	Ended   time.Time `json:"ended,omitzero"`
}

const (
	receiptName = "receipt.json"
	tempMark    = ".tmp-" // in the names of files that home.WriteAtomic is writing
	goneName    = "gone"  // a checkout that is clean and being removed
	indexName   = "index" // of a rescue that is being made
	listName    = "paths" // the files of a rescue
	maxReceipt  = 64 << 10
	version     = 1
)

func branchOf(id task.ID) string { return "drover/" + string(id) }
func rescueOf(id task.ID) string { return "refs/drover/rescue/" + string(id) }

func (s *Store) dir(id task.ID) string { return filepath.Join(s.root, string(id)) }

// base returns the name of a checkout's folder. It shows the repository to people, and
// the task to this package: git names its administrative folder by it.
func base(repo string, id task.ID) string {
	clean := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-' {
			return r
		}
		return '-'
	}, filepath.Base(repo))
	if len(clean) > 40 {
		clean = clean[:40]
	}
	return cmp.Or(strings.Trim(clean, "-_"), "repo") + "-" + string(id)
}

func (r receipt) base() string  { return base(r.Repo, r.Task) }
func (r receipt) admin() string { return filepath.Join(r.Common, "worktrees", r.base()) }

// repository returns git on the repository itself, for work without the checkout.
func (r receipt) repository(held *os.File) gitrun.Git {
	return gitrun.Git{Admin: r.Common, Tree: r.Common, Held: held}
}

func (r receipt) checkout(held *os.File) gitrun.Git {
	return gitrun.Git{Admin: r.admin(), Tree: r.Path, Held: held}
}

func (s *Store) tree(r receipt, lock *os.File) *Tree {
	return &Tree{
		Task:    r.Task,
		Path:    r.Path,
		Dir:     filepath.Join(r.Path, r.Prefix),
		Branch:  r.Branch,
		Base:    r.Base,
		Repo:    r.Repo,
		Common:  r.Common,
		receipt: r,
		lock:    lock,
	}
}

// check refuses a receipt that does not match its place.
func (s *Store) check(r receipt, id task.ID) error {
	abs := filepath.IsAbs(r.Repo) && filepath.IsAbs(r.Common) && filepath.Clean(r.Common) == r.Common
	hex := len(r.Base) >= 40 && len(r.Base) <= 64 && strings.Trim(r.Base, "0123456789abcdef") == ""
	switch {
	case r.V != version:
		return fmt.Errorf("its format %d is not known here", r.V)
	case r.Task != id || r.Branch != branchOf(id) || r.Rescue != "" && r.Rescue != rescueOf(id):
		return errors.New("it speaks of another task")
	case !abs || r.Path != filepath.Join(s.dir(id), r.base()):
		return errors.New("it names another path")
	case r.Prefix != "" && !filepath.IsLocal(r.Prefix):
		return errors.New("its folder leads out of the checkout")
	case !hex || r.State != making && r.State != ready && r.State != kept:
		return errors.New("it is damaged")
	}
	return nil
}

// read returns the receipt of a task, or fs.ErrNotExist.
func (s *Store) read(id task.ID) (r receipt, err error) {
	root, err := s.folder(id)
	if err != nil {
		return r, err
	}
	defer func() { _ = root.Close() }()
	info, err := root.Lstat(receiptName)
	if err != nil {
		return r, err
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		return r, fmt.Errorf("receipt %s: a symbolic link", filepath.Join(s.dir(id), receiptName))
	}
	data, err := untrusted.Read(root, receiptName, maxReceipt)
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	if err == nil {
		err = s.check(r, id)
	}
	if err != nil {
		return r, fmt.Errorf("receipt %s: %w", filepath.Join(s.dir(id), receiptName), err)
	}
	return r, nil
}

func (s *Store) write(r receipt) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return home.WriteBelow(s.below(), filepath.Join(s.dir(r.Task), receiptName), append(data, '\n'))
}

// below opens files in the store. The folder that holds the store is trusted.
func (s *Store) below() saferoot.Dir { return saferoot.Dir(filepath.Dir(s.root)) }

// folder opens the folder of a task. The caller closes it.
func (s *Store) folder(id task.ID) (*os.Root, error) { return s.below().Root(s.dir(id)) }

// Ensure makes the folder of the store, if it is not there.
func (s *Store) Ensure() error { return s.open() }

// open makes the folder of the store and checks that it is this user's alone.
func (s *Store) open() error {
	if !filepath.IsAbs(s.root) {
		return fmt.Errorf("folder of worktrees is not an absolute path: %q", s.root)
	}
	if err := os.MkdirAll(s.root, 0o700); err != nil {
		return fmt.Errorf("folder of worktrees: %w", err)
	}
	return s.own()
}

// own refuses a store that another user could write to.
func (s *Store) own() error {
	info, err := os.Lstat(s.root)
	if err != nil {
		return fmt.Errorf("folder of worktrees: %w", err)
	}
	if err := home.Own(s.root, info); err != nil {
		return fmt.Errorf("folder of worktrees: %w", err)
	}
	return nil
}

// hold locks the folder of a task, or returns [ErrBusy]. The lock is on the folder
// itself, so it disappears when its process dies.
func (s *Store) hold(id task.ID) (*os.File, error) {
	f, err := s.lock(s.dir(id))
	if errors.Is(err, home.ErrLocked) {
		err = ErrBusy
	}
	return f, err
}

// sweepWait is longer than a sweep holds a checkout that it looks at.
const sweepWait = 5 * time.Second

// holdSoon is hold that waits until the sweep of another process has looked.
func (s *Store) holdSoon(ctx context.Context, id task.ID) (*os.File, error) {
	ctx, done := context.WithTimeoutCause(ctx, sweepWait, ErrBusy)
	defer done()
	return s.await(ctx, s.dir(id))
}

// lock opens a folder and locks it, or returns [home.ErrLocked].
func (s *Store) lock(dir string) (*os.File, error) {
	return home.LockBelow(s.below(), dir, os.O_RDONLY|unix.O_DIRECTORY, 0)
}

// await is lock that waits for other holders.
func (s *Store) await(ctx context.Context, dir string) (*os.File, error) {
	return home.Await(ctx, func() (*os.File, error) { return s.lock(dir) })
}

// claim makes the folder of a task and holds it. A sweep that comes between the two
// steps removes the empty folder; claim waits for it and makes the folder again.
func (s *Store) claim(ctx context.Context, id task.ID) (*os.File, error) {
	all, err := s.below().Folder(s.root)
	if err != nil {
		return nil, err
	}
	defer all.Close()
	for range 100 {
		if err := all.Mkdir(string(id)); err != nil {
			return nil, err
		}
		s.step("folder")
		f, err := s.await(ctx, s.dir(id))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = all.Sync() // so that the receipt in it survives a power cut
		}
		if err != nil && f != nil {
			_ = f.Close()
			f = nil
		}
		return f, err
	}
	return nil, fmt.Errorf("%s: %w", s.dir(id), ErrBusy)
}

// Turn waits until no other caller makes or removes a checkout, by the lock of the common folder:
// a git that reads a half made or half removed checkout fails. Closing the file ends
// the turn.
func (s *Store) Turn(ctx context.Context) (*os.File, error) {
	err := s.open()
	var f *os.File
	if err == nil {
		f, err = s.await(ctx, s.root)
	}
	if err != nil {
		return nil, fmt.Errorf("wait to make or remove a checkout: %w", err)
	}
	return f, nil
}

// Resume takes a checkout that was kept, for a further run of its task. It returns
// [ErrGone] without one, and [ErrBusy] when another process holds it for longer than a sweep.
func (s *Store) Resume(ctx context.Context, id task.ID) (*Tree, error) {
	t, err := s.resume(ctx, id)
	if errors.Is(err, fs.ErrNotExist) {
		err = ErrGone
	}
	if err != nil {
		return nil, fmt.Errorf("worktree of task %s: %w", id, err)
	}
	return t, nil
}

func (s *Store) resume(ctx context.Context, id task.ID) (*Tree, error) {
	if _, err := task.ParseID(string(id)); err != nil {
		return nil, err
	}
	lock, err := s.holdSoon(ctx, id)
	if err != nil {
		return nil, err
	}
	r, err := s.read(id)
	if err == nil && r.State == making {
		err = ErrGone
	}
	if err == nil {
		err = r.there()
	}
	if err == nil {
		err = r.guard()
	}
	if err == nil {
		r.State = ready
		err = s.write(r)
	}
	if err != nil {
		_ = lock.Close()
		return nil, err
	}
	t := s.tree(r, lock)
	t.Uncommitted = -1
	if info, err := os.Stat(t.Dir); err != nil || !info.IsDir() {
		t.Dir = t.Path
	}
	return t, nil
}

// there checks that the checkout and its entry in the repository belong together.
func (r receipt) there() error {
	info, err := os.Lstat(r.Path)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is not a folder", r.Path)
	}
	at, err := r.known()
	if err != nil {
		return fmt.Errorf("the repository %s does not know it: %w", r.Repo, err)
	}
	if at != r.Path {
		return fmt.Errorf("the repository %s knows it at another place", r.Repo)
	}
	return nil
}

// known returns the path of the checkout according to the repository.
func (r receipt) known() (string, error) {
	text, err := os.ReadFile(filepath.Join(r.admin(), "gitdir"))
	return strings.TrimSuffix(strings.TrimRight(string(text), "\n"), "/.git"), err
}

// guard keeps the user's own git from removing the checkout while it is in use.
func (r receipt) guard() error {
	common, err := os.OpenRoot(r.Common)
	if err != nil {
		return err
	}
	defer func() { _ = common.Close() }()
	return common.WriteFile(filepath.Join("worktrees", r.base(), "locked"), []byte(r.reason()+"\n"), 0o644)
}

func (r receipt) reason() string { return "in use by drover task " + string(r.Task) }
