package sandbox

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// The host and the starter of a room are one build and speak in frames over a socket pair: four
// bytes of length, and JSON. Descriptors travel with the length. The starter answers each request
// before it reads the next.

// maxFrame bounds a request: the arguments and environment that Linux accepts, as JSON.
const maxFrame = 32 << 20

// maxFiles bounds the descriptors of one frame (SCM_MAX_FD of the kernel).
const maxFiles = 253

// Operations of the starter.
const (
	opSetup  = "setup"
	opStart  = "start"
	opListen = "listen"
	opDial   = "dial"
)

type request struct {
	Op string `json:"op"`

	Setup *setup `json:"setup,omitempty"`

	Seq    uint64   `json:"seq,omitempty"` // of a start; names the child until it executes its program
	Path   string   `json:"path,omitempty"`
	Args   []string `json:"args,omitempty"`
	Env    []string `json:"env,omitempty"`
	Dir    string   `json:"dir,omitempty"`
	Sid    bool     `json:"sid,omitempty"`
	Ctty   bool     `json:"ctty,omitempty"`
	Bounds *Bounds  `json:"bounds,omitempty"`

	Port int `json:"port,omitempty"` // of listen, 0 for any, and of dial
}

// setup configures a room.
type setup struct {
	Hidden   []string  `json:"hidden"`
	Shown    []string  `json:"shown"`
	Sockets  []string  `json:"sockets"`
	Overlays []Overlay `json:"overlays"`
	Landlock int       `json:"landlock"` // the ABI to use; 0: none
	Seccomp  bool      `json:"seccomp"`
	Root     bool      `json:"root"` // programs keep the capabilities of root that do not lead out
}

type reply struct {
	PID    int  `json:"pid,omitempty"`
	Mounts bool `json:"mounts,omitempty"` // of setup: read-only files are mounts
	// Brokered, of setup, says that programs reach Unix sockets of the room and no others.
	Brokered bool     `json:"brokered,omitempty"`
	Aside    []string `json:"aside,omitempty"` // of setup: the overlays that were mounted
	Error    string   `json:"error,omitempty"`
	Errno    int      `json:"errno,omitempty"`
}

// err is the error of a reply. It wraps the number that the kernel gave, if any.
func (r reply) err() error {
	switch {
	case r.Error == "" && r.Errno == 0:
		return nil
	case r.Errno != 0 && r.Error == "":
		return syscall.Errno(r.Errno)
	case r.Errno != 0:
		return &farError{r.Error, syscall.Errno(r.Errno)}
	}
	return errors.New(r.Error)
}

// farError is an error of the starter.
type farError struct {
	text  string
	errno syscall.Errno
}

func (e *farError) Error() string { return e.text }
func (e *farError) Unwrap() error { return e.errno }

// failed makes a reply of an error.
func failed(err error) reply {
	r := reply{Error: err.Error()}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		if r.Errno = int(errno); err == error(errno) { //nolint:errorlint // the bare number needs no text
			r.Error = ""
		}
	}
	return r
}

func sendFrame(c *net.UnixConn, v any, files []int) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if len(raw) > maxFrame || len(files) > maxFiles {
		return fmt.Errorf("%d bytes and %d files are too many: %w", len(raw), len(files), syscall.E2BIG)
	}
	head := binary.LittleEndian.AppendUint32(nil, uint32(len(raw)))
	var rights []byte
	if len(files) > 0 {
		rights = unix.UnixRights(files...)
	}
	if n, _, err := c.WriteMsgUnix(head, rights, nil); err != nil {
		return err
	} else if n != len(head) {
		return io.ErrShortWrite
	}
	_, err = c.Write(raw)
	return err
}

// receiveFrame reads one frame into v. The descriptors are the caller's; they are closed on exec.
func receiveFrame(c *net.UnixConn, v any) (files []int, err error) {
	defer func() {
		if err != nil {
			closeAll(files)
			files = nil
		}
	}()
	var head [4]byte
	oob := make([]byte, unix.CmsgSpace(maxFiles*4))
	n, oobn, flags, _, err := c.ReadMsgUnix(head[:], oob)
	if err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, io.EOF
	}
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return nil, err
	}
	for _, m := range messages {
		got, err := unix.ParseUnixRights(&m)
		if err != nil {
			return files, err
		}
		files = append(files, got...)
	}
	if flags&unix.MSG_CTRUNC != 0 {
		return files, errors.New("descriptors were lost: this process may have no more (raise `ulimit -n`)")
	}
	if _, err := io.ReadFull(c, head[n:]); err != nil {
		return files, err
	}
	size := binary.LittleEndian.Uint32(head[:])
	if size > maxFrame {
		return files, fmt.Errorf("a frame of %d bytes is too long", size)
	}
	raw := make([]byte, size)
	if _, err := io.ReadFull(c, raw); err != nil {
		return files, err
	}
	return files, json.Unmarshal(raw, v)
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

// pair makes the two ends of a link, closed on exec.
func pair() (ours *net.UnixConn, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("open link to a room: %w", err)
	}
	theirs = os.NewFile(uintptr(fds[1]), "room")
	if ours, err = conn(fds[0]); err != nil {
		_ = theirs.Close()
		return nil, nil, fmt.Errorf("open link to a room: %w", err)
	}
	return ours, theirs, nil
}

// conn takes over a descriptor of a unix socket.
func conn(fd int) (*net.UnixConn, error) {
	f := os.NewFile(uintptr(fd), "room")
	defer f.Close() // FileConn has its own
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		_ = c.Close()
		return nil, errors.New("not a unix socket")
	}
	return u, nil
}
