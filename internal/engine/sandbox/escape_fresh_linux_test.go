package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// freshMarks are calls that came with Linux 6.13 and 6.17.
func freshMarks() map[string]func(file string) error {
	const setxattrat, fileSetattr = 463, 469
	return map[string]func(string) error{
		"setxattrat": func(file string) error {
			path, err := unix.BytePtrFromString(file)
			if err != nil {
				return err
			}
			name, value := []byte("user.changed\x00"), []byte("x")
			args := struct {
				value       uint64
				size, flags uint32
			}{uint64(uintptr(unsafe.Pointer(&value[0]))), 1, 0}
			at := unix.AT_FDCWD
			_, _, errno := unix.Syscall6(setxattrat, uintptr(at), uintptr(unsafe.Pointer(path)), 0, uintptr(unsafe.Pointer(&name[0])),
				uintptr(unsafe.Pointer(&args)), unsafe.Sizeof(args))
			return errnoOf(errno)
		},
		"file_setattr": func(file string) error {
			path, err := unix.BytePtrFromString(file)
			if err != nil {
				return err
			}
			attr := struct {
				xflags                    uint64
				extsize, nextents, projid uint32
				cowextsize                uint32
			}{xflags: 0x80} // FS_XFLAG_NODUMP
			at := unix.AT_FDCWD
			_, _, errno := unix.Syscall6(fileSetattr, uintptr(at), uintptr(unsafe.Pointer(path)), uintptr(unsafe.Pointer(&attr)),
				unsafe.Sizeof(attr), 0, 0)
			return errnoOf(errno)
		},
	}
}

func errnoOf(e unix.Errno) error {
	if e == 0 {
		return nil
	}
	return e
}

