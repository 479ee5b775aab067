package sandbox

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// linkFD is the descriptor of the link in the starter.
const linkFD = 3

// starter is the process inside a room. One goroutine serves its host.
type starter struct {
	link   *net.UnixConn
	setup  setup
	filter []bpf.RawInstruction
	ready  bool
	mounts bool
}

// RunStarter is the life of a starter: it serves the process that has opened the room, and returns
// when that has closed the link or has ended. It must be called early in a program that was started
// by [OpenRoom].
func RunStarter() error {
	unix.CloseOnExec(linkFD)
	link, err := conn(linkFD)
	if err != nil {
		return fmt.Errorf("serve a room: %w (this command is started by a host, not by hand)", err)
	}
	defer link.Close()
	debug.SetGCPercent(400)
	s := &starter{link: link}
	for {
		var r request
		files, err := receiveFrame(link, &r)
		if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("serve a room: %w", err)
		}
		answer, out := s.serve(r, files)
		closeAll(files)
		err = sendFrame(link, answer, out)
		closeAll(out)
		if errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("serve a room: %w", err)
		}
	}
}

// serve answers a request. The descriptors that it returns are sent and closed.
func (s *starter) serve(r request, files []int) (reply, []int) {
	var (
		out int
		err error
	)
	switch {
	case r.Op == opSetup && r.Setup != nil && !s.ready:
		if err := s.prepare(*r.Setup); err != nil {
			return failed(err), nil
		}
		return reply{Mounts: s.mounts}, nil
	case !s.ready:
		return failed(errors.New("the room is not set up")), nil
	case r.Op == opStart && r.Bounds != nil:
		pid, pidfd, err := s.start(r, files)
		if err != nil {
			return failed(err), nil
		}
		return reply{PID: pid}, []int{pidfd}
	case r.Op == opListen:
		out, err = s.listen(r.Port)
	case r.Op == opDial:
		out, err = s.dial(r.Port)
	default:
		err = fmt.Errorf("unknown request %.20q", r.Op)
	}
	if err != nil {
		return failed(err), nil
	}
	return reply{}, []int{out}
}

// prepare makes the namespaces what the host wants.
func (s *starter) prepare(c setup) error {
	if c.Seccomp {
		f, err := filter(false)
		if err != nil {
			return err
		}
		s.filter = f
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("take the mounts of a room from those of the machine: %w", err)
	}
	for _, path := range c.Hidden {
		if err := hide(path, c.Shown); err != nil {
			return err
		}
	}
	if err := terminals(); err != nil {
		return err
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	s.mounts = unix.MountSetattr(unix.AT_FDCWD, "/", unix.AT_RECURSIVE, &attr) == nil
	if err := up("lo"); err != nil {
		return err
	}
	s.setup, s.ready = c, true
	return nil
}

// hide puts something without content in place of a file or folder. What is shown below it keeps
// its place.
func hide(path string, shown []string) error {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil //nolint:nilerr // there is nothing to hide, or nothing that can be reached
	}
	info, err := os.Lstat(path)
	if err != nil {
		return nil //nolint:nilerr // as above
	}
	if !info.IsDir() {
		if err := unix.Mount("/dev/null", path, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("hide %s: %w", path, err)
		}
		return nil
	}
	kept := map[string]int{}
	defer func() {
		for _, fd := range kept {
			_ = unix.Close(fd)
		}
	}()
	for _, s := range shown {
		if !strings.HasPrefix(s, path+"/") {
			continue
		}
		fd, err := unix.OpenTree(unix.AT_FDCWD, s, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return fmt.Errorf("show %s: %w", s, err)
		}
		kept[s] = fd
	}
	mode := "mode=000,size=4k,nr_inodes=1"
	if len(kept) > 0 {
		mode = "mode=711,size=64k,nr_inodes=256"
	}
	if err := unix.Mount("hidden", path, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, mode); err != nil {
		return fmt.Errorf("hide %s: %w", path, err)
	}
	for s, fd := range kept {
		err := os.MkdirAll(s, 0o711)
		if err == nil {
			err = unix.MoveMount(fd, "", unix.AT_FDCWD, s, unix.MOVE_MOUNT_F_EMPTY_PATH)
		}
		if err != nil {
			return fmt.Errorf("show %s: %w", s, err)
		}
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	if err := unix.MountSetattr(unix.AT_FDCWD, path, 0, &attr); err != nil {
		return fmt.Errorf("hide %s: %w", path, err)
	}
	return nil
}

// terminals gives the room terminals of its own: those of the user's windows could be written to.
func terminals() error {
	err := unix.Mount("devpts", "/dev/pts", "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620")
	if err == nil {
		err = unix.Mount("/dev/pts/ptmx", "/dev/ptmx", "", unix.MS_BIND, "")
	}
	if errors.Is(err, unix.ENOENT) {
		return nil // a machine without any
	}
	if err != nil {
		return fmt.Errorf("mount terminals of a room: %w", err)
	}
	return nil
}

// up brings up a network interface.
func up(name string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("bring up %s: %w", name, err)
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq(name)
	if err == nil {
		err = unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, req)
	}
	if err == nil {
		req.SetUint16(req.Uint16() | unix.IFF_UP)
		err = unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req)
	}
	if err != nil {
		return fmt.Errorf("bring up %s: %w", name, err)
	}
	return nil
}

