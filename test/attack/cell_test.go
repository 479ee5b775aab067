//go:build linux && (amd64 || arm64)

package attack

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// roleVariable makes the test binary one of the two processes of a cell.
const roleVariable = "ATTACK_ROLE"

// Folders within a cell; nothing of them is outside of it.
const (
	worldDir = "/attack"         // workspaces
	tempDir  = "/attack-tmp"     // TMPDIR of lines
	keptDir  = "/attack-kept"    // copies of workspaces
	binaries = "/usr/bin:/bin"   // where programs are looked for
	envKey   = "ENVCANARY-71304" // the value of a variable that no line may show
)

const (
	outputLimit = 64 << 10
	lineLimit   = time.Second
	nobody      = 65534
)

// startCell starts the process that judges lines and sees to their being run: the
// first one in namespaces of its own, without a network, for one user only, who is
// never the superuser outside.
func startCell() (*exec.Cmd, io.WriteCloser, io.Reader, error) {
	uid, gid := os.Getuid(), os.Getgid()
	if uid == 0 {
		uid, gid = nobody, nobody
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^$")
	cmd.Env = []string{roleVariable + "=cell", "PATH=" + binaries}
	cmd.Stderr = os.Stderr
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
		// Both halves of a cell: 0 sets it up, 1000 is the one who runs lines.
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: gid, Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
	}
	if os.Getuid() == 0 {
		cmd.SysProcAttr.GidMappingsEnableSetgroups = true
		cmd.SysProcAttr.Credential = &syscall.Credential{} // with no group of the superuser
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, nil, nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, nil, err
	}
	return cmd, in, out, cmd.Start()
}

// enclose hides what is on the machine behind empty folders.
func enclose() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make the mounts private: %w", err)
	}
	// A folder of our own needs a place: what is below these is not for lines.
	root := ""
	for _, dir := range []string{"/srv", "/mnt", "/media", "/opt"} {
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			root = dir
			break
		}
	}
	if root == "" {
		return errors.New("none of /srv, /mnt, /media and /opt is there to be mounted on")
	}
	if err := unix.Mount("tmpfs", root, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755"); err != nil {
		return fmt.Errorf("mount a file system in memory: %w", err)
	}
	for _, dir := range []string{"usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "etc", "dev"} {
		from, to := "/"+dir, filepath.Join(root, dir)
		if link, err := os.Readlink(from); err == nil {
			if err := os.Symlink(link, to); err != nil {
				return err
			}
			continue
		}
		if _, err := os.Stat(from); err != nil {
			continue
		}
		if err := os.Mkdir(to, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("show %s: %w", from, err)
		}
	}
	for _, dir := range []string{"proc", "tmp", worldDir, tempDir, keptDir, "old"} {
		if err := os.Mkdir(filepath.Join(root, dir), 0o777); err != nil {
			return err
		}
	}
	if err := unix.Mount("proc", filepath.Join(root, "proc"), "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	if err := unix.PivotRoot(root, filepath.Join(root, "old")); err != nil {
		return fmt.Errorf("change the root: %w", err)
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	if err := unix.Unmount("/old", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("leave the old root: %w", err)
	}
	return os.Remove("/old")
}

// runner is the process that runs lines, as seen by the one that judges them.
type runner struct {
	watch *watcher
	out   *json.Encoder
	in    *json.Decoder
}

// request is one line to be run; ran is what came of it.
type request struct {
	Line string `json:"line"`
	Dir  string `json:"dir"`
	Home string `json:"home"`
}

type ran struct {
	Output string `json:"output"`
	Late   bool   `json:"late,omitempty"`  // it was ended
	Ended  bool   `json:"ended,omitempty"` // a process beside the sandbox was ended
	Failed string `json:"failed,omitempty"`
}

