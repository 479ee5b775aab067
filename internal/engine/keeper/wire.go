package keeper

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
	"time"

	"github.com/drover-dev/drover/internal/engine/process"
)

// The protocol is one line of JSON per message, from the host to the keeper only. The keeper
// sends nothing; its process is the sign of life. A newer host may meet an older keeper, which
// ignores unknown words and fields, so the existing ones must keep their meaning.
const version = 1

// Names of environment variables, and the words of the messages.
const (
	envLink = "DROVER_KEEPER_FD"

	opHello  = "hello"
	opExpect = "expect"
	opWatch  = "watch"
	opForget = "forget"
	opPulse  = "pulse"
	opBye    = "bye"
)

// maxLine limits the length of a message.
const maxLine = 64 << 10

type message struct {
	Op      string            `json:"op"`
	Version int               `json:"v,omitempty"`
	Session string            `json:"session,omitempty"`
	Host    *process.Identity `json:"host,omitempty"`
	Watch   *watch            `json:"watch,omitempty"`
	PID     int               `json:"pid,omitempty"`
	Start   uint64            `json:"start,omitempty"`     // of the process; missing from an older host
	Within  time.Duration     `json:"within_ns,omitempty"` // of a pulse
}

// watch describes one task's group to a keeper.
type watch struct {
	Process  process.Identity `json:"process"` // leader of the group; not set in "expect" and in "forget"
	Task     string           `json:"task"`
	Keep     bool             `json:"keep,omitempty"`
	ExitFile string           `json:"exit_file,omitempty"` // absolute; for kept tasks
}

func encode(m message) ([]byte, error) {
	b, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode message to keeper: %w", err)
	}
	if len(b) >= maxLine {
		return nil, fmt.Errorf("encode message to keeper: %d bytes are too many", len(b))
	}
	return append(b, '\n'), nil
}

// decode passes each message of r to do, until r ends. It ignores an invalid line: losing one
// message is better than losing all that follow.
func decode(r io.Reader, do func(message)) {
	in := bufio.NewScanner(r)
	in.Buffer(make([]byte, 0, 4096), maxLine)
	for in.Scan() {
		var m message
		if json.Unmarshal(in.Bytes(), &m) == nil {
			do(m)
		}
	}
}

// pair creates the two ends of a link with close-on-exec set.
func pair() (ours, theirs *os.File, err error) {
	syscall.ForkLock.RLock()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err == nil {
		unix.CloseOnExec(fds[0])
		unix.CloseOnExec(fds[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, nil, fmt.Errorf("open link to keeper: %w", err)
	}
	// The poller serves our end; the other end stays blocking until its process decides.
	if err := unix.SetNonblock(fds[0], true); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("open link to keeper: %w", err), unix.Close(fds[0]), unix.Close(fds[1]))
	}
	return os.NewFile(uintptr(fds[0]), "keeper link"), os.NewFile(uintptr(fds[1]), "keeper link"), nil
}

// linkFD is the descriptor of the link in a process that was started with one.
const linkFD = 3

// inherited returns the link that this process was started with, or nil. It removes it from the
// environment, so that no child believes it has one.
func inherited() (*os.File, error) {
	switch v := os.Getenv(envLink); v {
	case "":
		return nil, nil
	case "3":
	default:
		return nil, fmt.Errorf("take link to keeper: %s is %.20q", envLink, v)
	}
	if err := os.Unsetenv(envLink); err != nil {
		return nil, fmt.Errorf("take link to keeper: %w", err)
	}
	unix.CloseOnExec(linkFD)
	if err := unix.SetNonblock(linkFD, true); err != nil {
		return nil, fmt.Errorf("take link to keeper: %w", err)
	}
	return os.NewFile(linkFD, "keeper link"), nil
}

// withLink returns env without the marks and links of others, and with this link. A host that
// was started inside a task must not be ended with that task, and the mark of a keeper belongs
// to that keeper only.
func withLink(env []string) []string {
	out := make([]string, 0, len(env)+1)
	for _, kv := range env {
		key, _, _ := strings.Cut(kv, "=")
		switch key {
		case envLink, process.MarkTask, process.MarkSession, process.MarkHost, process.MarkKeeper:
		default:
			out = append(out, kv)
		}
	}
	return append(out, envLink+"=3")
}
