package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/drover-dev/drover/internal/engine/process"
	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/test/racetest"
)

// An attempt is made by this test binary inside the sandbox: `escape NAME TARGET…`. What it has
// reached is looked at from outside: files that changed, a connection that was accepted, a process
// that ended. Only of reading, and of system calls without an effect of their own, it says itself
// that it succeeded.
const escapeArg = "escape"

// succeeded is printed by an attempt that has got what it should not get.
const succeeded = "the attempt succeeded"

// changes are attempts to change a file: the target is one, its folder another.
func changes() map[string]func(file string) error {
	dir := func(file string) string { return filepath.Dir(file) }
	beside := func(file string) string { return filepath.Join(dir(file), "made") }
	opened := func(flags int) func(string) error {
		return func(file string) error {
			f, err := os.OpenFile(file, flags, 0)
			if err != nil {
				return err
			}
			defer f.Close()
			_, err = f.WriteString("changed")
			return err
		}
	}
	withFile := func(flags int, f func(fd int) error) func(string) error {
		return func(file string) error {
			fd, err := unix.Open(file, flags, 0)
			if err != nil {
				return err
			}
			return f(fd)
		}
	}
	return map[string]func(string) error{
		"open to write":    opened(os.O_WRONLY),
		"open to append":   opened(os.O_WRONLY | os.O_APPEND),
		"open to truncate": opened(os.O_RDWR | os.O_TRUNC),
		"openat2": func(file string) error {
			fd, err := unix.Openat2(unix.AT_FDCWD, file, &unix.OpenHow{Flags: unix.O_WRONLY})
			if err != nil {
				return err
			}
			_, err = unix.Write(fd, []byte("changed"))
			return err
		},
		"openat2 beneath the root": func(file string) error {
			root, err := unix.Open("/", unix.O_PATH, 0)
			if err != nil {
				return err
			}
			fd, err := unix.Openat2(root, strings.TrimPrefix(file, "/"),
				&unix.OpenHow{Flags: unix.O_WRONLY, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS})
			if err != nil {
				return err
			}
			_, err = unix.Write(fd, []byte("changed"))
			return err
		},
		"open again by /proc/self/fd": func(file string) error {
			fd, err := unix.Open(file, unix.O_RDONLY, 0)
			if err != nil {
				return err
			}
			return opened(os.O_WRONLY)(fmt.Sprintf("/proc/self/fd/%d", fd))
		},
		"open a path descriptor again": func(file string) error {
			fd, err := unix.Open(file, unix.O_PATH, 0)
			if err != nil {
				return err
			}
			return opened(os.O_WRONLY)(fmt.Sprintf("/proc/self/fd/%d", fd))
		},
		"open by /proc/self/root": func(file string) error { return opened(os.O_WRONLY)("/proc/self/root" + file) },
		"open by /proc/self/cwd": func(file string) error {
			return opened(os.O_WRONLY)("/proc/self/cwd/../../../../../../../../.." + file)
		},
		"open by /proc/parent/root": func(file string) error {
			return opened(os.O_WRONLY)(fmt.Sprintf("/proc/%d/root%s", os.Getppid(), file))
		},
		"open by the root of a bystander": func(file string) error {
			return opened(os.O_WRONLY)("/proc/" + os.Getenv("BYSTANDER") + "/root" + file)
		},
		"truncate":          func(file string) error { return unix.Truncate(file, 1) },
		"create":            func(file string) error { return os.WriteFile(beside(file), nil, 0o600) },
		"creat":             func(file string) error { _, err := unix.Creat(beside(file), 0o600); return err },
		"mkdir":             func(file string) error { return unix.Mkdir(beside(file), 0o700) },
		"fifo":              func(file string) error { return unix.Mkfifo(beside(file), 0o600) },
		"socket":            func(file string) error { return unix.Mknod(beside(file), unix.S_IFSOCK|0o600, 0) },
		"device":            func(file string) error { return unix.Mknod(beside(file), unix.S_IFCHR|0o600, 1<<8|3) },
		"symlink":           func(file string) error { return unix.Symlink("/x", beside(file)) },
		"remove":            func(file string) error { return unix.Unlink(file) },
		"rename":            func(file string) error { return unix.Rename(file, beside(file)) },
		"rename away":       func(file string) error { return unix.Rename(file, "/tmp/"+strconv.Itoa(os.Getpid())) },
		"rename the folder": func(file string) error { return unix.Rename(dir(file), dir(file)+"2") },
		"rename over": func(file string) error {
			if err := os.WriteFile("mine", []byte("changed"), 0o600); err != nil {
				return err
			}
			return unix.Rename("mine", file)
		},
		"exchange": func(file string) error {
			if err := os.WriteFile("mine", []byte("changed"), 0o600); err != nil {
				return err
			}
			return unix.Renameat2(unix.AT_FDCWD, "mine", unix.AT_FDCWD, file, unix.RENAME_EXCHANGE)
		},
		"write through a hard link": func(file string) error {
			if err := unix.Link(file, "link"); err != nil {
				return err
			}
			return opened(os.O_WRONLY)("link")
		},
		"write through a link of a descriptor": func(file string) error {
			fd, err := unix.Open(file, unix.O_RDONLY, 0)
			if err != nil {
				return err
			}
			if err := unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), unix.AT_FDCWD, "link", unix.AT_SYMLINK_FOLLOW); err != nil {
				return err
			}
			return opened(os.O_WRONLY)("link")
		},
		"write through a symlink": func(file string) error {
			if err := os.Symlink(file, "sym"); err != nil {
				return err
			}
			return opened(os.O_WRONLY)("sym")
		},
		"link into": func(file string) error {
			if err := os.WriteFile("mine", nil, 0o600); err != nil {
				return err
			}
			return unix.Link("mine", beside(file))
		},
		"link a nameless file into": func(file string) error {
			fd, err := unix.Open(".", unix.O_TMPFILE|unix.O_RDWR, 0o600)
			if err != nil {
				return err
			}
			return unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), unix.AT_FDCWD, beside(file), unix.AT_SYMLINK_FOLLOW)
		},
		"nameless file": func(file string) error {
			fd, err := unix.Open(dir(file), unix.O_TMPFILE|unix.O_RDWR, 0o600)
			if err != nil {
				return err
			}
			return unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), unix.AT_FDCWD, beside(file), unix.AT_SYMLINK_FOLLOW)
		},
		"copy_file_range": func(file string) error {
			from, err := unix.Open("/etc/passwd", unix.O_RDONLY, 0)
			if err != nil {
				return err
			}
			to, err := unix.Open(file, unix.O_RDWR, 0)
			if err != nil {
				return err
			}
			_, err = unix.CopyFileRange(from, nil, to, nil, 5, 0)
			return err
		},
		"mmap shared": func(file string) error {
			fd, err := unix.Open(file, unix.O_RDONLY, 0)
			if err != nil {
				return err
			}
			m, err := unix.Mmap(fd, 0, 4, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
			if err != nil {
				return err
			}
			m[0] = '!'
			return nil
		},
		"mmap and mprotect": func(file string) error {
			fd, err := unix.Open(file, unix.O_RDONLY, 0)
			if err != nil {
				return err
			}
			m, err := unix.Mmap(fd, 0, 4, unix.PROT_READ, unix.MAP_SHARED)
			if err != nil {
				return err
			}
			if err := unix.Mprotect(m, unix.PROT_READ|unix.PROT_WRITE); err != nil {
				return err
			}
			m[0] = '!'
			return nil
		},
		"openat of a folder": func(file string) error {
			at, err := unix.Open(dir(file), unix.O_PATH|unix.O_DIRECTORY, 0)
			if err != nil {
				return err
			}
			fd, err := unix.Openat(at, filepath.Base(file), unix.O_WRONLY, 0)
			if err != nil {
				return err
			}
			_, err = unix.Write(fd, []byte("changed"))
			return err
		},
		"openat2 in a root of its own": func(file string) error {
			at, err := unix.Open(dir(file), unix.O_PATH|unix.O_DIRECTORY, 0)
			if err != nil {
				return err
			}
			fd, err := unix.Openat2(at, "/"+filepath.Base(file), &unix.OpenHow{Flags: unix.O_WRONLY, Resolve: unix.RESOLVE_IN_ROOT})
			if err != nil {
				return err
			}
			_, err = unix.Write(fd, []byte("changed"))
			return err
		},
		"openat2 without other mounts": func(file string) error {
			at, err := unix.Open(dir(file), unix.O_PATH|unix.O_DIRECTORY, 0)
			if err != nil {
				return err
			}
			fd, err := unix.Openat2(at, filepath.Base(file), &unix.OpenHow{Flags: unix.O_WRONLY, Resolve: unix.RESOLVE_NO_XDEV})
			if err != nil {
				return err
			}
			_, err = unix.Write(fd, []byte("changed"))
			return err
		},
		"by an inherited folder": func(file string) error {
			at, err := strconv.Atoi(os.Getenv("INHERITED"))
			if err != nil {
				return err
			}
			fd, err := unix.Openat(at, strings.TrimPrefix(file, os.Getenv("INHERITED_PATH")+"/"), unix.O_WRONLY, 0)
			if err != nil {
				return err
			}
			_, err = unix.Write(fd, []byte("changed"))
			return err
		},
		"from the folder above": func(file string) error {
			if err := unix.Chdir(dir(file)); err != nil {
				return err
			}
			return opened(os.O_WRONLY)(filepath.Base(file))
		},
		"in a root of its own": func(file string) error {
			if err := unix.Chroot("/"); err != nil {
				return err
			}
			return opened(os.O_WRONLY)(file)
		},
		"by a symlink to a folder": func(file string) error {
			if err := os.Symlink(dir(file), "sym"); err != nil {
				return err
			}
			return opened(os.O_WRONLY)("sym/" + filepath.Base(file))
		},
		"by a symlink into /proc": func(file string) error {
			fd, err := unix.Open(dir(file), unix.O_PATH|unix.O_DIRECTORY, 0)
			if err != nil {
				return err
			}
			if err := os.Symlink(fmt.Sprintf("/proc/%d/fd/%d/%s", os.Getpid(), fd, filepath.Base(file)), "sym"); err != nil {
				return err
			}
			return opened(os.O_WRONLY)("sym")
		},
		"by a bystander's folder of work": func(file string) error {
			return opened(os.O_WRONLY)("/proc/" + os.Getenv("BYSTANDER") + "/cwd/.." + strings.TrimPrefix(file, os.Getenv("INHERITED_PATH")))
		},
		"link of a descriptor without a path": func(file string) error {
			fd, err := unix.Open(file, unix.O_RDONLY, 0)
			if err != nil {
				return err
			}
			if err := unix.Linkat(fd, "", unix.AT_FDCWD, "link", unix.AT_EMPTY_PATH); err != nil {
				return err
			}
			return opened(os.O_WRONLY)("link")
		},
		"rename without replacing": func(file string) error {
			return unix.Renameat2(unix.AT_FDCWD, file, unix.AT_FDCWD, "mine", unix.RENAME_NOREPLACE)
		},
		"rename and leave a whiteout": func(file string) error {
			return unix.Renameat2(unix.AT_FDCWD, file, unix.AT_FDCWD, "mine", unix.RENAME_WHITEOUT)
		},
		"exchange folders": func(file string) error {
			if err := os.Mkdir("mine", 0o700); err != nil {
				return err
			}
			if err := os.WriteFile("mine/"+filepath.Base(file), []byte("changed"), 0o600); err != nil {
				return err
			}
			return unix.Renameat2(unix.AT_FDCWD, "mine", unix.AT_FDCWD, dir(file), unix.RENAME_EXCHANGE)
		},
		"bind a socket": func(file string) error {
			fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
			if err != nil {
				return err
			}
			return unix.Bind(fd, &unix.SockaddrUnix{Name: beside(file)})
		},
		"ftruncate": withFile(unix.O_RDWR, func(fd int) error { return unix.Ftruncate(fd, 1) }),
		"fallocate": withFile(unix.O_RDWR, func(fd int) error { return unix.Fallocate(fd, 0, 0, 4096) }),
		"punch a hole": withFile(unix.O_RDWR, func(fd int) error {
			return unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 4)
		}),
		"pwritev2":       withFile(unix.O_RDWR, func(fd int) error { _, err := unix.Pwritev2(fd, [][]byte{[]byte("changed")}, 0, 0); return err }),
		"write directly": withFile(unix.O_RDWR|unix.O_SYNC, func(fd int) error { _, err := unix.Pwrite(fd, []byte("changed"), 0); return err }),
		"sendfile": withFile(unix.O_RDWR, func(fd int) error {
			from, err := unix.Open("/etc/passwd", unix.O_RDONLY, 0)
			if err != nil {
				return err
			}
			_, err = unix.Sendfile(fd, from, nil, 5)
			return err
		}),
		"splice": withFile(unix.O_RDWR, func(fd int) error {
			var p [2]int
			if err := unix.Pipe(p[:]); err != nil {
				return err
			}
			if _, err := unix.Write(p[1], []byte("changed")); err != nil {
				return err
			}
			_, err := unix.Splice(p[0], nil, fd, nil, 7, 0)
			return err
		}),
		"dump core beside": func(file string) error {
			c := exec.Command("sh", "-c", "ulimit -c unlimited; cd "+dir(file)+" && kill -SEGV $$")
			return c.Run()
		},
		"in another thread": func(file string) error {
			done := make(chan error, 1)
			onThread(func() { done <- opened(os.O_WRONLY)(file) })
			return <-done
		},
		"in a child": func(file string) error { return exec.Command("sh", "-c", "echo changed > "+file).Run() },
		"in a detached child": func(file string) error {
			return exec.Command("setsid", "-w", "sh", "-c", "echo changed > "+file).Run()
		},
		"by a program in memory": func(file string) error {
			fd, err := unix.MemfdCreate("x", 0)
			if err != nil {
				return err
			}
			if _, err := unix.Write(fd, []byte("#!/bin/sh\necho changed > "+file+"\n")); err != nil {
				return err
			}
			return exec.Command(fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd)).Run()
		},
	}
}

