package session

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/api/remoteapi"
	driver "github.com/drover-dev/drover/internal/driver/remote"
	"github.com/drover-dev/drover/internal/driver/shell"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/tool/tasktools"
	"github.com/drover-dev/drover/internal/tool/toolkit"
	"github.com/drover-dev/drover/task"
)

// remotePool is the pool of remote work, and remoteLive its places.
const (
	remotePool = "remote"
	remoteLive = 200
)

// elsewhere is the isolation of an agent that works at a service.
const elsewhere = "remote"

// Remote is where work can be done elsewhere.
type Remote struct {
	Services map[string]RemoteService
	Usual    string                    // the service that is meant where none is named; empty: none
	Checkers map[remoteapi.Type]string // commands of the user that say when work is done
	Offline  time.Duration             // see [driver.Config]

	// Token finds the token of a service by the name of its variable. nil: there
	// is none.
	Token func(name string) string
}

// RemoteService is one service.
type RemoteService struct{ URL, TokenEnv string }

// services are the connections of a session to services, each made at first use.
type services struct {
	cfg Remote

	mu   sync.Mutex
	open map[remoteapi.Service]*remoteapi.Client // guarded by mu
}

// useRemote makes the driver of remote work.
func (s *Session) useRemote() {
	s.services = &services{cfg: s.cfg.Agents.Remote, open: map[remoteapi.Service]*remoteapi.Client{}}
	checkers := &remoteapi.Checkers{}
	for t, line := range s.cfg.Agents.Remote.Checkers {
		cmd := &remoteapi.Command{Line: line, Dir: s.cfg.Info.Project, Env: shell.ChildEnv(s.cfg.Agents.Env)}
		if s.cfg.Keeper != nil {
			cmd.Ready = s.cfg.Keeper.Ready
		}
		checkers.Register(t, cmd)
	}
	s.kinds.UseRemote(driver.Config{Open: s.services.find(nil), Sidecar: s.cfg.Place.RemoteFile, Checkers: checkers,
		Offline: s.cfg.Agents.Remote.Offline})
}

// find makes a function that finds a service by its name in the settings, or by
// its address. env is that of a client, which may hold tokens that the session
// was started without.
func (v *services) find(env []string) func(name string) (driver.Service, error) {
	return func(name string) (driver.Service, error) {
		one, known := v.cfg.Services[name]
		if !known {
			if !strings.Contains(name, "://") {
				return nil, fmt.Errorf("remote service %.80q is not in the settings (see remote.services)", name)
			}
			one = RemoteService{URL: name}
		}
		to := remoteapi.Service{URL: one.URL}
		if one.TokenEnv != "" {
			if to.Token = home.Lookup(env)(one.TokenEnv); to.Token == "" && v.cfg.Token != nil {
				to.Token = v.cfg.Token(one.TokenEnv)
			}
			if to.Token == "" {
				return nil, fmt.Errorf("remote service %.80q: the variable %s with its token is not set", name, one.TokenEnv)
			}
		}
		return v.dial(to)
	}
}

func (v *services) dial(to remoteapi.Service) (*remoteapi.Client, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if c := v.open[to]; c != nil {
		return c, nil
	}
	c, err := remoteapi.Dial(to)
	if err == nil {
		v.open[to] = c
	}
	return c, err
}

// close lets go of all connections. Nothing uses them any more.
func (v *services) close() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, c := range v.open {
		_ = c.Close() // idle ones only
	}
}

// goesOn reports whether the work of a task is not that of its host, so that the
// next host has it.
func (s *Session) goesOn(r task.Record) bool {
	return r.Traits().Elsewhere == task.AlwaysAway && r.Status == task.Running && r.Away()
}

