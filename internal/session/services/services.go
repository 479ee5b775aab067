// Package services has the services for remote work of a session, and the connections to them.
//
// [Services] connects at first use and keeps the connection until Close. A token is sent only
// to the service for which the user has configured it.
//
// The package does not follow the work; the driver of remote work does.
package services

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/drover-dev/drover/internal/api/a2a"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/api/remoteapi"
	"github.com/drover-dev/drover/internal/driver/remote"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/task"
)

// Config configures services.
type Config struct {
	Services map[string]Service
	Usual    string                    // the default service; empty: none
	Checkers map[remoteapi.Type]string // commands of the user that report when work is done
	Offline  time.Duration             // see [remote.Config]

	// Token returns the token of a service by the name of its variable. nil: none.
	Token func(name string) string
}

// Service is one configured service.
type Service struct {
	URL, TokenEnv string
	A2A           bool // the URL is that of an agent card, whatever its path
}

// connection is a connection to a service.
type connection interface {
	remote.Service
	Close() error
}

// target is what a connection is for.
type target struct {
	remoteapi.Service
	a2a bool
}

// Services are those of a session. Its methods may be called by several goroutines.
type Services struct {
	cfg Config

	mu   sync.Mutex
	open map[target]connection // guarded by mu
}

// New returns the services of a session.
func New(cfg Config) *Services {
	return &Services{cfg: cfg, open: map[target]connection{}}
}

// Open returns a function that finds a service by its name in the settings, or by its address.
// env is that of a client, which may have tokens that the session does not have.
func (s *Services) Open(env []string) func(name string) (remote.Service, error) {
	return func(name string) (remote.Service, error) {
		one, known := s.cfg.Services[name]
		if !known {
			if !strings.Contains(name, "://") {
				return nil, fmt.Errorf("remote service %.80q is not in the settings (see remote.services)", name)
			}
			one = Service{URL: name}
		}
		to := target{Service: remoteapi.Service{URL: one.URL}, a2a: one.A2A || a2a.IsCard(one.URL)}
		if one.TokenEnv != "" {
			if to.Token = home.Lookup(env)(one.TokenEnv); to.Token == "" && s.cfg.Token != nil {
				to.Token = s.cfg.Token(one.TokenEnv)
			}
			if to.Token == "" {
				return nil, fmt.Errorf("remote service %.80q: the variable %s with its token is not set", name, one.TokenEnv)
			}
		}
		return s.dial(to)
	}
}

func (s *Services) dial(to target) (remote.Service, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.open[to]; c != nil {
		return c, nil
	}
	var c connection
	var err error
	if to.a2a {
		c, err = a2a.Dial(to.Service)
	} else {
		c, err = remoteapi.Dial(to.Service)
	}
	if err != nil {
		return nil, err
	}
	s.open[to] = c
	return c, nil
}

// Close closes all connections, when nothing uses them any more.
func (s *Services) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.open {
		_ = c.Close() // idle ones only
	}
}

// Job returns the job of a request, and a function that finds its service.
func (s *Services) Job(
	r control.RemoteRequest,
	env []string,
) (remote.Job, func(string) (remote.Service, error), error) {
	name := r.Service
	if name == "" {
		name = s.cfg.Usual
	}
	if name == "" {
		return remote.Job{}, nil, control.Refuse(control.Invalid, "no remote service is named",
			"name one with --service, or set remote.services in your settings")
	}
	t, err := remoteapi.ParseType(r.Type)
	open := s.Open(env)
	if err == nil {
		_, err = open(name)
	}
	if err != nil {
		return remote.Job{}, nil, control.Refuse(control.Invalid, err.Error(), "see docs/remote-agents.md")
	}
	return remote.Job{Service: name, Type: t, Prompt: r.Prompt, Metadata: r.Metadata}, open, nil
}

// RemoveSidecars removes the sidecars of remote work that has ended, since a host may die
// between both writes.
func RemoveSidecars(place home.Session, ended func(task.ID) bool) {
	dir := filepath.Dir(place.RemoteFile("r00000000"))
	files, err := place.Below().Names(dir)
	if err != nil {
		return // there are none
	}
	for _, name := range files {
		if id, ok := strings.CutSuffix(name, ".json"); ok && ended(task.ID(id)) {
			_ = remoteapi.RemoveSidecar(filepath.Join(dir, name)) // the log is authoritative
		}
	}
}
