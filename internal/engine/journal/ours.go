package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// ours rejects files that another user has put where SQLite would open them: SQLite follows
// links, blocks on pipes, and writes into existing files.
func ours(path string) error {
	for _, end := range []string{"", "-wal", "-shm", "-journal"} {
		info, err := os.Lstat(path + end)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		stat, ok := info.Sys().(*syscall.Stat_t)
		switch {
		case !info.Mode().IsRegular():
			return fmt.Errorf("%s is not a regular file (%s): move it away", path+end, info.Mode().Type())
		case ok && stat.Nlink > 1:
			return fmt.Errorf("%s has another name too: move it away", path+end)
		case ok && int(stat.Uid) != os.Geteuid():
			return fmt.Errorf("%s belongs to uid %d: move it away", path+end, stat.Uid)
		}
	}
	return nil
}

// widowed rejects a WAL without its log: SQLite would create a new log and remove the WAL,
// which may have the latest writes.
func widowed(path string) error {
	if info, err := os.Lstat(path); err == nil && info.Size() > 0 || err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if info, err := os.Lstat(path + "-wal"); err == nil && info.Size() > walHeader {
		return fmt.Errorf("%w: the log is empty or gone, and %s-wal is there", ErrDamaged, path)
	}
	return nil
}
