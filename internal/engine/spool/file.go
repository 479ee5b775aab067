package spool

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/drover-dev/drover/internal/platform/saferoot"
	"github.com/drover-dev/drover/task"
)

// DefaultLimit is the default maximum size of an output file: 5 GB.
const DefaultLimit = 5_000_000_000

// ErrForeign is returned for a file that cannot be an output file of Drover: not a regular
// file, with a second hard link, or of another user.
var ErrForeign = errors.New("not an output file of ours")

// Options configures a file.
type Options struct {
	Limit int64 // bytes; 0: [DefaultLimit]

	// Below is a folder above the file; no link below it is followed. Empty: neither the file
	// nor its folder may be a link.
	Below saferoot.Dir

	// Take reserves space for a number of bytes, in addition to Limit, and returns how many are
	// granted. It applies to [File.Write] and may be called by several goroutines. Nil: no
	// reservation.
	Take func(n int64) int64
}

// File is the output of one task, open for appending. Its methods may be
// called from several goroutines.
type File struct {
	path  string // never changes, nor do limit and take
	limit int64
	take  func(int64) int64

	mu      sync.Mutex
	f       *os.File
	closed  bool
	last    int64 // size at the time of Close
	said    bool  // the limit was reached, and the note about it written
	dropped int64
	why     string // of the first bytes that were dropped
	full    bool   // its file system was full at the time of Close
}

var _ task.Output = (*File)(nil)

// Open creates the output file of a new task. It refuses anything that exists at the path: a
// symbolic link with ELOOP, the rest with EEXIST.
func Open(path string, opt Options) (*File, error) {
	fd, err := openBelow(opt.Below, path, unix.O_WRONLY|unix.O_APPEND|unix.O_CREAT|unix.O_EXCL)
	if errors.Is(err, unix.EEXIST) {
		// With O_EXCL a link is reported only as existing; callers must distinguish a planted
		// link from an ID used twice.
		if info, statErr := saferoot.Near(path).Lstat(path); statErr == nil && info.Mode()&fs.ModeSymlink != 0 {
			err = unix.ELOOP
		}
	}
	if err != nil {
		return newFile(-1, path, opt, err)
	}
	return wrap(fd, path, opt, 0), nil // it is new, so nothing of it is foreign
}

// Reopen opens the output file of a task that this or an earlier host began.
func Reopen(path string, opt Options) (*File, error) {
	fd, err := openBelow(opt.Below, path, unix.O_WRONLY|unix.O_APPEND)
	return newFile(fd, path, opt, err)
}

func newFile(fd int, path string, opt Options, err error) (*File, error) {
	if err != nil {
		return nil, &fs.PathError{Op: "open output", Path: path, Err: err}
	}
	size, err := check(fd)
	if err == nil {
		err = unix.SetNonblock(fd, false)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, &fs.PathError{Op: "open output", Path: path, Err: err}
	}
	return wrap(fd, path, opt, size), nil
}

func wrap(fd int, path string, opt Options, size int64) *File {
	limit := opt.Limit
	if limit <= 0 {
		limit = DefaultLimit
	}
	return &File{path: path, limit: limit, take: opt.Take, f: os.NewFile(uintptr(fd), path), said: size > limit}
}

// openBelow opens a file; a directory that was swapped for a link is refused. O_NONBLOCK
// prevents blocking on a planted pipe. A file created with O_EXCL is never one.
func openBelow(dir saferoot.Dir, path string, flags int) (int, error) {
	if !filepath.IsAbs(path) {
		return -1, errors.New("path is not absolute")
	}
	if dir == "" {
		dir = saferoot.Near(path)
	}
	if flags&unix.O_EXCL == 0 {
		flags |= unix.O_NONBLOCK
	}
	return dir.FD(path, flags, 0o600)
}

// check refuses a file that is not exclusively ours, and returns its size.
func check(fd int) (int64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, err
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return 0, fmt.Errorf("%w: not a regular file", ErrForeign)
	case st.Nlink > 1:
		return 0, fmt.Errorf("%w: it has another name too", ErrForeign)
	case int(st.Uid) != os.Geteuid():
		return 0, fmt.Errorf("%w: it belongs to uid %d", ErrForeign, st.Uid)
	}
	return st.Size, nil
}

