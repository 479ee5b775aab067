package sandbox

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"syscall"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// linkFD is the first descriptor of the links in the starter, of which there are links.
const (
	linkFD = 3
	links  = 4
)

// starter is the process inside a room. One goroutine serves each link of its host, so that several
// programs can be started at the same time.
type starter struct {
	setup    setup
	filter   []bpf.RawInstruction
	brokered bool // its connects are answered
	sockets  *sockets
	aside    []string // folders whose changes go aside
	mounts   bool
	drop     []uintptr // capabilities that each program loses
	dropped  bool      // no thread can pass them on any more

	mu     sync.Mutex // guards the fields below: bounds are made one after the other
	ready  bool
	covers map[uint64]bool // the mounts that hide something
	hidden hidden
	denied hidden          // by the rules of the session, which may name more when an agent gets a folder
	known  map[uint64]kind // the mounts that were looked at

	deniedPaths []string
	rules       rulesets
	shm         int             // /dev/shm of the machine; -1: none
	shared      map[string]bool // folders of it that are in the room
}

// RunStarter is the life of a starter: it serves the process that has opened the room, and returns
// when that has closed the link or has ended. It must be called early in a program that was started
// by [OpenRoom].
func RunStarter() error {
	if err := keepFiles(linkFD); err != nil {
		return err
	}
	debug.SetGCPercent(400)
	s := &starter{covers: map[uint64]bool{}, known: map[uint64]kind{}, shared: map[string]bool{}, shm: -1}
	all := make([]*net.UnixConn, links)
	for i := range all {
		var err error
		if all[i], err = conn(linkFD + i); err != nil {
			return fmt.Errorf("serve a room: %w (this command is started by a host, not by hand)", err)
		}
	}
	errs := make([]error, links)
	var served sync.WaitGroup
	for i, link := range all {
		served.Go(func() {
			defer link.Close()
			errs[i] = s.serveLink(link)
		})
	}
	served.Wait()
	return errors.Join(errs...)
}

// serveLink answers the requests of one link, until the host has closed it.
func (s *starter) serveLink(link *net.UnixConn) error {
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
	case r.Op == opSetup && r.Setup != nil && !s.isReady():
		if err := s.prepare(*r.Setup); err != nil {
			return failed(err), nil
		}
		return reply{Mounts: s.mounts, Brokered: s.brokered, Aside: s.aside}, nil
	case !s.isReady():
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

func (s *starter) isReady() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ready
}

// prepare sets up the namespaces as the host wants. The host waits for the answer.
func (s *starter) prepare(c setup) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.Seccomp {
		var err error
		if s.sockets, err = openSockets(); err == nil {
			s.brokered = s.sockets.canBroker()
		}
		f, err := filter(false, s.brokered)
		if err != nil {
			return err
		}
		s.filter = f
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("take the mounts of a room from those of the machine: %w", err)
	}
	if c.Landlock == 0 {
		// A child shares memory with this process until it executes its program, and without
		// Landlock other programs of the room could trace it.
		if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
			return fmt.Errorf("keep programs of a room from its starter: %w", err)
		}
	}
	for _, o := range c.Overlays {
		if overlay(o) == nil {
			s.aside = append(s.aside, o.Path)
		}
	}
	s.setup, s.hidden = c, newHidden(c.Hidden, emptyFile)
	if err := s.conceal(c.Hidden, nil); err != nil {
		return err
	}
	shm, err := makeDev()
	if s.shm = shm; err != nil {
		return err
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	s.mounts = unix.MountSetattr(unix.AT_FDCWD, "/", unix.AT_RECURSIVE, &attr) == nil
	if s.mounts {
		attr = unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY}
		if err := unix.MountSetattr(unix.AT_FDCWD, "/dev/shm", 0, &attr); err != nil {
			return fmt.Errorf("let /dev/shm be written in a room: %w", err)
		}
	}
	if err := up("lo"); err != nil {
		return err
	}
	s.drop = allPowers()
	if c.Root {
		s.drop = powers
	}
	if dropForAll(s.drop) {
		s.dropped = true
	}
	s.ready = true
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
	l := limits{domain: -1, filter: s.filter, name: childName(r.Seq), drop: s.drop, dropped: s.dropped}
	if l.domain, err = s.prepared(*r.Bounds); err != nil {
		return 0, -1, err
	}
	if l.domain >= 0 {
		defer unix.Close(l.domain)
	}
	if s.brokered {
		l.brokered = s.broker
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

// prepared sets up the room for bounds, and returns a Landlock ruleset for them, which the caller
// closes; -1 without Landlock.
func (s *starter) prepared(b Bounds) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, err := s.bound(b)
	if err != nil {
		return -1, err
	}
	if s.setup.Landlock == 0 {
		return -1, nil
	}
	return s.rules.take(s.setup.Landlock, b, found)
}

// canBroker reports whether connects can be answered here: within another sandbox the programs may have somebody who
// answers already, and there can only be one.
func (s *sockets) canBroker() bool {
	if _, err := s.bindings(); err != nil {
		return false
	}
	f, err := filter(false, true)
	if err != nil {
		return false
	}
	onThread(func() {
		var fd int
		if err = unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err == nil {
			fd, err = obey(f, true)
		}
		if err == nil {
			_ = unix.Close(fd)
		}
	})
	return err == nil
}

// broker serves the connects of the programs of a start.
func (s *starter) broker(fd int) {
	_ = unix.SetNonblock(fd, true) // so that it is waited for without a thread
	b := &broker{listener: os.NewFile(uintptr(fd), "connects"), sockets: s.sockets, outside: s.outside}
	go b.serve() // ends with the last program of the start
}

// outside reports whether programs may reach a socket that was bound outside.
func (s *starter) outside(path string) bool {
	var is, named unix.Stat_t
	if unix.Stat(path, &is) != nil {
		return false
	}
	return slices.ContainsFunc(s.setup.Sockets, func(one string) bool {
		return unix.Stat(one, &named) == nil && named.Ino == is.Ino && named.Dev == is.Dev
	})
}

// childName is the name of a child until it executes its program.
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
