package session

import (
	"github.com/drover-dev/drover/internal/api/remoteapi"
	driver "github.com/drover-dev/drover/internal/driver/remote"
	"github.com/drover-dev/drover/internal/engine/process"
)

// elsewhere configures the driver of remote work.
func (s *Session) elsewhere() driver.Config {
	cfg := s.cfg.Agents.Remote
	checkers := &remoteapi.Checkers{}
	for t, line := range cfg.Checkers {
		cmd := &remoteapi.Command{Line: line, Dir: s.cfg.Info.Project, Env: process.ChildEnv(s.cfg.Agents.Env)}
		if s.cfg.Keeper != nil {
			cmd.Ready = s.cfg.Keeper.Ready
		}
		checkers.Register(t, cmd)
	}
	return driver.Config{Open: s.services.Open(nil), Sidecar: s.cfg.Place.RemoteFile, Checkers: checkers,
		Offline: cfg.Offline}
}
