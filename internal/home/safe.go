package home

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/drover-dev/drover/internal/failpoint"
	"github.com/drover-dev/drover/task"
)

// tempMark is in the names of files that are being written.
const tempMark = ".tmp-"

// removedMark ends the names of sessions that are being removed.
const removedMark = tempMark + "removed"

// tempAge is how old a temporary file must be before it counts as left over
// by a crash and not as being written.
const tempAge = time.Minute

// Remove deletes what the session left. It is gone in one step, and what a crash
// leaves of it behind that step is swept later. The caller holds its lock.
func (s Session) Remove() error {
	gone := filepath.Join(s.project.dir, "."+string(s.id)+removedMark)
	err := os.RemoveAll(gone)
	_ = failpoint.Hit("remove/begun")
	if err == nil {
		err = os.Rename(s.dir, gone)
	}
	_ = failpoint.Hit("remove/moved")
	if err == nil {
		err = os.RemoveAll(gone)
	}
	_ = failpoint.Hit("remove/done")
	if err != nil {
		return fmt.Errorf("remove session %s: %w", s.id, err)
	}
	return nil
}

// maxSocket is how long the path of a socket may be everywhere we run.
const maxSocket = 103

// WriteAtomic puts data at path, readable by this user only: whoever reads it
// sees the old content or the new, never a part. The directory must exist.
func WriteAtomic(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+tempMark+"*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Close())
	_ = failpoint.Hit("file/written")
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// ensure creates dir, checks that it is ours alone, and sweeps what a crash
// left of [WriteAtomic] and of [Session.Remove].
func ensure(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := checkOwn(dir); err != nil {
		return err
	}
	return sweep(dir)
}

// checkOwn refuses a directory that another user could put files into.
func checkOwn(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
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

func sweep(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") || !strings.Contains(e.Name(), tempMark) {
			continue
		}
		info, err := e.Info()
		ours := err == nil && (info.Mode().IsRegular() || info.IsDir() && strings.HasSuffix(e.Name(), removedMark))
		if ours && time.Since(info.ModTime()) > tempAge {
			// One that cannot be removed is never read and blocks nobody.
			_ = os.RemoveAll(filepath.Join(dir, e.Name()))
		}
	}
	return nil
}

// SocketPath is where the session with this ID listens, and creates the
// directory: $XDG_RUNTIME_DIR/drover, where that is usable, else
// drover-<uid> in $TMPDIR or /tmp. Clients learn the path from session.json,
// because their environment may differ from that of the host.
func SocketPath(env func(string) string, id task.ID) (string, error) {
	name := element(string(id))
	if len(name) > 8 {
		name = name[len(name)-8:]
	}
	if dir := env("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) && checkOwn(dir) == nil {
		dir = filepath.Join(dir, "drover")
		if path := filepath.Join(dir, name+".sock"); len(path) <= maxSocket {
			return inSocketDir(dir, path)
		}
	}
	temp := env("TMPDIR")
	if !filepath.IsAbs(temp) {
		temp = "/tmp"
	}
	dir := filepath.Join(temp, fmt.Sprintf("drover-%d", os.Geteuid()))
	path := filepath.Join(dir, name+".sock")
	if len(path) > maxSocket {
		return "", fmt.Errorf("path of the socket has %d bytes, %d are possible: %s (set TMPDIR to a shorter directory)", len(path), maxSocket, path)
	}
	return inSocketDir(dir, path)
}

// inSocketDir makes the directory of a socket. Its parent may be open to
// everybody, so it must not be made through a link, nor be one that others can
// look into.
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
