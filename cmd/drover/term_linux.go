package main

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

const termios = unix.TCGETS

// standStill returns when somebody has continued this process. The signal is for this
// thread, so that it has come when the call returns.
func standStill() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_ = unix.Tgkill(os.Getpid(), unix.Gettid(), unix.SIGSTOP) // to itself it cannot fail
}
