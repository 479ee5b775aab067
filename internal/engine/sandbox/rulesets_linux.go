package sandbox

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// maxRulesets bounds the rulesets that are kept.
const maxRulesets = 64

// rulesets keeps the Landlock rulesets of a room by their writable files. Each program gets a
// domain of its own from one. The zero value is empty.
type rulesets struct {
	made map[string]ruled
}

// ruled is a ruleset with the files and folders that it names. It holds them, so that no other gets their
// numbers as long as it is there.
type ruled struct {
	fd    int
	named []inode
}

// inode identifies the file at a path; the zero value is no file.
type inode struct {
	dev, ino uint64
}

// take returns a ruleset for bounds, which the caller closes. One that was made before is used as long
// as the same files and folders are at its paths; now are those that were found there.
func (r *rulesets) take(abi int, b Bounds, now []inode) (int, error) {
	key := strings.Join(b.Write, "\x00")
	if was, ok := r.made[key]; ok {
		if slices.Equal(was.named, now) {
			return dup(was.fd)
		}
		_ = unix.Close(was.fd)
		delete(r.made, key)
	}
	fd, err := domain(abi, b, false)
	if err != nil {
		return -1, err
	}
	// What has been replaced meanwhile is another one the next time.
	if again, err := inodes(b.Write); err != nil || !slices.Equal(again, now) {
		return fd, err
	}
	if len(r.made) >= maxRulesets {
		r.close()
	}
	if r.made == nil {
		r.made = map[string]ruled{}
	}
	r.made[key] = ruled{fd, now}
	return dup(fd)
}

func (r *rulesets) close() {
	for _, one := range r.made {
		_ = unix.Close(one.fd)
	}
	r.made = nil
}

func dup(fd int) (int, error) { return unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0) }

// inodes looks at paths as [openPath] would open them. It follows symlinks. No path has one when the
// ruleset is made; a later symlink leads to another inode, or to the same file.
func inodes(paths []string) ([]inode, error) {
	out := make([]inode, len(paths))
	for i, path := range paths {
		var st unix.Stat_t
		switch err := unix.Stat(path, &st); {
		case err == nil:
			out[i] = inode{st.Dev, st.Ino}
		case !absent(err):
			return nil, fmt.Errorf("look at %s: %w", path, err)
		}
	}
	return out, nil
}
