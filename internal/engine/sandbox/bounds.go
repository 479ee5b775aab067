package sandbox

import (
	"errors"
	"slices"
	"syscall"
)

// Forker starts programs within bounds. See [process.Command].
type Forker func(path string, args []string, attr *syscall.ProcAttr) (pid, pidfd int, err error)

// Bounds limits a program. All paths are absolute; paths that do not exist are ignored.
type Bounds struct {
	// Write are folders with all below, and files, to which it may write. One with a symlink in
	// its path is left out: programs that started before could have made that.
	Write []string `json:"write"`
	Fixed []string `json:"fixed"` // files and folders below Write that it may only read
	// Open are those that are Fixed for others of the room, and not for this program. They are open for
	// the others too until the next one starts.
	Open []string `json:"open,omitempty"`
	// Denied are files and folders that no program of the room reads from now on. A file cannot be opened, and
	// a folder is empty. Those that do not exist yet are hidden from the programs that start after them.
	Denied []string `json:"denied,omitempty"`
	// Network is false for a program that has no business with the network of the machine.
	Network bool `json:"network"`
	// Ports are TCP ports to which it may connect where only ports can be bounded.
	Ports []uint16 `json:"ports,omitempty"`
}

// ErrUnsupported is returned where the system has no mechanism of this package.
var ErrUnsupported = errors.New("this system has no sandbox that Drover can use")

// RoomConfig configures a room.
type RoomConfig struct {
	Starter []string // starts this program so that it calls [RunStarter]
	Env     []string // of the starter, with the marks of its host
	Hidden  []string // files and folders that cannot be read inside; absolute
	Shown   []string // folders below Hidden that can
	Reached []string // Unix sockets outside that programs may reach
	// Overlays are folders whose changes go aside where the kernel can do that; see [Room.Aside].
	Overlays []Overlay
	Offer    Offer // the mechanisms to use; see [Probe]
}

// Overlay is a folder of which programs see the content, and change it only for themselves. All paths are absolute and
// without symlinks.
type Overlay struct {
	Path  string `json:"path"`
	Upper string `json:"upper"` // has the changes
	Work  string `json:"work"`  // of the kernel; an empty folder beside it
}

// Offer has the mechanisms of the kernel of this machine.
type Offer struct {
	Landlock int   `json:"landlock"` // its ABI; 0: none
	Seccomp  bool  `json:"seccomp"`
	Room     error `json:"-"` // why namespaces cannot be used; nil: they can
}

// Mask removes parts of an offer, for tests and for `drover doctor sandbox`.
func (o Offer) Mask(abi int, rooms bool) Offer {
	o.Landlock = min(o.Landlock, abi)
	if !rooms && o.Room == nil {
		o.Room = errors.New("left out")
	}
	return o
}

func clone(b Bounds) Bounds {
	b.Write, b.Fixed, b.Ports = slices.Clone(b.Write), slices.Clone(b.Fixed), slices.Clone(b.Ports)
	b.Open, b.Denied = slices.Clone(b.Open), slices.Clone(b.Denied)
	return b
}

// Lost returns a forker that calls f when the room of another one is gone.
func Lost(fork Forker, f func()) Forker {
	return func(path string, args []string, attr *syscall.ProcAttr) (int, int, error) {
		pid, fd, err := fork(path, args, attr)
		if errors.Is(err, ErrClosed) {
			f()
		}
		return pid, fd, err
	}
}
