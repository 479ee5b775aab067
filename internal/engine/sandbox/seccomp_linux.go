package sandbox

import (
	"fmt"
	"runtime"
	"slices"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Offsets in seccomp_data of seccomp(2), for little-endian machines.
const (
	offCall = 0
	offArch = 4
	offArgs = 16
)

// x32 is the bit that system calls of the x32 ABI have on amd64.
const x32 = 0x40000000

// refused are system calls that lead around the other mechanisms, or into parts of the kernel
// that no build or test needs: mounts and namespaces, modules, keys of the user, programs for the
// kernel, and io_uring, whose operations no filter sees.
//
//rules:constant never changed after this line
var refused = []uint32{
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_MOVE_MOUNT, unix.SYS_OPEN_TREE,
	unix.SYS_FSOPEN, unix.SYS_FSMOUNT, unix.SYS_FSCONFIG, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR,
	unix.SYS_SETNS, unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE,
	unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_REBOOT, unix.SYS_SWAPON, unix.SYS_SWAPOFF,
	unix.SYS_ACCT, unix.SYS_QUOTACTL, unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD,
	unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
	unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_OPEN_BY_HANDLE_AT,
	unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_SYSLOG, callQuotactlFD, callOpenTreeAttr,
}

// Numbers that every architecture has since Linux 5.14 and 6.15.
const (
	callQuotactlFD   = 443
	callOpenTreeAttr = 467
)

// filter is the program of seccomp. streams says that the only sockets of the internet are those that Landlock
// governs: TCP. brokered says that a [broker] answers connects; else a program has no Unix sockets but pairs.
func filter(streams, brokered bool) ([]bpf.RawInstruction, error) {
	var arch uint32
	switch runtime.GOARCH {
	case "amd64":
		arch = unix.AUDIT_ARCH_X86_64
	case "arm64":
		arch = unix.AUDIT_ARCH_AARCH64
	default:
		return nil, fmt.Errorf("make a seccomp filter: %s has none yet", runtime.GOARCH)
	}
	errno := func(e unix.Errno) bpf.Instruction { return bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(e)} }
	call := bpf.LoadAbsolute{Off: offCall, Size: 4}
	arg := func(n uint32) bpf.Instruction { return bpf.LoadAbsolute{Off: offArgs + 8*n, Size: 4} }
	is := func(v uint32, skip uint8) bpf.Instruction {
		return bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: v, SkipTrue: skip}
	}
	without := func(bits uint32) bpf.Instruction {
		return bpf.JumpIf{Cond: bpf.JumpBitsNotSet, Val: bits, SkipTrue: 1}
	}
	p := []bpf.Instruction{
		// Programs for another architecture have other numbers: they are refused as a whole.
		bpf.LoadAbsolute{Off: offArch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: arch, SkipTrue: 1},
		errno(unix.ENOSYS),
		call,
	}
	if runtime.GOARCH == "amd64" {
		p = append(p, without(x32), errno(unix.ENOSYS))
	}
	p = append(p,
		// A filter cannot read the flags of clone3, which are in memory: callers fall back to clone.
		is(unix.SYS_CLONE3, 1), errno(unix.ENOSYS),
		is(unix.SYS_CLONE, 3), arg(0), without(namespaceFlags), errno(unix.EPERM), call,
		is(unix.SYS_UNSHARE, 3), arg(0), without(namespaceFlags), errno(unix.EPERM), call,
		// What is pushed into a terminal is read by the shell of the person there.
		is(unix.SYS_IOCTL, 5), arg(1), is(unix.TIOCSTI, 1), errno(unix.EPERM), is(tioclinux, 1), errno(unix.EPERM), call,
	)
	// Whoever sets the limits of another process can end it. Landlock does not govern that.
	p = append(p,
		is(unix.SYS_PRLIMIT64, 8), arg(0), bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0, SkipTrue: 5}, // its own
		arg(2), bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: 0, SkipTrue: 1},
		bpf.LoadAbsolute{Off: offArgs + 8*2 + 4, Size: 4}, // no new limits: they are read
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0, SkipTrue: 1}, errno(unix.EPERM), call,
	)
	if streams { // connections that are opened by their first bytes are not governed
		for n, at := range map[uint32]uint32{unix.SYS_SENDTO: 3, unix.SYS_SENDMSG: 2, unix.SYS_SENDMMSG: 3} {
			p = append(p, is(n, 3), arg(at), without(unix.MSG_FASTOPEN), errno(unix.EOPNOTSUPP), call)
		}
	}
	if brokered {
		p = append(p, is(unix.SYS_CONNECT, 1), bpf.RetConstant{Val: unix.SECCOMP_RET_USER_NOTIF})
	}
	p = append(p, modes(arg, is, without, errno, call)...)
	other := errno(unix.EPERM)
	if brokered {
		other = bpf.RetConstant{Val: unix.SECCOMP_RET_USER_NOTIF}
	}
	p = append(p, neighbours(arg, is, other, errno(unix.EPERM), call)...)
	// A datagram socket reaches others without a connect.
	connected := []bpf.Instruction{
		arg(1), bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: sockType},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SOCK_STREAM, SkipTrue: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SOCK_SEQPACKET, SkipTrue: 1},
		errno(unix.EACCES), bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW},
	}
	named := connected
	if !brokered {
		named = []bpf.Instruction{errno(unix.EACCES)}
	}
	for n, then := range map[uint32][]bpf.Instruction{unix.SYS_SOCKET: named, unix.SYS_SOCKETPAIR: connected} {
		p = append(p, is(n, uint8(3+len(then))), arg(0), is(unix.AF_UNIX, uint8(len(then))))
		p = append(append(p, then...), call)
	}
	family := []bpf.Instruction{arg(0)}
	switch {
	case streams:
		family = append(family,
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AF_UNIX, SkipTrue: 8},
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AF_NETLINK, SkipTrue: 7},
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AF_INET, SkipTrue: 2},
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AF_INET6, SkipTrue: 1},
			errno(unix.EAFNOSUPPORT),
			// Without a protocol, SOCK_SEQPACKET is SCTP.
			arg(1), bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: sockType},
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SOCK_STREAM, SkipTrue: 1},
			errno(unix.EACCES),
			// Other protocols than TCP (MPTCP, SCTP) are not governed.
			arg(2),
		)
		family = append(family,
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0, SkipTrue: 2},
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.IPPROTO_TCP, SkipTrue: 1},
			errno(unix.EACCES),
		)
		// The jumps of AF_UNIX and AF_NETLINK skip these three, too.
		family[1] = bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AF_UNIX, SkipTrue: uint8(len(family) - 2)}
		family[2] = bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AF_NETLINK, SkipTrue: uint8(len(family) - 3)}
	default:
		family = append(family,
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AF_UNIX, SkipTrue: 4},
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AF_NETLINK, SkipTrue: 3},
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AF_INET, SkipTrue: 2},
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AF_INET6, SkipTrue: 1},
			errno(unix.EAFNOSUPPORT),
		)
	}
	p = append(p, is(unix.SYS_SOCKET, uint8(len(family))))
	p = append(p, family...)
	p = append(p, decide(refused, bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW}, errno(unix.EPERM))...)
	raw, err := bpf.Assemble(p)
	if err != nil {
		return nil, fmt.Errorf("make a seccomp filter: %w", err)
	}
	return raw, nil
}

