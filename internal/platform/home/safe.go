package home

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/drover-dev/drover/internal/platform/annotate"
	"github.com/drover-dev/drover/internal/platform/failpoint"
	"github.com/drover-dev/drover/internal/platform/saferoot"
)

// removedMark ends the names of sessions that are being removed.
const removedMark = saferoot.TempMark + "removed"

// tempAge is the age from which a temporary file counts as left by a crash and not as
// being written.
const tempAge = time.Minute

// Remove deletes the files of the session. They disappear in one step, and files that a
// crash leaves after that step are swept later. The caller holds the lock of the session.
func (s Session) Remove() (err error) {
	defer annotate.Error(&err, "remove session %s", s.id)
	dir, err := s.Below().Folder(s.project.dir)
	if err != nil {
		return err
	}
	defer dir.Close()
	gone := "." + string(s.id) + removedMark
	err = dir.RemoveAll(gone)
	_ = failpoint.Hit("remove/begun")
	if err == nil {
		err = dir.Rename(string(s.id), dir, gone)
	}
	_ = failpoint.Hit("remove/moved")
	if err == nil {
		err = dir.RemoveAll(gone)
	}
	_ = failpoint.Hit("remove/done")
	return err
}

// maxSocket is the longest path of a socket, in bytes, on all supported systems.
const maxSocket = 103

// WriteAtomic puts data at path, readable by this user only: a reader sees the old
// content or the new, never a part, and the new content is on the disk when it
// returns. The directory must exist, and is trusted; use [Root.WriteAtomic] for files in
// the state directory.
func WriteAtomic(path string, data []byte) error {
	return WriteBelow(saferoot.Dir(filepath.Dir(path)), path, data)
}