// marks are attempts that change what is known of a file, and not its content. Landlock does not
// govern them; read-only mounts do.
func marks() map[string]func(file string) error {
	all := oldMarks()
	maps.Copy(all, freshMarks())
	return all
}

func oldMarks() map[string]func(file string) error {
	return map[string]func(string) error{
		"chmod": func(file string) error { return unix.Chmod(file, 0o777) },
		"fchmod": func(file string) error {
			fd, err := unix.Open(file, unix.O_RDONLY, 0)
			if err != nil {
				return err
			}
			return unix.Fchmod(fd, 0o777)
		},
		"fchmodat2":      func(file string) error { return unix.Fchmodat(unix.AT_FDCWD, file, 0o777, unix.AT_SYMLINK_NOFOLLOW) },
		"chmod a folder": func(file string) error { return unix.Chmod(filepath.Dir(file), 0o777) },
		"utimensat": func(file string) error {
			old := unix.Timespec{Sec: 1}
			return unix.UtimesNanoAt(unix.AT_FDCWD, file, []unix.Timespec{old, old}, 0)
		},
		"setxattr":  func(file string) error { return unix.Setxattr(file, "user.changed", []byte("x"), 0) },
		"lsetxattr": func(file string) error { return unix.Lsetxattr(file, "user.changed", []byte("x"), 0) },
		"fsetxattr": func(file string) error {
			fd, err := unix.Open(file, unix.O_RDONLY, 0)
			if err != nil {
				return err
			}
			return unix.Fsetxattr(fd, "user.changed", []byte("x"), 0)
		},
		"chmod by /proc/self/fd": func(file string) error {
			fd, err := unix.Open(file, unix.O_PATH, 0)
			if err != nil {
				return err
			}
			return unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), 0o777)
		},
		"futimens": func(file string) error {
			fd, err := unix.Open(file, unix.O_RDONLY, 0)
			if err != nil {
				return err
			}
			return unix.Futimes(fd, []unix.Timeval{{Sec: 1}, {Sec: 1}})
		},
		"chown": func(file string) error {
			groups, err := os.Getgroups()
			if err != nil {
				return err
			}
			gid := 1
			if os.Geteuid() != 0 && len(groups) > 0 {
				gid = groups[0]
			}
			return unix.Chown(file, -1, gid)
		},
		"flags of the file": func(file string) error {
			fd, err := unix.Open(file, unix.O_RDONLY, 0)
			if err != nil {
				return err
			}
			flags, err := unix.IoctlGetInt(fd, unix.FS_IOC_GETFLAGS)
			if err != nil {
				return err
			}
			return unix.IoctlSetPointerInt(fd, unix.FS_IOC_SETFLAGS, flags|0x40) // FS_NODUMP_FL
		},
	}
}

