package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/drover-dev/drover/internal/assemble"
	"github.com/drover-dev/drover/internal/fleet/fleetwire"
	"github.com/drover-dev/drover/internal/fleet/link"
	"github.com/drover-dev/drover/internal/fleet/members"
	"github.com/drover-dev/drover/internal/fleet/placement"
	"github.com/drover-dev/drover/internal/fleet/worker"
	"github.com/drover-dev/drover/internal/frontend/cli/console"
	"github.com/drover-dev/drover/internal/frontend/cli/machines"
	"github.com/drover-dev/drover/internal/platform/buildinfo"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/session"
	"github.com/drover-dev/drover/internal/tool/shelltool"
)

// hubTime limits what is asked of a hub by a command line.
const hubTime = 10 * time.Second

// hubProgram is the program of the hub, which has the server of NATS.
const hubProgram = "drover-hub"

// ServeHub makes this process the user's hub, which is a program of its own.
func (b hubs) ServeHub(o machines.Hub) error {
	path := buildinfo.Companion(b.exe, hubProgram)
	if path == "" {
		var err error
		if path, err = exec.LookPath(hubProgram); err != nil {
			return fmt.Errorf("start the hub: the program %s is neither beside %s nor on the PATH "+
				"(get it by `go install github.com/drover-dev/drover/cmd/%s@%s`)", hubProgram, b.exe, hubProgram, hubVersion())
		}
	}
	args := []string{hubProgram, "--of", cmp.Or(buildinfo.ID(), b.version), "--listen", o.Listen, "--address", o.Address}
	if err := syscall.Exec(path, args, b.env); err != nil {
		return fmt.Errorf("start the hub: %s: %w", path, err)
	}
	return nil
}

// hubVersion is by which `go install` gets the program of the hub.
func hubVersion() string {
	if v := buildinfo.Version(); !strings.Contains(v, "-dev") {
		return "v" + strings.TrimPrefix(v, "v")
	}
	return "latest"
}

// logger writes warnings to stderr.
func (b hubs) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(b.stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// Invite makes a line by which others join the user's hub.
func (b hubs) Invite(ctx context.Context, o machines.Invitation) (string, error) {
	role := link.RoleWorker
	if o.Session {
		role = link.RoleSession
	}
	ctx, cancel := context.WithTimeout(ctx, hubTime)
	defer cancel()
	j, err := members.Invite(ctx, b.root, members.Dir(b.root), o.Project, role, o.Address)
	if err != nil {
		return "", err
	}
	return j.String(), nil
}

// atHub connects to the hub that sessions of the folder use.
func (b *folder) atHub(ctx context.Context, do func(context.Context, *link.Link, link.Options) error) error {
	set, err := b.Settings("")
	if err != nil {
		return err
	}
	o, err := assemble.Hub(b.root, set.Workers, fmt.Sprintf("cli-%d", os.Getpid()))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, hubTime)
	defer cancel()
	l, err := link.Open(ctx, o)
	if err != nil {
		return err
	}
	defer l.Close()
	return do(ctx, l, o)
}

// HubStatus is how the hub is.
func (b hubs) HubStatus(ctx context.Context) (s machines.HubStatus, err error) {
	err = b.atHub(ctx, func(ctx context.Context, l *link.Link, o link.Options) (err error) {
		s = machines.HubStatus{
			Address: l.Conn.ConnectedAddr(),
			Project: o.Join.Project,
			TLS:     o.Join.Pin != "",
			Server:  l.Conn.ConnectedServerVersion(),
		}
		if why := l.Problem(ctx); why != "" { // the rest may be missing because of it
			s.Problems = append(s.Problems, why)
			defer func() { err = nil }()
		}
		for name, n := range map[string]*uint64{fleetwire.Offers: &s.Waiting, fleetwire.Events: &s.Untaken,
			fleetwire.Commands: nil} {
			stream, err := l.JS.Stream(ctx, name)
			if errors.Is(err, jetstream.ErrStreamNotFound) {
				s.Problems = append(s.Problems, "the stream "+name+" is missing: the next session makes it")
				continue
			}
			if err != nil {
				return fmt.Errorf("look at hub: %w", err)
			}
			state := stream.CachedInfo().State
			if s.Bytes += state.Bytes; n != nil {
				*n = state.Msgs
			}
		}
		all, err := placement.List(ctx, l.JS)
		s.Workers = len(all)
		return err
	})
	return s, err
}

// Workers are those that the hub knows.
func (b *folder) Workers(ctx context.Context) (all []fleetwire.Worker, err error) {
	err = b.atHub(ctx, func(ctx context.Context, l *link.Link, _ link.Options) (err error) {
		all, err = placement.List(ctx, l.JS)
		return err
	})
	return all, err
}

// Drain makes a worker take nothing new.
func (b hubs) Drain(ctx context.Context, name string) error {
	return b.atHub(ctx, func(ctx context.Context, l *link.Link, _ link.Options) error {
		all, err := placement.List(ctx, l.JS)
		if err != nil {
			return err
		}
		known := false
		for _, w := range all {
			known = known || w.Name == name
		}
		if !known {
			return console.Missing(fmt.Sprintf("there is no worker %.80q", name), "`drover workers` lists them")
		}
		msg, err := fleetwire.Encode(fleetwire.Command{Kind: fleetwire.Drain}, nil)
		if err != nil {
			return err
		}
		return l.Publish(ctx, fleetwire.CommandTo(name, "-", "-"), "", msg)
	})
}

