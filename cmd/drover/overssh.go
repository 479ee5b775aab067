package main

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/drover-dev/drover/internal/api/host"
	"github.com/drover-dev/drover/internal/api/socket"
	"github.com/drover-dev/drover/internal/fleet/link"
	"github.com/drover-dev/drover/internal/fleet/overssh"
	"github.com/drover-dev/drover/internal/frontend/cli/machines"
	"github.com/drover-dev/drover/internal/platform/home"
)

// sshVariable names the command that is run instead of ssh.
const sshVariable = "DROVER_SSH"

// workOverSSH has a worker on another machine until ctx ends.
func (b hubs) workOverSSH(ctx context.Context, o machines.Worker, join link.Join) error {
	set, err := b.Settings("")
	if err != nil {
		return err
	}
	c := overssh.Config{
		SSH: home.Lookup(b.env)(sshVariable), Terminal: isTerminal(os.Stdin) || isTerminal(os.Stderr), Stderr: b.stderr,
		Worker: overssh.Settings{Name: o.Name, Labels: o.Labels, Capacity: o.Capacity, Join: join.String(),
			Away: 2 * set.Workers.Lease},
		Hub: func(ctx context.Context) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", join.Address)
		},
		Tell: func(line string) { fmt.Fprintln(os.Stdout, line) },
	}
	if c.Host, err = overssh.ParseHost(o.Via); err != nil {
		return err
	}
	if c.Binary, err = b.binary(o.Binary); err != nil {
		return err
	}
	defer c.Binary.Close()
	if c.Key, err = b.keyOf(c, join); err != nil {
		return err
	}
	first, cancel := context.WithTimeout(ctx, hubTime)
	defer cancel()
	hub, err := c.Hub(first)
	if err != nil {
		return fmt.Errorf("connect to the hub at %s, from here: %w (is it up?)", join.Address, err)
	}
	_ = hub.Close() // it was opened only to see that it can be
	return overssh.Run(ctx, c)
}

// binary is the program for the other machine: a file, or this program.
func (b hubs) binary(file string) (*overssh.Binary, error) {
	path, name := cmp.Or(file, b.exe), cmp.Or(file, "drover "+b.version)
	if !filepath.IsAbs(path) {
		path = filepath.Join(b.cwd, path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read the program for the other machine: %w", err)
	}
	bin, err := overssh.OpenBinary(f, name)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return bin, nil
}

// keyOf differs for workers of which one cannot take the place of the other, and has no secret.
func (b hubs) keyOf(c overssh.Config, join link.Join) (string, error) {
	machine, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("find the name of this machine: %w", err)
	}
	c.Worker.Join, join.Token = "", ""
	text, err := json.Marshal([]any{machine, b.root.Dir(), join, c.Worker, c.Binary.Sum})
	if err != nil {
		return "", fmt.Errorf("name the worker: %w", err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}

// bridge is the end of ssh on the machine of a worker.
func (b hubs) bridge(ctx context.Context, name string) error {
	socket, err := b.root.WorkerSocket(name, home.Lookup(b.env))
	if err != nil {
		return err
	}
	_ = syscall.SetNonblock(0, true) // so that a read of what ssh gives can be ended
	in := os.NewFile(0, "stdin")
	return overssh.Bridge(ctx, socket, func(ctx context.Context) error { return b.startDaemon(ctx, name) }, in, os.Stdout)
}

// daemonWait is how long a worker may take until it listens.
const daemonWait = 20 * time.Second

// startDaemon starts a worker that outlives this process, and returns when it listens.
func (b hubs) startDaemon(ctx context.Context, name string) error {
	said, says, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("start the worker: %w", err)
	}
	defer said.Close()
	cmd := exec.Command(b.exe, "worker", "--daemon", "--name", name)
	// What ssh says of its connection is not true for long, and has bash read files of the user at each command.
	cmd.Env = slices.DeleteFunc(host.HostEnv(b.env), func(kv string) bool { return strings.HasPrefix(kv, "SSH_") })
	cmd.ExtraFiles = []*os.File{says}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // stdin, stdout and stderr are /dev/null
	err = cmd.Start()
	_ = says.Close()
	if err != nil {
		return fmt.Errorf("start the worker: %w", err)
	}
	_ = cmd.Process.Release() // it outlives this process, and init reaps it
	if err := said.SetReadDeadline(time.Now().Add(daemonWait)); err != nil {
		return fmt.Errorf("start the worker: %w", err)
	}
	defer context.AfterFunc(ctx, func() { _ = said.SetReadDeadline(time.Unix(1, 0)) })()
	line, err := bufio.NewReader(io.LimitReader(said, maxLine)).ReadString('\n')
	switch {
	case line == host.Ready:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case line == "":
		return fmt.Errorf("start the worker: it did not say that it listens: %w", err)
	}
	return errors.New("start the worker: " + line)
}

// starterPipe is the descriptor on which a daemon reports to its starter that it listens, or its error.
const starterPipe = 3

// workDetached is a worker that gets its connections over ssh.
func (b hubs) workDetached(ctx context.Context, name string) error {
	syscall.CloseOnExec(starterPipe)
	starter := os.NewFile(starterPipe, "starter")
	l, release, err := b.listenAs(name)
	if err != nil {
		fmt.Fprintln(starter, err)
		return errors.Join(err, starter.Close())
	}
	defer release()
	if _, err := io.WriteString(starter, host.Ready); err != nil {
		return errors.Join(fmt.Errorf("tell that the worker listens: %w (`drover worker --stdio` starts this)", err),
			l.Close())
	}
	_ = starter.Close()
	d := overssh.NewDaemon()
	b.stderr = d
	return d.Serve(ctx, l, func(ctx context.Context, s overssh.Settings) error {
		join, err := link.ParseJoin(s.Join)
		if err != nil {
			return err
		}
		o := machines.Worker{Name: s.Name, Labels: s.Labels, Capacity: s.Capacity}
		if err := checkWorker(o); err != nil {
			return err
		}
		return b.work(ctx, o, link.Options{Join: join, Dial: d.Dial}, func(l *link.Link) error {
			d.Ready(l.Redial)
			return nil
		})
	})
}

// listenAs opens the socket of a worker. Only one process can be a worker.
func (b hubs) listenAs(name string) (l net.Listener, release func(), err error) {
	if err := b.root.Ensure(); err != nil {
		return nil, nil, err
	}
	path, err := b.root.WorkerSocket(name, home.Lookup(b.env))
	if err != nil {
		return nil, nil, err
	}
	unlock, err := b.root.LockWorker(name)
	if err != nil {
		return nil, nil, fmt.Errorf("worker %s is starting or ending (try again): %w", name, err)
	}
	kept, err := overssh.Keep(b.exe)
	if err != nil {
		unlock()
		return nil, nil, err
	}
	release = func() { kept(); unlock() }
	if l, err = socket.Listen(path); err != nil {
		release()
		return nil, nil, err
	}
	return l, release, nil
}
