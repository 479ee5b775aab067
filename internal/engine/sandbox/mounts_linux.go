package sandbox

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// conceal hides the files that are not hidden yet. A mount disappears when its mount point is replaced outside, and
// some files are created later, so this is done before each start.
// written are folders in which programs make symlinks, which are not followed.
func (s *starter) conceal(paths, written []string) error {
	for _, path := range paths {
		if _, err := s.concealOne(path, emptyFile, written); err != nil {
			return err
		}
	}
	return nil
}

// emptyFile is mounted in place of secrets: programs that read their settings there find none.
const emptyFile = "/dev/null"

// deny hides the files that no program may read any more.
func (s *starter) deny(paths, written []string) error {
	if !slices.Equal(paths, s.deniedPaths) {
		for _, path := range paths {
			if !slices.Contains(s.deniedPaths, path) {
				s.deniedPaths = append(s.deniedPaths, path)
			}
		}
		s.denied = newHidden(s.deniedPaths, deniedFile)
	}
	return s.denied.conceal(s, written)
}

// concealOne hides one file or folder, if it is there; cover is mounted in place of a file. settled says that it is so
// until something changes in the folder that it is in.
func (s *starter) concealOne(path, cover string, written []string) (settled bool, err error) {
	at, err := look(path, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return true, nil
	}
	if err == nil && s.covers[at.Mnt_id] && at.Mode&unix.S_IFMT != unix.S_IFLNK {
		return mountRoot(at), nil
	}
	if at, err = look(path, 0); err != nil || s.covers[at.Mnt_id] {
		return false, nil //nolint:nilerr // nothing that can be reached, or nothing is to be done
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil || real != path && below(path, written) {
		return false, nil //nolint:nilerr // it has gone
	}
	fd, err := openPath(real, unix.RESOLVE_NO_SYMLINKS)
	if absent(err) {
		return false, nil
	}
	if err == nil {
		err = hide(fd, real, cover, s.setup.Shown)
		_ = unix.Close(fd)
	}
	if err != nil {
		return false, fmt.Errorf("hide %s: %w", path, err)
	}
	if at, err := look(real, 0); err == nil {
		s.covers[at.Mnt_id] = true
	}
	return false, nil
}

// hide puts something without content in place of a file or folder. What is shown below it keeps
// its place.
func hide(fd int, path, cover string, shown []string) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		from, err := openPath(cover, 0)
		if err != nil {
			return err
		}
		defer unix.Close(from)
		return mountAt(from, fd, attr)
	}
	kept := map[string]int{}
	defer func() {
		for _, fd := range kept {
			_ = unix.Close(fd)
		}
	}()
	for _, s := range shown {
		if !strings.HasPrefix(s, path+"/") {
			continue
		}
		fd, err := unix.OpenTree(unix.AT_FDCWD, s, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return fmt.Errorf("show %s: %w", s, err)
		}
		kept[s] = fd
	}
	mode := "mode=000,size=4k,nr_inodes=1"
	if len(kept) > 0 {
		mode = "mode=711,size=64k,nr_inodes=256"
	}
	at := fmt.Sprintf("/proc/self/fd/%d", fd)
	if err := unix.Mount("hidden", at, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, mode); err != nil {
		return err
	}
	for s, fd := range kept {
		err := os.MkdirAll(s, 0o711)
		if err == nil {
			err = unix.MoveMount(fd, "", unix.AT_FDCWD, s, unix.MOVE_MOUNT_F_EMPTY_PATH)
		}
		if err != nil {
			return fmt.Errorf("show %s: %w", s, err)
		}
	}
	return unix.MountSetattr(unix.AT_FDCWD, path, 0, &attr)
}