// Work takes tasks of sessions elsewhere until ctx ends, here or over ssh.
func (b hubs) Work(ctx context.Context, o machines.Worker) error {
	if err := checkWorker(o); err != nil {
		return err
	}
	switch {
	case o.Stdio:
		return b.bridge(ctx, o.Name)
	case o.Daemon:
		return b.workDetached(ctx, o.Name)
	}
	to, err := b.hubOf(ctx, o)
	if err != nil {
		return err
	}
	if o.Via != "" {
		return b.workOverSSH(ctx, o, to.Join)
	}
	return b.work(ctx, o, to, func(l *link.Link) error {
		_, err := fmt.Fprintf(os.Stdout, "worker %s takes tasks of %s\n", o.Name, l.Conn.ConnectedAddr())
		return err
	})
}

func checkWorker(o machines.Worker) error {
	if err := fleetwire.CheckName("worker", o.Name); err != nil {
		return console.Usage(err.Error(), "name it with --name")
	}
	for _, l := range o.Labels {
		if err := fleetwire.CheckName("label", l); err != nil {
			return console.Usage(err.Error(), "")
		}
	}
	return nil
}

// work is a worker in this process until ctx ends. It joins as to says, and calls ready when it takes tasks.
func (b hubs) work(ctx context.Context, o machines.Worker, to link.Options, ready func(*link.Link) error) (err error) {
	to.Role, to.Name, to.Log = link.RoleWorker, o.Name, b.logger()
	if err := b.root.Ensure(); err != nil {
		return err
	}
	if to.Seed, err = link.ReadKey(b.root.WorkerKey(o.Name)); err != nil {
		return err
	}
	set, err := b.Settings("")
	if err != nil {
		return err
	}
	cfg := b.opening(session.RoleRun, "worker "+o.Name, set)
	cfg.Keeper, cfg.AskWait = b.helper(), set.Permissions.AskTimeout
	s, err := assemble.Open(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	s.Serve()
	first, cancel := context.WithTimeout(ctx, hubTime)
	defer cancel()
	l, err := link.Open(first, to)
	if err != nil {
		return err
	}
	defer l.Close()
	project := to.Join.Project
	if to.Cluster != "" {
		project = clusterProject
		if err := l.Ensure(first); err != nil {
			return fmt.Errorf("make the streams of Drover in cluster %s: %w (use credentials that may create streams)",
				to.Cluster, err)
		}
	}
	w := worker.New(
		worker.Config{Name: o.Name, Labels: o.Labels, Capacity: o.Capacity, Version: b.version, Link: l, API: s,
			Pulse: func(within time.Duration) {
				if s.Keeper != nil {
					_ = s.Keeper.Pulse(within) // the session reports a keeper that has ended
				}
			},
			Home: b.root, Project: project, Dir: b.cwd, Env: b.env, Log: b.logger(),
			Tools: assemble.WorkspaceTools, Bounded: s.Bounded, Admit: s.Admit,
			NewCwdFile: func() (worker.CwdFile, error) { return shelltool.NewCwdFile(s.Place.Scratch()) }},
	)
	if err := ready(l); err != nil {
		return err
	}
	return w.Serve(ctx)
}

// maxLine limits the file of a join line, in bytes.
const maxLine = 4 << 10

// clusterProject is the project of tasks that come over a cluster, where the account of the credentials parts them.
const clusterProject = "cluster"

// hubOf is the hub or the cluster that a worker joins. Without any it is that of the settings if that is a cluster, and
// else the user's own.
func (b hubs) hubOf(ctx context.Context, o machines.Worker) (link.Options, error) {
	set, err := b.Settings("")
	if err != nil {
		return link.Options{}, err
	}
	url, creds := o.Join, o.Creds
	if url == "" && link.IsCluster(set.Workers.Hub) {
		url = set.Workers.Hub
	}
	if !link.IsCluster(url) {
		if creds != "" {
			return link.Options{}, console.Usage("--credentials is for a NATS cluster", "name it by --hub nats://HOST:PORT")
		}
		join, err := b.joinOf(ctx, o.Join)
		return link.Options{Join: join}, err
	}
	if o.Via != "" {
		return link.Options{}, console.Usage("--via needs a hub, not a NATS cluster",
			"run the worker on that machine, with --hub and --credentials")
	}
	if creds == "" {
		creds = set.Workers.Creds
	}
	if creds != "" && !filepath.IsAbs(creds) {
		creds = filepath.Join(b.cwd, creds)
	}
	return link.Options{Cluster: url, Creds: creds}, nil
}

// joinOf is how a worker joins: by a line, by a file that has one, or the user's own hub.
func (b hubs) joinOf(ctx context.Context, given string) (link.Join, error) {
	switch {
	case given == "":
		line, err := b.Invite(ctx, machines.Invitation{Project: members.DefaultProject})
		if err != nil {
			return link.Join{}, err
		}
		return link.ParseJoin(line)
	case strings.Contains(given, "://"):
		return link.ParseJoin(given)
	}
	if !filepath.IsAbs(given) {
		given = filepath.Join(b.cwd, given)
	}
	text, err := home.ReadFile(given, maxLine)
	if err != nil {
		return link.Join{}, fmt.Errorf("read the join line: %w", err)
	}
	return link.ParseJoin(string(text))
}
