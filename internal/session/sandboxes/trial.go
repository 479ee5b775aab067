package sandboxes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/drover-dev/drover/internal/engine/process"
	"github.com/drover-dev/drover/internal/engine/sandbox"
	"github.com/drover-dev/drover/task"
)

// Check is one bound that was tried.
type Check struct {
	Bound string `json:"bound"` // as in [task.Sandbox], or "run" for what must work inside
	By    string `json:"by,omitempty"`
	Holds bool   `json:"holds"`
	Text  string `json:"text"` // the attempt and its outcome
}

// tryWait bounds one command of a trial.
const tryWait = 20 * time.Second

// Try starts commands in a sandbox that try to leave it, as [Sandboxes.Command] starts the commands of
// models. They touch only files in a new folder below parent, which commands cannot write, and a
// listener of this process. An error is a sandbox that cannot be tried.
func Try(ctx context.Context, c Config, parent string) (_ []Check, err error) {
	dir, err := os.MkdirTemp(parent, "sandbox-trial-")
	if err != nil {
		return nil, fmt.Errorf("try the sandbox: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return nil, fmt.Errorf("try the sandbox: %w", err)
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	t := trial{ctx: ctx, work: at("work"), outside: at("outside"), secret: at("secret")}
	protected := filepath.Join(t.work, ".git", "hooks")
	for _, d := range []string{protected, t.outside, t.secret} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, fmt.Errorf("try the sandbox: %w", err)
		}
	}
	key := filepath.Join(t.secret, "key")
	if err := os.WriteFile(key, []byte("secret"), 0o600); err != nil {
		return nil, fmt.Errorf("try the sandbox: %w", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("try the sandbox: %w", err)
	}
	defer l.Close()
	bystander := exec.Command("sleep", "60")
	if err := bystander.Start(); err != nil {
		return nil, fmt.Errorf("try the sandbox: %w", err)
	}
	defer func() {
		_ = bystander.Process.Kill()
		_ = bystander.Wait()
	}()

	c.Mode, c.Report = Best, nil
	c.Hidden = append(c.Hidden, parent, t.secret)
	c.Shown = append(c.Shown, dir)
	box := New(c)
	defer box.Close()
	start, err := box.Command(Wish{Folders: []string{t.work}, Mode: Best})
	if err != nil {
		return nil, err
	}
	t.fork = start.Fork
	held := *start.Held
	port := l.Addr().(*net.TCPAddr).Port //nolint:forcetypeassert // of a TCP listener
	t.must("a command runs, and writes in its folder", "echo x > file && cat file && echo y > /dev/null && mktemp > /dev/null")
	t.must("a command reads what is no secret", "test -r /etc/passwd && ls / > /dev/null")
	t.not("write", held.Write, "write a file beside the folder", fmt.Sprintf("echo x > %s/file", t.outside))
	t.not("protected", held.Protected, "make a hook of the repository", "echo x > .git/hooks/pre-commit")
	t.not("read", held.Read, "read a secret", "cat "+key)
	t.not("network", held.Network, "connect to a port of this machine", fmt.Sprintf("exec 3<>/dev/tcp/127.0.0.1/%d", port))
	if _, err := exec.LookPath("perl"); err == nil {
		s, err := net.Listen("unix", at("socket"))
		if err != nil {
			return nil, fmt.Errorf("try the sandbox: %w", err)
		}
		defer s.Close()
		t.not("sockets", held.Sockets, "connect to a Unix socket outside", fmt.Sprintf(
			`perl -MSocket -e 'socket(S, AF_UNIX, SOCK_STREAM, 0) && connect(S, pack_sockaddr_un("%s")) || die $!'`, at("socket")))
	} else {
		t.checks = append(t.checks, Check{Bound: "sockets", By: held.Sockets, Holds: held.Sockets != "",
			Text: "not tried: perl is not here"})
	}
	t.not("signals", held.Signals, "end a process outside", fmt.Sprintf("kill -0 %d", bystander.Process.Pid))
	t.not("calls", held.Calls, "make a user namespace", "unshare --user true")
	if why := box.why; why != nil {
		t.checks = append(t.checks, Check{Bound: "namespaces", Text: "not here: " + sandbox.Explain(why)})
	}
	return t.checks, nil
}

type trial struct {
	ctx                   context.Context
	work, outside, secret string
	fork                  sandbox.Forker
	checks                []Check
}

func (t *trial) must(what, line string) {
	ok, out := t.run(line)
	c := Check{Bound: "run", Holds: ok, Text: what}
	if !ok {
		c.Text += ": it failed: " + out
	}
	t.checks = append(t.checks, c)
}

func (t *trial) not(bound, by, what, line string) {
	ok, out := t.run(line)
	c := Check{Bound: bound, By: by, Holds: !ok && by != "" && by != task.ByTCPPorts, Text: what + ": refused"}
	switch {
	case ok:
		c.Text = what + ": it could"
	case by == "":
		c.Text = what + ": it could not, for another reason than the sandbox: " + out
	}
	t.checks = append(t.checks, c)
}

// run runs a line, and returns whether it succeeded and the last that it printed.
func (t *trial) run(line string) (ok bool, last string) {
	r, w, err := os.Pipe()
	if err != nil {
		return false, err.Error()
	}
	defer r.Close()
	g, err := process.StartGroup(process.Command{
		Args: []string{"bash", "-c", line}, Dir: t.work, Env: os.Environ(), Stdout: w, Stderr: w, Fork: t.fork,
	})
	_ = w.Close()
	if err != nil {
		return false, err.Error()
	}
	defer g.Close()
	ctx, done := context.WithTimeoutCause(t.ctx, tryWait, errors.New("it did not end in time"))
	defer done()
	exit, err := g.Wait(ctx)
	if err != nil || exit.Code != 0 {
		g.End(context.WithoutCancel(ctx), process.Ending{})
	}
	g.Reap()
	if err != nil {
		return false, err.Error()
	}
	_ = r.SetReadDeadline(time.Now().Add(time.Second)) // somebody may hold the other end
	out, _ := io.ReadAll(io.LimitReader(r, 64<<10))
	lines := strings.Split(string(bytes.TrimSpace(out)), "\n")
	return exit.Code == 0 && exit.Signal == 0, lines[len(lines)-1]
}
