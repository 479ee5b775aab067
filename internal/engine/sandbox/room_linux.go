package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/drover-dev/drover/internal/engine/process"
)

// Room is the namespaces that the commands of one session share. Its methods may be called by
// several goroutines.
type Room struct {
	offer    Offer
	mounts   bool
	aside    []string
	brokered bool           // programs inside reach each other's Unix sockets
	group    *process.Group // the starter

	links []*net.UnixConn
	free  chan *net.UnixConn // those on which no request is open
	seq   atomic.Uint64
}

// Time limits of a starter: to be there, and to go.
const (
	readyWait = 10 * time.Second
	leaveWait = 2 * time.Second
)

// OpenRoom makes a room. The caller closes it; programs inside live on.
func OpenRoom(c RoomConfig) (*Room, error) {
	if c.Offer.Room != nil {
		return nil, c.Offer.Room
	}
	if len(c.Starter) == 0 {
		return nil, errors.New("this program cannot start itself in namespaces (a program in Go sets drover.Config.Keeper)")
	}
	r := &Room{offer: c.Offer, free: make(chan *net.UnixConn, links)}
	var theirs []*os.File
	defer func() {
		for _, f := range theirs {
			_ = f.Close()
		}
	}()
	for range links {
		here, there, err := pair()
		if err != nil {
			r.cut()
			return nil, err
		}
		theirs = append(theirs, there)
		r.links = append(r.links, here)
		r.free <- here
	}
	var err error
	// Landlock keeps root from tracing processes outside, which lead out of the namespaces. Without
	// it only a user namespace does.
	root := privileged()
	user := !root || c.Offer.Landlock == 0
	r.group, err = process.StartGroup(process.Command{
		Args: c.Starter, Dir: "/", Env: c.Env, Stderr: os.Stderr, Extra: theirs, Session: true,
		Fork: func(path string, args []string, attr *syscall.ProcAttr) (int, int, error) {
			return inside(path, args, attr, user, root)
		},
	})
	if err != nil {
		r.cut()
		return nil, fmt.Errorf("make namespaces: %w", err)
	}
	r.deadline(time.Now().Add(readyWait))
	answer, _, err := r.ask(request{Op: opSetup, Setup: &setup{
		Hidden: c.Hidden, Sockets: c.Reached, Shown: c.Shown, Overlays: c.Overlays,
		Landlock: c.Offer.Landlock, Seccomp: c.Offer.Seccomp, Root: root,
	}}, nil)
	if err != nil {
		r.Close()
		return nil, fmt.Errorf("set up namespaces: %w", err)
	}
	r.deadline(time.Time{})
	r.mounts, r.brokered, r.aside = answer.Mounts, answer.Brokered, answer.Aside
	return r, nil
}

// privileged reports whether this process can make namespaces without one for its user.
func privileged() bool {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if unix.Geteuid() != 0 || unix.Capget(&hdr, &data[0]) != nil {
		return false
	}
	return data[0].Effective&(1<<unix.CAP_SYS_ADMIN) != 0 && data[0].Effective&(1<<unix.CAP_NET_ADMIN) != 0
}

// inside starts a program in new namespaces. user says that one of them is a user namespace, in
// which everybody is who they were.
func inside(path string, args []string, attr *syscall.ProcAttr, user, root bool) (pid, pidfd int, err error) {
	pidfd = -1
	attr.Sys.PidFD = &pidfd
	attr.Sys.Cloneflags = unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWIPC
	if user {
		attr.Sys.Cloneflags |= unix.CLONE_NEWUSER
		attr.Sys.UidMappings = []syscall.SysProcIDMap{{ContainerID: unix.Geteuid(), HostID: unix.Geteuid(), Size: 1}}
		attr.Sys.GidMappings = []syscall.SysProcIDMap{{ContainerID: unix.Getegid(), HostID: unix.Getegid(), Size: 1}}
		attr.Sys.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN, unix.CAP_SETPCAP, unix.CAP_SYS_PTRACE}
	}
	if user && root {
		attr.Sys.UidMappings, attr.Sys.GidMappings = same("/proc/self/uid_map"), same("/proc/self/gid_map")
		attr.Sys.GidMappingsEnableSetgroups = true
		attr.Sys.AmbientCaps = nil // root has them
	}
	pid, err = syscall.ForkExec(path, args, attr)
	return pid, pidfd, err
}

