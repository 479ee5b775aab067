// Package services has the services at which a session can have work done, and the
// connections to them.
//
// [Services] makes a connection at first use and keeps it until Close. It promises that a
// token is sent to the service only that the user has named with it.
//
// It does not follow the work; the driver of remote work does.
package services

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/api/remoteapi"
	"github.com/drover-dev/drover/internal/driver/remote"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/task"
)

// Config is where work can be done.
type Config struct {
	Services map[string]Service
	Usual    string                    // the service that is meant where none is named; empty: none
	Checkers map[remoteapi.Type]string // commands of the user that say when work is done
	Offline  time.Duration             // see [remote.Config]

	// Token finds the token of a service by the name of its variable. nil: there
	// is none.
	Token func(name string) string
}

// Service is one of them.
type Service struct{ URL, TokenEnv string }

// Services are those of a session. Its methods may be called by several goroutines.
type Services struct {
	cfg Config

	mu   sync.Mutex
	open map[remoteapi.Service]*remoteapi.Client // guarded by mu
}

// New makes the services of a session.
func New(cfg Config) *Services {
	return &Services{cfg: cfg, open: map[remoteapi.Service]*remoteapi.Client{}}
}

// Open makes a function that finds a service by its name in the settings, or by
// its address. env is that of a client, which may hold tokens that the session
// was started without.
func (s *Services) Open(env []string) func(name string) (remote.Service, error) {
	return func(name string) (remote.Service, error) {
		one, known := s.cfg.Services[name]
		if !known {
			if !strings.Contains(name, "://") {
				return nil, fmt.Errorf("remote service %.80q is not in the settings (see remote.services)", name)
			}
			one = Service{URL: name}
		}
		to := remoteapi.Service{URL: one.URL}
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

func (s *Services) dial(to remoteapi.Service) (*remoteapi.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.open[to]; c != nil {
		return c, nil
	}
	c, err := remoteapi.Dial(to)
	if err == nil {
		s.open[to] = c
	}
	return c, err
}

// Close lets go of all connections. Nothing uses them any more.
func (s *Services) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.open {
		_ = c.Close() // idle ones only
	}
}

// Job is what a request asks for, and how its service is found.
func (s *Services) Job(
	r control.RemoteRequest,
	env []string,
) (remote.Job, func(string) (remote.Service, error), error) {
	name := r.Service
	if name == "" {
		name = s.cfg.Usual
	}
	if name == "" {
		return remote.Job{}, nil, &control.Error{
			Code:    control.Invalid,
			Message: "no remote service is named",
			Fix:     "name one with --service, or set remote.services in your settings",
		}
	}
	t, err := remoteapi.ParseType(r.Type)
	open := s.Open(env)
	if err == nil {
		_, err = open(name)
	}
	if err != nil {
		return remote.Job{}, nil, &control.Error{
			Code:    control.Invalid,
			Message: err.Error(),
			Fix:     "see docs/remote-agents.md",
		}
	}
	return remote.Job{Service: name, Type: t, Prompt: r.Prompt, Metadata: r.Metadata}, open, nil
}

// RemoveSidecars removes the sidecars of remote work that has ended: a host may die
// between the two.
func RemoveSidecars(place home.Session, ended func(task.ID) bool) {
	dir := filepath.Dir(place.RemoteFile("r00000000"))
	files, err := place.Below().Names(dir)
	if err != nil {
		return // there are none
	}
	for _, name := range files {
		if id, ok := strings.CutSuffix(name, ".json"); ok && ended(task.ID(id)) {
			_ = remoteapi.RemoveSidecar(filepath.Join(dir, name)) // the log goes before it
		}
	}
}
