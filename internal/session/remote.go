package session

import (
	"github.com/drover-dev/drover/internal/api/remoteapi"
	driver "github.com/drover-dev/drover/internal/driver/remote"
	"github.com/drover-dev/drover/internal/engine/process"
	"github.com/drover-dev/drover/internal/session/services"
	"github.com/drover-dev/drover/task"
)

// useRemote makes the driver of remote work.
func (s *Session) useRemote() {
	cfg := s.cfg.Agents.Remote
	s.services = services.New(cfg)
	checkers := &remoteapi.Checkers{}
	for t, line := range cfg.Checkers {
		cmd := &remoteapi.Command{Line: line, Dir: s.cfg.Info.Project, Env: process.ChildEnv(s.cfg.Agents.Env)}
		if s.cfg.Keeper != nil {
			cmd.Ready = s.cfg.Keeper.Ready
		}
		checkers.Register(t, cmd)
	}
	s.kinds.UseRemote(
		driver.Config{Open: s.services.Open(nil), Sidecar: s.cfg.Place.RemoteFile, Checkers: checkers, Offline: cfg.Offline},
	)
}

// goesOn reports whether the work of a task continues without its host, so that the next host
// adopts it.
func (s *Session) goesOn(r task.Record) bool {
	parked := s.cfg.Info.Role == RoleBackground && r.GoesOnParked()
	return parked || r.Traits().Elsewhere == task.AlwaysAway && r.Status == task.Running && r.Away()
}
