package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/drover-dev/drover/internal/frontend/cli/console"
	"github.com/drover-dev/drover/internal/frontend/cli/watch"
	"github.com/drover-dev/drover/internal/frontend/web"
)

// ServePage serves the page to browsers that are paired.
func (b servers) ServePage(ctx context.Context, o watch.Page) error {
	l, err := b.listen(ctx, publicOptions{listen: o.Listen, url: o.URL, hosts: o.Hosts, tokenFile: o.TokenFile,
		usual: pageToken, elsewhere: "behind a tunnel with TLS, and name that with --url"})
	if err != nil {
		return err
	}
	cfg := web.Config{Sessions: b.pageSessions, MarkSeen: attending(b).MarkSeen, Used: b.pageUsed,
		Todos: b.pageTodos, Checks: b.pageChecks, Workers: b.pageWorkers, Now: time.Now, Token: l.token, Hosts: l.hosts,
		Devices: web.DevicesOf(l.file, l.token), Version: b.version}
	p, err := web.New(cfg, l)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	text := l.at(o.URL) + p.Link(!o.ReadOnly) + "\n"
	if o.URL != "" && isTerminal(os.Stdout) { // a phone reaches it
		code, err := web.QRText(strings.TrimSpace(text))
		if err != nil {
			return errors.Join(err, l.Close())
		}
		text += code
	}
	if _, err := fmt.Fprintf(os.Stdout, "%stoken: %s\n", text, l.file); err != nil {
		return errors.Join(err, l.Close())
	}
	return p.Serve(ctx)
}

// PageDevices returns the browsers that are paired with the token of a file.
func (b servers) PageDevices(tokenFile string) ([]watch.Device, error) {
	all, err := b.devices(tokenFile).List()
	out := make([]watch.Device, len(all))
	for i, d := range all {
		out[i] = watch.Device{ID: d.ID, Name: d.Name, Writes: d.Writes, Paired: d.Paired}
	}
	return out, err
}

// RevokeDevice ends the pairing of a browser, which a server that runs notices at its next request.
func (b servers) RevokeDevice(ctx context.Context, tokenFile, ref string) (name string, err error) {
	if err := b.root.Ensure(); err != nil {
		return "", err
	}
	d, err := b.devices(tokenFile).Revoke(ctx, ref)
	if errors.Is(err, web.ErrNoDevice) {
		err = &console.ExitError{Code: 3, Err: fmt.Errorf("%w (see `drover serve devices`)", err)}
	}
	return d.Name, err
}

// devices need no token for what people do with them.
func (b servers) devices(tokenFile string) web.Devices {
	return web.DevicesOf(b.tokenPath(tokenFile, pageToken), "")
}

// pageToken is the file of the state folder with the token of the page.
const pageToken = "page-token"

// tokenPath is the file with a token: the one that is named, or the usual one.
func (b *folder) tokenPath(named, usual string) string {
	switch {
	case named == "":
		return filepath.Join(b.root.Dir(), usual)
	case !filepath.IsAbs(named):
		return filepath.Join(b.cwd, named)
	}
	return named
}

// public is a server of this machine that is reached with a token.
type public struct {
	net.Listener
	token, file string   // the token, and the file that has it
	hosts       []string // names by which the server may be reached
	host        string   // of the address
}

// publicOptions say where a server listens and who reaches it.
type publicOptions struct {
	listen, url string
	hosts       []string
	anyAddress  bool   // also an address that other machines reach
	elsewhere   string // how other machines reach the server instead
	tokenFile   string // empty: usual, of the state folder
	usual       string
}

// listen opens a server. It refuses an address that other machines reach, and makes the token at the
// first start.
func (b *folder) listen(ctx context.Context, o publicOptions) (p public, err error) {
	if p.host, _, err = net.SplitHostPort(o.listen); err != nil {
		return p, console.Usage(fmt.Sprintf("listen at %.100q: %v", o.listen, err),
			"give an address and a port, as in 127.0.0.1:0")
	}
	if ip := net.ParseIP(p.host); !o.anyAddress && p.host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return p, console.Usage(fmt.Sprintf("listen at %.100q: other machines reach this address", o.listen),
			"listen at 127.0.0.1, "+o.elsewhere)
	}
	if o.url != "" {
		at, err := url.Parse(o.url)
		if err != nil || at.Scheme != "http" && at.Scheme != "https" || at.Hostname() == "" {
			return p, console.Usage(fmt.Sprintf("the address %.100q is not one of a server", o.url),
				"give one as in https://name.example")
		}
		o.hosts = append(o.hosts, at.Hostname())
	}
	for _, h := range o.hosts {
		p.hosts = append(p.hosts, strings.ToLower(h))
	}
	if err := b.root.Ensure(); err != nil {
		return p, err
	}
	p.file = b.tokenPath(o.tokenFile, o.usual)
	if p.token, err = tokenOf(p.file); err != nil {
		return p, err
	}
	if p.Listener, err = new(net.ListenConfig).Listen(ctx, "tcp", o.listen); err != nil {
		return p, fmt.Errorf("serve: %w (another port: --listen 127.0.0.1:0)", err)
	}
	return p, nil
}

// at is the address of the server for clients: the one of the user, or the address of the listener.
func (p public) at(url string) string {
	return cmp.Or(strings.TrimRight(url, "/"), "http://"+p.Addr().String())
}

// pageSessions are the sessions of all projects.
func (b servers) pageSessions(ctx context.Context, live bool) ([]web.Session, error) {
	entries, err := b.directory().Sessions(ctx, live, true)
	if err != nil {
		return nil, err
	}
	out := make([]web.Session, len(entries))
	for i, e := range entries {
		out[i] = known{e}
	}
	return out, nil
}
