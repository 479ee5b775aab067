package process

import (
	"syscall"
	"unsafe"
)

// pipeID identifies a pipe; here none is.
type pipeID struct{}

func pipeAt(int, string) pipeID { return pipeID{} }

// Arguments of proc_info, which package unix does not define here.
const (
	sysProcInfo   = 336
	callFD        = 3
	flavorPipe    = 6
	sizePipe      = 256 // at least that of struct pipe_fdinfo
	standardInput = 0
)

// helps reports whether stdin of a process is a pipe. A command whose own stdin is one has helpers
// that are none.
func helps(pid int, _ pipeID) bool {
	var info [sizePipe]byte
	_, _, errno := syscall.Syscall6(sysProcInfo, callFD, uintptr(pid), flavorPipe, standardInput,
		uintptr(unsafe.Pointer(&info)), sizePipe)
	return errno == 0
}
