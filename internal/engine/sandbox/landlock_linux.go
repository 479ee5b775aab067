package sandbox

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What a program needs to change files, by the ABI that governs it first. Linux 6.18,
// Documentation/userspace-api/landlock.rst.
const (
	writeFirst = unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_REMOVE_DIR |
		unix.LANDLOCK_ACCESS_FS_REMOVE_FILE | unix.LANDLOCK_ACCESS_FS_MAKE_CHAR |
		unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG |
		unix.LANDLOCK_ACCESS_FS_MAKE_SOCK | unix.LANDLOCK_ACCESS_FS_MAKE_FIFO |
		unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK | unix.LANDLOCK_ACCESS_FS_MAKE_SYM
	ofFiles = unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE |
		unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
)

// What golang.org/x/sys does not name: the rule of ABI 4 and the scopes of ABI 6.
const (
	ruleNetPort   = 2
	scopeAbstract = 1 << 0
	scopeSignal   = 1 << 1
)

// The ABIs from which a right is governed.
const (
	abiRefer    = 2
	abiTruncate = 3
	abiTCP      = 4
	abiIoctl    = 5
	abiScope    = 6
)

// ruleset is landlock_ruleset_attr of ABI 6.
type ruleset struct {
	fs, net, scoped uint64
}

// size returns how many bytes of a ruleset the kernel of an ABI knows.
func (r ruleset) size(abi int) uintptr {
	switch {
	case abi >= abiScope:
		return unsafe.Sizeof(r)
	case abi >= abiTCP:
		return 16
	}
	return 8
}

// governed lists the accesses that a domain of this package governs.
func governed(abi int, tcp bool) ruleset {
	r := ruleset{fs: writeFirst}
	if abi >= abiRefer {
		r.fs |= unix.LANDLOCK_ACCESS_FS_REFER
	}
	if abi >= abiTruncate {
		r.fs |= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	if abi >= abiIoctl {
		r.fs |= unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	}
	if abi >= abiTCP && tcp {
		r.net = unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
	}
	if abi >= abiScope {
		r.scoped = scopeAbstract | scopeSignal
	}
	return r
}

// landlockABI is 0 without Landlock.
func landlockABI() int {
	n, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0
	}
	return int(n)
}

// domain makes a ruleset for bounds. tcp says that ports are governed too. The caller closes it.
func domain(abi int, b Bounds, tcp bool) (fd int, err error) {
	attr := governed(abi, tcp)
	n, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), attr.size(abi), 0)
	if errno != 0 {
		return -1, fmt.Errorf("create Landlock rules: %w", errno)
	}
	fd = int(n)
	defer func() {
		if err != nil {
			_ = unix.Close(fd)
		}
	}()
	for _, path := range b.Write {
		if err := addPath(fd, path, attr.fs, unix.RESOLVE_NO_SYMLINKS); err != nil {
			return -1, err
		}
	}
	for _, path := range devices {
		if err := addPath(fd, path, attr.fs, 0); err != nil {
			return -1, err
		}
	}
	if attr.net != 0 {
		for _, port := range b.Ports {
			rule := struct{ access, port uint64 }{attr.net, uint64(port)}
			_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(fd), ruleNetPort,
				uintptr(unsafe.Pointer(&rule)), 0, 0, 0)
			if errno != 0 {
				return -1, fmt.Errorf("allow TCP port %d by Landlock: %w", port, errno)
			}
		}
	}
	return fd, nil
}

// devices are files of /dev that programs write to without changing anything.
//
//rules:constant never changed after this line
var devices = []string{
	"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx", "/dev/pts", "/dev/shm",
}

func addPath(ruleset int, path string, rights, resolve uint64) error {
	fd, err := openPath(path, resolve)
	if err != nil {
		if absent(err) {
			return nil // nothing that could be written
		}
		return fmt.Errorf("allow writes to %s by Landlock: %w", path, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("allow writes to %s by Landlock: %w", path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		rights &= ofFiles
	}
	attr := unix.LandlockPathBeneathAttr{Allowed_access: rights, Parent_fd: int32(fd)}
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(ruleset), unix.LANDLOCK_RULE_PATH_BENEATH,
		uintptr(unsafe.Pointer(&attr)), 0, 0, 0)
	if errno != 0 {
		return fmt.Errorf("allow writes to %s by Landlock: %w", path, errno)
	}
	return nil
}

// openPath opens a file or folder as a place, which it stays when its path leads elsewhere later.
func openPath(path string, resolve uint64) (int, error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: resolve}
	for {
		fd, err := unix.Openat2(unix.AT_FDCWD, path, &how)
		if !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) {
			return fd, err
		}
	}
}

// absent reports errors of a path at which nothing is that a program could use. ELOOP is a symlink
// where none may be.
func absent(err error) bool {
	for _, e := range []error{unix.ENOENT, unix.ENOTDIR, unix.EACCES, unix.ELOOP} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// enter puts this thread into a domain.
func enter(ruleset int) error {
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(ruleset), 0, 0); errno != 0 {
		return fmt.Errorf("enter a Landlock domain: %w", errno)
	}
	return nil
}
