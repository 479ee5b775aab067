//go:build linux && (amd64 || arm64)

package attack

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// writing are the flags of open by which a file can change.
const writing = unix.O_WRONLY | unix.O_RDWR | unix.O_CREAT | unix.O_TRUNC

// watchedCall is a system call that the kernel reports before it happens.
type watchedCall struct {
	nr   uint32
	name string
	path int    // which argument is the path; -1: none
	arg  int    // reported only if this argument has a bit of mask; -1: always
	mask uint32 // of the lower half
}

// calls are what changes files, runs programs or reaches the network. In those
// whose name ends in "at" the argument before the path is the folder.
var calls = append([]watchedCall{
	{unix.SYS_EXECVE, "execve", 0, -1, 0},
	{unix.SYS_EXECVEAT, "execveat", 1, -1, 0},
	{unix.SYS_OPENAT, "openat", 1, 2, writing},
	{unix.SYS_OPENAT2, "openat2", 1, -1, 0},
	{unix.SYS_UNLINKAT, "unlinkat", 1, -1, 0},
	{unix.SYS_RENAMEAT, "renameat", 3, -1, 0},
	{unix.SYS_RENAMEAT2, "renameat2", 3, -1, 0},
	{unix.SYS_MKDIRAT, "mkdirat", 1, -1, 0},
	{unix.SYS_LINKAT, "linkat", 3, -1, 0},
	{unix.SYS_SYMLINKAT, "symlinkat", 2, -1, 0},
	{unix.SYS_FCHMODAT, "fchmodat", 1, -1, 0},
	{unix.SYS_FCHOWNAT, "fchownat", 1, -1, 0},
	{unix.SYS_MKNODAT, "mknodat", 1, -1, 0},
	{unix.SYS_UTIMENSAT, "utimensat", 1, 1, 0xffffffff},
	{unix.SYS_TRUNCATE, "truncate", 0, -1, 0},
	{unix.SYS_SETXATTR, "setxattr", 0, -1, 0},
	{unix.SYS_LSETXATTR, "lsetxattr", 0, -1, 0},
	{unix.SYS_MOUNT, "mount", 1, -1, 0},
	{unix.SYS_UNSHARE, "unshare", -1, -1, 0},
	{unix.SYS_PTRACE, "ptrace", -1, -1, 0},
	{unix.SYS_BIND, "bind", -1, -1, 0},
	{unix.SYS_CONNECT, "connect", -1, -1, 0},
	{unix.SYS_SENDTO, "sendto", -1, 4, 0xffffffff},
}, oldCalls...)

// install puts the filter on the calling thread, and so on all that it starts. Its
// result is the descriptor by which the calls are reported.
func install() (int, error) {
	const data = 16 // where the arguments begin in struct seccomp_data
	stmt := func(code uint16, k uint32) unix.SockFilter { return unix.SockFilter{Code: code, K: k} }
	jump := func(code uint16, k uint32, yes, no uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | code | unix.BPF_K, K: k, Jt: yes, Jf: no}
	}
	load := func(at uint32) unix.SockFilter { return stmt(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, at) }
	end := func(what uint32) unix.SockFilter { return stmt(unix.BPF_RET|unix.BPF_K, what) }
	f := []unix.SockFilter{
		load(4), jump(unix.BPF_JEQ, machine, 1, 0), end(unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)),
		load(0),
	}
	for _, c := range calls {
		if c.arg < 0 {
			f = append(f, jump(unix.BPF_JEQ, c.nr, 0, 1), end(unix.SECCOMP_RET_USER_NOTIF))
			continue
		}
		f = append(f, jump(unix.BPF_JEQ, c.nr, 0, 4), load(data+8*uint32(c.arg)), jump(unix.BPF_JSET, c.mask, 0, 1),
			end(unix.SECCOMP_RET_USER_NOTIF), end(unix.SECCOMP_RET_ALLOW))
	}
	// Of sockets those of this machine are looked at when they connect.
	f = append(f, jump(unix.BPF_JEQ, unix.SYS_SOCKET, 0, 4), load(data), jump(unix.BPF_JEQ, unix.AF_UNIX, 2, 0),
		jump(unix.BPF_JEQ, unix.AF_NETLINK, 1, 0), end(unix.SECCOMP_RET_USER_NOTIF), end(unix.SECCOMP_RET_ALLOW))
	prog := unix.SockFprog{Len: uint16(len(f)), Filter: &f[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return -1, err
	}
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil
}

// notification and answer are struct seccomp_notif and struct seccomp_notif_resp.
type notification struct {
	id         uint64
	pid, flags uint32
	nr, arch   uint32
	ip         uint64
	args       [6]uint64
}

type answer struct {
	id           uint64
	val          int64
	errno, flags uint32
}

const (
	recvNotice = 0xc0502100
	sendAnswer = 0xc0182101
	goOn       = 1 // SECCOMP_USER_NOTIF_FLAG_CONTINUE
)

