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

// DefaultLimit is the size in bytes at which output ends, if nothing else is
// asked for: 5 GB.
const DefaultLimit = 5_000_000_000

// ErrForeign is returned for a file that cannot be output of ours: not a
// regular file, with a second name, or of another user.
var ErrForeign = errors.New("not an output file of ours")

// Options of a file.
type Options struct {
	Limit int64 // bytes; 0: [DefaultLimit]

	// Below is a folder above the file, below which no link is followed. Empty:
	// neither the file nor its folder may be a link.
	Below saferoot.Dir

	// Take is asked for room for so many bytes beside that, and gives as many or
	// fewer. It is for what [File.Write] writes, and may be called by several
	// goroutines. Nil: there is room.
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
	last    int64 // size when it was closed
	said    bool  // the limit was reached, and the notification written
	dropped int64
}

var _ task.Output = (*File)(nil)

// Open creates the output file of a new task. Whatever stands at the path
// already is refused: a symbolic link with ELOOP, the rest with EEXIST.
func Open(path string, opt Options) (*File, error) {
	fd, err := openBelow(opt.Below, path, unix.O_WRONLY|unix.O_APPEND|unix.O_CREAT|unix.O_EXCL)
	if errors.Is(err, unix.EEXIST) {
		// With O_EXCL a link is merely something that exists; callers must be
		// able to tell a planted link from an ID used twice.
		if info, statErr := saferoot.Near(path).Lstat(path); statErr == nil && info.Mode()&fs.ModeSymlink != 0 {
			err = unix.ELOOP
		}
	}
	return newFile(fd, path, opt, err)
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
	f := os.NewFile(uintptr(fd), path)
	size, err := check(f)
	if err != nil {
		_ = f.Close()
		return nil, &fs.PathError{Op: "open output", Path: path, Err: err}
	}
	limit := opt.Limit
	if limit <= 0 {
		limit = DefaultLimit
	}
	return &File{path: path, limit: limit, take: opt.Take, f: f, said: size > limit}, nil
}

// openBelow opens a file, and a directory swapped for a link leads nowhere.
// O_NONBLOCK is for a planted pipe, which must not hold us up; it is taken back,
// because a child will share the description. What O_EXCL makes is no pipe.
func openBelow(dir saferoot.Dir, path string, flags int) (int, error) {
	if !filepath.IsAbs(path) {
		return -1, errors.New("path is not absolute")
	}
	if dir == "" {
		dir = saferoot.Near(path)
	}
	if flags&unix.O_EXCL != 0 {
		return dir.FD(path, flags, 0o600)
	}
	fd, err := dir.FD(path, flags|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return -1, err
	}
	if err := unix.SetNonblock(fd, false); err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// check refuses a file that is not ours alone, and tells its size.
func check(f *os.File) (int64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
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

// Write appends p whole: chunks of several writers never mix. Beyond the limit
// it drops what comes, and reports success, because a task is not to fail over
// text that nobody will read.
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
			return n, fmt.Errorf("write output: %w", err)
		}
		return n, nil
	}
	kept := p[:wholeRunes(p[:room])]
	notification := "\n[" + why + ". What comes after this is dropped.]\n"
	if n, err := f.f.Write(append(kept[:len(kept):len(kept)], notification...)); err != nil {
		return min(n, len(kept)), fmt.Errorf("write output: %w", err)
	}
	f.said = true
	f.dropped += int64(len(p) - len(kept))
	return len(p), nil
}

// Dropped is the number of bytes that [File.Write] did not keep.
func (f *File) Dropped() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.dropped
}

// File is a descriptor of its own, in append mode, for a child's stdout and
// stderr. The caller closes it. It stays good when the output is closed.
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

// Limit is the size in bytes at which output ends.
func (f *File) Limit() int64 { return f.limit }

// Size is the number of bytes there now, by whomever they were written; after
// [File.Close] the number there was then.
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

// sizeOf asks the system for what is needed of [os.File.Stat], and no more: each
// task is asked several times.
func sizeOf(f *os.File) (int64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return 0, err
	}
	return st.Size, nil
}

// Close ends writing, and says how much was dropped. A second Close does nothing.
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
	f.closed = true
	return errors.Join(err, f.f.Close())
}
