package sandbox

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/drover-dev/drover/task"
)

// Probe asks the kernel for the mechanisms that this user may use. Whether namespaces can be made is known only
// when a room is opened. Tests may set TEST_SANDBOX_ROOMS=off to simulate a machine without them.
func Probe() Offer {
	_, err := filter(false, false)
	o := Offer{Landlock: min(landlockABI(), abiScope), Seccomp: err == nil}
	if os.Getenv("TEST_SANDBOX_ROOMS") == "off" {
		o.Room = errors.New("turned off for a test")
	}
	return o
}

// In returns a starter of programs within bounds, and the mechanism of each bound. room may be nil:
// then only Landlock and seccomp bound the programs.
func In(room *Room, offer Offer, b Bounds) (Forker, task.Sandbox, error) {
	b = clone(b)
	if room != nil {
		return func(path string, args []string, attr *syscall.ProcAttr) (int, int, error) {
			return room.fork(b, path, args, attr)
		}, room.held(), nil
	}
	if offer.Landlock == 0 && !offer.Seccomp {
		return nil, task.Sandbox{}, ErrUnsupported
	}
	var f []bpf.RawInstruction
	tcp := offer.Landlock >= abiTCP && !b.Network
	if offer.Seccomp {
		var err error
		if f, err = filter(tcp, false); err != nil {
			return nil, task.Sandbox{}, err
		}
	}
	return func(path string, args []string, attr *syscall.ProcAttr) (pid, pidfd int, err error) {
		l := limits{domain: -1, filter: f}
		if unix.Geteuid() == 0 {
			l.drop = powers
		}
		if offer.Landlock > 0 {
			if l.domain, err = domain(offer.Landlock, b, tcp); err != nil {
				return 0, -1, err
			}
			defer unix.Close(l.domain)
		}
		pidfd = -1
		attr.Sys.PidFD = &pidfd
		pid, err = l.fork(path, args, attr)
		return pid, pidfd, err
	}, bare(offer, tcp), nil
}

// bare returns the mechanisms that hold without a room.
func bare(o Offer, tcp bool) task.Sandbox {
	var h task.Sandbox
	if o.Landlock > 0 {
		h.Write = task.ByLandlock
	}
	if tcp && o.Seccomp {
		h.Network = task.ByTCPPorts
	}
	if o.Landlock >= abiScope {
		h.Signals = task.ByLandlock
	}
	if o.Seccomp {
		h.Sockets = task.BySeccomp
	}
	// Without Landlock or a room a program reaches into others of the user by files of /proc, and
	// no system call that is refused matters.
	if o.Seccomp && o.Landlock > 0 {
		h.Calls = task.BySeccomp
	}
	return h
}

// held returns the mechanisms that hold in a room.
func (r *Room) held() task.Sandbox {
	h := bare(r.offer, false)
	h.Network, h.Read = task.ByNamespace, task.ByMounts
	if r.offer.Seccomp {
		h.Calls = task.BySeccomp
	}
	switch {
	case r.mounts && h.Write != "":
		h.Write, h.Protected = task.ByLandlock+"+"+task.ByMounts, task.ByMounts
	case r.mounts:
		h.Write, h.Protected = task.ByMounts, task.ByMounts
	}
	if r.brokered {
		h.Sockets = task.ByNamespace + "+" + task.BySeccomp
	}
	return h
}

// Explain returns a line that says why a room cannot be opened on this machine.
func Explain(err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EACCES):
		return fmt.Sprintf("user namespaces are not allowed: %v (on Ubuntu: sysctl kernel.apparmor_restrict_unprivileged_userns=0, or a profile for drover; in a container: its seccomp profile)", err)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EUSERS):
		return fmt.Sprintf("user namespaces are used up or turned off: %v (sysctl user.max_user_namespaces)", err)
	}
	return err.Error()
}