// reads are attempts to read a file.
func reads() map[string]func(file string) ([]byte, error) {
	return map[string]func(string) ([]byte, error){
		"open": os.ReadFile,
		"openat2": func(file string) ([]byte, error) {
			fd, err := unix.Openat2(unix.AT_FDCWD, file, &unix.OpenHow{Flags: unix.O_RDONLY, Resolve: unix.RESOLVE_NO_SYMLINKS})
			if err != nil {
				return nil, err
			}
			return io.ReadAll(os.NewFile(uintptr(fd), "x"))
		},
		"path descriptor": func(file string) ([]byte, error) {
			fd, err := unix.Open(file, unix.O_PATH, 0)
			if err != nil {
				return nil, err
			}
			return os.ReadFile(fmt.Sprintf("/proc/self/fd/%d", fd))
		},
		"/proc/self/root": func(file string) ([]byte, error) { return os.ReadFile("/proc/self/root" + file) },
		"/proc/parent/root": func(file string) ([]byte, error) {
			return os.ReadFile(fmt.Sprintf("/proc/%d/root%s", os.Getppid(), file))
		},
		"root of a bystander": func(file string) ([]byte, error) {
			return os.ReadFile("/proc/" + os.Getenv("BYSTANDER") + "/root" + file)
		},
		"cwd of a bystander":  func(string) ([]byte, error) { return os.ReadFile("/proc/" + os.Getenv("BYSTANDER") + "/cwd/key") },
		"file of a bystander": func(string) ([]byte, error) { return os.ReadFile("/proc/" + os.Getenv("BYSTANDER") + "/fd/0") },
		"inherited folder": func(file string) ([]byte, error) {
			at, err := strconv.Atoi(os.Getenv("INHERITED"))
			if err != nil {
				return nil, err
			}
			fd, err := unix.Openat(at, strings.TrimPrefix(file, os.Getenv("INHERITED_PATH")+"/"), unix.O_RDONLY, 0)
			if err != nil {
				return nil, err
			}
			return io.ReadAll(os.NewFile(uintptr(fd), "x"))
		},
		"folder above": func(file string) ([]byte, error) {
			if err := unix.Chdir(filepath.Dir(file)); err != nil {
				return nil, err
			}
			return os.ReadFile(filepath.Base(file))
		},
		"root of a bystander of another user": func(file string) ([]byte, error) {
			return asOther(func() ([]byte, error) { return os.ReadFile("/proc/" + os.Getenv("BYSTANDER2") + "/root" + file) })
		},
		"memory of a bystander of another user": func(string) ([]byte, error) {
			return asOther(func() ([]byte, error) {
				_, err := os.ReadFile("/proc/" + os.Getenv("BYSTANDER2") + "/environ")
				return []byte("content of"), err
			})
		},
		"tasks of a bystander": func(file string) ([]byte, error) {
			pid := os.Getenv("BYSTANDER")
			return os.ReadFile("/proc/" + pid + "/task/" + pid + "/root" + file)
		},
		"descriptor of a bystander": func(string) ([]byte, error) {
			pid, err := strconv.Atoi(os.Getenv("BYSTANDER"))
			if err != nil {
				return nil, err
			}
			p, err := unix.PidfdOpen(pid, 0)
			if err != nil {
				return nil, err
			}
			fd, err := unix.PidfdGetfd(p, 0, 0)
			if err != nil {
				return nil, err
			}
			b := make([]byte, 100)
			n, err := unix.Pread(fd, b, 0)
			return b[:max(n, 0)], err
		},
		"change the mode of what hides it": func(file string) ([]byte, error) {
			_ = unix.Chmod(filepath.Dir(file), 0o777)
			_ = unix.Chmod(file, 0o777)
			return os.ReadFile(file)
		},
		"mmap": func(file string) ([]byte, error) {
			fd, err := unix.Open(file, unix.O_RDONLY, 0)
			if err != nil {
				return nil, err
			}
			return unix.Mmap(fd, 0, 10, unix.PROT_READ, unix.MAP_PRIVATE)
		},
		"execute": func(file string) ([]byte, error) {
			out, err := exec.Command("sh", file).CombinedOutput()
			if strings.Contains(string(out), "content:") { // "command not found" names what it has read
				return []byte("content of"), nil
			}
			return out, err
		},
		"symlink": func(file string) ([]byte, error) {
			if err := os.Symlink(file, "sym"); err != nil {
				return nil, err
			}
			return os.ReadFile("sym")
		},
		"hard link": func(file string) ([]byte, error) {
			if err := os.Link(file, "hard"); err != nil {
				return nil, err
			}
			return os.ReadFile("hard")
		},
		"rename": func(file string) ([]byte, error) {
			if err := os.Rename(file, "moved"); err != nil {
				return nil, err
			}
			return os.ReadFile("moved")
		},
		"bind mount": func(file string) ([]byte, error) {
			if err := unix.Mount(filepath.Dir(file), ".", "", unix.MS_BIND, ""); err != nil {
				return nil, err
			}
			return os.ReadFile(filepath.Base(file))
		},
		"unmount": func(file string) ([]byte, error) {
			_ = unix.Unmount(filepath.Dir(file), unix.MNT_DETACH)
			_ = unix.Unmount(file, unix.MNT_DETACH)
			return os.ReadFile(file)
		},
		"user namespace": func(file string) ([]byte, error) {
			return exec.Command("unshare", "-Urm", "sh", "-c", "umount "+filepath.Dir(file)+"; cat "+file).Output()
		},
		"namespace of a bystander": func(file string) ([]byte, error) {
			return exec.Command("nsenter", "-m", "-t", os.Getenv("BYSTANDER"), "cat", file).Output()
		},
		"handle": func(file string) ([]byte, error) {
			h, _, err := unix.NameToHandleAt(unix.AT_FDCWD, file, 0)
			if err != nil {
				return nil, err
			}
			at, err := unix.Open("/", unix.O_RDONLY, 0)
			if err != nil {
				return nil, err
			}
			fd, err := unix.OpenByHandleAt(at, h, unix.O_RDONLY)
			if err != nil {
				return nil, err
			}
			return io.ReadAll(os.NewFile(uintptr(fd), "x"))
		},
		"sendfile": func(file string) ([]byte, error) {
			from, err := os.Open(file)
			if err != nil {
				return nil, err
			}
			to, err := os.Create("sent")
			if err != nil {
				return nil, err
			}
			if _, err := unix.Sendfile(int(to.Fd()), int(from.Fd()), nil, 100); err != nil {
				return nil, err
			}
			return os.ReadFile("sent")
		},
		"in a child": func(file string) ([]byte, error) { return exec.Command("cat", file).Output() },
	}
}

