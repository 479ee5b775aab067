package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/assemble"
	"github.com/drover-dev/drover/internal/assemble/demo"
	"github.com/drover-dev/drover/internal/frontend/mcpserver"
	"github.com/drover-dev/drover/internal/frontend/remoteserver"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/session"
	"github.com/drover-dev/drover/task"
)

// ServeMCP serves tasks to one MCP client on stdin and stdout.
func (b *backend) ServeMCP(ctx context.Context) error {
	d := b.directory()
	connect := func(ctx context.Context) (control.API, func(), error) { return d.Background(ctx) }
	return mcpserver.Serve(ctx, mcpserver.Config{Connect: connect, Cwd: b.cwd, Env: b.env, Version: b.version},
		&mcp.StdioTransport{})
}

// Demo gives the tour.
func (b *backend) Demo(ctx context.Context, out io.Writer, colour bool, width int) error {
	return demo.Run(ctx, demo.Config{Out: out, Colour: colour, Width: width, Env: b.env, Folder: b.cwd, Keeper: b.helper(),
		Version: b.version})
}

// ServeRemote holds one session for all remote ones. It has the same ID each
// time, so that a server finds what the one before it left.
func (b *backend) ServeRemote(ctx context.Context, listen, tokenEnv, token string) (err error) {
	// agents must not have it
	env := slices.DeleteFunc(slices.Clone(b.env), func(kv string) bool { return strings.HasPrefix(kv, tokenEnv+"=") })
	l, err := remoteserver.Listen(listen)
	if err != nil {
		return &control.Error{Code: control.Invalid, Message: err.Error()}
	}
	defer l.Close()
	id, err := b.servedSession()
	if err != nil {
		return err
	}
	set, err := b.Settings("")
	if err != nil {
		return err
	}
	cfg := b.opening(session.RoleRun, "remote sessions", set)
	cfg.Session, cfg.Env, cfg.Keeper, cfg.AskWait = id, env, b.helper(), set.Permissions.Wait()
	s, err := assemble.Open(ctx, cfg)
	if err != nil {
		return locked(err, id)
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	s.Serve()
	dir := filepath.Join(s.Place.Dir(), "served")
	if err := b.root.Below().Mkdir(dir); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("open the folder of served sessions: %w", err)
	}
	srv, err := remoteserver.Open(ctx, remoteserver.Config{Host: s, Dir: dir, Token: token, Cwd: b.cwd, Env: env})
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(os.Stdout, "http://%s\n", l.Addr()); err != nil {
		return err
	}
	if err := srv.Serve(ctx, l); err != nil {
		return err
	}
	return context.Cause(ctx)
}

// maxServed bounds the file that names it.
const maxServed = 4 << 10

// servedSession is the session of this folder's servers.
func (b *backend) servedSession() (task.ID, error) {
	p := b.root.Project(b.cwd)
	if err := p.Ensure(); err != nil {
		return "", err
	}
	file := filepath.Join(p.Dir(), "served")
	data, err := b.root.ReadFile(file, maxServed)
	if id := strings.TrimSpace(string(data)); err == nil && home.SessionID(id) {
		return task.ID(id), nil
	}
	id := task.NewSessionID()
	return id, b.root.WriteAtomic(file, []byte(string(id)+"\n"))
}
