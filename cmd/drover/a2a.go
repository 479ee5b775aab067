package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/drover-dev/drover/internal/api/a2a"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/frontend/a2aserver"
	"github.com/drover-dev/drover/internal/frontend/cli/watch"
)

// ServeA2A offers agents to clients that have the token. They run in the background session of the folder.
func (b servers) ServeA2A(ctx context.Context, o watch.A2A) error {
	project := b.root.Project(b.cwd)
	if err := project.Ensure(); err != nil {
		return err
	}
	l, err := b.listen(ctx, publicOptions{listen: o.Listen, url: o.URL, hosts: o.Hosts, tokenFile: o.TokenFile,
		usual: "a2a-token", elsewhere: "behind a tunnel with TLS, and name that with --url"})
	if err != nil {
		return err
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
		Usual: o.Usual, Root: b.root, Dir: filepath.Join(project.Dir(), "a2a"), Token: l.token, Hosts: l.hosts, URL: o.URL,
		Cwd: b.cwd, Env: b.env, Version: b.version,
	}
	srv, err := a2aserver.New(cfg, l.Addr())
	if err != nil {
		return errors.Join(err, l.Close())
	}
	if _, err := fmt.Fprintf(os.Stdout, "%s%s\ntoken: %s\n", l.at(o.URL), a2a.CardPath, l.file); err != nil {
		return errors.Join(err, l.Close())
	}
	return srv.Serve(ctx, l)
}
