package session

import (
	driver "github.com/drover-dev/drover/internal/driver/remote"
	"github.com/drover-dev/drover/internal/engine/process"
	"github.com/drover-dev/drover/task"
)

// newRemote makes the driver of remote work.
func (s *Session) newRemote() *driver.Driver {
	set := s.cfg.Agents.Remote
	checkers := map[string]driver.Checker{}
	for t, line := range set.Checkers {
		cmd := &driver.Command{Line: line, Dir: s.cfg.Info.Project, Env: process.ChildEnv(s.cfg.Agents.Env)}
		if s.cfg.Keeper != nil {
			cmd.Ready = s.cfg.Keeper.Ready
		}
		checkers[t] = cmd.Check
	}
	return driver.New(driver.Config{Settings: set, Env: s.cfg.Agents.RemoteEnv, Sidecar: s.cfg.Place.RemoteFile,
		Checkers: checkers, Offline: set.OfflineLimit()})
}

// goesOn reports whether the work of a task continues without its host, so that the next host
// adopts it.
func (s *Session) goesOn(r task.Record) bool {
	parked := s.cfg.Info.Role == RoleBackground && r.GoesOnParked()
	return parked || r.Traits().Elsewhere == task.AlwaysAway && r.Status == task.Running && r.Away()
}
