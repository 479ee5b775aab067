package session

import (
	driver "github.com/drover-dev/drover/internal/driver/remote"
	"github.com/drover-dev/drover/internal/engine/process"
)

// newRemote makes the driver of remote work.
func (s *Session) newRemote() *driver.Driver {
	set := s.cfg.Options.Remote
	checkers := map[string]driver.Checker{}
	for t, line := range set.Checkers {
		cmd := &driver.Command{Line: line, Dir: s.cfg.Info.Project, Env: process.ChildEnv(s.cfg.Agents.Env)}
		if s.cfg.Keeper != nil {
			cmd.Ready = s.cfg.Keeper.Ready
		}
		checkers[t] = cmd.Check
	}
	return driver.New(driver.Config{Settings: set, Env: s.cfg.Agents.RemoteEnv, Sidecar: s.cfg.Place.RemoteFile,
		Checkers: checkers})
}