// asOther calls f as the user of the second bystander, with the capabilities that are left.
func asOther(f func() ([]byte, error)) (b []byte, err error) {
	done := make(chan struct{})
	onThread(func() {
		defer close(done)
		if err = unix.Prctl(unix.PR_SET_KEEPCAPS, 1, 0, 0, 0); err != nil {
			return
		}
		for _, call := range []uintptr{unix.SYS_SETRESGID, unix.SYS_SETRESUID} {
			if _, _, errno := unix.RawSyscall(call, otherUser, otherUser, otherUser); errno != 0 {
				err = errno
				return
			}
		}
		hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var data [2]unix.CapUserData
		if err = unix.Capget(&hdr, &data[0]); err != nil {
			return
		}
		data[0].Effective, data[1].Effective = data[0].Permitted, data[1].Permitted
		if err = unix.Capset(&hdr, &data[0]); err != nil {
			return
		}
		b, err = f()
	})
	<-done
	return b, err
}

// otherUser is the user of the second bystander, where the test can choose one.
const otherUser = 65533

// connections are attempts to reach the listeners of the test: TCP, UDP, an abstract socket, and a
// socket in a hidden folder.
func connections() map[string]func(tcp, tcp6, udp, abstract, hidden string) error {
	dial := func(network, addr string) error {
		c, err := net.DialTimeout(network, addr, 2*time.Second)
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Write([]byte("x"))
		return err
	}
	raw := func(family, kind, proto int, addr string) error {
		_, port, err := net.SplitHostPort(addr)
		if err != nil {
			return err
		}
		n, err := strconv.Atoi(port)
		if err != nil {
			return err
		}
		fd, err := unix.Socket(family, kind, proto)
		if err != nil {
			return err
		}
		return unix.Connect(fd, &unix.SockaddrInet4{Port: n, Addr: [4]byte{127, 0, 0, 1}})
	}
	address := func(addr string) (*unix.SockaddrInet4, error) {
		_, port, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		n, err := strconv.Atoi(port)
		return &unix.SockaddrInet4{Port: n, Addr: [4]byte{127, 0, 0, 1}}, err
	}
	mapped := func(to *unix.SockaddrInet4) *unix.SockaddrInet6 {
		return &unix.SockaddrInet6{Port: to.Port, Addr: [16]byte{10: 0xff, 0xff, 127, 0, 0, 1}}
	}
	return map[string]func(tcp, tcp6, udp, abstract, hidden string) error{
		"tcp":      func(tcp, _, _, _, _ string) error { return dial("tcp", tcp) },
		"tcp6":     func(_, tcp6, _, _, _ string) error { return dial("tcp", tcp6) },
		"udp":      func(_, _, udp, _, _ string) error { return dial("udp", udp) },
		"abstract": func(_, _, _, abstract, _ string) error { return dial("unix", abstract) },
		"hidden":   func(_, _, _, _, hidden string) error { return dial("unix", hidden) },
		"mptcp": func(tcp, _, _, _, _ string) error {
			return raw(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP, tcp)
		},
		"mapped address": func(tcp, _, _, _, _ string) error {
			to, err := address(tcp)
			if err != nil {
				return err
			}
			fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM, 0)
			if err != nil {
				return err
			}
			return unix.Connect(fd, mapped(to))
		},
		"fast open": func(tcp, _, _, _, _ string) error {
			_, port, _ := net.SplitHostPort(tcp)
			n, err := strconv.Atoi(port)
			if err != nil {
				return err
			}
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
			if err != nil {
				return err
			}
			return unix.Sendto(fd, []byte("x"), unix.MSG_FASTOPEN, &unix.SockaddrInet4{Port: n, Addr: [4]byte{127, 0, 0, 1}})
		},
		"fast open by sendmsg": func(tcp, _, _, _, _ string) error {
			to, err := address(tcp)
			if err != nil {
				return err
			}
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
			if err != nil {
				return err
			}
			return unix.Sendmsg(fd, []byte("x"), nil, to, unix.MSG_FASTOPEN)
		},
		"fast open by connect": func(tcp, _, _, _, _ string) error {
			to, err := address(tcp)
			if err != nil {
				return err
			}
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
			if err != nil {
				return err
			}
			_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_FASTOPEN_CONNECT, 1)
			if err := unix.Connect(fd, to); err != nil {
				return err
			}
			_, err = unix.Write(fd, []byte("x"))
			return err
		},
		"without blocking": func(tcp, _, _, _, _ string) error {
			to, err := address(tcp)
			if err != nil {
				return err
			}
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, unix.IPPROTO_TCP)
			if err != nil {
				return err
			}
			return unix.Connect(fd, to)
		},
		"bound to an address first": func(tcp, _, _, _, _ string) error {
			to, err := address(tcp)
			if err != nil {
				return err
			}
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
			if err != nil {
				return err
			}
			if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
				return err
			}
			return unix.Connect(fd, to)
		},
		"udp without a connection": func(_, _, udp, _, _ string) error {
			to, err := address(udp)
			if err != nil {
				return err
			}
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
			if err != nil {
				return err
			}
			return unix.Sendto(fd, []byte("x"), 0, to)
		},
		"udp of the other family": func(_, _, udp, _, _ string) error {
			to, err := address(udp)
			if err != nil {
				return err
			}
			fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM, 0)
			if err != nil {
				return err
			}
			return unix.Sendto(fd, []byte("x"), 0, mapped(to))
		},
		"a question of DNS": func(_, _, udp, _, _ string) error {
			r := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "udp", udp)
			}}
			ctx, done := context.WithTimeout(context.Background(), 200*time.Millisecond)
			defer done()
			_, err := r.LookupHost(ctx, "secret.example.com.")
			return err
		},
		"raw": func(_, _, udp, _, _ string) error {
			to, err := address(udp)
			if err != nil {
				return err
			}
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_UDP)
			if err != nil {
				return err
			}
			packet := []byte{0x12, 0x34, byte(to.Port >> 8), byte(to.Port), 0, 9, 0, 0, 'x'}
			return unix.Sendto(fd, packet, 0, &unix.SockaddrInet4{Addr: to.Addr})
		},
		"hidden by /proc/self/root": func(_, _, _, _, hidden string) error { return dial("unix", "/proc/self/root"+hidden) },
		"hidden by an inherited folder": func(_, _, _, _, hidden string) error {
			return dial("unix", "/proc/self/fd/"+os.Getenv("INHERITED")+strings.TrimPrefix(hidden, os.Getenv("INHERITED_PATH")))
		},
		"hidden by the root of a bystander": func(_, _, _, _, hidden string) error {
			return dial("unix", "/proc/"+os.Getenv("BYSTANDER")+"/root"+hidden)
		},
		"hidden by the folder of a bystander": func(_, _, _, _, hidden string) error {
			return dial("unix", "/proc/"+os.Getenv("BYSTANDER")+"/cwd/"+filepath.Base(hidden))
		},
		"hidden by a symlink": func(_, _, _, _, hidden string) error {
			if err := os.Symlink(hidden, "sym"); err != nil {
				return err
			}
			return dial("unix", "sym")
		},
		"tcp in a child": func(tcp, _, _, _, _ string) error {
			host, port, _ := net.SplitHostPort(tcp)
			return exec.Command("bash", "-c", "exec 3<>/dev/tcp/"+host+"/"+port).Run()
		},
		"tcp in the network of a bystander": func(tcp, _, _, _, _ string) error {
			host, port, _ := net.SplitHostPort(tcp)
			return exec.Command("nsenter", "-n", "-t", os.Getenv("BYSTANDER"), "bash", "-c", "exec 3<>/dev/tcp/"+host+"/"+port).Run()
		},
	}
}

// signals are attempts to end the bystander.
func signals() map[string]func(pid int) error {
	all := oldSignals()
	maps.Copy(all, freshSignals())
	return all
}

