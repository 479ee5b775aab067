package sandbox

import (
	"errors"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// modeCalls are attempts to make a program that runs as its owner or its group, and neighbourCalls to slow down the
// bystander or to bind it to a processor.
func modeCalls() map[string]func(pid int) error {
	// set reports an error unless the file has one of the bits.
	set := func(f func(name string) error) func(int) error {
		return func(int) error {
			const name = "mine"
			_ = os.Remove(name)
			err := f(name)
			info, err2 := os.Stat(name)
			if err2 != nil {
				return errors.Join(err, err2)
			}
			if info.Mode()&(os.ModeSetuid|os.ModeSetgid) == 0 {
				return unix.EPERM
			}
			return nil
		}
	}
	later := func(f func(name string) error) func(int) error {
		return set(func(name string) error {
			return errors.Join(os.WriteFile(name, []byte("#!/bin/sh\n"), 0o700), f(name))
		})
	}
	opened := func(name string, f func(fd int) error) error {
		fd, err := unix.Open(name, unix.O_RDONLY, 0)
		if err != nil {
			return err
		}
		return f(fd)
	}
	made := func(flags int) func(int) error {
		return set(func(name string) error {
			fd, err := unix.Open(name, flags|unix.O_CREAT|unix.O_WRONLY, 0o6755)
			if err != nil {
				return err
			}
			return unix.Close(fd)
		})
	}
	return map[string]func(int) error{
		"setuid by chmod":    later(func(name string) error { return unix.Chmod(name, 0o4755) }),
		"setgid by chmod":    later(func(name string) error { return unix.Chmod(name, 0o2755) }),
		"setuid by fchmod":   later(func(name string) error { return opened(name, func(fd int) error { return unix.Fchmod(fd, 0o4755) }) }),
		"setuid by fchmodat": later(func(name string) error { return unix.Fchmodat(unix.AT_FDCWD, name, 0o4755, 0) }),
		"setuid by fchmodat2": later(func(name string) error {
			return unix.Fchmodat(unix.AT_FDCWD, name, 0o4755, unix.AT_SYMLINK_NOFOLLOW)
		}),
		"setuid by a descriptor": later(func(name string) error {
			return opened(name, func(int) error { return unix.Chmod("/proc/self/fd/0/../"+name, 0o4755) })
		}),
		"setuid by open":  made(0),
		"setuid by open2": made(unix.O_EXCL),
		"setuid by creat": set(func(name string) error { _, err := unix.Creat(name, 0o4755); return err }),
		"setuid by mknod": set(func(name string) error { return unix.Mknod(name, unix.S_IFREG|0o4755, 0) }),
		"setuid by openat2": set(func(name string) error {
			_, err := unix.Openat2(unix.AT_FDCWD, name, &unix.OpenHow{Flags: unix.O_CREAT | unix.O_WRONLY, Mode: 0o4755})
			return err
		}),
		"setuid of a nameless file": set(func(name string) error {
			fd, err := unix.Open(".", unix.O_TMPFILE|unix.O_WRONLY, 0o4755)
			if err != nil {
				return err
			}
			return unix.Linkat(fd, "", unix.AT_FDCWD, name, unix.AT_EMPTY_PATH)
		}),
	}
}

func neighbourCalls() map[string]func(pid int) error {
	call := func(n uintptr, args ...uintptr) error {
		var a [6]uintptr
		copy(a[:], args)
		_, _, errno := unix.Syscall6(n, a[0], a[1], a[2], a[3], a[4], a[5])
		return errnoOf(errno)
	}
	param := [1]int32{}
	attr := [12]uint32{48} // sched_attr: normal scheduling
	return map[string]func(int) error{
		"priority":            func(pid int) error { return unix.Setpriority(unix.PRIO_PROCESS, pid, 19) },
		"priority of a group": func(pid int) error { return unix.Setpriority(unix.PRIO_PGRP, pid, 19) },
		"priority of a user":  func(int) error { return unix.Setpriority(unix.PRIO_USER, os.Getuid(), 19) },
		"priority of the own user": func(int) error {
			return unix.Setpriority(unix.PRIO_USER, 0, 19)
		},
		"processors": func(pid int) error {
			var set unix.CPUSet
			set.Set(0)
			return unix.SchedSetaffinity(pid, &set)
		},
		"scheduler": func(pid int) error {
			return call(unix.SYS_SCHED_SETSCHEDULER, uintptr(pid), 3, uintptr(unsafe.Pointer(&param)))
		},
		"scheduler parameters": func(pid int) error {
			return call(unix.SYS_SCHED_SETPARAM, uintptr(pid), uintptr(unsafe.Pointer(&param)))
		},
		"scheduler attributes": func(pid int) error {
			return call(unix.SYS_SCHED_SETATTR, uintptr(pid), uintptr(unsafe.Pointer(&attr)), 0)
		},
		"I/O class":            func(pid int) error { return call(unix.SYS_IOPRIO_SET, ioprioProcess, uintptr(pid), 3<<13) },
		"I/O class of a group": func(pid int) error { return call(unix.SYS_IOPRIO_SET, 2, uintptr(pid), 3<<13) },
		"I/O class of a user":  func(int) error { return call(unix.SYS_IOPRIO_SET, 3, uintptr(os.Getuid()), 3<<13) },
	}
}