// bound mounts the folders that a program may write, and read-only the exceptions below them. It returns the files at
// the writable paths.
func (s *starter) bound(b Bounds) ([]inode, error) {
	err := s.hidden.conceal(s, b.Write)
	if err == nil {
		err = s.deny(b.Denied, b.Write)
	}
	if err != nil {
		return nil, err
	}
	for _, path := range b.Write {
		if err := s.share(path); err != nil {
			return nil, err
		}
	}
	found, err := inodes(b.Write)
	if err != nil || !s.mounts {
		return found, err
	}
	for _, path := range b.Open {
		open(path)
		s.hidden.forget() // it may be one of those that are hidden
		s.denied.forget()
	}
	pins := map[string]bool{}
	for _, m := range wanted(b) {
		if m.fixed {
			err = s.fix(m.path, b.Write, pins)
		} else if err = s.write(m.path); errors.Is(err, unix.EPERM) {
			err = nil // it is read-only outside too
		}
		if err != nil {
			return nil, fmt.Errorf("mount %s in a room: %w", m.path, err)
		}
	}
	return found, nil
}

// mount is a file or folder that is to be written, or fixed.
type mount struct {
	path  string
	fixed bool
}

// wanted returns the mounts of bounds, folders before their contents. A path that is both writable and fixed is fixed.
func wanted(b Bounds) []mount {
	var all []mount
	for _, path := range b.Fixed {
		all = append(all, mount{filepath.Clean(path), true})
	}
	for _, path := range b.Write {
		all = append(all, mount{filepath.Clean(path), false})
	}
	slices.SortStableFunc(all, func(a, b mount) int { return cmp.Compare(a.path, b.path) })
	return slices.CompactFunc(all, func(a, b mount) bool { return a.path == b.path })
}

// write makes a file or folder a mount that can be written, if it is not in one already.
func (s *starter) write(path string) error {
	if st, err := look(path, 0); err == nil && s.known[mountOf(st)] == writable {
		return nil // also if a symlink leads there: nothing is mounted for one
	}
	fd, err := openPath(path, unix.RESOLVE_NO_SYMLINKS)
	if absent(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if !readonly(fd) {
		s.remember(fd, writable)
		return nil
	}
	return mountOn(fd, unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY})
}

// maxLinks bounds a chain of symlinks.
const maxLinks = 8

// fix makes a file or folder a read-only mount. A mount disappears when its mount point is replaced
// outside, so this is done before each start. A symlink is mounted on itself, so that it
// cannot be replaced either.
func (s *starter) fix(path string, written []string, pins map[string]bool) error {
	for range maxLinks {
		if err := pin(filepath.Dir(path), written, pins); err != nil {
			return err
		}
		link, err := s.fixOne(path)
		if err != nil || !link {
			return err
		}
		target, err := os.Readlink(path)
		if err != nil {
			return nil //nolint:nilerr // it is gone
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(path), target)
		}
		path = target
	}
	return nil
}

func (s *starter) fixOne(path string) (link bool, err error) {
	if at, err := look(path, unix.AT_SYMLINK_NOFOLLOW); err == nil && s.known[mountOf(at)] == readOnly {
		link := at.Mode&unix.S_IFMT == unix.S_IFLNK
		if !link || mountRoot(at) {
			return link, nil
		}
	} else if absent(err) {
		return false, nil
	}
	fd, mounted, err := openEntry(path)
	if absent(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return false, err
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	switch link = st.Mode&unix.S_IFMT == unix.S_IFLNK; {
	case link && !mounted, !link && !readonly(fd):
		return link, mountOn(fd, attr)
	}
	if readonly(fd) {
		s.remember(fd, readOnly)
	}
	return link, nil
}

// open removes a mount of [fix]: a file on which something is mounted cannot be replaced.
func open(path string) {
	for range maxLinks {
		for covered(path) && unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) == nil {
		}
		target, err := os.Readlink(path)
		if err != nil {
			return
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(path), target)
		}
		path = target
	}
}

// covered reports whether something read-only is mounted on a path.
func covered(path string) bool {
	fd, mounted, err := openEntry(path)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	return mounted && readonly(fd)
}

// pin mounts folders on themselves, from one up to the outermost writable one: a mount point cannot be
// renamed, so the protected files below it stay at their paths. pins has the pinned folders.
func pin(folder string, written []string, pins map[string]bool) error {
	for ; !pins[folder] && below(folder, written); folder = filepath.Dir(folder) {
		pins[folder] = true
		if err := pinOne(folder); err != nil {
			return fmt.Errorf("keep %s in its place: %w", folder, err)
		}
	}
	return nil
}