func oldSignals() map[string]func(pid int) error {
	return map[string]func(int) error{
		"kill":           func(pid int) error { return unix.Kill(pid, unix.SIGTERM) },
		"kill its group": func(pid int) error { return unix.Kill(-pid, unix.SIGTERM) },
		"tgkill":         func(pid int) error { return unix.Tgkill(pid, pid, unix.SIGTERM) },
		"tkill": func(pid int) error {
			if _, _, errno := unix.Syscall(unix.SYS_TKILL, uintptr(pid), uintptr(unix.SIGTERM), 0); errno != 0 {
				return errno
			}
			return nil
		},
		"pidfd_send_signal": func(pid int) error {
			fd, err := unix.PidfdOpen(pid, 0)
			if err != nil {
				return err
			}
			return unix.PidfdSendSignal(fd, unix.SIGTERM, nil, 0)
		},
		"rt_sigqueueinfo": func(pid int) error {
			var info [128]byte
			*(*int32)(unsafe.Pointer(&info[0])) = int32(unix.SIGTERM)
			*(*int32)(unsafe.Pointer(&info[8])) = -1 // SI_QUEUE
			if _, _, errno := unix.Syscall(unix.SYS_RT_SIGQUEUEINFO, uintptr(pid), uintptr(unix.SIGTERM),
				uintptr(unsafe.Pointer(&info))); errno != 0 {
				return errno
			}
			return nil
		},
		"signal of a socket": func(pid int) error {
			fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
			if err != nil {
				return err
			}
			if _, err := unix.FcntlInt(uintptr(fds[0]), unix.F_SETOWN, pid); err != nil {
				return err
			}
			if _, err := unix.FcntlInt(uintptr(fds[0]), unix.F_SETSIG, int(unix.SIGTERM)); err != nil {
				return err
			}
			if _, err := unix.FcntlInt(uintptr(fds[0]), unix.F_SETFL, unix.O_ASYNC); err != nil {
				return err
			}
			_, err = unix.Write(fds[1], []byte("x"))
			return err
		},
		"signal of a thread by a socket": func(pid int) error {
			fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
			if err != nil {
				return err
			}
			owner := [2]int32{0, int32(pid)} // F_OWNER_TID
			if _, _, errno := unix.Syscall(unix.SYS_FCNTL, uintptr(fds[0]), 15, uintptr(unsafe.Pointer(&owner))); errno != 0 {
				return errno
			}
			if _, err := unix.FcntlInt(uintptr(fds[0]), unix.F_SETSIG, int(unix.SIGTERM)); err != nil {
				return err
			}
			if _, err := unix.FcntlInt(uintptr(fds[0]), unix.F_SETFL, unix.O_ASYNC); err != nil {
				return err
			}
			_, err = unix.Write(fds[1], []byte("x"))
			return err
		},
		"signal of a group by a pipe": func(pid int) error {
			var p [2]int
			if err := unix.Pipe(p[:]); err != nil {
				return err
			}
			if _, err := unix.FcntlInt(uintptr(p[0]), unix.F_SETOWN, -pid); err != nil {
				return err
			}
			if _, err := unix.FcntlInt(uintptr(p[0]), unix.F_SETSIG, int(unix.SIGTERM)); err != nil {
				return err
			}
			if _, err := unix.FcntlInt(uintptr(p[0]), unix.F_SETFL, unix.O_ASYNC); err != nil {
				return err
			}
			_, err := unix.Write(p[1], []byte("x"))
			return err
		},
		"rt_tgsigqueueinfo": func(pid int) error {
			var info [128]byte
			*(*int32)(unsafe.Pointer(&info[0])) = int32(unix.SIGTERM)
			*(*int32)(unsafe.Pointer(&info[8])) = -1 // SI_QUEUE
			if _, _, errno := unix.Syscall6(unix.SYS_RT_TGSIGQUEUEINFO, uintptr(pid), uintptr(pid), uintptr(unix.SIGTERM),
				uintptr(unsafe.Pointer(&info)), 0, 0); errno != 0 {
				return errno
			}
			return nil
		},
		"pidfd of its folder in /proc": func(pid int) error {
			fd, err := unix.Open(fmt.Sprintf("/proc/%d", pid), unix.O_DIRECTORY, 0)
			if err != nil {
				return err
			}
			return unix.PidfdSendSignal(fd, unix.SIGTERM, nil, 0)
		},
		"in another thread": func(pid int) error {
			done := make(chan error, 1)
			onThread(func() { done <- unix.Kill(pid, unix.SIGKILL) })
			return <-done
		},
		"in a child": func(pid int) error { return exec.Command("kill", strconv.Itoa(pid)).Run() },
	}
}

// calls are system calls that are refused whatever they are asked. They are made so that they have
// no effect where they are not.
func calls() map[string]func(pid int) error {
	all := oldCalls()
	maps.Copy(all, freshCalls())
	maps.Copy(all, modeCalls())
	maps.Copy(all, neighbourCalls())
	return all
}

