package demo

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/drover-dev/drover/internal/agentenv/settings"
	"github.com/drover-dev/drover/internal/assemble"
	"github.com/drover-dev/drover/internal/frontend/remoteserver"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/session"
)

// away is what the tour finds outside of its session: a server of remote sessions
// and one of MCP, both in this process and heard on this machine only.
type away struct {
	remote, mcp string // addresses
	token       string // of the first

	session *assemble.Session
	boats   *http.Server
	stop    context.CancelFunc
	served  sync.WaitGroup
	err     error // of the servers; read after served
}

// tourToken is the variable in which the tour has the token.
const tourToken = "DROVER_TOUR_TOKEN"

// openAway opens both. cfg is that of the tour, which is given another state.
func openAway(ctx context.Context, dir string, cfg assemble.Config) (_ *away, err error) {
	a := &away{token: rand.Text(), stop: func() {}}
	defer func() {
		if err != nil {
			err = errors.Join(err, a.close())
		}
	}()
	cfg.Root, cfg.Role, cfg.Title, cfg.On = home.At(filepath.Join(dir, "away")), session.RoleRun, "elsewhere", nil
	if a.session, err = assemble.Open(ctx, cfg); err != nil {
		return nil, err
	}
	a.session.Serve()
	files := filepath.Join(dir, "served")
	if err := os.Mkdir(files, 0o700); err != nil {
		return nil, fmt.Errorf("make a folder for the tour: %w", err)
	}
	srv, err := remoteserver.Open(ctx, remoteserver.Config{Host: a.session, Dir: files, Token: a.token, Cwd: cfg.Folder,
		Env: cfg.Env})
	if err != nil {
		return nil, err
	}
	far, err := remoteserver.Listen("127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	near, err := remoteserver.Listen("127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(err, far.Close())
	}
	a.remote, a.mcp = "http://"+far.Addr().String(), "http://"+near.Addr().String()
	a.serve(ctx, srv, cfg.Version, far, near)
	return a, nil
}

// serve answers until close, also while the tour ends after an interrupt.
func (a *away) serve(ctx context.Context, srv *remoteserver.Server, version string, far, near net.Listener) {
	ctx, a.stop = context.WithCancel(context.WithoutCancel(ctx))
	a.boats = &http.Server{Handler: newBoats(version), ReadHeaderTimeout: 10 * time.Second}
	var mu sync.Mutex
	note := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		a.err = errors.Join(a.err, err)
	}
	a.served.Go(func() { note(srv.Serve(ctx, far)) })
	a.served.Go(func() {
		if err := a.boats.Serve(near); !errors.Is(err, http.ErrServerClosed) {
			note(fmt.Errorf("serve the tour: %w", err))
		}
	})
}

// close ends both servers and what works there.
func (a *away) close() error {
	a.stop()
	var errs []error
	if a.boats != nil {
		errs = append(errs, a.boats.Close())
	}
	a.served.Wait()
	if a.session != nil {
		errs = append(errs, a.session.Close())
	}
	return errors.Join(append(errs, a.err)...)
}

// reach makes both known to the session of the tour.
func (a *away) reach(cfg *assemble.Config) error {
	servers, err := json.Marshal(map[string]any{"mcpServers": map[string]any{"tour": map[string]any{"type": "http",
		"url": a.mcp}}})
	if err != nil {
		return fmt.Errorf("write down the server of the tour: %w", err)
	}
	cfg.MCP = []string{string(servers)}
	cfg.Env = append(cfg.Env, tourToken+"="+a.token)
	cfg.Settings.Remote.Services = map[string]settings.RemoteService{"elsewhere": {URL: a.remote, TokenEnv: tourToken}}
	return nil
}