// start starts a program as a child of the host.
func (s *starter) start(r request, files []int) (pid, pidfd int, err error) {
	if err := s.bound(*r.Bounds); err != nil {
		return 0, -1, err
	}
	l := limits{domain: -1, filter: s.filter, name: childName(r.Seq), drop: allPowers()}
	if s.setup.Root {
		l.drop = powers
	}
	if s.setup.Landlock > 0 {
		if l.domain, err = domain(s.setup.Landlock, *r.Bounds, false); err != nil {
			return 0, -1, err
		}
		defer unix.Close(l.domain)
	}
	attr := &syscall.ProcAttr{Dir: r.Dir, Env: r.Env}
	for _, fd := range files {
		attr.Files = append(attr.Files, uintptr(fd))
	}
	pidfd = -1
	attr.Sys = &syscall.SysProcAttr{
		Setpgid: !r.Sid, Setsid: r.Sid, Setctty: r.Ctty, PidFD: &pidfd, Cloneflags: unix.CLONE_PARENT,
	}
	pid, err = l.fork(r.Path, r.Args, attr)
	if err != nil {
		return 0, -1, err
	}
	if pidfd < 0 {
		_ = unix.Kill(pid, unix.SIGKILL)
		return 0, -1, errors.New("the kernel has no process descriptors (Linux 5.4 or newer is needed)")
	}
	return pid, pidfd, nil
}

// bound mounts what a program may write, and what below it may not be written.
func (s *starter) bound(b Bounds) error {
	if !s.mounts {
		return nil
	}
	for _, path := range b.Write {
		if err := remount(path, false); err != nil && !errors.Is(err, unix.EPERM) {
			return fmt.Errorf("let %s be written in a room: %w", path, err)
		}
	}
	for _, path := range b.Open {
		// A file on which something is mounted cannot be replaced, so the mount goes.
		for readonly(path) && unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) == nil {
		}
	}
	for _, path := range b.Fixed {
		if err := s.pin(filepath.Dir(path), b.Write); err != nil {
			return err
		}
		if err := remount(path, true); err != nil {
			return fmt.Errorf("protect %s in a room: %w", path, err)
		}
	}
	return nil
}

// pin mounts folders on themselves, from one up to a folder that may be written: a folder on which
// something is mounted cannot be renamed, and with it what is protected in it.
func (s *starter) pin(folder string, write []string) error {
	for ; !slices.Contains(write, folder); folder = filepath.Dir(folder) {
		below := func(w string) bool { return strings.HasPrefix(folder, strings.TrimSuffix(w, "/")+"/") }
		if !slices.ContainsFunc(write, below) {
			return nil
		}
		if mounted, err := mountpoint(folder); err != nil || mounted {
			continue //nolint:nilerr // nothing is there, or nothing is to be done
		}
		if err := unix.Mount(folder, folder, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("keep %s in its place in a room: %w", folder, err)
		}
	}
	return nil
}

// mountpoint reports whether a folder is the root of a mount.
func mountpoint(folder string) (bool, error) {
	var here, above unix.Statx_t
	const mask = unix.STATX_MNT_ID
	if err := unix.Statx(unix.AT_FDCWD, folder, unix.AT_SYMLINK_NOFOLLOW, mask, &here); err != nil {
		return false, err
	}
	if err := unix.Statx(unix.AT_FDCWD, filepath.Dir(folder), 0, mask, &above); err != nil {
		return false, err
	}
	return here.Mnt_id != above.Mnt_id, nil
}

// remount makes a file or folder a mount of its own, read-only or not. A mount goes when somebody
// outside replaces what it is mounted on, so this is done before each start.
func remount(path string, fixed bool) error {
	if _, err := os.Stat(path); err != nil || readonly(path) == fixed {
		return nil //nolint:nilerr // nothing is there, or nothing is to be done
	}
	flags := uint(unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC)
	attr := unix.MountAttr{}
	if fixed {
		attr.Attr_set = unix.MOUNT_ATTR_RDONLY
	} else {
		attr.Attr_clr = unix.MOUNT_ATTR_RDONLY
		flags |= unix.AT_RECURSIVE // what is hidden below stays hidden
	}
	fd, err := unix.OpenTree(unix.AT_FDCWD, path, flags)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		return err
	}
	return unix.MoveMount(fd, "", unix.AT_FDCWD, path, unix.MOVE_MOUNT_F_EMPTY_PATH)
}

// readonly reports whether what is at a path is mounted read-only.
func readonly(path string) bool {
	var st unix.Statfs_t
	return unix.Statfs(path, &st) == nil && st.Flags&unix.ST_RDONLY != 0
}

// childName is what a child is called until it has executed its program.
func childName(seq uint64) string { return fmt.Sprintf("start-%09d", seq%1e9) }

func (s *starter) listen(port int) (int, error) {
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
	if err != nil {
		return -1, err
	}
	defer l.Close()
	return taken(l.File())
}

func (s *starter) dial(port int) (int, error) {
	c, err := net.DialTCP("tcp4", nil, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
	if err != nil {
		return -1, err
	}
	defer c.Close()
	return taken(c.File())
}

// taken is a descriptor that its file does not close.
func taken(f *os.File, err error) (int, error) {
	if err != nil {
		return -1, err
	}
	defer f.Close()
	return unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
}
