package sandbox

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// roomDevices are the devices of a room: those that change nothing and tell nothing. Disks, which
// a user of the group "disk" could read past what is hidden, keyboards and microphones are none.
//
//rules:constant never changed after this line
var roomDevices = []string{"null", "zero", "full", "random", "urandom", "tty"}

// makeDev gives the room a /dev of its own, with terminals that are not those of the user's windows,
// and with shared memory that nobody outside shares.
func makeDev() error {
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
