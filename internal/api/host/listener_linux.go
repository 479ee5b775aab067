package host

import (
	"net"

	"golang.org/x/sys/unix"
)

// listener is the process that called listen on the other end of a connection, or 0
// where that cannot be known, such as for one in another container.
func listener(c net.Conn) (pid int) {
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) { // fails when closed, and c is ours
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(cred.Pid)
		}
	})
	return pid
}
