package sandbox

import (
	"errors"
	"fmt"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// limits are the bounds that a thread takes on before it forks.
type limits struct {
	domain int                  // of Landlock; -1: none
	filter []bpf.RawInstruction // of seccomp; nil: none
	// brokered is called with the descriptor of [broker], if not nil, and owns it.
	brokered func(fd int)
	drop     []uintptr // capabilities that no program gets any more; nil: none
	// dropped says that no thread of this process can pass them on.
	dropped bool
	name    string // of the thread, and of the child until it has executed its program; empty: as it is
}

// fork starts a program from a thread that has taken on the limits. The thread ends with the
// call, so nothing else of this process is restricted. Go starts new threads from one without
// limits as long as a goroutine is locked to this one.
func (l limits) fork(path string, args []string, attr *syscall.ProcAttr) (pid int, err error) {
	onThread(func() {
		if err = l.take(); err == nil {
			pid, err = syscall.ForkExec(path, args, attr)
		}
	})
	return pid, err
}

// onThread calls f on a thread of its own, which ends after it. It is never the first thread of
// the process: that one cannot end, and what others may do to the process depends on it.
func onThread(f func()) {
	done := make(chan struct{})
	go func() { // waited for below
		defer close(done)
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		if unix.Gettid() != unix.Getpid() {
			f()
			return
		}
		onThread(f) // on another one, since this one is taken
		runtime.UnlockOSThread()
	}()
	<-done
}

func (l limits) take() error {
	if l.name != "" {
		name, err := unix.BytePtrFromString(l.name)
		if err != nil {
			return err
		}
		if err := unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(name)), 0, 0, 0); err != nil {
			return fmt.Errorf("name a thread: %w", err)
		}
	}
	if err := drop(l.drop, l.dropped); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	if l.domain >= 0 {
		if err := enter(l.domain); err != nil {
			return err
		}
	}
	if l.filter == nil {
		return nil
	}
	fd, err := obey(l.filter, l.brokered != nil)
	if err == nil && l.brokered != nil {
		l.brokered(fd)
	}
	return err
}

// powers are capabilities of root that lead out of a sandbox: into other processes, the kernel,
// devices, mounts and networks.
//
//rules:constant never changed after this line
var powers = []uintptr{
	unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN, unix.CAP_NET_RAW, unix.CAP_SYS_PTRACE, unix.CAP_SYS_MODULE, unix.CAP_SYS_RAWIO,
	unix.CAP_SYS_BOOT, unix.CAP_SYS_TIME, unix.CAP_MKNOD, unix.CAP_BPF, unix.CAP_PERFMON, unix.CAP_SYSLOG,
	unix.CAP_DAC_READ_SEARCH, unix.CAP_MAC_ADMIN, unix.CAP_MAC_OVERRIDE, unix.CAP_AUDIT_CONTROL, unix.CAP_SETPCAP,
	unix.CAP_LINUX_IMMUTABLE, unix.CAP_SETFCAP, unix.CAP_SYS_PACCT, unix.CAP_SYS_TTY_CONFIG, unix.CAP_CHECKPOINT_RESTORE,
}

// drop removes capabilities from this thread and from all that its children can get. dropped says that
// no thread of this process can pass them on any more; see [dropForAll].
func drop(caps []uintptr, dropped bool) error {
	if caps == nil {
		return nil
	}
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		return fmt.Errorf("read capabilities: %w", err)
	}
	for _, c := range caps {
		word, bit := c/32, uint32(1)<<(c%32)
		data[word].Effective &^= bit
		data[word].Permitted &^= bit
		data[word].Inheritable &^= bit
		if dropped {
			continue
		}
		// A thread without CAP_SETPCAP has no capability to pass on, except the ones cleared below.
		err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EPERM) {
			return fmt.Errorf("drop capability %d: %w", c, err)
		}
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("clear ambient capabilities: %w", err)
	}
	if err := unix.Capset(&hdr, &data[0]); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	return nil
}

// dropForAll keeps all threads of this process from passing capabilities on to programs that they
// execute, which saves each start a system call for each of them. It reports whether that is so: a
// program with C in it cannot do that.
func dropForAll(caps []uintptr) bool {
	for _, c := range caps {
		_, _, errno := syscall.AllThreadsSyscall(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c, 0)
		if errno != 0 && errno != unix.EINVAL {
			return false
		}
	}
	return true
}

// allPowers are all capabilities.
func allPowers() []uintptr {
	out := make([]uintptr, 0, unix.CAP_LAST_CAP+1)
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		out = append(out, c)
	}
	return out
}
