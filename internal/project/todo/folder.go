package todo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/drover-dev/drover/internal/platform/saferoot"
)

const (
	lockName = "lock" // locked, never read or written
	markName = "last" // the highest number that was ever given
	tempName = ".tmp-"

	// How long a change waits for others before it gives up.
	patience = 10 * time.Second
	shortest = 200 * time.Microsecond // between two looks at a lock
	longest  = 4 * time.Millisecond
)

// folder is that of a list while this process has its lock, so nobody else
// changes it. Names are made here and hold no slash; none is followed if it is
// a link.
type folder struct {
	dir   *os.File
	at    int // the descriptor of dir
	lock  int
	power bool
}

// open takes the lock. It waits for others until ctx ends, at most for
// [patience]. Without create a folder that is not there is [fs.ErrNotExist].
func open(ctx context.Context, path string, create, power bool) (*folder, error) {
	dir, err := saferoot.Near(path).Open(path, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if create && errors.Is(err, fs.ErrNotExist) {
		dir, err = lay(path)
	}
	if err != nil {
		return nil, err
	}
	if err := own(dir); err != nil {
		_ = dir.Close()
		return nil, err
	}
	f := &folder{dir: dir, at: int(dir.Fd()), power: power}
	if err := f.acquire(ctx); err != nil {
		_ = dir.Close()
		return nil, err
	}
	return f, nil
}

// lay makes the folder of a list, and that of all lists.
func lay(path string) (*os.File, error) {
	top := saferoot.Near(path)
	if err := os.MkdirAll(string(top), 0o700); err != nil { // which is trusted
		return nil, err
	}
	for _, dir := range []string{filepath.Dir(path), path} {
		if err := top.Mkdir(dir); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
	}
	return top.Open(path, os.O_RDONLY|unix.O_DIRECTORY, 0)
}

// own refuses a folder that another user could put files into.
func own(dir *os.File) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		return err
	}
	switch {
	case int(st.Uid) != os.Geteuid():
		return fmt.Errorf("%s belongs to another user, uid %d (use another DROVER_HOME, or chown it)", dir.Name(), st.Uid)
	case st.Mode&0o022 != 0:
		return fmt.Errorf("%s can be written to by others, mode %04o (run: chmod go-w '%s')", dir.Name(), st.Mode&0o777,
			dir.Name())
	}
	return nil
}

// acquire asks again and again, because a wait in the kernel could not be ended
// by ctx.
func (f *folder) acquire(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience,
		fmt.Errorf("another process has held %s/%s for %s (end that process)", f.dir.Name(), lockName, patience))
	defer cancel()
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		fd, err := f.openat(lockName, unix.O_RDWR|unix.O_CREAT)
		if err != nil {
			return fmt.Errorf("lock: %w", err)
		}
		if err = flock(ctx, fd); err == nil && f.is(fd, lockName) {
			f.lock = fd
			return nil
		}
		_ = unix.Close(fd)
		if err != nil {
			return err
		}
		// A lock on a file that was removed meanwhile excludes nobody.
	}
}

func flock(ctx context.Context, fd int) error {
	for wait := shortest; ; wait = min(2*wait, longest) {
		err := retry(func() error { return unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) })
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return wrap("lock", err)
		}
		t := time.NewTimer(wait/2 + rand.N(wait))
		select {
		case <-ctx.Done():
			t.Stop()
			return context.Cause(ctx)
		case <-t.C:
		}
	}
}

// is tells whether a name still means an open file.
func (f *folder) is(fd int, name string) bool {
	var mine, there unix.Stat_t
	return unix.Fstat(fd, &mine) == nil && unix.Fstatat(f.at, name, &there, unix.AT_SYMLINK_NOFOLLOW) == nil &&
		mine.Ino == there.Ino && mine.Dev == there.Dev
}

func (f *folder) close() {
	// Closing alone would not do: a child between fork and exec still has the
	// descriptor, and with it the lock.
	_ = unix.Flock(f.lock, unix.LOCK_UN)
	_ = unix.Close(f.lock)
	_ = f.dir.Close()
}

