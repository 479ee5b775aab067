package host

import (
	"net"

	"golang.org/x/sys/unix"
)

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