// ask makes a request. The descriptors of the answer are the caller's.
func (r *Room) ask(q request, files []int) (reply, []int, error) {
	link := <-r.free
	defer func() { r.free <- link }()
	if err := sendFrame(link, q, files); err != nil {
		return reply{}, nil, r.lost(err)
	}
	var a reply
	got, err := receiveFrame(link, &a)
	if err != nil {
		return reply{}, nil, r.lost(err)
	}
	if err := a.err(); err != nil {
		closeAll(got)
		return a, nil, err
	}
	return a, got, nil
}

// cut closes the links.
func (r *Room) cut() {
	for _, l := range r.links {
		_ = l.Close()
	}
}

func (r *Room) deadline(at time.Time) {
	for _, l := range r.links {
		_ = l.SetDeadline(at)
	}
}

// ErrClosed is returned by a room whose starter is gone.
var ErrClosed = errors.New("the sandbox of the session is closed")

func (r *Room) lost(err error) error {
	for _, gone := range []error{io.EOF, net.ErrClosed, syscall.EPIPE, syscall.ECONNRESET} {
		if errors.Is(err, gone) {
			return ErrClosed
		}
	}
	return err
}

// fork starts a program in the room, as a child of this process.
func (r *Room) fork(b Bounds, path string, args []string, attr *syscall.ProcAttr) (pid, pidfd int, err error) {
	seq := r.seq.Add(1)
	files := make([]int, len(attr.Files))
	for i, fd := range attr.Files {
		files[i] = int(fd)
	}
	dir := attr.Dir
	if dir == "" {
		if dir, err = os.Getwd(); err != nil {
			return 0, -1, err
		}
	}
	a, got, err := r.ask(request{
		Op: opStart, Seq: seq, Path: path, Args: args, Env: attr.Env, Dir: dir,
		Sid: attr.Sys.Setsid, Ctty: attr.Sys.Setctty, Bounds: &b,
	}, files)
	if err != nil {
		// The starter is not the parent of a child that could not execute its program: we are.
		if pid := zombie(childName(seq)); pid > 0 {
			_, _ = unix.Wait4(pid, nil, 0, nil)
		}
		return 0, -1, err
	}
	if len(got) != 1 {
		closeAll(got)
		return 0, -1, errors.New("start in a room: the answer has no process")
	}
	return a.PID, got[0], nil
}

// Listen returns a listener on a port of the loopback address inside, 0 for any. This process
// accepts its connections.
func (r *Room) Listen(port int) (net.Listener, error) {
	f, err := r.socket(opListen, port)
	if err != nil {
		return nil, fmt.Errorf("listen in a room: %w", err)
	}
	defer f.Close()
	return net.FileListener(f)
}

// Dial connects to a port of the loopback address inside.
func (r *Room) Dial(_ context.Context, port int) (net.Conn, error) {
	f, err := r.socket(opDial, port)
	if err != nil {
		return nil, fmt.Errorf("connect to port %d in a room: %w", port, err)
	}
	defer f.Close()
	return net.FileConn(f)
}

func (r *Room) socket(op string, port int) (*os.File, error) {
	_, got, err := r.ask(request{Op: op, Port: port}, nil)
	if err != nil {
		return nil, err
	}
	if len(got) != 1 {
		closeAll(got)
		return nil, errors.New("the answer has no socket")
	}
	return os.NewFile(uintptr(got[0]), "socket in a room"), nil
}

// Aside are the folders of [RoomConfig.Overlays] whose changes go aside.
func (r *Room) Aside() []string { return r.aside }

// Close ends the starter. Programs that run inside go on, in namespaces without a way out.
func (r *Room) Close() {
	r.cut()
	ctx, done := context.WithTimeout(context.Background(), leaveWait)
	defer done()
	if _, err := r.group.Wait(ctx); err != nil {
		r.group.End(context.Background(), process.Ending{})
	}
	r.group.Reap()
	r.group.Close()
}
