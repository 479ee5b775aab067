//go:build linux && amd64

package crash

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// traceVariable makes the test binary a tracer; it holds a tracing as JSON.
const traceVariable = "CRASH_TRACE"

func TestMain(m *testing.M) {
	if order := os.Getenv(traceVariable); order != "" {
		os.Exit(traced(order))
	}
	os.Exit(m.Run())
}

// tracing is what a tracer is to do: start the program, follow all that it
// starts, count the calls by which one process changes something, and kill it
// within the nth before the kernel has done anything of it. strace counts the
// calls of each thread by itself, so its n-th call is no place in a program of
// many threads.
type tracing struct {
	Args   []string `json:"args"`
	Env    []string `json:"env"`
	Dir    string   `json:"dir"`
	Stdout string   `json:"stdout"` // files of the program
	Stderr string   `json:"stderr"`
	Role   string   `json:"role"` // of the victim: host, keeper; empty: what is started
	Nth    int      `json:"nth"`  // 0: nobody is killed
}

// told is a line that a tracer prints.
type told struct {
	Victim int    `json:"victim,omitempty"` // its number
	N      int    `json:"n,omitempty"`      // of a call
	Call   string `json:"call,omitempty"`
	Killed bool   `json:"killed,omitempty"`
	Exit   *int   `json:"exit,omitempty"`  // the program has ended so, or by 128 and a signal
	Error  string `json:"error,omitempty"` // it cannot be traced
}

// tracer is bound to one thread of its process.
type tracer struct {
	tracing
	out    *json.Encoder
	first  int
	victim int
	n      int
	group  map[int]int // the process of each thread that was seen
}

// traced is the tracer's main program.
func traced(order string) int {
	runtime.LockOSThread()
	t := &tracer{out: json.NewEncoder(os.Stdout), group: map[int]int{}}
	if err := json.Unmarshal([]byte(order), &t.tracing); err != nil {
		return 2
	}
	if err := t.start(); err != nil {
		_ = t.out.Encode(told{Error: err.Error()}) // the harness sees the exit code too
		return 1
	}
	t.follow()
	return 0
}

func (t *tracer) start() error {
	files := make([]*os.File, 3)
	for i, name := range []string{os.DevNull, t.Stdout, t.Stderr} {
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
		if err != nil {
			return err
		}
		defer f.Close()
		files[i] = f
	}
	p, err := os.StartProcess(t.Args[0], t.Args, &os.ProcAttr{Dir: t.Dir, Env: t.Env, Files: files, Sys: &syscall.SysProcAttr{Ptrace: true}})
	if err != nil {
		return err
	}
	t.first = p.Pid
	var ws syscall.WaitStatus
	if _, err := syscall.Wait4(t.first, &ws, syscall.WALL, nil); err != nil {
		return err
	}
	const options = unix.PTRACE_O_TRACESYSGOOD | unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_TRACEFORK | unix.PTRACE_O_TRACEVFORK | unix.PTRACE_O_TRACEEXEC
	if err := syscall.PtraceSetOptions(t.first, options); err != nil {
		return err
	}
	t.group[t.first] = t.first
	t.execed(t.first)
	return t.resume(t.first, 0)
}

// follow returns when nothing of all that was started is left.
func (t *tracer) follow() {
	for {
		var ws syscall.WaitStatus
		tid, err := syscall.Wait4(-1, &ws, syscall.WALL, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil: // nobody is left
			return
		case ws.Stopped():
			if err := t.stopped(tid, ws); err != nil && err != syscall.ESRCH { // it has been killed
				_ = t.out.Encode(told{Error: fmt.Sprintf("thread %d: %v", tid, err)})
			}
		default:
			delete(t.group, tid)
			if tid == t.first {
				t.ended(ws)
			}
		}
	}
}

func (t *tracer) ended(ws syscall.WaitStatus) {
	code := ws.ExitStatus()
	if ws.Signaled() {
		code = 128 + int(ws.Signal())
	}
	t.tell(told{Exit: &code})
}

func (t *tracer) tell(what told) {
	if t.out.Encode(what) != nil {
		os.Exit(1) // the harness has gone
	}
}

func (t *tracer) stopped(tid int, ws syscall.WaitStatus) error {
	_, known := t.group[tid]
	if !known {
		t.group[tid] = groupOf(tid)
	}
	sig := ws.StopSignal()
	switch {
	case sig == syscall.SIGTRAP|0x80:
		if t.group[tid] == t.victim {
			if err := t.called(tid); err != nil {
				return err
			}
		}
		return t.resume(tid, 0)
	case sig == syscall.SIGTRAP && ws.TrapCause() > 0:
		if ws.TrapCause() == unix.PTRACE_EVENT_EXEC {
			t.group[tid] = tid
			if !t.execed(tid) { // the end of a traced child comes to its parent late
				return syscall.PtraceDetach(tid)
			}
		}
		return t.resume(tid, 0)
	case sig == syscall.SIGSTOP && !known: // how the kernel shows what is new
		return t.resume(tid, 0)
	}
	return t.resume(tid, int(sig))
}

// resume stops the victim at each call, and all others never.
func (t *tracer) resume(tid, sig int) error {
	if t.group[tid] == t.victim {
		return syscall.PtraceSyscall(tid, sig)
	}
	return syscall.PtraceCont(tid, sig)
}

