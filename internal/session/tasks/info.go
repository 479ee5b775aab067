package tasks

import (
	"cmp"
	"context"
	"os"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/api/stored"
	"github.com/drover-dev/drover/internal/platform/home"
)

// Info returns the description of this session.
func (s *Session) Info(context.Context) (control.Info, error) {
	s.mu.Lock()
	info := s.info()
	s.mu.Unlock()
	info.DiskBytes = s.Space.Size()
	info.Problem, _ = s.Space.Problem()
	return info, nil
}

// writeInfo writes session.json. The caller holds mu, or has the session to itself.
func (s *Session) writeInfo(end *time.Time) error {
	info := s.info()
	info.EndTime = end
	if end != nil {
		info.DiskBytes, info.OutputBytes = stored.DiskBytes(s.cfg.Place)
		info.Live, info.PID = false, 0
	}
	return stored.WriteInfo(s.cfg.Place, info)
}

// info is the description as it is now. The caller holds mu, or has the session to itself.
func (s *Session) info() control.Info {
	info := s.cfg.Info
	info.Dir = s.cfg.Place.Dir()
	info.PID = os.Getpid()
	info.Live = true
	info.Tasks.Live, info.Tasks.Total = s.Tree.Tasks.Live()
	if r, ok := s.Tree.Tasks.Get(info.Session); ok && info.Title == "" {
		info.Title = r.Description
	}
	info.Title = cmp.Or(info.Title, s.title)
	return info
}

// Entitle names the session, if it has no name, and reports whether it does. With an empty title it writes the name
// that the session has from its first prompt.
func (s *Session) Entitle(title string) bool {
	s.mu.Lock() // Close writes the description last
	defer s.mu.Unlock()
	if s.closed || title != "" && s.info().Title != "" || s.cfg.Info.Title != "" {
		return false
	}
	s.title = cmp.Or(s.title, title)
	_ = s.writeInfo(nil) // Close writes it again
	return title != ""
}

// carried keeps the part of the session description that says where the session came from; each
// host writes the rest anew.
func carried(place home.Session, info control.Info) control.Info {
	if old, err := stored.ReadInfo(place); err == nil {
		info.Aliases, info.TeleportedFrom = old.Aliases, old.TeleportedFrom
		info.Title = cmp.Or(info.Title, old.Title) // it continues without a new prompt
	}
	return info
}
