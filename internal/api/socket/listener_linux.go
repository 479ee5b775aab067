package socket

import (
	"net"

	"golang.org/x/sys/unix"

	"github.com/drover-dev/drover/internal/engine/process"
)

// allowed reports whether a client may use the socket: it is of root, or of this user and no command
// in the sandbox of a session, which has another network. A client that has ended already may have
// been one. A process of another table, as in a container, has no number here and is not looked at.
func allowed(c *net.UnixConn) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	var cred *unix.Ucred
	if cerr := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); cerr != nil || err != nil {
		return false
	}
	switch {
	case cred.Uid != 0 && int(cred.Uid) != unix.Geteuid():
		return false
	case cred.Uid == 0 && unix.Geteuid() != 0:
		return true
	}
	return cred.Pid <= 0 || process.Beside(int(cred.Pid))
}

// listener returns the process that called listen on the other end of a connection, or 0 if it
// is unknown, such as for one in another container.
func listener(c net.Conn) (pid int) {
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) { // fails only if c is closed, and c is ours
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(cred.Pid)
		}
	})
	return pid
}
