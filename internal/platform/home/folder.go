package home

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/drover-dev/drover/internal/platform/saferoot"
)

// Folder is an open folder of this user alone. Its files are plain, and several processes change them under locks.
type Folder struct{ *saferoot.Folder }

// OpenFolder opens a folder that other users cannot write to. With create it makes the folder and those above it; else
// it returns [fs.ErrNotExist] for a missing one. The caller closes it.
func OpenFolder(path string, create bool) (*Folder, error) {
	top := saferoot.Near(path)
	if create {
		if err := os.MkdirAll(string(top), 0o700); err != nil { // which is trusted
			return nil, err
		}
		for _, dir := range []string{filepath.Dir(path), path} {
			if err := top.Mkdir(dir); err != nil && !errors.Is(err, fs.ErrExist) {
				return nil, err
			}
		}
	}
	dir, err := top.Folder(path)
	if err != nil {
		return nil, err
	}
	info, err := dir.File().Stat()
	if err == nil {
		err = Own(path, info)
	}
	if err != nil {
		dir.Close()
		return nil, err
	}
	return &Folder{dir}, nil
}

// OpenFile opens a plain file of the folder, and waits for no pipe.
func (f *Folder) OpenFile(name string, flags int) (*os.File, fs.FileInfo, error) {
	file, err := f.Open(name, flags|unix.O_NONBLOCK, 0o600)
	if err != nil {
		if info, lstat := f.Lstat(name); lstat == nil {
			err = cmp.Or(Plain(name, info), err)
		}
		return nil, nil, err
	}
	info, err := file.Stat()
	if err == nil {
		err = Plain(name, info)
	}
	if err != nil {
		return nil, nil, errors.Join(err, file.Close())
	}
	return file, info, nil
}

// Read returns the first bytes of a file, and its info.
func (f *Folder) Read(name string, most int64) ([]byte, fs.FileInfo, error) {
	file, info, err := f.OpenFile(name, os.O_RDONLY)
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, most))
	return data, info, err
}

// TryLock locks a file of the folder, which it makes if it is missing, or returns [ErrLocked]. The file stays.
func (f *Folder) TryLock(name string) (unlock func(), err error) {
	file, _, err := f.OpenFile(name, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	if err = Flock(file); err == nil {
		var st unix.Stat_t
		if err = unix.Fstat(int(file.Fd()), &st); err == nil && st.Nlink == 0 {
			err = ErrLocked // a file that was removed meanwhile excludes no other process
		}
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return func() { Unlock(file) }, nil
}

// Lock waits until it has the lock of a file, at most for so long.
func (f *Folder) Lock(ctx context.Context, name string, most time.Duration) (unlock func(), err error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, most,
		fmt.Errorf("another process has held %s/%s for %s (end that process)", f.File().Name(), name, most))
	defer cancel()
	return Await(ctx, func() (func(), error) { return f.TryLock(name) })
}

// tempName begins the names of files that [Folder.Write] is writing.
const tempName = ".tmp-"

// Write replaces a file: a reader sees the old content or the new. With power the change survives a power cut. changed
// is the time of the file, unless it is zero. The caller holds the lock that guards the file, so what a crash has left
// is removed.
func (f *Folder) Write(name string, data []byte, power bool, changed time.Time) error {
	temp := tempName + name
	if err := f.RemoveAll(temp); err != nil {
		return err
	}
	file, err := f.Open(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err == nil && power {
		err = file.Sync() // else a power cut may leave an empty file under the name
	}
	err = errors.Join(err, file.Close())
	if err == nil && !changed.IsZero() {
		at := unix.NsecToTimespec(changed.UnixNano())
		err = unix.UtimesNanoAt(int(f.File().Fd()), temp, []unix.Timespec{at, at}, unix.AT_SYMLINK_NOFOLLOW)
	}
	if err == nil {
		err = f.Rename(temp, f.Folder, name)
	}
	if err != nil {
		_ = f.Remove(temp)
	} else if power {
		err = f.Sync()
	}
	return err
}