// startRunner starts it as a user who may nothing in these namespaces.
func startRunner(boxed bool) (*runner, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	theirs := os.NewFile(uintptr(pair[1]), "listener")
	defer theirs.Close()
	cmd := exec.Command("/proc/self/exe", "-test.run=^$")
	cmd.Env = []string{roleVariable + "=runner", "GOMAXPROCS=1"}
	if boxed {
		cmd.Env[0] = roleVariable + "=boxed"
	}
	cmd.Stderr = os.Stderr
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 1000, HostID: 0, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 1000, HostID: 0, Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	if boxed {
		_ = unix.Close(pair[0])
		return &runner{watch: &watcher{}, out: json.NewEncoder(in), in: json.NewDecoder(out)}, nil
	}
	control := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(pair[0], make([]byte, 1), control, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return nil, err
	}
	msgs, err := unix.ParseSocketControlMessage(control[:n])
	if err != nil || len(msgs) != 1 {
		return nil, fmt.Errorf("no listener came: %d messages, %w", len(msgs), err)
	}
	fds, err := unix.ParseUnixRights(&msgs[0])
	if err != nil {
		return nil, err
	}
	w := &watcher{fd: fds[0]}
	go w.serve() // ends with this process
	return &runner{watch: w, out: json.NewEncoder(in), in: json.NewDecoder(out)}, nil
}

func (r *runner) run(q request) (ran, []event, error) {
	r.watch.take()
	if err := r.out.Encode(q); err != nil {
		return ran{}, nil, err
	}
	var a ran
	if err := r.in.Decode(&a); err != nil {
		return ran{}, nil, err
	}
	if a.Failed != "" {
		return a, nil, errors.New(a.Failed)
	}
	return a, r.watch.take(), nil
}

// runLines is the main program of a runner. What lines leave behind becomes its
// child, and is ended before the next one.
func runLines() error {
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return err
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	fd, err := install()
	if err != nil {
		return fmt.Errorf("install the filter: %w", err)
	}
	if err := unix.Sendmsg(3, []byte{0}, unix.UnixRights(fd), nil, 0); err != nil {
		return err
	}
	_ = unix.Close(fd)
	_ = unix.Close(3)
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var q request
		if err := in.Decode(&q); err != nil {
			return nil // nothing more to do
		}
		if err := out.Encode(runLine(q, null)); err != nil {
			return err
		}
	}
}

func runLine(q request, null *os.File) ran {
	r, w, err := os.Pipe()
	if err != nil {
		return ran{Failed: err.Error()}
	}
	_, err = syscall.ForkExec("/bin/bash", []string{"bash", "-c", q.Line}, &syscall.ProcAttr{
		Dir: q.Dir, Env: environ(q), Files: []uintptr{null.Fd(), w.Fd(), w.Fd()}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	w.Close()
	if err != nil {
		r.Close()
		return ran{Failed: err.Error()}
	}
	read := make(chan []byte)
	go func() { // ends with the last writer, or at the limit
		data, _ := io.ReadAll(io.LimitReader(r, outputLimit))
		r.Close()
		read <- data
	}()
	ended := make(chan struct{})
	var late atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		for wait := lineLimit; ; wait = 5 * time.Millisecond { // what was started meanwhile
			select {
			case <-ended:
				return
			case <-time.After(wait):
				late.Store(true)
				endAll()
			}
		}
	})
	for {
		if _, err := syscall.Wait4(-1, nil, 0, nil); err != nil && err != syscall.EINTR {
			break // nothing is left
		}
	}
	close(ended)
	wg.Wait()
	return ran{Output: string(<-read), Late: late.Load()}
}

// environ is the environment of a line.
func environ(q request) []string {
	return []string{"PATH=" + binaries, "HOME=" + q.Home, "TMPDIR=" + tempDir, "LANG=C.UTF-8", "GIT_CONFIG_NOSYSTEM=1", "OLDPWD=" + filepath.Dir(q.Dir),
		"SECRET_TOKEN=" + envKey, "USER=someone", "TERM=dumb"}
}

// endAll ends all of the cell but its two processes, and others that are named.
func endAll(spared ...int) {
	entries, _ := os.ReadDir("/proc") // it is looked at again
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil && pid != 1 && pid != os.Getpid() && !slices.Contains(spared, pid) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}
