package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// roomDevices are the devices of a room, which change nothing and reveal nothing. Disks, keyboards and microphones
// are left out: a user of the group "disk" could read hidden files from a disk.
//
//rules:constant never changed after this line
var roomDevices = []string{"null", "zero", "full", "random", "urandom", "tty"}

// makeDev gives the room a /dev of its own, with its own terminals and its own shared memory. shm is the shared memory
// of the machine, or -1.
func makeDev() (shm int, err error) {
	shm, err = unix.Open(shmPath, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0) // it stays below the new mount
	if err != nil {
		shm = -1 // the machine has none
	}
	return shm, makeNodes()
}

// shmPath is where programs keep shared memory, and people folders that need no disk.
const shmPath = "/dev/shm"

// share mounts a folder of the machine's /dev/shm at the same place in the room's.
func (s *starter) share(path string) error {
	rel, in := strings.CutPrefix(filepath.Clean(path), shmPath+"/")
	if !in || s.shm < 0 || s.shared[rel] {
		return nil
	}
	from, err := unix.Openat2(s.shm, rel, &unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS})
	if err != nil {
		return nil //nolint:nilerr // no folder is there, and nothing is to be shared
	}
	defer unix.Close(from)
	to, err := openPath(shmPath, unix.RESOLVE_NO_SYMLINKS)
	for _, name := range strings.Split(rel, "/") {
		if err != nil {
			break
		}
		if err = unix.Mkdirat(to, name, 0o755); err != nil && !errors.Is(err, unix.EEXIST) {
			break
		}
		var next int
		next, err = unix.Openat(to, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		_ = unix.Close(to)
		to = next
	}
	if err == nil {
		err = mountAt(from, to, unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY})
		if errors.Is(err, unix.EPERM) {
			err = mountAt(from, to, unix.MountAttr{}) // it is read-only outside too
		}
	}
	if to >= 0 {
		_ = unix.Close(to)
	}
	if err != nil {
		return fmt.Errorf("mount %s in a room: %w", path, err)
	}
	s.shared[rel] = true
	return nil
}

// deniedFile is mounted in place of the files of [Bounds.Denied].
const deniedFile = "/dev/denied"

func makeNodes() error {
	nodes := map[string]int{}
	defer func() {
		for _, fd := range nodes {
			_ = unix.Close(fd)
		}
	}()
	for _, name := range roomDevices {
		fd, err := unix.OpenTree(unix.AT_FDCWD, "/dev/"+name, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return fmt.Errorf("take /dev/%s into a room: %w", name, err)
		}
		nodes[name] = fd
	}
	const options = "mode=755,size=64k,nr_inodes=64"
	if err := unix.Mount("dev", "/dev", "tmpfs", unix.MS_NOSUID|unix.MS_NOEXEC, options); err != nil {
		return fmt.Errorf("mount /dev of a room: %w", err)
	}
	for name, fd := range nodes {
		err := unix.Mknod("/dev/"+name, unix.S_IFREG|0o600, 0)
		if err == nil {
			err = unix.MoveMount(fd, "", unix.AT_FDCWD, "/dev/"+name, unix.MOVE_MOUNT_F_EMPTY_PATH)
		}
		if err != nil {
			return fmt.Errorf("take /dev/%s into a room: %w", name, err)
		}
	}
	// A socket cannot be opened, not even by root: a program sees an error and not an empty file.
	if err := unix.Mknod(deniedFile, unix.S_IFSOCK, 0); err != nil {
		return fmt.Errorf("make %s of a room: %w", deniedFile, err)
	}
	for _, link := range []string{"fd ", "stdin /0", "stdout /1", "stderr /2"} {
		name, number, _ := strings.Cut(link, " ")
		if err := unix.Symlink("/proc/self/fd"+number, "/dev/"+name); err != nil {
			return fmt.Errorf("make /dev/%s of a room: %w", name, err)
		}
	}
	if err := unix.Symlink("pts/ptmx", "/dev/ptmx"); err != nil {
		return fmt.Errorf("make /dev/ptmx of a room: %w", err)
	}
	for _, fs := range []struct {
		name, kind, options string
		flags               uintptr
	}{
		{"pts", "devpts", "newinstance,ptmxmode=0666,mode=0620", unix.MS_NOSUID | unix.MS_NOEXEC},
		{"shm", "tmpfs", "mode=1777", unix.MS_NOSUID | unix.MS_NODEV},
	} {
		path := "/dev/" + fs.name
		err := os.Mkdir(path, 0o755)
		if err == nil {
			err = unix.Mount(fs.kind, path, fs.kind, fs.flags, fs.options)
		}
		if err != nil {
			return fmt.Errorf("mount %s of a room: %w", path, err)
		}
	}
	return nil
}
