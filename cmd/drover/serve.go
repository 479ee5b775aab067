package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/assemble"
	"github.com/drover-dev/drover/internal/assemble/demo"
	"github.com/drover-dev/drover/internal/frontend/cli/agents"
	"github.com/drover-dev/drover/internal/frontend/cli/console"
	"github.com/drover-dev/drover/internal/frontend/mcpserver"
	"github.com/drover-dev/drover/internal/frontend/mcpserver/mcpwire"
	"github.com/drover-dev/drover/internal/frontend/remoteserver"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/platform/saferoot"
	"github.com/drover-dev/drover/internal/session"
	"github.com/drover-dev/drover/task"
)

// ServeMCP serves tasks to one MCP client on stdin and stdout.
func (b surroundings) ServeMCP(ctx context.Context) error {
	return mcpserver.Serve(ctx, b.mcpConfig(), &mcpwire.Lines{In: os.Stdin, Out: os.Stdout})
}

func (b surroundings) mcpConfig() mcpserver.Config {
	d := b.directory()
	connect := func(ctx context.Context) (control.API, func(), error) { return d.Background(ctx) }
	handles := mcpserver.Handles{Root: b.root, Dir: filepath.Join(b.root.Project(b.cwd).Dir(), "mcp-handles")}
	return mcpserver.Config{Connect: connect, Cwd: b.cwd, Env: b.env, Version: b.version, Handles: handles}
}

// ServeMCPOverHTTP serves tasks to all MCP clients that have the token.
func (b surroundings) ServeMCPOverHTTP(ctx context.Context, o agents.MCPOverHTTP) error {
	l, err := b.listen(ctx, publicOptions{listen: o.Listen, anyAddress: o.AnyAddress, tokenFile: o.TokenFile,
		usual: "mcp-token", elsewhere: "behind a proxy with TLS, or add --any-address"})
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(os.Stdout, "http://%s%s\ntoken: %s\n", l.Addr(), mcpwire.Path, l.file); err != nil {
		return errors.Join(err, l.Close())
	}
	return mcpserver.ServeHTTP(ctx, b.mcpConfig(), l, l.host, l.token)
}

const (
	maxToken = 4 << 10 // bytes of a file with a token
	minToken = 16      // characters; below, it could be guessed
)

// tokenOf is the token of a file, which is made with a new one if it does not exist.
func tokenOf(file string) (string, error) {
	if _, err := os.Lstat(file); errors.Is(err, fs.ErrNotExist) {
		if err := newToken(file); err != nil {
			return "", fmt.Errorf("write a new token to %s: %w", file, err)
		}
	}
	info, err := os.Lstat(file)
	if err != nil {
		return "", fmt.Errorf("read the token: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return "", console.Usage(fmt.Sprintf("read the token of %s: other users of this machine may read it", file),
			"chmod 600 "+file)
	}
	data, err := home.ReadFile(file, maxToken)
	if err != nil {
		return "", fmt.Errorf("read the token: %w", err)
	}
	token := strings.TrimSpace(string(data))
	if len(token) < minToken || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", console.Usage(fmt.Sprintf("the token of %s is no line of at least %d printable characters", file,
			minToken), "remove the file, and a new one is made")
	}
	return token, nil
}

// newToken makes the file, readable by this user only, unless somebody else has made it
// meanwhile.
func newToken(file string) error {
	f, err := saferoot.Dir(filepath.Dir(file)).Open(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = f.WriteString(rand.Text() + "\n")
	return errors.Join(err, f.Close())
}

// Demo gives the tour.
func (b *folder) Demo(ctx context.Context, out io.Writer, colour bool, width int) error {
	return demo.Run(ctx, demo.Config{Out: out, Colour: colour, Width: width,
		Env: b.env, Program: b.exe, Keeper: b.helper(),
		Version: b.version})
}

// ServeRemote holds one session for all remote ones. It has the same ID each
// time, so that a server finds what the one before it left.
func (b runner) ServeRemote(ctx context.Context, listen, tokenEnv, token string) (err error) {
	// agents must not have it
	env := slices.DeleteFunc(slices.Clone(b.env), func(kv string) bool { return strings.HasPrefix(kv, tokenEnv+"=") })
	l, err := remoteserver.Listen(listen)
	if err != nil {
		return console.Usage(err.Error(), "")
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
func (b runner) servedSession() (task.ID, error) {
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
