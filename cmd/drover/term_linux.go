package main

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

const termios = unix.TCGETS

// standStill returns when somebody has continued this process, and at once where
// nobody could, as the kernel has it. The signal is for this thread, so that it has
// come when the call returns.
func standStill() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_ = unix.Tgkill(os.Getpid(), unix.Gettid(), unix.SIGTSTP) // to itself it cannot fail
}