func oldCalls() map[string]func(pid int) error {
	call := func(n uintptr, args ...uintptr) func(int) error {
		return func(int) error {
			var a [6]uintptr
			copy(a[:], args)
			_, _, errno := unix.Syscall6(n, a[0], a[1], a[2], a[3], a[4], a[5])
			return made(errno)
		}
	}
	bad := ^uintptr(0)
	return map[string]func(int) error{
		"user namespace":        call(unix.SYS_UNSHARE, unix.CLONE_NEWUSER),
		"io_uring_setup":        call(unix.SYS_IO_URING_SETUP, 1, 0),
		"io_uring_enter":        call(unix.SYS_IO_URING_ENTER, bad),
		"keyctl":                call(unix.SYS_KEYCTL, 0, 0xfffffffd, 0), // the ID of the session keyring
		"add_key":               call(unix.SYS_ADD_KEY, 0, 0, 0, 0, 0),
		"request_key":           call(unix.SYS_REQUEST_KEY, 0, 0, 0, 0),
		"fsopen":                call(unix.SYS_FSOPEN, 0, 0),
		"open_tree":             call(unix.SYS_OPEN_TREE, bad, 0, 0),
		"clone3":                call(unix.SYS_CLONE3, 0, 0),
		"setns":                 call(unix.SYS_SETNS, bad, 0),
		"network namespace":     call(unix.SYS_UNSHARE, unix.CLONE_NEWNET|unix.CLONE_NEWUSER),
		"mount namespace":       call(unix.SYS_UNSHARE, unix.CLONE_NEWNS|unix.CLONE_NEWUSER),
		"process namespace":     call(unix.SYS_UNSHARE, unix.CLONE_NEWPID|unix.CLONE_NEWUSER),
		"io_uring_register":     call(unix.SYS_IO_URING_REGISTER, bad, 0, 0, 0),
		"bpf":                   call(unix.SYS_BPF, 9999, 0, 0),
		"perf_event_open":       call(unix.SYS_PERF_EVENT_OPEN, 0, 0, bad, bad, 0),
		"userfaultfd":           call(unix.SYS_USERFAULTFD, 1), // UFFD_USER_MODE_ONLY
		"fsconfig":              call(unix.SYS_FSCONFIG, bad, 0, 0, 0, 0),
		"fsmount":               call(unix.SYS_FSMOUNT, bad, 0, 0),
		"fspick":                call(unix.SYS_FSPICK, bad, 0, 0),
		"move_mount":            call(unix.SYS_MOVE_MOUNT, bad, 0, bad, 0, 0),
		"mount_setattr":         call(unix.SYS_MOUNT_SETATTR, bad, 0, 0, 0, 0),
		"open_tree_attr":        call(callOpenTreeAttr, bad, 0, 0, 0, 0),
		"umount of nothing":     call(unix.SYS_UMOUNT2, 0, 0),
		"pivot_root":            call(unix.SYS_PIVOT_ROOT, 0, 0),
		"quotactl_fd":           call(callQuotactlFD, bad, 0, 0, 0),
		"join the session keys": call(unix.SYS_KEYCTL, 1, 0, 0), // KEYCTL_JOIN_SESSION_KEYRING
		"x32":                   call(x32 | unix.SYS_GETPID),
		"packet socket":         call(unix.SYS_SOCKET, unix.AF_PACKET, unix.SOCK_DGRAM, 0),
		"vsock":                 call(unix.SYS_SOCKET, unix.AF_VSOCK, unix.SOCK_STREAM, 0),
		"express data path":     call(unix.SYS_SOCKET, unix.AF_XDP, unix.SOCK_RAW, 0),
		"process_vm_readv": func(pid int) error {
			b := make([]byte, 1)
			_, err := unix.ProcessVMReadv(pid, []unix.Iovec{{Base: &b[0], Len: 1}}, []unix.RemoteIovec{{Base: 1, Len: 1}}, 0)
			return made(err)
		},
		"process_vm_writev": func(pid int) error {
			b := make([]byte, 1)
			_, err := unix.ProcessVMWritev(pid, []unix.Iovec{{Base: &b[0], Len: 1}}, []unix.RemoteIovec{{Base: 1, Len: 1}}, 0)
			return made(err)
		},
		"attach to the bystander": func(pid int) error { return unix.PtraceAttach(pid) },
		"compare with the bystander": func(pid int) error {
			_, _, errno := unix.Syscall6(unix.SYS_KCMP, uintptr(os.Getpid()), uintptr(pid), 0, 0, 0, 0)
			return made(errno)
		},
		"locks of the bystander": func(pid int) error {
			var head, size uintptr
			_, _, errno := unix.Syscall(unix.SYS_GET_ROBUST_LIST, uintptr(pid), uintptr(unsafe.Pointer(&head)), uintptr(unsafe.Pointer(&size)))
			return made(errno)
		},
		"pages of the bystander": func(pid int) error {
			_, _, errno := unix.Syscall6(unix.SYS_MOVE_PAGES, uintptr(pid), 0, 0, 0, 0, 0)
			return made(errno)
		},
		"maps of the bystander": func(pid int) error {
			_, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
			return err
		},
		"limits of the bystander": func(pid int) error {
			return unix.Prlimit(pid, unix.RLIMIT_CPU, &unix.Rlimit{Cur: 100, Max: 100}, nil)
		},
		"limits by a pointer beyond 4 GB": func(pid int) error { // half of it is 0
			const at = 1 << 33
			if _, _, errno := unix.Syscall6(unix.SYS_MMAP, at, 4096, unix.PROT_READ|unix.PROT_WRITE,
				unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_FIXED_NOREPLACE, ^uintptr(0), 0); errno != 0 {
				return errno
			}
			var p [2]int
			if err := unix.Pipe(p[:]); err != nil {
				return err
			}
			limit := [16]byte{100, 8: 100}
			if _, err := unix.Write(p[1], limit[:]); err != nil {
				return err
			}
			if _, _, errno := unix.Syscall(unix.SYS_READ, uintptr(p[0]), at, 16); errno != 0 {
				return errno
			}
			_, _, errno := unix.Syscall6(unix.SYS_PRLIMIT64, uintptr(pid), unix.RLIMIT_CPU, at, 0, 0, 0)
			if errno != 0 {
				return errno
			}
			return nil
		},
		"push into a terminal": func(int) error {
			fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY, 0)
			if err != nil {
				return err
			}
			b := byte('x')
			_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCSTI, uintptr(unsafe.Pointer(&b)))
			return made(errno)
		},
		"paste into a console": func(int) error {
			fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY, 0)
			if err != nil {
				return err
			}
			_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), tioclinux|1<<32, 0)
			return made(errno)
		},
		"mount":                call(unix.SYS_MOUNT, 0, 0, 0, 0, 0),
		"clone of a namespace": call(unix.SYS_CLONE, unix.CLONE_NEWUSER|unix.CLONE_THREAD, 0, 0, 0, 0),
		"trace the bystander":  func(pid int) error { return unix.PtraceSeize(pid) },
		"memory of the bystander": func(pid int) error {
			f, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
			if err != nil {
				return err
			}
			return f.Close()
		},
		"environment of the bystander": func(pid int) error {
			_, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
			return err
		},
		"descriptor of the bystander": func(pid int) error {
			fd, err := unix.PidfdOpen(pid, 0)
			if err != nil {
				return err
			}
			_, err = unix.PidfdGetfd(fd, 0, 0)
			return err
		},
	}
}

// made is nil for a call that was made, also where it has failed for another reason than a refusal.
func made(err error) error {
	for _, refusal := range []error{unix.EPERM, unix.ENOSYS, unix.EACCES, unix.EAFNOSUPPORT, unix.ESRCH} {
		if errors.Is(err, refusal) {
			return err
		}
	}
	return nil
}

// memory are attempts to reach into memory that another process shares.
func memory() map[string]func(id int) error {
	return map[string]func(int) error{
		"by its number": writeShared,
		"in a child": func(id int) error {
			exe, err := os.Executable()
			if err != nil {
				return err
			}
			return exec.Command(exe, escapeArg, "memory", "by its number", strconv.Itoa(id)).Run()
		},
		"remove": func(id int) error {
			_, err := unix.SysvShmCtl(id, unix.IPC_RMID, nil)
			return err
		},
	}
}

func writeShared(id int) error {
	b, err := unix.SysvShmAttach(id, 0, 0)
	if err != nil {
		return err
	}
	copy(b, "changed")
	return unix.SysvShmDetach(b)
}

// escape makes one attempt.
func escape(args []string) error {
	kind, name, rest := args[0], args[1], args[2:]
	number := func() int {
		n, err := strconv.Atoi(rest[0])
		if err != nil {
			return 0
		}
		return n
	}
	var err error
	switch kind {
	case "change":
		err = changes()[name](rest[0])
	case "mark":
		err = marks()[name](rest[0])
	case "read":
		var b []byte
		if b, err = reads()[name](rest[0]); err == nil && !strings.Contains(string(b), "content of") {
			err = fmt.Errorf("it reads %q", b)
		}
	case "connect":
		err = connections()[name](rest[0], rest[1], rest[2], rest[3], rest[4])
	case "signal":
		err = signals()[name](number())
	case "memory":
		err = memory()[name](number())
	case "socket": // of a kind that is not TCP, without a protocol that says so
		_, err = unix.Socket(unix.AF_INET, unix.SOCK_SEQPACKET, 0)
	case "call":
		err = calls()[name](number())
	case "outside":
		err = outsideSockets()[name](rest[0])
	}
	if err == nil {
		fmt.Println(succeeded)
	}
	return err
}

// attempt is one cell of the matrix without its sandbox.
type attempt struct {
	bound, kind, name string
	self              bool // only the attempt itself knows whether it succeeded
}

func attempts() (all []attempt) {
	// What these make or change is beside the file, and only the file is protected.
	besides := []string{
		"create", "creat", "mkdir", "fifo", "socket", "device", "symlink", "link into", "link a nameless file into", "nameless file",
		"bind a socket", "dump core beside", "chmod a folder",
	}
	for name := range changes() {
		all = append(all, attempt{"write", "change", name, false})
		if !slices.Contains(besides, name) {
			all = append(all, attempt{"protected", "change", name, false})
		}
	}
	for name := range marks() {
		all = append(all, attempt{"marks", "mark", name, false})
		if !slices.Contains(besides, name) {
			all = append(all, attempt{"protected", "mark", name, false})
		}
	}
	for name := range reads() {
		all = append(all, attempt{"read", "read", name, true})
	}
	for name := range connections() {
		all = append(all, attempt{"network", "connect", name, false})
	}
	for name := range outsideSockets() {
		all = append(all, attempt{"sockets", "outside", name, false})
	}
	for name := range memory() {
		all = append(all, attempt{"memory", "memory", name, false})
	}
	for name := range signals() {
		all = append(all, attempt{"signals", "signal", name, false})
	}
	for name := range calls() {
		all = append(all, attempt{"calls", "call", name, true})
	}
	slices.SortFunc(all, func(a, b attempt) int {
		return strings.Compare(a.bound+a.kind+a.name, b.bound+b.kind+b.name)
	})
	return all
}