// modes refuses to make a file one that runs as its owner or group: such a program on a disk of the machine has the
// powers of whoever made it. openat2 has its mode in memory, where no filter sees it: callers fall back to openat.
func modes(
	arg func(uint32) bpf.Instruction, is func(uint32, uint8) bpf.Instruction, without func(uint32) bpf.Instruction,
	errno func(unix.Errno) bpf.Instruction, call bpf.Instruction,
) []bpf.Instruction {
	p := []bpf.Instruction{is(unix.SYS_OPENAT2, 1), errno(unix.ENOSYS)}
	at := map[uint32]uint32{unix.SYS_FCHMOD: 1, unix.SYS_FCHMODAT: 2, unix.SYS_FCHMODAT2: 2, unix.SYS_MKNODAT: 2}
	opens := map[uint32]uint32{unix.SYS_OPENAT: 2}
	if runtime.GOARCH == "amd64" { // numbers that newer architectures do not have
		const open, creat, chmod, mknod = 2, 85, 90, 133
		at[creat], at[chmod], at[mknod], opens[open] = 1, 1, 1, 1
	}
	for n, mode := range at {
		p = append(p, is(n, 3), arg(mode), without(setID), errno(unix.EPERM), call)
	}
	for n, flags := range opens { // without these flags the mode has no meaning
		p = append(p, is(n, 5), arg(flags), bpf.JumpIf{Cond: bpf.JumpBitsNotSet, Val: makesFile, SkipTrue: 3},
			arg(flags+1), without(setID), errno(unix.EPERM), call)
	}
	return p
}