// event is one call that was reported.
type event struct {
	Call  string   `json:"call"`
	Path  string   `json:"path,omitempty"` // absolute, or the address of a socket
	Args  []string `json:"args,omitempty"` // of a program that is started
	chain []string // the programs of the process and of those above it, from itself on
}

// watcher collects events of one listener. All of it is of the processes of one
// line at a time.
type watcher struct {
	fd   int
	mu   sync.Mutex
	seen []event
}

// serve answers until the listener is closed. It says yes to everything: what is
// looked for is what happens.
func (w *watcher) serve() {
	byNumber := map[uint32]watchedCall{unix.SYS_SOCKET: {unix.SYS_SOCKET, "socket", -1, -1, 0}}
	for _, c := range calls {
		byNumber[c.nr] = c
	}
	for {
		var n notification
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(w.fd), recvNotice, uintptr(unsafe.Pointer(&n))); errno != 0 {
			if errno == unix.EINTR || errno == unix.ENOENT {
				continue
			}
			return
		}
		e := describe(byNumber[n.nr], n)
		w.mu.Lock()
		w.seen = append(w.seen, e)
		w.mu.Unlock()
		a := answer{id: n.id, flags: goOn}
		_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(w.fd), sendAnswer, uintptr(unsafe.Pointer(&a)))
	}
}

// take returns what was seen since the last time.
func (w *watcher) take() []event {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := w.seen
	w.seen = nil
	return out
}

func describe(c watchedCall, n notification) event {
	e := event{Call: c.name}
	pid := int(n.pid)
	switch {
	case c.path >= 0:
		e.Path = text(pid, n.args[c.path])
		if c.name == "openat2" && !writes2(pid, n.args[2]) || strings.HasPrefix(c.name, "open") && e.Path == "" {
			e.Call = "" // it only reads, or opens nothing
			return e
		}
		folder := "cwd"
		if strings.Contains(c.name, "at") && c.path > 0 && c.name != "mount" && c.name != "setxattr" {
			if dir := int32(n.args[c.path-1]); dir != unix.AT_FDCWD {
				folder = "fd/" + strconv.Itoa(int(dir))
			}
		}
		if !filepath.IsAbs(e.Path) {
			base, _ := os.Readlink(fmt.Sprintf("/proc/%d/%s", pid, folder)) // empty: it is gone
			e.Path = filepath.Join(base, e.Path)
		}
	case c.name == "socket":
		e.Path = "family " + strconv.Itoa(int(n.args[0]))
	case c.name == "connect" || c.name == "bind":
		e.Path = address(pid, n.args[1], n.args[2])
	case c.name == "sendto":
		e.Path = address(pid, n.args[4], n.args[5])
	}
	if c.name == "execve" {
		e.Args = words(pid, n.args[1])
	}
	e.chain = chain(pid)
	return e
}

func memory(pid int, at uint64, n int) []byte {
	// Up to the end of the page first: what is behind it may not be there.
	buf := make([]byte, n)
	first := min(n, int(4096-at%4096))
	got, err := unix.ProcessVMReadv(pid, []unix.Iovec{{Base: &buf[0], Len: uint64(first)}}, []unix.RemoteIovec{{Base: uintptr(at), Len: first}}, 0)
	if err != nil || got < first || first == n {
		return buf[:max(0, got)]
	}
	more, _ := unix.ProcessVMReadv(pid, []unix.Iovec{{Base: &buf[first], Len: uint64(n - first)}},
		[]unix.RemoteIovec{{Base: uintptr(at) + uintptr(first), Len: n - first}}, 0) // what there is, counts
	return buf[:first+max(0, more)]
}

func text(pid int, at uint64) string {
	b, _, _ := bytes.Cut(memory(pid, at, 4096), []byte{0})
	return string(b)
}

// words are the arguments of a program, as far as they are short.
func words(pid int, at uint64) []string {
	var out []string
	for b := memory(pid, at, 64*8); len(b) >= 8; b = b[8:] {
		p := binary.NativeEndian.Uint64(b)
		if p == 0 {
			break
		}
		out = append(out, text(pid, p))
	}
	return out
}

func writes2(pid int, at uint64) bool {
	b := memory(pid, at, 8)
	return len(b) < 8 || binary.NativeEndian.Uint64(b)&writing != 0
}

func address(pid int, at, n uint64) string {
	b := memory(pid, at, int(min(n, 128)))
	if len(b) < 2 {
		return "?"
	}
	switch family := binary.NativeEndian.Uint16(b); family {
	case unix.AF_UNIX:
		path, _, _ := bytes.Cut(b[2:], []byte{0})
		return string(path)
	case unix.AF_NETLINK:
		return "netlink"
	default:
		return "family " + strconv.Itoa(int(family))
	}
}

// chain are the names of the programs from a process up to the one that starts
// lines, which is not in it.
func chain(pid int) []string {
	var out []string
	for range 64 {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			break
		}
		exe, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)) // empty: it is gone
		f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(f) < 2 {
			break
		}
		parent, _ := strconv.Atoi(f[1])
		if parent <= 1 {
			break // pid is the one that starts lines
		}
		out = append(out, exe)
		pid = parent
	}
	return out
}
