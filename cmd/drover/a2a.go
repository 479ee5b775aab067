package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/drover-dev/drover/internal/api/a2a"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/frontend/a2aserver"
	"github.com/drover-dev/drover/internal/frontend/cli/watch"
)

// ServeA2A offers agents to whoever has the token. They work in the background session of the folder.
func (b servers) ServeA2A(ctx context.Context, o watch.A2A) error {
	hosts, err := publicHosts(o.Listen, o.URL, o.Hosts)
	if err != nil {
		return err
	}
	token, file, err := b.tokenFile(o.TokenFile, "a2a-token")
	if err != nil {
		return err
	}
	project := b.root.Project(b.cwd)
	if err := project.Ensure(); err != nil {
		return err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", o.Listen)
	if err != nil {
		return fmt.Errorf("serve a2a: %w (another port: --listen 127.0.0.1:0)", err)
	}
	d := b.directory()
	cfg := a2aserver.Config{
		Connect: func(ctx context.Context) (control.API, func(), error) { return d.Background(ctx) },
		Agents: func(context.Context) ([]a2aserver.Agent, error) {
			var all []a2aserver.Agent
			for _, one := range o.Agents() {
				all = append(all, a2aserver.Agent(one))
			}
			return all, nil
		},
		Usual: o.Usual, Root: b.root, Dir: filepath.Join(project.Dir(), "a2a"), Token: token, Hosts: hosts, URL: o.URL,
		Cwd: b.cwd, Env: b.env, Version: b.version,
	}
	srv, err := a2aserver.New(cfg, l.Addr())
	if err != nil {
		return errors.Join(err, l.Close())
	}
	at := strings.TrimRight(o.URL, "/")
	if at == "" {
		at = "http://" + l.Addr().String()
	}
	if _, err := fmt.Fprintf(os.Stdout, "%s%s\ntoken: %s\n", at, a2a.CardPath, file); err != nil {
		return errors.Join(err, l.Close())
	}
	return srv.Serve(ctx, l)
}