const (
	setID     = unix.S_ISUID | unix.S_ISGID
	makesFile = unix.O_CREAT | unix.O_TMPFILE&^unix.O_DIRECTORY
)

// neighbours lets a program change priority, processors and scheduling of itself. other is for those about another
// process, whose number they name, and no for those about groups and users.
func neighbours(
	arg func(uint32) bpf.Instruction, is func(uint32, uint8) bpf.Instruction, other, no, call bpf.Instruction,
) (p []bpf.Instruction) {
	self := bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0, SkipTrue: 1}
	for _, n := range []uint32{
		unix.SYS_SCHED_SETAFFINITY, unix.SYS_SCHED_SETSCHEDULER, unix.SYS_SCHED_SETPARAM, unix.SYS_SCHED_SETATTR,
	} {
		p = append(p, is(n, 3), arg(0), self, other, call)
	}
	about := map[uint32]uint32{unix.SYS_SETPRIORITY: unix.PRIO_PROCESS, unix.SYS_IOPRIO_SET: ioprioProcess}
	for n, process := range about {
		p = append(p, is(n, 6), arg(0), bpf.JumpIf{Cond: bpf.JumpEqual, Val: process, SkipTrue: 1}, no,
			arg(1), self, other, call)
	}
	return p
}

// ioprioProcess is IOPRIO_WHO_PROCESS of ioprio_set(2).
const ioprioProcess = 1

// decide ends a program that has loaded the number of a call: by one instruction for the calls of a list,
// and by another for all else. The kernel tries each call on a new filter, so that a search in halves
// takes a third of the time of a start that a list takes.
func decide(list []uint32, other, listed bpf.Instruction) []bpf.Instruction {
	list = slices.Clone(list)
	slices.Sort(list)
	var bounds []uint32 // at which the result changes
	for _, n := range slices.Compact(list) {
		if last := len(bounds) - 1; last >= 0 && bounds[last] == n {
			bounds[last] = n + 1
		} else {
			bounds = append(bounds, n, n+1)
		}
	}
	return search(bounds, other, listed)
}

// search is decide for numbers that are below all bounds, and between two of them.
func search(bounds []uint32, low, high bpf.Instruction) []bpf.Instruction {
	if len(bounds) == 0 {
		return []bpf.Instruction{low}
	}
	mid := len(bounds) / 2
	at := [2]bpf.Instruction{low, high}
	left := search(bounds[:mid], low, high)
	right := search(bounds[mid+1:], at[(mid+1)%2], at[mid%2])
	jump := bpf.JumpIf{Cond: bpf.JumpGreaterOrEqual, Val: bounds[mid], SkipTrue: uint8(len(left))}
	return slices.Concat([]bpf.Instruction{jump}, left, right)
}

// namespaceFlags are the flags of clone and unshare that create namespaces.
const namespaceFlags = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWPID |
	unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP

// sockType is SOCK_TYPE_MASK of the kernel: the kind of a socket without its flags.
const sockType = 0xf

// tioclinux is TIOCLINUX of ioctl_console(2), which can paste into a virtual console.
const tioclinux = 0x541C

// obey installs a filter for this thread, which has no_new_privs already. With brokered it returns the descriptor that
// [broker] serves, which the caller closes; else -1.
func obey(f []bpf.RawInstruction, brokered bool) (int, error) {
	prog := unix.SockFprog{Len: uint16(len(f)), Filter: (*unix.SockFilter)(unsafe.Pointer(&f[0]))}
	install := func(flags uintptr) (int, unix.Errno) {
		n, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&prog)))
		return int(n), errno
	}
	flags := uintptr(0)
	if brokered { // a signal does not make the caller try again what is being done for it
		flags = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
	}
	fd, errno := install(flags)
	if errno == unix.EINVAL && brokered { // before Linux 5.19
		fd, errno = install(unix.SECCOMP_FILTER_FLAG_NEW_LISTENER)
	}
	runtime.KeepAlive(f)
	switch {
	case errno != 0:
		return -1, fmt.Errorf("install a seccomp filter: %w", errno)
	case !brokered:
		return -1, nil
	}
	return fd, nil
}