// below reports whether a path is below one of some folders.
func below(path string, folders []string) bool {
	return slices.ContainsFunc(folders, func(f string) bool {
		return strings.HasPrefix(path, strings.TrimSuffix(f, "/")+"/")
	})
}

func pinOne(folder string) error {
	if at, err := look(folder, unix.AT_SYMLINK_NOFOLLOW); absent(err) || err == nil && mountRoot(at) {
		return nil
	}
	fd, mounted, err := openEntry(folder)
	if absent(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || mounted || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return err
	}
	return mountOn(fd, unix.MountAttr{})
}

// mountOn mounts a file or folder on itself, including the mounts below it: hidden files stay hidden.
func mountOn(fd int, attr unix.MountAttr) error { return mountAt(fd, fd, attr) }

// mountAt mounts a file or folder at another place, too.
func mountAt(from, to int, attr unix.MountAttr) error {
	flags := uint(unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC | unix.AT_RECURSIVE | unix.AT_EMPTY_PATH)
	tree, err := unix.OpenTree(from, "", flags)
	if err != nil {
		return err
	}
	defer unix.Close(tree)
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		return err
	}
	return unix.MoveMount(tree, "", to, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
}

// openEntry opens the entry of a folder with the last name of a path; a symlink is not followed. mounted says that the
// entry is a mount point.
func openEntry(path string) (fd int, mounted bool, err error) {
	dir, err := openPath(filepath.Dir(path), 0)
	if err != nil {
		return -1, false, err
	}
	defer unix.Close(dir)
	if fd, err = unix.Openat(dir, filepath.Base(path), unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0); err != nil {
		return -1, false, err
	}
	here, err := mountID(fd)
	above := uint64(0)
	if err == nil {
		above, err = mountID(dir)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, false, err
	}
	return fd, here != above, nil
}

// mountIDs asks for numbers of mounts that are never used again, where the kernel has them (Linux
// 6.8: STATX_MNT_ID_UNIQUE), and for others else.
const mountIDs = unix.STATX_MNT_ID | unix.STATX_MNT_ID_UNIQUE

func mountID(fd int) (uint64, error) {
	var st unix.Statx_t
	err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, mountIDs, &st)
	return st.Mnt_id, err
}

// kind has the facts about a mount. They never change: only the starter makes mounts, and it replaces a mount that has
// to be different.
type kind int

const (
	writable kind = iota + 1
	readOnly
)

// maxKnown bounds the mounts that are remembered. Then they are looked at again.
const maxKnown = 10_000

// remember keeps the kind of a mount if the kernel never reuses mount numbers.
func (s *starter) remember(fd int, k kind) {
	var st unix.Statx_t
	if unix.Statx(fd, "", unix.AT_EMPTY_PATH, mountIDs, &st) != nil || mountOf(&st) == 0 {
		return
	}
	if len(s.known) >= maxKnown {
		clear(s.known)
	}
	s.known[mountOf(&st)] = k
}

// look looks at a path. One call tells the file, whether it is the root of a mount, and of which.
func look(path string, flags int) (*unix.Statx_t, error) {
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, flags, unix.STATX_BASIC_STATS|mountIDs, &st)
	return &st, err
}

// mountOf is the number of a mount if it is never used again, else 0.
func mountOf(st *unix.Statx_t) uint64 {
	if st.Mask&unix.STATX_MNT_ID_UNIQUE == 0 {
		return 0
	}
	return st.Mnt_id
}

// mountRoot reports whether something is mounted at the place that was looked at, where the kernel says
// that (Linux 5.8).
func mountRoot(st *unix.Statx_t) bool {
	return st.Attributes_mask&st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
}

// readonly reports whether a file or folder is mounted read-only.
func readonly(fd int) bool {
	var st unix.Statfs_t
	return unix.Fstatfs(fd, &st) == nil && st.Flags&unix.ST_RDONLY != 0
}