// Write appends p as a whole: chunks of several writers never mix. Beyond the limit it drops
// data and reports success, because a task should not fail for excess output.
func (f *File) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.said {
		f.dropped += int64(len(p))
		return len(p), nil
	}
	if f.closed {
		return 0, fmt.Errorf("write output: %w", fs.ErrClosed)
	}
	size, err := sizeOf(f.f)
	if err != nil {
		return 0, fmt.Errorf("write output: %w", err)
	}
	room := max(0, f.limit-size)
	why := fmt.Sprintf("Output limit of %d bytes reached", f.limit)
	if want := min(room, int64(len(p))); f.take != nil && want > 0 {
		if got := f.take(want); got < want {
			room, why = got, "The outputs of all sessions together are too much"
		}
	}
	if int64(len(p)) <= room {
		n, err := f.f.Write(p)
		if err != nil {
			f.drop(len(p)-n, reason(err))
			return n, fmt.Errorf("write output: %w", err)
		}
		return n, nil
	}
	kept := p[:wholeRunes(p[:room])]
	notification := "\n[" + why + ". What comes after this is dropped.]\n"
	if n, err := f.f.Write(append(kept[:len(kept):len(kept)], notification...)); err != nil {
		f.drop(len(p)-min(n, len(kept)), reason(err))
		return min(n, len(kept)), fmt.Errorf("write output: %w", err)
	}
	f.said = true
	f.drop(len(p)-len(kept), why)
	return len(p), nil
}

// drop counts bytes that are not kept. The caller holds mu.
func (f *File) drop(bytes int, why string) {
	f.dropped += int64(bytes)
	if f.why == "" {
		f.why = why
	}
}

// Lost says, for the owner of the task, what of the output is missing; empty: nothing, as far as is
// known. A child that owns the descriptor hears by itself that a disk is full, so that this is known
// only of the time of Close.
func (f *File) Lost() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.dropped > 0:
		return fmt.Sprintf("%d bytes of its output were dropped: %s", f.dropped, f.why)
	case f.full:
		return "the disk with its output is full: the end of the output may be missing"
	}
	return ""
}

// Dropped is the number of bytes that [File.Write] did not keep.
func (f *File) Dropped() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.dropped
}

// File returns a new descriptor in append mode, for a child's stdout and stderr. The caller
// closes it. It stays valid after Close.
func (f *File) File() (*os.File, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, fmt.Errorf("share output: %w", fs.ErrClosed)
	}
	fd, err := unix.FcntlInt(f.f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("share output: %w", err)
	}
	return os.NewFile(uintptr(fd), f.path), nil
}

// Path is absolute.
func (f *File) Path() string { return f.path }

// Limit returns the size in bytes at which output ends.
func (f *File) Limit() int64 { return f.limit }

// Size returns the current number of bytes, whoever wrote them; after [File.Close] the number
// at that time.
func (f *File) Size() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.size()
}

func (f *File) size() int64 {
	if !f.closed {
		if size, err := sizeOf(f.f); err == nil {
			f.last = size
		}
	}
	return f.last
}

// sizeOf is a cheaper [os.File.Stat], since it is called several times for each task.
func sizeOf(f *os.File) (int64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return 0, err
	}
	return st.Size, nil
}

// reason is an error of a write without the path, which the record of the task has.
func reason(err error) string {
	var at *fs.PathError
	if errors.As(err, &at) {
		err = at.Err
	}
	return err.Error()
}

// full reports whether the file system of a file has no space left for this user.
func full(f *os.File) bool {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &st); err != nil {
		return false
	}
	if st.Blocks == 0 || st.Bavail > 0 { // some file systems do not count
		return false
	}
	return st.Bfree == 0 || os.Geteuid() != 0
}

// Close ends writing and returns how many bytes were dropped. A second Close does nothing.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil
	}
	var err error
	if f.dropped > 0 {
		_, err = fmt.Fprintf(f.f, "[%d bytes were dropped.]\n", f.dropped)
	}
	f.size()
	f.full = full(f.f)
	f.closed = true
	return errors.Join(err, f.f.Close())
}