// TestEscape makes every attempt without a sandbox, where most must succeed or they prove nothing,
// and in each kind of sandbox, where none of a bound may that the record names.
func TestEscape(t *testing.T) {
	exe := attempter(t)
	asUser(t)
	all := attempts()
	if len(all) < 120 {
		t.Errorf("%d attempts, want 120", len(all))
	}
	offer := Probe()
	if offer.Landlock < abiScope {
		t.Skip("SKIPPED: this machine has no Landlock of ABI 6")
	}
	type cell struct {
		name  string
		offer Offer
		room  bool
		none  bool
	}
	cells := []cell{
		{name: "no sandbox", none: true},
		{"full", offer, true, false},
		{"namespaces without Landlock", offer.Mask(0, true), true, false},
	}
	for abi := range offer.Landlock + 1 {
		if every := os.Getenv("ESCAPE") == "all"; !every && abi != 0 && abi != abiTruncate && abi != offer.Landlock {
			continue // of those that differ little
		}
		cells = append(cells, cell{fmt.Sprintf("Landlock %d without namespaces", abi), offer.Mask(abi, false), false, false})
	}
	for _, c := range cells {
		t.Run(c.name, func(t *testing.T) {
			m := newMatrix(t, exe, c.offer, c.room)
			held := map[string]string{}
			var fork Forker
			if !c.none {
				var box task.Sandbox
				var err error
				if fork, box, err = In(m.inside, c.offer, m.place.bounds); err != nil {
					t.Fatal(err)
				}
				held = promised(box)
			}
			out := map[string]int{}
			for _, a := range all {
				if c.none && strings.Contains(a.name, "mount") {
					continue // root would mount on this machine
				}
				ok := m.succeeds(t, fork, a)
				if c.none && !ok {
					t.Logf("fails without a sandbox too: %s %q", a.bound, a.name)
				}
				if ok {
					out[a.bound]++
					if by := held[a.bound]; by != "" && !m.excused(a, by, c.offer) {
						t.Errorf("%s: %s %q succeeded, though %s is said to hold it", a.bound, a.kind, a.name, by)
					}
				}
			}
			total := map[string]int{}
			for _, a := range all {
				total[a.bound]++
			}
			for _, bound := range slices.Sorted(maps.Keys(total)) {
				t.Logf("%-10s %-16s %d of %d succeeded", bound, held[bound], out[bound], total[bound])
				if c.none && out[bound]*3 < total[bound]*2 {
					t.Errorf("without a sandbox only %d of %d attempts of %s succeed: they prove little", out[bound], total[bound], bound)
				}
			}
		})
	}
}

// promised is by what each bound holds. Two have no field of their own: read-only mounts bound what
// is known of a file, and rooms share no memory with others.
func promised(box task.Sandbox) map[string]string {
	held := map[string]string{"write": box.Write, "protected": box.Protected, "read": box.Read,
		"network": box.Network, "sockets": box.Sockets, "signals": box.Signals, "calls": box.Calls}
	if strings.Contains(box.Write, task.ByMounts) {
		held["marks"] = task.ByMounts
	}
	if box.Network == task.ByNamespace {
		held["memory"] = task.ByNamespace
	}
	return held
}

// TestTable compares the table in docs/sandbox.md with what [TestEscape] finds to hold. UPDATE=1
// writes it anew.
func TestTable(t *testing.T) {
	const page, begin, end = "../../../docs/sandbox.md", "<!-- what holds: begin -->\n", "<!-- what holds: end -->\n"
	data, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(data), begin)
	old, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no marks %q and %q", page, begin, end)
	}
	table := holdTable()
	if table == old {
		return
	}
	if os.Getenv("UPDATE") == "" {
		t.Errorf("the table of docs/sandbox.md is old (run `make docs`); it is now:\n%s", table)
	} else if err := os.WriteFile(page, []byte(before+begin+table+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

func holdTable() string {
	bounds := []string{"write", "marks", "protected", "read", "network", "sockets", "memory", "signals", "calls"}
	total := map[string]int{}
	for _, a := range attempts() {
		total[a.bound]++
	}
	var b strings.Builder
	b.WriteString("| |")
	for _, name := range bounds {
		fmt.Fprintf(&b, " %s (%d) |", name, total[name])
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(bounds)) + "\n")
	row := func(name string, box task.Sandbox) {
		held := promised(box)
		fmt.Fprintf(&b, "| %s |", name)
		for _, name := range bounds {
			text := "-"
			if by := held[name]; by != "" {
				text = "`" + by + "`"
			}
			b.WriteString(" " + text + " |")
		}
		b.WriteByte('\n')
	}
	all := Offer{Landlock: abiScope, Seccomp: true}
	row("all", (&Room{offer: all, mounts: true, brokered: true}).held())
	row("namespaces without Landlock", (&Room{offer: all.Mask(0, true), mounts: true, brokered: true}).held())
	row("namespaces within another sandbox that answers connects", (&Room{offer: all, mounts: true}).held())
	for abi := all.Landlock; abi >= 0; abi-- {
		name := fmt.Sprintf("Landlock ABI %d without namespaces", abi)
		if abi == 0 {
			name = "neither"
		}
		row(name, bare(all.Mask(abi, false), abi >= abiTCP))
	}
	return b.String()
}

// attempter returns the program that makes attempts: this test binary, or one without the race
// detector, with which it takes half a second to start.
func attempter(t *testing.T) string {
	t.Helper()
	if exe := os.Getenv(attempterVariable); exe != "" {
		return exe
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if racetest.Rounds(10) == 10 {
		return exe
	}
	dir, err := os.MkdirTemp("/tmp", "escape") // where every user may look
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	exe = filepath.Join(dir, "attempt")
	if out, err := exec.Command("go", "test", "-c", "-o", exe, ".").CombinedOutput(); err != nil {
		t.Fatalf("build the program that makes attempts: %v: %s", err, out)
	}
	t.Setenv(attempterVariable, exe)
	return exe
}

// attempterVariable names that program for the same test as another user.
const attempterVariable = "TEST_ESCAPE_PROGRAM"

// matrix is what attempts are made on.
type matrix struct {
	place  place
	inside *Room
	exe    string
	tcp    *net.TCPListener
	tcp6   *net.TCPListener
	udp    *net.UDPConn
	abs    *net.UnixListener
	hidden *net.UnixListener
	folder int // descriptor of the place, which is not closed on exec
	shared int // number of the shared memory of an attempt
}

func newMatrix(t *testing.T, exe string, o Offer, room bool) *matrix {
	t.Helper()
	m := &matrix{place: newPlace(t), exe: exe}
	var err error
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	m.tcp, err = net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	must(err)
	m.udp, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	must(err)
	m.abs, err = net.ListenUnix("unix", &net.UnixAddr{Name: fmt.Sprintf("@drover-escape-%d-%d", os.Getpid(), time.Now().UnixNano())})
	must(err)
	m.hidden, err = net.ListenUnix("unix", &net.UnixAddr{Name: m.place.secret + "/s"})
	must(err)
	if m.tcp6, err = net.ListenTCP("tcp6", &net.TCPAddr{IP: net.IPv6loopback}); err != nil {
		m.tcp6 = m.tcp
	}
	t.Cleanup(func() {
		for _, c := range []io.Closer{m.tcp, m.tcp6, m.udp, m.abs, m.hidden} {
			_ = c.Close()
		}
	})
	m.folder, err = unix.Open(m.place.dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	must(err)
	t.Cleanup(func() { _ = unix.Close(m.folder) })
	if room {
		m.inside = m.place.room(t, o)
	}
	return m
}

// excused is what a bound that holds does not promise.
func (m *matrix) excused(a attempt, by string, o Offer) bool {
	// Ports are bounded, and a socket by its path is none.
	if a.bound == "network" && by == task.ByTCPPorts {
		return strings.HasPrefix(a.name, "hidden") || a.name == "abstract" && o.Landlock < abiScope
	}
	// Before ABI 3 Landlock does not govern truncate(2).
	return a.bound == "write" && a.name == "truncate" && by == task.ByLandlock && o.Landlock < abiTruncate
}

// succeeds makes an attempt on new files and with a new bystander.
func (m *matrix) succeeds(t *testing.T, fork Forker, a attempt) bool {
	t.Helper()
	p := m.place
	target := p.other + "/file"
	if a.bound == "protected" {
		target = p.work + "/.git/config"
	}
	if a.kind == "read" {
		target = p.secret + "/key"
	}
	m.restore(t)
	reached := func() bool { return false }
	if a.kind == "outside" {
		target = p.other + "/s"
		var stop func()
		var err error
		if reached, stop, err = listenOutside(target); err != nil {
			t.Fatal(err)
		}
		defer stop()
	}
	key, err := os.Open(p.secret + "/key")
	if err != nil {
		t.Fatal(err)
	}
	bystander := exec.Command("sleep", "60")
	bystander.Dir, bystander.Stdin = p.secret, key
	bystander.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := bystander.Start(); err != nil {
		t.Fatal(err)
	}
	_ = key.Close()
	pid := bystander.Process.Pid
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = bystander.Wait()
	}()
	defer func() {
		_ = bystander.Process.Kill()
		<-ended
	}()
	args := []string{m.exe, escapeArg, a.kind, a.name}
	switch a.kind {
	case "connect":
		args = append(args, m.tcp.Addr().String(), m.tcp6.Addr().String(), m.udp.LocalAddr().String(), m.abs.Addr().String(),
			m.hidden.Addr().String())
	case "signal", "call":
		args = append(args, strconv.Itoa(pid))
	default:
		args = append(args, target)
	}
	before := m.state()
	other := 0
	if os.Geteuid() == 0 && strings.Contains(a.name, "another user") {
		c := exec.Command("sleep", "60")
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: otherUser, Gid: otherUser}}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() {
			_ = c.Process.Kill()
			_ = c.Wait()
		}()
		other = c.Process.Pid
	}
	if a.kind == "memory" {
		id, err := unix.SysvShmGet(0, 100, unix.IPC_CREAT|0o600) // IPC_PRIVATE
		if err != nil {
			t.Fatal(err)
		}
		args[len(args)-1] = strconv.Itoa(id)
		defer func() { _, _ = unix.SysvShmCtl(id, unix.IPC_RMID, nil) }()
		m.shared = id
	}
	out := m.run(t, fork, pid, other, args)
	switch {
	case a.self:
		return strings.Contains(out, succeeded)
	case a.kind == "connect":
		return m.reached()
	case a.kind == "outside":
		return reached()
	case a.kind == "memory":
		b, err := unix.SysvShmAttach(m.shared, 0, 0)
		if err != nil {
			return true // it is gone
		}
		defer unix.SysvShmDetach(b)
		return b[0] != 0
	case a.kind == "signal":
		moment := 20 * time.Millisecond
		if strings.Contains(out, succeeded) {
			moment = 500 * time.Millisecond
		}
		select {
		case <-ended:
			return true
		case <-time.After(moment): // nothing happens, and nothing says so
			return false
		}
	case a.bound == "protected": // what is beside the file may change
		return !maps.Equal(only(before, ".git/config", ".git/hooks"), only(m.state(), ".git/config", ".git/hooks"))
	}
	return !maps.Equal(only(before, "other"), only(m.state(), "other"))
}

