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
	"strings"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/assemble/demo"
	"github.com/drover-dev/drover/internal/frontend/cli/agents"
	"github.com/drover-dev/drover/internal/frontend/cli/console"
	"github.com/drover-dev/drover/internal/frontend/mcpserver"
	"github.com/drover-dev/drover/internal/frontend/mcpserver/mcpwire"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/platform/saferoot"
)

// ServeMCP serves tasks to one MCP client on stdin and stdout.
func (b surroundings) ServeMCP(ctx context.Context) error {
	return b.mcpServer().Serve(ctx, &mcpwire.Lines{In: os.Stdin, Out: os.Stdout})
}

func (b surroundings) mcpServer() mcpserver.Server {
	d := b.directory()
	connect := func(ctx context.Context) (control.API, func(), error) { return d.Background(ctx) }
	handles := mcpserver.Handles{Root: b.root, Dir: filepath.Join(b.root.Project(b.cwd).Dir(), "mcp-handles")}
	return mcpserver.Server{Connect: connect, Cwd: b.cwd, Env: b.env, Version: b.version, Handles: handles}
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
	return b.mcpServer().ServeHTTP(ctx, l, l.host, l.token)
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
