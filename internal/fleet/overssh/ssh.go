package overssh

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/drover-dev/drover/internal/platform/excerpt"
)

// pipe is a running ssh. It is written to as stdin and read from as stdout of the command there.
type pipe struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	once sync.Once
	err  error // of its end; after once
}

// endWait is how long ssh may take to end when it is not needed any more.
const endWait = 2 * time.Second

// arguments returns the arguments of ssh. The command line wins over the configuration of the user, of which only
// what concerns the way to the host is to count.
func arguments(h Host, terminal bool) []string {
	args := []string{"-T", "-a", "-x",
		"-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3", "-o", "ConnectTimeout=20",
		"-o", "ClearAllForwardings=yes", "-o", "ControlMaster=no", "-o", "RemoteCommand=none"}
	if !terminal {
		args = append(args, "-o", "BatchMode=yes")
	}
	if h.User != "" {
		args = append(args, "-l", h.User)
	}
	if h.Port != "" {
		args = append(args, "-p", h.Port)
	}
	return append(args, "--", h.Name, "exec sh -c '"+script+"'")
}

// start starts ssh. A shell starts it so that program may be a command with options, and so that it does not end by the
// Ctrl-C or the hang-up that ends this program: the worker gets its order to end first.
func start(program string, h Host, terminal bool, stderr io.Writer) (*pipe, error) {
	if program == "" {
		program = "ssh"
		if _, err := exec.LookPath(program); err != nil {
			return nil, fmt.Errorf("start ssh: %w (install OpenSSH, or name another program in DROVER_SSH)", err)
		}
	}
	cmd := exec.Command("sh", append([]string{"-c", `trap "" INT HUP; exec ` + program + ` "$@"`, "ssh"},
		arguments(h, terminal)...)...)
	cmd.Stderr, cmd.WaitDelay = stderr, endWait
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start ssh: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start ssh: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start ssh: %w", err)
	}
	return &pipe{cmd: cmd, in: in, out: bufio.NewReader(out)}, nil
}

func (p *pipe) Read(b []byte) (int, error)  { return p.out.Read(b) }
func (p *pipe) Write(b []byte) (int, error) { return p.in.Write(b) }

// Close ends ssh and waits for it.
func (p *pipe) Close() error {
	p.once.Do(func() {
		_ = p.in.Close() // then it ends by itself, if the connection is alive
		late := time.AfterFunc(endWait, func() { _ = p.cmd.Process.Kill() })
		defer late.Stop()
		p.err = p.cmd.Wait()
	})
	return p.err
}

// ended says how ssh ended, for people, once it has.
func (p *pipe) ended(h Host) error {
	err := p.Close()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return fmt.Errorf("%s has ended the connection", h)
	case !errors.As(err, &exit):
		return fmt.Errorf("run ssh: %w", err)
	case exit.ExitCode() == 255:
		return fmt.Errorf("ssh cannot connect to %s (what it says is above; `ssh %s true` must work)", h, h.words())
	case exit.ExitCode() == 127:
		return fmt.Errorf("ssh or the shell of %s has not found a program (what they say is above)", h)
	}
	return fmt.Errorf("the command at %s has ended: %w (what it says is above)", h, exit)
}

// words are those for ssh on a command line.
func (h Host) words() string {
	words := h.Name
	if h.User != "" {
		words = h.User + "@" + words
	}
	if h.Port != "" {
		words = "-p " + h.Port + " " + words
	}
	return words
}

// relay passes the output of ssh on to the user, line by line, without the lines of the last attempt.
type relay struct {
	to      io.Writer
	mu      sync.Mutex
	before  map[string]bool // guarded by mu, as all that follows
	now     map[string]bool
	partial []byte
}

// maxSaid limits the lines that are remembered.
const maxSaid = 50

// Write implements io.Writer.
func (r *relay) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.partial = append(r.partial, b...)
	for {
		line, rest, ok := strings.Cut(string(r.partial), "\n")
		if !ok && len(r.partial) < maxLine {
			return len(b), nil
		}
		r.partial = []byte(rest)
		r.tell(line)
	}
}

// tell tells a line, unless it is known. The caller holds mu.
func (r *relay) tell(line string) {
	line = excerpt.Line(strings.TrimRight(line, "\r\n"), 1000)
	if line == "" {
		return
	}
	if !r.before[line] && !r.now[line] {
		fmt.Fprintln(r.to, line)
	}
	if len(r.now) < maxSaid {
		r.now[line] = true
	}
}

// again begins an attempt.
func (r *relay) again() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.partial) > 0 {
		r.tell(string(r.partial))
	}
	r.before, r.now, r.partial = r.now, map[string]bool{}, nil
}

var _ io.ReadWriteCloser = (*pipe)(nil)
