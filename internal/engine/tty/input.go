package tty

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/drover-dev/drover/internal/platform/saferoot"
)

// MaxTyped is the largest number of bytes that may be typed at once: one line of a
// terminal.
const MaxTyped = 4096

// typeWait bounds how long typing waits for a command that does not read.
const typeWait = 5 * time.Second

// ErrGone is returned when the process that holds the terminal has ended.
var ErrGone = errors.New("the terminal is gone")

// InputWriter types into a terminal through its pipe. It may be used by several
// goroutines; their texts are not mixed.
type InputWriter struct {
	f  *os.File
	mu sync.Mutex // held while typing
}

// CreateInput makes the pipe, which only this user may open. The pipe is for the
// process of [Run]; the caller closes both ends. A file that exists at the
// path stays, and is an error.
func CreateInput(path string) (pipe *os.File, input *InputWriter, err error) {
	if err := mkfifo(path); err != nil {
		return nil, nil, fmt.Errorf("make the pipe %s for typing: %w", path, err)
	}
	// A reader that can also write never meets the end of the pipe.
	if pipe, err = openPipe(path, unix.O_RDWR); err == nil {
		if input, err = OpenInput(path); err == nil {
			return pipe, input, nil
		}
		_ = pipe.Close()
	}
	return nil, nil, errors.Join(err, saferoot.Near(path).Remove(path))
}

func mkfifo(path string) error {
	dir, err := saferoot.Near(path).Folder(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Mkfifo(filepath.Base(path))
}

// OpenInput opens an existing pipe. It returns [ErrGone] without a reader.
func OpenInput(path string) (*InputWriter, error) {
	f, err := openPipe(path, unix.O_WRONLY)
	switch {
	case errors.Is(err, unix.ENXIO), errors.Is(err, unix.ENOENT):
		return nil, ErrGone
	case err != nil:
		return nil, err
	}
	return &InputWriter{f: f}, nil
}

func openPipe(path string, how int) (*os.File, error) {
	fd, err := saferoot.Near(path).FD(path, how|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open the pipe %s for typing: %w", path, err)
	}
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	if err == nil && (st.Mode&unix.S_IFMT != unix.S_IFIFO || int(st.Uid) != os.Geteuid() || st.Mode&0o077 != 0) {
		err = errors.New("it is no pipe of ours")
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the pipe %s for typing: %w", path, err), unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), path), nil
}

// Type types at most [MaxTyped] bytes. It returns when they are on their way, or
// after 5 s during which the command read nothing.
func (p *InputWriter) Type(ctx context.Context, b []byte) error {
	if len(b) > MaxTyped {
		return tooMuch(b)
	}
	_, err := typing(ctx, &p.mu, p.f, b, typeWait)
	return err
}

func tooMuch(b []byte) error {
	return fmt.Errorf("type %d bytes: a terminal takes at most %d at once", len(b), MaxTyped)
}

// errUnread says that the command has read nothing for too long.
var errUnread = errors.New("type: the command has not read what was typed before")

// typing says how much was typed, too.
func typing(ctx context.Context, mu *sync.Mutex, f *os.File, b []byte, patience time.Duration) (int, error) {
	mu.Lock()
	defer mu.Unlock()
	if err := f.SetWriteDeadline(time.Now().Add(patience)); err != nil {
		return 0, fmt.Errorf("type: %w", err)
	}
	cut := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(cut)
		_ = f.SetWriteDeadline(time.Unix(1, 0))
	})
	n, err := f.Write(b)
	if !stop() {
		<-cut // or the deadline would hit the next call
	}
	switch {
	case ctx.Err() != nil && err != nil:
		return n, context.Cause(ctx)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return n, errUnread
	case errors.Is(err, unix.EPIPE), errors.Is(err, unix.EIO), errors.Is(err, os.ErrClosed):
		return n, fmt.Errorf("type: %w", ErrGone)
	case err != nil:
		return n, fmt.Errorf("type: %w", err)
	}
	return n, nil
}

// Gone returns nil when the process at the other end is gone, else the cause of
// ctx. One goroutine at a time may wait.
func (p *InputWriter) Gone(ctx context.Context) error {
	conn, err := p.f.SyscallConn()
	if err == nil {
		err = p.f.SetReadDeadline(time.Time{})
	}
	if err != nil {
		return fmt.Errorf("watch a terminal: %w", err)
	}
	defer context.AfterFunc(ctx, func() { _ = p.f.SetReadDeadline(time.Unix(1, 0)) })()
	// Nothing can be read from this end; it wakes a reader when the other goes.
	err = conn.Read(alone)
	gone := err == nil
	if !gone { // the end of a full pipe is an error to the poller
		_ = conn.Control(func(fd uintptr) { gone = alone(fd) })
	}
	switch {
	case gone:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return fmt.Errorf("watch a terminal: %w", err)
}

func alone(fd uintptr) bool {
	p := []unix.PollFd{{Fd: int32(fd)}}
	for {
		_, err := unix.Poll(p, 0)
		if !errors.Is(err, unix.EINTR) {
			return p[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0
		}
	}
}

// Close gives the pipe back.
func (p *InputWriter) Close() { _ = p.f.Close() }

// Master types into a terminal whose master this process holds.
type Master struct {
	F  *os.File
	mu sync.Mutex

	patience time.Duration // 0: typeWait
}

// Type is [InputWriter.Type].
func (m *Master) Type(ctx context.Context, b []byte) error {
	if len(b) > MaxTyped {
		return tooMuch(b)
	}
	_, err := typing(ctx, &m.mu, m.F, b, cmp.Or(m.patience, typeWait))
	return err
}

// Feed types all of what somebody pipes in. A command that reads nothing holds it
// up until ctx ends, as a pipe would; what others type may come in between.
func (m *Master) Feed(ctx context.Context, b []byte) error {
	for {
		n, err := typing(ctx, &m.mu, m.F, b, cmp.Or(m.patience, typeWait))
		if b = b[n:]; !errors.Is(err, errUnread) {
			return err
		}
	}
}
