package saferoot

import (
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/drover-dev/drover/internal/platform/failpoint"
)

// Folder is an open folder. It stays the opened one, even if its path leads elsewhere
// later. Its methods take names of a single element, and never follow a link. It may
// be used by several goroutines, except Names and Files.
type Folder struct{ f *os.File }

// Folder opens a folder. The caller closes it.
func (d Dir) Folder(path string) (*Folder, error) {
	f, err := d.Open(path, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	return &Folder{f}, nil
}

// Close closes the folder.
func (f *Folder) Close() { _ = f.f.Close() }

// File returns the folder as an open file, which [Folder.Close] closes.
func (f *Folder) File() *os.File { return f.f }

// do makes a system call, and wraps its error with the operation and the name.
func (f *Folder) do(op, name string, call func(at int) error) error {
	err := errors.New("it is no name of a file")
	if filepath.IsLocal(name) && !strings.Contains(name, "/") {
		_, err = retry(func() (int, error) { return 0, call(int(f.f.Fd())) })
	}
	if err != nil {
		return &fs.PathError{Op: op, Path: filepath.Join(f.f.Name(), name), Err: plain(err)}
	}
	return nil
}

// Open opens a file of the folder.
func (f *Folder) Open(name string, flags int, perm fs.FileMode) (*os.File, error) {
	var fd int
	err := f.do("open", name, func(at int) (err error) {
		fd, err = walk(at, name, flags, uint32(perm.Perm()))
		return err
	})
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), filepath.Join(f.f.Name(), name)), nil
}

// Folder opens a folder of the folder. The caller closes it.
func (f *Folder) Folder(name string) (*Folder, error) {
	sub, err := f.Open(name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	return &Folder{sub}, nil
}

// Temporary makes a file for this user only, under an unused name that begins with
// prefix.
func (f *Folder) Temporary(prefix string) (*os.File, error) {
	for try := 0; ; try++ {
		file, err := f.Open(prefix+strconv.FormatUint(uint64(rand.Uint32()), 10), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if !errors.Is(err, fs.ErrExist) || try == 100 {
			return file, err
		}
	}
}

// TempMark is in the names of the files that [Folder.Replace] is writing, after a dot
// and the name.
const TempMark = ".tmp-"

// Replace puts data into a file for this user only: a reader sees the old content or
// the new, never a part, also after a power cut. When it returns, the new content is on
// the disk. A crash can leave a file with [TempMark].
func (f *Folder) Replace(name string, data []byte) error {
	temp, err := f.Temporary("." + name + TempMark)
	if err != nil {
		return err
	}
	as := filepath.Base(temp.Name())
	_, err = temp.Write(data)
	if err == nil {
		err = temp.Sync() // else a power cut may leave an empty file under the name
	}
	err = errors.Join(err, temp.Close())
	_ = failpoint.Hit("file/written")
	if err == nil {
		err = f.Rename(as, f, name)
	}
	if err != nil {
		_ = f.Remove(as)
		return err
	}
	return f.Sync()
}

// Sync makes changes of names in the folder survive a power cut, as far as its file
// system can.
func (f *Folder) Sync() error {
	err := f.f.Sync()
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTSUP) { // some file systems sync files only
		return nil
	}
	return err
}

// Names returns the names in the folder, in no order.
func (f *Folder) Names() ([]string, error) {
	if _, err := f.f.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	return f.f.Readdirnames(-1)
}

// piece is how many names of a folder are read at once by [Folder.Files].
const piece = 256

// Files calls each with every regular file in the folder and in the folders below it. It
// needs the same memory for many files as for few: each must not keep its argument, which
// Files uses again. It skips files that cannot be read or that go meanwhile.
func (f *Folder) Files(each func(fs.FileInfo)) {
	if _, err := f.f.Seek(0, io.SeekStart); err != nil {
		return
	}
	i := &info{}
	for {
		names, err := f.f.Readdirnames(piece)
		for _, name := range names {
			i.name = name
			err := f.look(i)
			switch {
			case err != nil:
			case i.Mode().IsRegular():
				each(i)
			case i.IsDir():
				if sub, err := f.Folder(name); err == nil {
					sub.Files(each)
					sub.Close()
				}
			}
		}
		if err != nil {
			return
		}
	}
}

// Lstat describes a file, a folder or a link.
func (f *Folder) Lstat(name string) (fs.FileInfo, error) {
	i := &info{name: name}
	if err := f.look(i); err != nil {
		return nil, err
	}
	return i, nil
}

func (f *Folder) look(i *info) error {
	return f.do("lstat", i.name, func(at int) error { return unix.Fstatat(at, i.name, &i.st, unix.AT_SYMLINK_NOFOLLOW) })
}

// Mkdir makes a folder, for this user only.
func (f *Folder) Mkdir(name string) error {
	return f.do("mkdir", name, func(at int) error { return unix.Mkdirat(at, name, 0o700) })
}

// Symlink makes a link to target.
func (f *Folder) Symlink(target, name string) error {
	return f.do("symlink", name, func(at int) error { return unix.Symlinkat(target, at, name) })
}

// Mkfifo makes a pipe, for this user only.
func (f *Folder) Mkfifo(name string) error {
	return f.do("mkfifo", name, func(at int) error { return mkfifo(at, filepath.Join(f.f.Name(), name), 0o600) })
}

// Rename moves a file or a folder into another folder, or the same, and replaces a
// file there.
func (f *Folder) Rename(name string, to *Folder, as string) error {
	return to.do("rename to", as, func(there int) error {
		return f.do("rename", name, func(at int) error { return unix.Renameat(at, name, there, as) })
	})
}

// Remove removes a file, a link or an empty folder.
func (f *Folder) Remove(name string) error {
	return f.do("remove", name, func(at int) error {
		err := unix.Unlinkat(at, name, 0)
		if errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EPERM) { // of a folder: Linux says the one, others the other
			if dir := unix.Unlinkat(at, name, unix.AT_REMOVEDIR); !errors.Is(dir, unix.ENOTDIR) {
				return dir
			}
		}
		return err
	})
}

// RemoveAll removes a folder with its content, or a file. It returns nil for a missing
// name.
func (f *Folder) RemoveAll(name string) error {
	err := f.Remove(name)
	if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) {
		if err = f.empty(name); err == nil {
			err = f.Remove(name)
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// empty removes the content of a folder.
func (f *Folder) empty(name string) error {
	sub, err := f.Folder(name)
	if err != nil {
		return err
	}
	defer sub.Close()
	names, err := sub.Names()
	for _, one := range names {
		err = errors.Join(err, sub.RemoveAll(one))
	}
	return err
}

// info is the system's description of a name.
type info struct {
	name string
	st   unix.Stat_t
}

func (i *info) Name() string       { return i.name }
func (i *info) Size() int64        { return i.st.Size }
func (i *info) ModTime() time.Time { return time.Unix(i.st.Mtim.Unix()) }
func (i *info) IsDir() bool        { return i.Mode().IsDir() }

// Sys returns a *[unix.Stat_t].
func (i *info) Sys() any { return &i.st }

func (i *info) Mode() fs.FileMode {
	mode := fs.FileMode(i.st.Mode) & fs.ModePerm
	switch i.st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return mode
	case unix.S_IFDIR:
		return mode | fs.ModeDir
	case unix.S_IFLNK:
		return mode | fs.ModeSymlink
	case unix.S_IFIFO:
		return mode | fs.ModeNamedPipe
	case unix.S_IFSOCK:
		return mode | fs.ModeSocket
	}
	return mode | fs.ModeIrregular
}
