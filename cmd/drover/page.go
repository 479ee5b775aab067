package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/frontend/cli/watch"
	"github.com/drover-dev/drover/internal/frontend/web"
)

// ServePage serves the page to browsers that are paired.
func (b servers) ServePage(ctx context.Context, o watch.Page) error {
	hosts, err := publicHosts(o.Listen, o.URL, o.Hosts)
	if err != nil {
		return err
	}
	token, file, err := b.tokenFile(o.TokenFile, "page-token")
	if err != nil {
		return err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", o.Listen)
	if err != nil {
		return fmt.Errorf("serve the page: %w (another port: --listen 127.0.0.1:0)", err)
	}
	cfg := web.Config{Sessions: b.pageSessions, MarkSeen: attending(b).MarkSeen, Used: b.pageUsed,
		Todos:  b.pageTodos,
		Checks: b.pageChecks, Workers: b.pageWorkers, Now: time.Now, Token: token, Hosts: hosts, Version: b.version}
	p, err := web.New(cfg, l)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	at := strings.TrimSuffix(o.URL, "/")
	if at == "" {
		at = "http://" + l.Addr().String()
	}
	text := at + p.Link(!o.ReadOnly) + "\n"
	if o.URL != "" && isTerminal(os.Stdout) { // a phone reaches it
		code, err := web.QRText(strings.TrimSpace(text))
		if err != nil {
			return errors.Join(err, l.Close())
		}
		text += code
	}
	if _, err := fmt.Fprintf(os.Stdout, "%stoken: %s\n", text, file); err != nil {
		return errors.Join(err, l.Close())
	}
	return p.Serve(ctx)
}

// publicHosts are the names by which a server of this machine may be reached. It refuses to listen elsewhere.
func publicHosts(listen, address string, hosts []string) ([]string, error) {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return nil, &control.Error{Code: control.Invalid, Message: fmt.Sprintf("listen at %.100q: %v", listen, err),
			Fix: "give an address and a port, as in 127.0.0.1:0"}
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return nil, &control.Error{Code: control.Invalid,
			Message: fmt.Sprintf("listen at %.100q: other machines reach this address", listen),
			Fix:     "listen at 127.0.0.1, behind a tunnel with TLS, and name that with --url"}
	}
	if address != "" {
		at, err := url.Parse(address)
		if err != nil || at.Scheme != "http" && at.Scheme != "https" || at.Hostname() == "" {
			return nil, &control.Error{Code: control.Invalid,
				Message: fmt.Sprintf("the address %.100q is not one of a server", address),
				Fix:     "give one as in https://name.example"}
		}
		hosts = append(hosts, at.Hostname())
	}
	for i, h := range hosts {
		hosts[i] = strings.ToLower(h)
	}
	return hosts, nil
}

// tokenFile is the token of a file, and its path; without one that of a file of the user.
func (b *folder) tokenFile(file, usual string) (token, path string, err error) {
	if file == "" {
		if err := b.root.Ensure(); err != nil {
			return "", "", err
		}
		file = filepath.Join(b.root.Dir(), usual)
	} else if !filepath.IsAbs(file) {
		file = filepath.Join(b.cwd, file)
	}
	token, err = tokenOf(file)
	return token, file, err
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