// freshSignals have the kernel send a signal for something that happens to a file.
func freshSignals() map[string]func(pid int) error {
	const setOwner, setSignal, setLease, notify, created = 8, 10, 1024, 1026, 4 // F_SETOWN and so on; DN_CREATE
	directed := func(fd, pid int) error {
		for _, c := range [][2]int{{setOwner, pid}, {setSignal, int(unix.SIGTERM)}} {
			if _, err := unix.FcntlInt(uintptr(fd), c[0], c[1]); err != nil {
				return err
			}
		}
		return nil
	}
	return map[string]func(pid int) error{
		"signal of a folder": func(pid int) error {
			fd, err := unix.Open(".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
			if err != nil {
				return err
			}
			if _, err := unix.FcntlInt(uintptr(fd), notify, created); err != nil {
				return err
			}
			if err := directed(fd, pid); err != nil {
				return err
			}
			return os.WriteFile("mine", nil, 0o600)
		},
		"signal of a lease": func(pid int) error {
			fd, err := unix.Open("mine", unix.O_CREAT|unix.O_RDWR, 0o600)
			if err != nil {
				return err
			}
			if _, err := unix.FcntlInt(uintptr(fd), setLease, unix.F_WRLCK); err != nil {
				return err
			}
			if err := directed(fd, pid); err != nil {
				return err
			}
			_, _ = unix.Open("mine", unix.O_WRONLY|unix.O_NONBLOCK, 0) // which breaks it
			return nil
		},
	}
}

// freshCalls are system calls in forms that filters of others have let through, and files by which root changes the
// machine.
func freshCalls() map[string]func(pid int) error {
	opens := func(file string) func(int) error {
		return func(int) error {
			fd, err := unix.Open(file, unix.O_WRONLY|unix.O_CLOEXEC, 0)
			if err == nil {
				_ = unix.Close(fd)
			}
			return err
		}
	}
	number := func(n uintptr, args ...uintptr) func(int) error {
		return func(int) error {
			var a [6]uintptr
			copy(a[:], args)
			_, _, errno := unix.Syscall6(n, a[0], a[1], a[2], a[3], a[4], a[5])
			return errnoOf(errno)
		}
	}
	const high = 1 << 32
	return map[string]func(int) error{
		// The kernel looks at the lower half of these arguments only (CVE-2019-10063, CVE-2019-7303).
		"push into a terminal by a number beyond 4 GB": func(int) error {
			fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY, 0)
			if err != nil {
				return err
			}
			text := []byte("x")
			_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCSTI|high, uintptr(unsafe.Pointer(&text[0])))
			if errno == unix.EPERM && noTIOCSTI() {
				return nil // the kernel refuses that without a sandbox too
			}
			return made(errnoOf(errno))
		},
		"packet socket by a number beyond 4 GB": number(unix.SYS_SOCKET, unix.AF_PACKET|high, unix.SOCK_DGRAM, 0),
		"calls of 32 bits": func(int) error {
			// mov eax, 1 (exit); mov ebx, 7; int 0x80; mov eax, 60 (exit); mov edi, 9; syscall
			return runs(7, []byte{0xb8, 1, 0, 0, 0, 0xbb, 7, 0, 0, 0, 0xcd, 0x80, 0xb8, 60, 0, 0, 0, 0xbf, 9, 0, 0, 0, 0x0f, 0x05})
		},
		"new privileges": func(int) error {
			n, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
			if err == nil && n != 0 {
				err = unix.EPERM
			}
			return err
		},
		"core pattern": opens("/proc/sys/kernel/core_pattern"),
		"score of the bystander": func(pid int) error {
			return os.WriteFile("/proc/"+strconv.Itoa(pid)+"/oom_score_adj", []byte("1000"), 0)
		},
		"references of the bystander": func(pid int) error {
			return os.WriteFile("/proc/"+strconv.Itoa(pid)+"/clear_refs", []byte("1"), 0)
		},
		"files of others": func(int) error { // FAN_CLASS_CONTENT: opens wait for whoever asked
			fd, err := unix.FanotifyInit(unix.FAN_CLASS_CONTENT|unix.FAN_CLOEXEC, unix.O_RDONLY)
			if err == nil {
				_ = unix.Close(fd)
			}
			return err
		},
		"advise the bystander's memory": func(pid int) error {
			fd, err := unix.PidfdOpen(pid, 0)
			if err != nil {
				return err
			}
			v := unix.Iovec{}
			_, _, errno := unix.Syscall6(unix.SYS_PROCESS_MADVISE, uintptr(fd), uintptr(unsafe.Pointer(&v)), 1, unix.MADV_COLD, 0, 0)
			return errnoOf(errno)
		},
	}
}

// noTIOCSTI reports whether the kernel of this machine has no TIOCSTI for anybody.
func noTIOCSTI() bool {
	data, err := os.ReadFile("/proc/sys/dev/tty/legacy_tiocsti")
	return err == nil && string(data) == "0\n" && os.Geteuid() != 0
}

// runs makes a program of machine code and runs it, which must exit with a code.
func runs(want int, code []byte) error {
	const at, head = 0x400000, 120
	elf := make([]byte, head, head+len(code))
	copy(elf, "\x7fELF\x02\x01\x01")
	put := func(off int, size int, v uint64) {
		for i := range size {
			elf[off+i] = byte(v >> (8 * i))
		}
	}
	put(16, 2, 2)       // an executable
	put(18, 2, 62)      // for x86-64
	put(20, 4, 1)       // version
	put(24, 8, at+head) // entry
	put(32, 8, 64)      // program headers
	put(52, 2, 64)
	put(54, 2, 56)
	put(56, 2, 1)
	put(64, 4, 1) // load
	put(68, 4, 5) // to read and execute
	put(80, 8, at)
	put(88, 8, at)
	put(96, 8, uint64(head+len(code)))
	put(104, 8, uint64(head+len(code)))
	put(112, 8, 4096)
	if err := os.WriteFile("mine", append(elf, code...), 0o700); err != nil {
		return err
	}
	err := exec.Command("./mine").Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == want {
		return nil
	}
	return fmt.Errorf("it ends otherwise: %w", errors.Join(err, errors.New("no exit code")))
}