func retry(do func() error) error {
	for {
		if err := do(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// openat opens a regular file of the folder, and waits for no pipe.
func (f *folder) openat(name string, flags int) (fd int, err error) {
	err = retry(func() error {
		fd, err = unix.Openat(f.at, name, flags|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0o600)
		return err
	})
	if errors.Is(err, unix.ELOOP) {
		return -1, fmt.Errorf("%s is a symbolic link (move it away)", name)
	}
	if err != nil {
		return -1, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	switch {
	case err != nil:
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		err = fmt.Errorf("%s is not a regular file (move it away)", name)
	case st.Nlink > 1:
		err = fmt.Errorf("%s has another name elsewhere (move it away)", name)
	default:
		return fd, nil
	}
	_ = unix.Close(fd)
	return -1, err
}

// read returns a whole file of a bounded size.
func (f *folder) read(name string) ([]byte, error) {
	fd, err := f.openat(name, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), name)
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("%s has more than %d bytes", name, maxFile)
	}
	return data, err
}

// write puts data in the place of a file: who reads it sees the old content or
// the new.
func (f *folder) write(name string, data []byte) error {
	temp, fd, err := f.temporary()
	if err != nil {
		return err
	}
	file := os.NewFile(uintptr(fd), temp)
	_, err = file.Write(data)
	if err == nil && f.power {
		err = file.Sync()
	}
	err = errors.Join(err, file.Close())
	if err == nil {
		if err = unix.Renameat(f.at, temp, f.at, name); err != nil {
			err = &fs.PathError{Op: "replace", Path: name, Err: err}
		}
	}
	if err != nil {
		_ = unix.Unlinkat(f.at, temp, 0)
		return err
	}
	return f.sync()
}

// temporary makes a file to be renamed. Nobody else writes while we have the
// lock, so one that is there was left by a crash and can go; what cannot be
// removed is passed by.
func (f *folder) temporary() (name string, fd int, err error) {
	for i := range 8 {
		name = tempName + strconv.Itoa(i)
		_ = unix.Unlinkat(f.at, name, 0)
		if fd, err = f.openat(name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL); !errors.Is(err, unix.EEXIST) {
			break
		}
	}
	return name, fd, err
}

func (f *folder) remove(name string) error {
	if err := unix.Unlinkat(f.at, name, 0); err != nil {
		return &fs.PathError{Op: "remove", Path: name, Err: err}
	}
	return f.sync()
}

// sync makes a change of names outlast a power cut, if that was asked for.
func (f *folder) sync() error {
	if !f.power {
		return nil
	}
	return f.dir.Sync()
}

// file is the name of a to-do's.
func file(id ID) string { return strconv.Itoa(int(id)) + ".json" }

// parseFile reads such a name. Ours tells whether it is meant to be one.
func parseFile(name string) (id ID, ours bool, err error) {
	stem, ours := strings.CutSuffix(name, ".json")
	if !ours || strings.HasPrefix(name, ".") {
		return 0, false, nil
	}
	if strings.HasPrefix(stem, "#") {
		return 0, true, errors.New("its name is not a number")
	}
	if id, err = ParseID(stem); err != nil {
		return 0, true, errors.New("its name is not a number")
	}
	return id, true, nil
}

func (f *folder) has(id ID) bool {
	var st unix.Stat_t
	return unix.Fstatat(f.at, file(id), &st, unix.AT_SYMLINK_NOFOLLOW) == nil
}

func (f *folder) item(id ID) (Item, error) {
	data, err := f.read(file(id))
	if errors.Is(err, fs.ErrNotExist) {
		return Item{}, fmt.Errorf("to-do %s: %w", id, ErrNotFound)
	}
	var it Item
	if err == nil {
		it, err = decode(id, data)
	}
	if err != nil {
		return Item{}, &damaged{id, err}
	}
	return it, nil
}

func (f *folder) put(it Item) error {
	if it.version > version {
		return fmt.Errorf("to-do %s was written by a newer Drover (use that one to change it)", it.ID)
	}
	data, err := it.encode()
	if err != nil {
		return err
	}
	return f.write(file(it.ID), data)
}

func (f *folder) names() ([]string, error) {
	if _, err := f.dir.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	return f.dir.Readdirnames(-1)
}

// load reads the whole list.
func (f *folder) load() (List, error) {
	names, err := f.names()
	if err != nil {
		return List{}, err
	}
	var l List
	for _, name := range names {
		id, ours, err := parseFile(name)
		if !ours {
			continue
		}
		var it Item
		if err == nil {
			it, err = f.item(id)
		}
		if err != nil {
			var d *damaged
			if errors.As(err, &d) {
				err = d.err
			}
			l.Problems = append(l.Problems, Problem{ID: id, File: name, Why: err.Error()})
			continue
		}
		l.Items = append(l.Items, it)
	}
	l.settle()
	return l, nil
}

// mark is the highest number that was ever given. Without the file it is the
// highest that is there: such a folder was put together by hand.
func (f *folder) mark() (ID, error) {
	data, err := f.read(markName)
	if err == nil {
		id, err := ParseID(string(bytes.TrimSpace(data)))
		if err != nil {
			return 0, fmt.Errorf("%s/%s does not hold the last number that was given (write it there)", f.dir.Name(), markName)
		}
		return id, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	names, err := f.names()
	if err != nil {
		return 0, err
	}
	var last ID
	for _, name := range names {
		if id, _, err := parseFile(name); err == nil {
			last = max(last, id)
		}
	}
	return last, nil
}

func (f *folder) setMark(id ID) error {
	return f.write(markName, []byte(strconv.Itoa(int(id))+"\n"))
}

// full refuses one more to-do. There are never more of them than numbers that
// were given, so most lists need not be counted.
func (f *folder) full(last ID) error {
	if last < MaxItems {
		return nil
	}
	names, err := f.names()
	if err != nil {
		return err
	}
	n := 0
	for _, name := range names {
		if _, ours, _ := parseFile(name); ours {
			n++
		}
	}
	if n >= MaxItems {
		return fmt.Errorf("the list has %d to-dos, as many as a list can hold (delete some)", n)
	}
	return nil
}
