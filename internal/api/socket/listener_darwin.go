package socket

import (
	"net"

	"golang.org/x/sys/unix"
)

// allowed reports whether a client may use the socket: it is of this user or of root.
func allowed(c *net.UnixConn) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	var cred *unix.Xucred
	if cerr := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptXucred(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
	}); cerr != nil || err != nil {
		return false
	}
	return cred.Uid == 0 || int(cred.Uid) == unix.Geteuid()
}

// listener is not implemented on macOS.
func listener(net.Conn) int { return 0 }
