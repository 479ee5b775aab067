package sandbox

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Programs of a room reach Unix sockets that were bound there and no others, wherever they lie. The kernel holds each
// connect(2) of theirs until the starter answers. It opens the path once, compares the file with those that sockets
// of its own network are bound to, and connects the caller's socket itself, so that nothing can be exchanged
// between the look and the connection. A program cannot make datagram sockets of this family: they need no
// connect to be used.

// brokers bounds the connections that are made at the same time for the programs of one start. Others wait.
const brokers = 64

// broker answers the connects of the programs of one start.
type broker struct {
	listener *os.File
	sockets  *sockets
	outside  func(path string) bool // whether a socket outside may be reached
}

// notification is seccomp_notif of seccomp_unotify(2).
type notification struct {
	id         uint64
	pid, flags uint32
	call       int32
	arch       uint32
	at         uint64
	args       [6]uint64
}

// response is seccomp_notif_resp.
type response struct {
	id         uint64
	value      int64
	err, flags int32
}

func ioctl(fd, what uintptr, arg unsafe.Pointer) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, what, uintptr(arg)); errno != 0 {
		return errno
	}
	return nil
}

// serve answers until the last program of the start has ended.
func (b *broker) serve() {
	defer b.listener.Close()
	raw, err := b.listener.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { // since Linux 6.6: the caller and this process take turns on one processor
		const turns = unix.SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP
		_, _, _ = unix.Syscall(unix.SYS_IOCTL, fd, unix.SECCOMP_IOCTL_NOTIF_SET_FLAGS, turns)
	})
	places := make(chan struct{}, brokers)
	for {
		var n notification
		err := error(unix.EAGAIN)
		_ = raw.Read(func(fd uintptr) bool {
			ready := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			if k, _ := unix.Poll(ready, 0); k == 0 {
				return false // it is waited for
			}
			if ready[0].Revents&unix.POLLIN == 0 {
				err = unix.EPIPE // all have ended
				return true
			}
			n = notification{}
			err = ioctl(fd, unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(&n))
			return true
		})
		if errors.Is(err, unix.EPIPE) || errors.Is(err, unix.EAGAIN) {
			return
		}
		if err != nil {
			continue // the caller was ended
		}
		places <- struct{}{}
		go func() { // ends with the connection
			defer func() { <-places }()
			r := response{id: n.id}
			switch err := b.answer(raw, n); {
			case err == nil && n.call != unix.SYS_CONNECT:
				r.flags = unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE // about a process of the room
			case err != nil:
				var errno syscall.Errno
				if r.err = -int32(unix.EACCES); errors.As(err, &errno) {
					r.err = -int32(errno)
				}
			}
			_ = raw.Control(func(fd uintptr) { _ = ioctl(fd, unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&r)) })
		}()
	}
}

// answer grants the call of a program, or reports why it is refused.
func (b *broker) answer(raw syscall.RawConn, n notification) error {
	process := n.args[0]
	switch n.call {
	case unix.SYS_CONNECT:
		return b.connect(raw, n)
	case unix.SYS_SETPRIORITY, unix.SYS_IOPRIO_SET:
		process = n.args[1]
	}
	own, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return err
	}
	if of, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", int32(process))); err != nil || of != own {
		return unix.EPERM
	}
	return nil
}

// maxAddress is the size of sockaddr_storage.
const maxAddress = 128

// connect connects a socket of the caller.
func (b *broker) connect(raw syscall.RawConn, n notification) error {
	size := int(uint32(n.args[2]))
	if size < 2 || size > maxAddress {
		return unix.EINVAL
	}
	address := make([]byte, size)
	local := []unix.Iovec{{Base: &address[0], Len: uint64(size)}}
	remote := []unix.RemoteIovec{{Base: uintptr(n.args[1]), Len: size}}
	if k, err := unix.ProcessVMReadv(int(n.pid), local, remote, 0); err != nil || k != size {
		return unix.EFAULT
	}
	fd, err := takeSocket(n)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	place := -1
	if family, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN); err != nil {
		return err
	} else if path := pathOf(address); family == unix.AF_UNIX && path != "" {
		if place, err = b.find(n.pid, path); err != nil {
			return err
		}
		defer unix.Close(place)
	}
	// Until here the process number may be another's.
	valid := unix.EPIPE
	_ = raw.Control(func(listener uintptr) {
		if ioctl(listener, unix.SECCOMP_IOCTL_NOTIF_ID_VALID, unsafe.Pointer(&n.id)) == nil {
			valid = 0
		}
	})
	if valid != 0 {
		return valid
	}
	if place >= 0 {
		return unix.Connect(fd, &unix.SockaddrUnix{Name: fmt.Sprintf("/proc/self/fd/%d", place)})
	}
	_, _, errno := unix.Syscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&address[0])), uintptr(size))
	if errno != 0 {
		return errno
	}
	return nil
}

// takeSocket duplicates the socket of the caller.
func takeSocket(n notification) (int, error) {
	pidfd, err := unix.PidfdOpen(int(n.pid), unix.O_EXCL) // PIDFD_THREAD of Linux 6.9
	if errors.Is(err, unix.EINVAL) {
		pidfd, err = unix.PidfdOpen(leader(n.pid), 0)
	}
	if err != nil {
		return -1, err
	}
	defer unix.Close(pidfd)
	return unix.PidfdGetfd(pidfd, int(int32(n.args[0])), 0)
}

