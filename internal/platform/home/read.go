package home

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/drover-dev/drover/internal/platform/saferoot"
)

// maxSmall bounds the files that this package reads itself, in bytes.
const maxSmall = 64 << 10

// ErrForeign is returned, wrapped, for a file of the state directory that cannot
// be ours: a link, no regular file, of another user, or too large.
var ErrForeign = errors.New("not a file of ours")

// ReadFile reads a small file of ours in a trusted directory; use [Root.ReadFile] for
// files in the state directory. It follows no link at the path, waits for no pipe, and
// reads no more than most bytes.
func ReadFile(path string, most int64) ([]byte, error) {
	return ReadBelow(saferoot.Dir(filepath.Dir(path)), path, most)
}

// ReadBelow is [ReadFile] for a trusted directory d above the file. It follows no
// link below d.
func ReadBelow(d saferoot.Dir, path string, most int64) ([]byte, error) {
	f, err := d.Open(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ELOOP) {
		return nil, fmt.Errorf("read %s: %w: it or a folder on the way is a link (remove it)", path, ErrForeign)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if why := foreign(info, most); why != "" {
		return nil, fmt.Errorf("read %s: %w: %s", path, ErrForeign, why)
	}
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(data)) > most { // it grew meanwhile
		err = fmt.Errorf("read %s: %w: it is larger than %d bytes", path, ErrForeign, most)
	}
	return data, err
}

func foreign(info fs.FileInfo, most int64) string {
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.Mode().IsRegular():
		return "it is no regular file (move it away)"
	case ok && int(stat.Uid) != os.Geteuid():
		return fmt.Sprintf("it belongs to uid %d", stat.Uid)
	case info.Size() > most:
		return fmt.Sprintf("it is larger than %d bytes", most)
	}
	return ""
}

// Plain refuses everything except a regular file with a single name: links, pipes, and
// hard links to a file elsewhere.
func Plain(name string, info fs.FileInfo) error {
	several := false
	switch stat := info.Sys().(type) {
	case *syscall.Stat_t:
		several = stat.Nlink > 1
	case *unix.Stat_t:
		several = stat.Nlink > 1
	}
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		return fmt.Errorf("%s is a symbolic link (move it away)", name)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a regular file (move it away)", name)
	case several:
		return fmt.Errorf("%s has another name elsewhere (move it away)", name)
	}
	return nil
}