// execed looks whether a process that is another program now is drover, and the
// victim: the first of its role.
func (t *tracer) execed(pid int) (drover bool) {
	line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	words := strings.Split(string(line), "\x00")
	drover = slices.Contains([]string{"drover", "drover-keeper"}, filepath.Base(words[0]))
	if t.victim == 0 && drover && (t.Role == "" || len(words) > 1 && words[1] == t.Role) {
		t.victim = pid
		t.tell(told{Victim: pid})
	}
	return drover
}

func groupOf(tid int) int {
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", tid))
	_, rest, _ := strings.Cut(string(data), "\nTgid:\t")
	line, _, _ := strings.Cut(rest, "\n")
	n, _ := strconv.Atoi(line)
	return n
}

// entry is the call that a thread is about to make: struct ptrace_syscall_info of
// ptrace(2).
type entry struct {
	op   uint8
	_    [3]uint8
	_    uint32
	_    [2]uint64
	call uint64
	args [6]uint64
	_    [2]uint64
}

const (
	getSyscallInfo = 0x420e
	isEntry        = 1
)

// called looks at a call of the victim, at its entry or its end.
func (t *tracer) called(tid int) error {
	var e entry
	if _, _, no := syscall.Syscall6(syscall.SYS_PTRACE, getSyscallInfo, uintptr(tid), unsafe.Sizeof(e), uintptr(unsafe.Pointer(&e)), 0, 0); no != 0 {
		return no
	}
	if e.op != isEntry {
		return nil
	}
	name, counts := t.change(&e)
	if !counts {
		return nil
	}
	t.n++
	t.tell(told{N: t.n, Call: name})
	if t.n != t.Nth {
		return nil
	}
	err := syscall.Kill(t.victim, syscall.SIGKILL)
	t.tell(told{Killed: true})
	return err
}

// change is what a call changes, in a few words; false: nothing that others can
// see.
func (t *tracer) change(e *entry) (string, bool) {
	a := e.args
	switch name := changing(e.call); name {
	case "":
		return "", false
	case "openat":
		return "create " + t.name(a[1]), a[2]&syscall.O_CREAT != 0
	case "clone":
		return "clone", a[0]&syscall.CLONE_THREAD == 0
	case "clone3":
		return "clone3", binary.LittleEndian.Uint64(append(t.memory(a[0], 8), make([]byte, 8)...))&syscall.CLONE_THREAD == 0
	case "kill", "pidfd_send_signal":
		return fmt.Sprintf("%s %d", name, a[1]), a[1] != 0
	case "fork", "vfork", "bind":
		return name, true
	case "execve", "rename", "unlink", "mkdir", "rmdir", "link", "symlink":
		return name + " " + t.name(a[0]), true
	case "renameat", "renameat2", "unlinkat", "mkdirat", "linkat":
		return name + " " + t.name(a[1]), true
	case "symlinkat":
		return name + " " + t.name(a[2]), true
	default: // of a descriptor
		file, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", t.victim, int32(a[0])))
		return name + " " + kindOf(file), file != "anon_inode:[eventfd]" // by this the runtime wakes itself
	}
}

// kindOf is the name of a file that is the same in each run.
func kindOf(file string) string {
	kind, _, numbered := strings.Cut(file, ":[")
	if numbered {
		return kind
	}
	return filepath.Base(file)
}

// name is the last part of a path in the memory of the victim.
func (t *tracer) name(at uint64) string {
	path, _, _ := bytes.Cut(t.memory(at, 512), []byte{0})
	return filepath.Base(string(path))
}

func (t *tracer) memory(at uint64, n int) []byte {
	f, err := os.Open(fmt.Sprintf("/proc/%d/mem", t.victim))
	if err != nil {
		return nil
	}
	defer f.Close()
	data := make([]byte, n)
	got, _ := f.ReadAt(data, int64(at)) // it may end at the end of a page
	return data[:got]
}

// changing names the calls that may change something.
func changing(call uint64) string {
	return map[uint64]string{
		unix.SYS_WRITE: "write", unix.SYS_PWRITE64: "pwrite64", unix.SYS_WRITEV: "writev", unix.SYS_PWRITEV: "pwritev", unix.SYS_SENDTO: "sendto", unix.SYS_SENDMSG: "sendmsg",
		unix.SYS_FSYNC: "fsync", unix.SYS_FDATASYNC: "fdatasync", unix.SYS_FTRUNCATE: "ftruncate", unix.SYS_OPENAT: "openat", unix.SYS_BIND: "bind",
		unix.SYS_RENAME: "rename", unix.SYS_RENAMEAT: "renameat", unix.SYS_RENAMEAT2: "renameat2", unix.SYS_UNLINK: "unlink", unix.SYS_UNLINKAT: "unlinkat",
		unix.SYS_LINK: "link", unix.SYS_LINKAT: "linkat", unix.SYS_SYMLINK: "symlink", unix.SYS_SYMLINKAT: "symlinkat",
		unix.SYS_MKDIR: "mkdir", unix.SYS_MKDIRAT: "mkdirat", unix.SYS_RMDIR: "rmdir",
		unix.SYS_CLONE: "clone", unix.SYS_CLONE3: "clone3", unix.SYS_FORK: "fork", unix.SYS_VFORK: "vfork", unix.SYS_EXECVE: "execve",
		unix.SYS_KILL: "kill", unix.SYS_PIDFD_SEND_SIGNAL: "pidfd_send_signal",
	}[call]
}