// WriteBelow is [WriteAtomic] for a trusted directory d above the file. It follows no
// link below d.
func WriteBelow(d saferoot.Dir, path string, data []byte) error {
	dir, err := d.Folder(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer dir.Close()
	if err := dir.Replace(filepath.Base(path), data); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// ensureRoot creates the state directory itself, checks that it is this user's alone,
// and opens it.
func ensureRoot(dir string) (*saferoot.Folder, error) {
	if err := mkdirAll(dir); err != nil {
		return nil, err
	}
	if err := checkOwn(dir); err != nil {
		return nil, err
	}
	f, err := saferoot.Dir(dir).Folder(dir)
	if err != nil {
		return nil, err
	}
	return swept(f)
}

// mkdirAll is [os.MkdirAll] for this user only. The new directories survive a power cut.
func mkdirAll(dir string) error {
	if _, err := os.Lstat(dir); err == nil {
		return nil // whatever it is
	}
	parent := filepath.Dir(dir)
	if err := mkdirAll(parent); err != nil {
		return err
	}
	f, err := saferoot.Dir(parent).Folder(parent)
	if err != nil {
		return err
	}
	defer f.Close()
	return mkdirs(f, filepath.Base(dir))
}

// mkdirs creates missing directories. They survive a power cut.
func mkdirs(parent *saferoot.Folder, names ...string) error {
	made := false
	for _, name := range names {
		err := parent.Mkdir(name)
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		made = made || err == nil
	}
	if !made {
		return nil
	}
	return parent.Sync()
}

// ensure creates a directory, checks that it is this user's alone, sweeps it and
// returns it open.
func ensure(parent *saferoot.Folder, name string) (*saferoot.Folder, error) {
	if err := mkdirs(parent, name); err != nil {
		return nil, err
	}
	path := filepath.Join(parent.File().Name(), name)
	f, err := parent.Folder(name)
	if err != nil {
		if info, lstat := parent.Lstat(name); lstat == nil {
			err = cmp.Or(Own(path, info), err)
		}
		return nil, err
	}
	info, err := f.File().Stat()
	if err == nil {
		err = Own(path, info)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return swept(f)
}

// checkOwn refuses a directory that another user could put files into.
func checkOwn(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	return Own(dir, info)
}

// Own refuses everything except a directory of this user that other users cannot write to.
func Own(dir string, info fs.FileInfo) error {
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		return fmt.Errorf("%s is a symbolic link (replace it by a directory)", dir)
	case !info.IsDir():
		return fmt.Errorf("%s is not a directory (move it away)", dir)
	case ok && int(stat.Uid) != os.Geteuid():
		return fmt.Errorf("%s belongs to another user, uid %d (use another DROVER_HOME, or chown it)", dir, stat.Uid)
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("%s can be written to by others, mode %04o (run: chmod go-w '%s')", dir, info.Mode().Perm(), dir)
	}
	return nil
}

// swept removes old remains of [WriteAtomic] and [Session.Remove] after a crash. It closes
// the directory if that cannot be read.
func swept(dir *saferoot.Folder) (*saferoot.Folder, error) {
	names, err := dir.Names()
	if err != nil {
		dir.Close()
		return nil, err
	}
	for _, name := range names {
		if !strings.HasPrefix(name, ".") || !strings.Contains(name, saferoot.TempMark) {
			continue
		}
		info, err := dir.Lstat(name)
		ours := err == nil && (info.Mode().IsRegular() || info.IsDir() && strings.HasSuffix(name, removedMark))
		if ours && time.Since(info.ModTime()) > tempAge {
			// A file that cannot be removed does no harm: it is never read.
			_ = dir.RemoveAll(name)
		}
	}
	return dir, nil
}

// SocketPath is where the session listens, and creates the directory: $XDG_RUNTIME_DIR/drover,
// $TMPDIR/drover-<uid> or /tmp/drover-<uid>, the first that is usable and short enough. Clients
// learn the path from session.json, because their environment may differ from the host's.
func (s Session) SocketPath(env func(string) string) (string, error) {
	// The ID is not unique: the user may give it, in two projects or under two
	// state directories, and all of these share the directory.
	name := socketName(s.dir)
	if dir := env("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) && checkOwn(dir) == nil {
		dir = filepath.Join(dir, "drover")
		if path := filepath.Join(dir, name); len(path) <= maxSocket {
			return inSocketDir(dir, path)
		}
	}
	return inTemp(name, env)
}

// WorkerSocket is where a worker of that name listens to ssh, and creates the directory. It is below $TMPDIR or /tmp:
// the directory of XDG_RUNTIME_DIR can go with the connection that the worker outlives.
func (r Root) WorkerSocket(name string, env func(string) string) (string, error) {
	return inTemp(socketName(r.worker(name)), env)
}

// LockWorker takes the lock of the worker of that name, or returns [ErrLocked]. The state directory must exist.
func (r Root) LockWorker(name string) (unlock func(), err error) {
	return LockFile(r.Below(), r.worker(name)+".lock")
}

// WorkerKey is the file with the key by which hubs know the worker of that name.
func (r Root) WorkerKey(name string) string { return r.worker(name) + ".key" }

func (r Root) worker(name string) string { return filepath.Join(r.dir, "worker-"+element(name)) }

// socketName returns a short name that is unique in its directory.
func socketName(of string) string {
	sum := sha256.Sum256([]byte(of))
	rest, name := binary.BigEndian.Uint64(sum[:]), make([]byte, 8)
	for i := range name { // in base 32
		name[i] = "abcdefghijklmnopqrstuvwxyz234567"[rest>>59]
		rest <<= 5
	}
	return string(name) + ".sock"
}

// inTemp is a socket in the directory for this user's sockets below that for temporary files, or
// below /tmp where that is missing or its path is too long.
func inTemp(name string, env func(string) string) (string, error) {
	own := fmt.Sprintf("drover-%d", os.Geteuid())
	if temp := env("TMPDIR"); filepath.IsAbs(temp) {
		dir := filepath.Join(temp, own)
		path := filepath.Join(dir, name)
		if _, err := os.Stat(temp); err == nil && len(path) <= maxSocket {
			return inSocketDir(dir, path)
		}
	}
	dir := filepath.Join("/tmp", own)
	return inSocketDir(dir, filepath.Join(dir, name))
}

// inSocketDir makes the directory of a socket. All users may write to its parent, so
// the directory must not be made through a link, and others must not be able to read
// it.
func inSocketDir(dir, path string) (string, error) {
	err := os.Mkdir(dir, 0o700)
	if err == nil || errors.Is(err, fs.ErrExist) {
		err = checkOwn(dir)
	}
	if err == nil {
		err = os.Chmod(dir, 0o700)
	}
	if err != nil {
		return "", fmt.Errorf("open directory of sockets: %w", err)
	}
	return path, nil
}
