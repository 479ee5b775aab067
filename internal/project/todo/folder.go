package todo

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/platform/saferoot"
)

const (
	lockName = "lock" // locked, never read or written
	markName = "last" // the highest number that was ever given
	tempName = ".tmp-"

	// How long a change waits for others before it gives up.
	patience = 10 * time.Second
)

// folder is the folder of a list while this process has its lock, so no other process
// changes it. Its methods make the names, which hold no slash, and follow no link.
type folder struct {
	dir   *saferoot.Folder
	lock  *os.File
	power bool
}

// open takes the lock. It waits for others until ctx ends, at most for
// [patience]. Without create a folder that is not there is [fs.ErrNotExist].
func open(ctx context.Context, path string, create, power bool) (*folder, error) {
	dir, err := saferoot.Near(path).Folder(path)
	if create && errors.Is(err, fs.ErrNotExist) {
		dir, err = makeFolder(path)
	}
	if err != nil {
		return nil, err
	}
	f := &folder{dir: dir, power: power}
	info, err := dir.File().Stat()
	if err == nil {
		err = home.Own(path, info)
	}
	if err == nil {
		err = f.acquire(ctx)
	}
	if err != nil {
		dir.Close()
		return nil, err
	}
	return f, nil
}

// makeFolder makes the folder of a list, and the folder of all lists.
func makeFolder(path string) (*saferoot.Folder, error) {
	top := saferoot.Near(path)
	if err := os.MkdirAll(string(top), 0o700); err != nil { // which is trusted
		return nil, err
	}
	for _, dir := range []string{filepath.Dir(path), path} {
		if err := top.Mkdir(dir); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
	}
	return top.Folder(path)
}

func (f *folder) acquire(ctx context.Context) (err error) {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, patience,
		fmt.Errorf("another process has held %s/%s for %s (end that process)", f.dir.File().Name(), lockName, patience))
	defer cancel()
	f.lock, err = home.Await(ctx, f.tryLock)
	return err
}

// tryLock opens and locks the lock file. A file that was removed between the two excludes
// no other process, so another attempt follows.
func (f *folder) tryLock() (*os.File, error) {
	lock, err := f.openFile(lockName, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	if err = home.Flock(lock); err == nil {
		var st unix.Stat_t
		if err = unix.Fstat(int(lock.Fd()), &st); err == nil && st.Nlink > 0 {
			return lock, nil
		}
		err = cmp.Or(err, home.ErrLocked)
	}
	_ = lock.Close()
	return nil, err
}

func (f *folder) close() {
	home.Unlock(f.lock)
	f.dir.Close()
}

// openFile opens a regular file of the folder, and waits for no pipe.
func (f *folder) openFile(name string, flags int) (*os.File, error) {
	file, err := f.dir.Open(name, flags|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil {
		err = home.Plain(name, info)
	}
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return file, nil
}

// read returns a whole file of a bounded size.
func (f *folder) read(name string) ([]byte, error) {
	file, err := f.openFile(name, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("%s has more than %d bytes", name, maxFile)
	}
	return data, err
}

// write replaces a file: a reader sees the old content or the new.
func (f *folder) write(name string, data []byte) error {
	file, err := f.temporary()
	if err != nil {
		return err
	}
	temp := filepath.Base(file.Name())
	_, err = file.Write(data)
	if err == nil && f.power {
		err = file.Sync()
	}
	err = errors.Join(err, file.Close())
	if err == nil {
		err = f.dir.Rename(temp, f.dir, name)
	}
	if err != nil {
		_ = f.dir.Remove(temp)
		return err
	}
	return f.sync()
}

// temporary makes a file to be renamed. Only the holder of the lock writes, so an existing
// file was left by a crash and is removed; if that fails, another name is used.
func (f *folder) temporary() (file *os.File, err error) {
	for i := range 8 {
		name := tempName + strconv.Itoa(i)
		_ = f.dir.Remove(name)
		if file, err = f.openFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL); !errors.Is(err, fs.ErrExist) {
			break
		}
	}
	return file, err
}

func (f *folder) remove(name string) error {
	if err := f.dir.Remove(name); err != nil {
		return err
	}
	return f.sync()
}

// sync makes a change of names survive a power cut, if that was asked for.
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
	_, err := f.dir.Lstat(file(id))
	return err == nil
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

// load reads the whole list.
func (f *folder) load() (List, error) {
	names, err := f.dir.Names()
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
			if d, ok := errors.AsType[*damaged](err); ok {
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
			return 0, fmt.Errorf("%s/%s does not hold the last number that was given (write it there)", f.dir.File().Name(), markName)
		}
		return id, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	names, err := f.dir.Names()
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
	names, err := f.dir.Names()
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
