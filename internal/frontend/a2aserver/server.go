// Package a2aserver offers the agents of a project to others by the Agent2Agent protocol, version
// 1.0, over JSON-RPC and server-sent events.
//
// A task of the protocol is a task of kind local_agent in the project's background session; what it
// asks is the state input-required, its result is its artifact, and a message to it is a message to
// the agent. The package keeps a file for each task, with its messages and where news of it is sent,
// and starts no work that is not in its file before. Whoever has no token learns that the server is
// there, and nothing of the project. It sees sessions through api/control only.
package a2aserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/platform/httpserve"
)

// Agent is one agent that is offered.
type Agent struct{ Name, Description string }

// Config is what a server is made of. All but Hosts, URL and Env are required.
type Config struct {
	// Connect reaches the session in which agents run, and starts it if need be. The function lets go
	// of it.
	Connect func(ctx context.Context) (control.API, func(), error)
	// Agents returns the agents that are offered now.
	Agents  func(ctx context.Context) ([]Agent, error)
	Usual   string // the agent of the server's own card
	Root    home.Root
	Dir     string   // below the root, of the files of tasks
	Token   string   // that every request bears, except for the server's own card
	Hosts   []string // by which requests may name the server, beside this machine
	URL     string   // by which clients reach the server; empty: the address that it listens at
	Cwd     string   // where agents work; absolute
	Env     []string // of agents
	Version string   // of this program
}

const (
	heartbeat   = 15 * time.Second
	mostBody    = 2 << 20
	mostStreams = 64 // requests that wait for news of a task
)

// Server answers requests. Its methods may be called by several goroutines.
type Server struct {
	cfg     Config
	base    string // URL without a slash at the end
	link    *control.Link
	store   *store
	streams chan struct{} // a place for each request that waits for news

	life   context.Context // of deliveries
	end    context.CancelFunc
	pushes sync.WaitGroup // one per task with deliveries
}

// New returns a server at an address. It reads the tasks of earlier servers.
func New(cfg Config, at net.Addr) (*Server, error) {
	st, err := openStore(cfg.Root, cfg.Dir)
	if err != nil {
		return nil, err
	}
	base := strings.TrimRight(cfg.URL, "/")
	if base == "" {
		base = "http://" + at.String()
	}
	s := &Server{cfg: cfg, base: base, store: st, streams: make(chan struct{}, mostStreams)}
	s.life, s.end = context.WithCancel(context.Background())
	s.link = control.NewLink(s.life, cfg.Connect, "")
	return s, nil
}

// Serve answers on l until ctx ends, and closes it. Work of agents goes on without the server.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	for _, one := range s.store.all() {
		if st := one.state(); st.Task == "" && st.End == nil { // the server before this one ended meanwhile
			if err := s.begin(ctx, one); err != nil {
				return errors.Join(fmt.Errorf("start the agent of task %s: %w", st.ID, err), l.Close())
			}
		}
		s.deliver(one)
	}
	err := httpserve.Serve(ctx, l, s.Handler(), func() {})
	s.Close()
	if err != nil {
		return fmt.Errorf("serve a2a: %w", err)
	}
	return nil
}

// Close ends deliveries, which the next server goes on with, and lets go of the session.
func (s *Server) Close() {
	s.end()
	s.pushes.Wait()
	s.link.Close()
}

// guard refuses requests that name another host or come from the page of another site.
func (s *Server) guard(next http.Handler) http.Handler {
	guarded := httpserve.Guard(s.cfg.Hosts, next, func(w http.ResponseWriter, why string) {
		refuse(w, http.StatusForbidden, nil, refusal(codeRequest, "%s", why))
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, mostBody)
		guarded.ServeHTTP(w, r)
	})
}

// admitted reports whether a request bears the token.
func (s *Server) admitted(r *http.Request) bool {
	token, ok := httpserve.Bearer(r)
	return ok && httpserve.Same(token, s.cfg.Token)
}