// leader is the process of a thread.
func leader(thread uint32) int {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", thread))
	_, rest, _ := strings.Cut(string(status), "\nTgid:")
	line, _, _ := strings.Cut(rest, "\n")
	pid, _ := strconv.Atoi(strings.TrimSpace(line))
	return pid
}

// pathOf is the path in an address; empty: it has none, as the address of an abstract socket, which only
// programs of the same network reach.
func pathOf(address []byte) string {
	if len(address) < 3 || binary.NativeEndian.Uint16(address) != unix.AF_UNIX || address[2] == 0 {
		return ""
	}
	path, _, _ := strings.Cut(string(address[2:]), "\x00")
	return path
}

// find opens a socket that the caller may reach as a place.
func (b *broker) find(pid uint32, path string) (_ int, err error) {
	from := unix.AT_FDCWD
	if !strings.HasPrefix(path, "/") {
		if from, err = openPath(fmt.Sprintf("/proc/%d/cwd", pid), 0); err != nil {
			return -1, err
		}
		defer unix.Close(from)
	}
	var root, ours unix.Stat_t
	if unix.Stat(fmt.Sprintf("/proc/%d/root", pid), &root) != nil || unix.Stat("/", &ours) != nil ||
		root.Ino != ours.Ino || root.Dev != ours.Dev {
		return -1, unix.EACCES // in a root of its own a path means something else
	}
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_MAGICLINKS}
	fd, err := unix.Openat2(from, path, &how)
	if err != nil {
		return -1, err
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil && st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		err = unix.ECONNREFUSED
	}
	if err == nil && !b.sockets.has(fd, &st) {
		real, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
		if b.outside == nil || !b.outside(real) {
			err = unix.EACCES
		}
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// What golang.org/x/sys does not name of sock_diag(7).
const (
	sockDiagByFamily = 20
	showVFS          = 2       // UDIAG_SHOW_VFS
	attrVFS          = 1       // UNIX_DIAG_VFS
	listening        = 1 << 10 // TCP_LISTEN
	diagHead         = 16      // bytes of unix_diag_msg
)

// sockets asks the kernel which Unix sockets of this network listen. It may be used by several goroutines.
type sockets struct {
	mu   sync.Mutex
	link int // guarded by mu
	page []byte
}

// openSockets opens the link to the kernel. It lasts as long as this process.
func openSockets() (*sockets, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return nil, fmt.Errorf("ask for the sockets of a room: %w", err)
	}
	return &sockets{link: fd, page: make([]byte, 64<<10)}, nil
}

// has reports whether a socket of this network listens at a file, which is open.
func (s *sockets) has(fd int, st *unix.Stat_t) bool {
	all, err := s.bindings()
	if err != nil {
		return false
	}
	on := func(major, minor uint32) bool {
		return slices.Contains(all, binding{uint32(st.Ino), major<<20 | minor})
	}
	if on(unix.Major(st.Dev), unix.Minor(st.Dev)) {
		return true
	}
	// Some file systems, such as btrfs, tell another device than the one they are mounted as.
	if !slices.ContainsFunc(all, func(b binding) bool { return b.ino == uint32(st.Ino) }) {
		return false
	}
	var more unix.Statx_t
	if unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &more) != nil {
		return false
	}
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(mounts)) {
		var id, parent uint64
		var major, minor uint32
		if n, _ := fmt.Sscanf(line, "%d %d %d:%d ", &id, &parent, &major, &minor); n == 4 && id == more.Mnt_id {
			return on(major, minor)
		}
	}
	return false
}

// binding is the file that a socket listens at, as the kernel numbers it.
type binding struct{ ino, dev uint32 }

// bindings are the files at which sockets of this network listen.
func (s *sockets) bindings() (all []binding, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := make([]byte, unix.SizeofNlMsghdr+24)
	order := binary.NativeEndian
	order.PutUint32(q, uint32(len(q)))
	order.PutUint16(q[4:], sockDiagByFamily)
	order.PutUint16(q[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	q[16] = unix.AF_UNIX
	order.PutUint32(q[20:], listening)
	order.PutUint32(q[28:], showVFS)
	if err := unix.Sendto(s.link, q, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, fmt.Errorf("ask for the sockets of a room: %w", err)
	}
	for {
		n, _, err := unix.Recvfrom(s.link, s.page, 0)
		if err != nil {
			return nil, fmt.Errorf("ask for the sockets of a room: %w", err)
		}
		messages, err := syscall.ParseNetlinkMessage(s.page[:n])
		if err != nil {
			return nil, fmt.Errorf("ask for the sockets of a room: %w", err)
		}
		for _, m := range messages {
			switch {
			case m.Header.Type == unix.NLMSG_DONE:
				return all, nil
			case m.Header.Type == unix.NLMSG_ERROR:
				return nil, errors.New("ask for the sockets of a room: the kernel has no unix_diag")
			case len(m.Data) < diagHead:
				continue
			}
			for rest := m.Data[diagHead:]; len(rest) >= 4; {
				size := int(order.Uint16(rest))
				if size < 4 || size > len(rest) {
					break
				}
				if order.Uint16(rest[2:]) == attrVFS && size >= 12 {
					all = append(all, binding{order.Uint32(rest[4:]), order.Uint32(rest[8:])})
				}
				rest = rest[min((size+3)&^3, len(rest)):]
			}
		}
	}
}
