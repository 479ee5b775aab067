package overssh

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Copies that are kept in addition to the used ones, and the age at which an unfinished copy is removed.
const (
	spare     = 2
	abandoned = time.Hour
)

// isSum reports whether a folder has the name of a copy: the SHA-256 of the program.
func isSum(name string) bool { return len(name) == 64 && strings.Trim(name, "0123456789abcdef") == "" }

// Keep marks the copy of the program at exe as used until release, and removes old unused copies. It leaves a program
// outside of the folder of copies alone.
func Keep(exe string) (release func(), err error) {
	dir, own := filepath.Dir(filepath.Dir(exe)), filepath.Base(filepath.Dir(exe))
	if !isSum(own) || !strings.HasSuffix(dir, filepath.Join("drover", "bin")) {
		return func() {}, nil
	}
	all, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("find the copies of this program: %w", err)
	}
	defer all.Close()
	f, err := hold(all, own, unix.LOCK_SH)
	if err != nil {
		return nil, fmt.Errorf("find the copy of this program: %w", err)
	}
	prune(all, own)
	return func() { _ = f.Close() }, nil
}

// hold locks a copy.
func hold(all *os.Root, name string, how int) (*os.File, error) {
	f, err := all.Open(filepath.Join(name, "drover"))
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// prune removes old copies. A copy that cannot be removed stays until the next time.
func prune(all *os.Root, own string) {
	dir, err := fs.ReadDir(all.FS(), ".")
	if err != nil {
		return
	}
	used := map[string]time.Time{}
	for _, e := range dir {
		name := e.Name()
		switch info, err := fs.Stat(all.FS(), name); {
		case err != nil || name == own:
		case !e.IsDir() && strings.HasPrefix(name, ".") && time.Since(info.ModTime()) > abandoned:
			_ = all.Remove(name)
		case isSum(name):
			used[name] = info.ModTime()
			if info, err := fs.Stat(all.FS(), name+"/drover"); err == nil {
				used[name] = info.ModTime() // the script touches it
			}
		}
	}
	names := slices.SortedFunc(maps.Keys(used), func(a, b string) int { return used[b].Compare(used[a]) })
	for _, name := range names[min(spare, len(names)):] {
		f, err := hold(all, name, unix.LOCK_EX)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			_ = all.RemoveAll(name)
		}
		if err == nil {
			_ = f.Close()
		}
	}
}