func (m *matrix) run(t *testing.T, fork Forker, bystander, other int, args []string) string {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	g, err := process.StartGroup(process.Command{
		Args: args, Dir: m.place.work, Stdout: w, Stderr: w, Fork: fork,
		Env: append(os.Environ(), "BYSTANDER="+strconv.Itoa(bystander), "BYSTANDER2="+strconv.Itoa(other),
			"INHERITED="+strconv.Itoa(m.folder), "INHERITED_PATH="+m.place.dir),
	})
	_ = w.Close()
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	ctx, done := context.WithTimeoutCause(t.Context(), 20*time.Second, errors.New("it does not end"))
	defer done()
	if _, err := g.Wait(ctx); err != nil {
		t.Errorf("%q: %v", args, err)
	}
	g.End(context.WithoutCancel(ctx), process.Ending{})
	g.Reap()
	_ = r.SetReadDeadline(time.Now().Add(time.Second))
	out, _ := io.ReadAll(r)
	return string(out)
}

// restore makes the files of the place anew.
func (m *matrix) restore(t *testing.T) {
	t.Helper()
	p := m.place
	for _, dir := range []string{p.other, p.other + "2"} {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"link", "hard", "sym", "mine", "moved", "sent", "a", "b", ".git2", ".git/made", ".drover"} {
		_ = os.RemoveAll(filepath.Join(p.work, name))
	}
	if _, err := os.Stat(p.work + "/.git/hooks"); err != nil {
		if err := os.MkdirAll(p.work+"/.git/hooks", 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(p.other, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{p.secret + "/key", p.other + "/file", p.work + "/.git/config"} {
		if b, err := os.ReadFile(f); err == nil && strings.HasPrefix(string(b), "content of") {
			plain(f)
			continue
		}
		_ = os.Remove(f)
		if err := os.WriteFile(f, []byte("content of "+filepath.Base(f)+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// plain takes away what attempts have marked a file with, so that the next one shows.
func plain(file string) {
	_ = os.Chmod(file, 0o600)
	_ = os.Lchown(file, os.Getuid(), os.Getgid())
	_ = unix.Removexattr(file, "user.changed")
	_ = os.Chtimes(file, time.Now(), time.Now())
	if fd, err := unix.Open(file, unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
		if flags, err := unix.IoctlGetInt(fd, unix.FS_IOC_GETFLAGS); err == nil {
			_ = unix.IoctlSetPointerInt(fd, unix.FS_IOC_SETFLAGS, flags&^0x40)
		}
		_ = unix.Close(fd)
	}
}

// state is what is known of all files of the place.
func (m *matrix) state() map[string]string {
	out := map[string]string{}
	_ = filepath.WalkDir(m.place.dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // it is gone
		}
		var st unix.Stat_t
		var more unix.Statx_t
		if unix.Lstat(path, &st) != nil || unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, 0, &more) != nil {
			return nil
		}
		content := ""
		if st.Mode&unix.S_IFMT == unix.S_IFREG {
			b, _ := os.ReadFile(path)
			content = string(b)
		}
		attr := make([]byte, 100)
		n, _ := unix.Llistxattr(path, attr)
		mtime := int64(0)
		if st.Mode&unix.S_IFMT == unix.S_IFREG {
			mtime = st.Mtim.Nano()
		}
		flags := more.Attributes & unix.STATX_ATTR_NODUMP
		out[path] = fmt.Sprint(st.Mode, st.Uid, st.Gid, flags, st.Ino, mtime, content, string(attr[:max(n, 0)]))
		return nil
	})
	return out
}

func only(state map[string]string, parts ...string) map[string]string {
	out := map[string]string{}
	for path, s := range state {
		if slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(path, "/"+p) }) {
			out[path] = s
		}
	}
	return out
}

// reached reports whether somebody has come to a listener, and forgets it. Each listener gets a
// moment of its own: one that has passed returns at once, whoever is waiting.
func (m *matrix) reached() bool {
	got := false
	accept := func(l interface {
		SetDeadline(time.Time) error
		Accept() (net.Conn, error)
	}) {
		_ = l.SetDeadline(time.Now().Add(2 * time.Millisecond))
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			got = true
			_ = c.Close()
		}
	}
	accept(m.tcp)
	if m.tcp6 != m.tcp {
		accept(m.tcp6)
	}
	accept(m.abs)
	accept(m.hidden)
	_ = m.udp.SetReadDeadline(time.Now().Add(2 * time.Millisecond))
	for {
		if _, _, err := m.udp.ReadFrom(make([]byte, 1000)); err != nil {
			return got
		}
		got = true
	}
}
