package process

import "golang.org/x/sys/unix"

// waits are the system calls of this architecture that wait for input.
func waits() map[int]call {
	return map[int]call{
		unix.SYS_READ: readCall, unix.SYS_READV: readCall, unix.SYS_PPOLL: ppollCall,
		unix.SYS_PSELECT6: selectCall, unix.SYS_EPOLL_PWAIT: epollCall,
	}
}
