package saferoot

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Dir is the path of a trusted folder. Its methods take absolute paths that begin with
// it, and refuse all others.
type Dir string

// Near trusts the parent of the folder of a path. It is for callers that know only the
// path: neither the file nor its folder may be a link.
func Near(path string) Dir { return Dir(filepath.Dir(filepath.Dir(path))) }

// For returns d for a path below it, and [Near] for any other: a recorded path may lead
// to the same place by another way.
func (d Dir) For(path string) Dir {
	if _, err := d.rel(path); err != nil {
		return Near(path)
	}
	return d
}

func (d Dir) rel(path string) (string, error) {
	rel, err := filepath.Rel(string(d), path)
	if err != nil || !filepath.IsLocal(rel) {
		return "", fmt.Errorf("it is not below %s", d)
	}
	return rel, nil
}

// Open opens a file or a folder. It takes the flags of [os.OpenFile] and further
// ones of the system; perm counts if they make a file.
func (d Dir) Open(path string, flags int, perm fs.FileMode) (*os.File, error) {
	fd, err := d.FD(path, flags, perm)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// FD is [Dir.Open] that returns the bare descriptor. Its errors do not name
// the path.
func (d Dir) FD(path string, flags int, perm fs.FileMode) (int, error) {
	rel, err := d.rel(path)
	if err != nil {
		return -1, err
	}
	at, err := retry(func() (int, error) {
		return unix.Open(string(d), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return -1, err
	}
	defer unix.Close(at)
	fd, err := descend(at, rel, flags, uint32(perm.Perm()))
	return fd, plain(err)
}

// linked is ELOOP with a text for people.
type linked struct{}

func (linked) Error() string {
	return "it, or a folder on the way to it, is a symbolic link (remove that)"
}
func (linked) Unwrap() error { return unix.ELOOP }

func plain(err error) error {
	if errors.Is(err, unix.ELOOP) {
		return linked{}
	}
	return err
}

// Root opens a folder for [os.Root]. On the way to it, it follows only links that stay
// below d.
func (d Dir) Root(path string) (*os.Root, error) {
	rel, err := d.rel(path)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	top, err := os.OpenRoot(string(d))
	if err != nil {
		return nil, err
	}
	defer func() { _ = top.Close() }()
	return top.OpenRoot(rel)
}

// walk is descend for every system: it opens one element after the other.
func walk(at int, rel string, flags int, perm uint32) (int, error) {
	folder := at
	for {
		name, rest, more := strings.Cut(rel, "/")
		how, mode := flags, perm
		if more {
			how, mode = unix.O_RDONLY|unix.O_DIRECTORY, 0
		}
		fd, err := retry(func() (int, error) {
			return unix.Openat(folder, name, how|unix.O_NOFOLLOW|unix.O_CLOEXEC, mode)
		})
		if errors.Is(err, unix.ENOTDIR) && isLink(folder, name) {
			err = unix.ELOOP // as openat2 says it
		}
		if folder != at {
			_ = unix.Close(folder)
		}
		if err != nil || !more {
			return fd, err
		}
		folder, rel = fd, rest
	}
}

func isLink(at int, name string) bool {
	var st unix.Stat_t
	return unix.Fstatat(at, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK
}

func retry(open func() (int, error)) (int, error) {
	for {
		fd, err := open()
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

// in calls do with the folder of a path and the name in it.
func (d Dir) in(path string, do func(f *Folder, name string) error) error {
	f, err := d.Folder(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer f.Close()
	return do(f, filepath.Base(path))
}

// Lstat describes a file, a folder or a link.
func (d Dir) Lstat(path string) (info fs.FileInfo, err error) {
	err = d.in(path, func(f *Folder, name string) error {
		info, err = f.Lstat(name)
		return err
	})
	return info, err
}

// Remove removes a file, a link or an empty folder.
func (d Dir) Remove(path string) error { return d.in(path, (*Folder).Remove) }

// RemoveAll removes a folder with its content, or a file. It returns nil for a missing
// path.
func (d Dir) RemoveAll(path string) error {
	err := d.in(path, (*Folder).RemoveAll)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Mkdir makes a folder, for this user only.
func (d Dir) Mkdir(path string) error { return d.in(path, (*Folder).Mkdir) }

// Rename moves a file or a folder to another name below d, and replaces a file
// there.
func (d Dir) Rename(from, to string) error {
	return d.in(from, func(f *Folder, name string) error {
		return d.in(to, func(g *Folder, other string) error { return f.Rename(name, g, other) })
	})
}

// Names returns the names in a folder, in no order.
func (d Dir) Names(path string) ([]string, error) {
	f, err := d.Folder(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Names()
}