// sweepSidecars removes sidecars of remote work that has ended: a host may die
// between the two.
func (s *Session) sweepSidecars() {
	dir := filepath.Dir(s.cfg.Place.RemoteFile("r00000000"))
	files, err := s.cfg.Place.Below().Names(dir)
	if err != nil {
		return // there are none
	}
	for _, name := range files {
		id, ok := strings.CutSuffix(name, ".json")
		if r, known := s.sup.Get(task.ID(id)); ok && known && r.Status.Terminal() {
			_ = remoteapi.RemoveSidecar(filepath.Join(dir, name)) // the log goes before it
		}
	}
}

// remoteWork is remote work that is going to be.
func (s *Session) remoteWork(r control.RemoteRequest, spec task.Spec, env []string) (task.Driver, task.Spec, error) {
	name := r.Service
	if name == "" {
		name = s.cfg.Agents.Remote.Usual
	}
	if name == "" {
		return nil, spec, &control.Error{Code: control.Invalid, Message: "no remote service is named", Mend: "name one with --service, or set remote.services in your settings"}
	}
	t, err := remoteapi.ParseType(r.Type)
	open := s.services.find(env)
	if err == nil {
		_, err = open(name)
	}
	if err != nil {
		return nil, spec, &control.Error{Code: control.Invalid, Message: err.Error(), Mend: "see docs/remote-agents.md"}
	}
	w := s.kinds.Remote(open, driver.Job{Service: name, Type: t, Prompt: r.Prompt, Metadata: r.Metadata})
	spec.Input, spec.Pool = w.Input, remotePool
	spec.AgentType, spec.Model, spec.Prompt = r.AgentType, r.Model, r.Prompt
	if spec.Description == "" {
		spec.Description = firstLine(r.Prompt, 60)
	}
	return w.Driver, spec, nil
}

// startRemote starts remote work for a client.
func (s *Session) startRemote(ctx context.Context, r control.StartRequest, spec task.Spec) (task.Record, func(), error) {
	if r.Keep {
		return task.Record{}, nil, &control.Error{Code: control.Invalid, Message: "remote work goes on without its host anyway", Mend: "leave --keep out"}
	}
	d, spec, err := s.remoteWork(*r.Remote, spec, r.Env)
	if err != nil {
		return task.Record{}, nil, err
	}
	return s.sup.Record(ctx, d, spec)
}

// remote starts an agent elsewhere for the model. It goes on in the background,
// unless nothing that this agent starts may.
func (rt *runtime) remote(ctx context.Context, r tasktools.AgentRequest) (tasktools.AgentOutcome, error) {
	s := rt.s
	out := tasktools.AgentOutcome{Backgrounded: !s.cfg.Limits.NoBackground && (rt.host == nil || s.cfg.Limits.NestedBackground)}
	switch {
	case r.Resume != "":
		return out, &toolkit.Refusal{Text: "a remote agent cannot be resumed: start another with what it needs to know"}
	case r.Team != "":
		return out, &toolkit.Refusal{Text: "a teammate cannot be remote"}
	}
	spec := rt.spec(r.ToolUseID, out.Backgrounded)
	spec.Name, spec.Description = r.Name, r.Description
	d, spec, err := s.remoteWork(control.RemoteRequest{Prompt: r.Prompt, AgentType: r.Type, Model: r.Model}, spec, nil)
	if err != nil {
		return out, agentRefusal(err)
	}
	if out.Task, err = s.sup.Start(ctx, d, spec); err != nil {
		return out, agentRefusal(err)
	}
	if out.Backgrounded {
		rt.know(out.Task.ID)
		return out, nil
	}
	await := s.sup.Await
	if rt.host != nil {
		await = rt.host.Await
	}
	if out.Task, err = await(ctx, out.Task.ID); err != nil {
		return out, errors.Join(rt.interrupt(ctx, out.Task.ID), context.Cause(ctx))
	}
	if out.Backgrounded = out.Task.Backgrounded; out.Backgrounded {
		return out, nil
	}
	out.Text, err = s.log.AnswerExcerpt(ctx, out.Task.Run)
	return out, err
}
