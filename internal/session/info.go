package session

import (
	"cmp"
	"context"
	"os"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/api/archive"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/api/stored"
	"github.com/drover-dev/drover/internal/platform/home"
)

// writeInfo writes session.json.
func (s *Session) writeInfo(end *time.Time) error {
	info := s.info()
	info.EndTime = end
	if end != nil {
		info.DiskBytes, info.OutputBytes = stored.DiskBytes(s.cfg.Place)
		info.Live, info.PID = false, 0
	}
	return stored.WriteInfo(s.cfg.Place, info)
}

func (s *Session) info() control.Info {
	info := s.cfg.Info
	info.Dir = s.cfg.Place.Dir()
	info.PID = os.Getpid()
	info.Live = true
	info.Tasks.Live, info.Tasks.Total = s.sup.Live()
	if r, ok := s.sup.Get(info.Session); ok && info.Title == "" {
		info.Title = r.Description
	}
	if title := s.title.Load(); title != nil && info.Title == "" {
		info.Title = *title
	}
	return info
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

// Prompts are what the user has written in the conversation.
func (s *Session) Prompts(context.Context) (control.Prompts, error) {
	return archive.Prompts(s.cfg.Place)
}

// Fork makes another session that continues a copy of the conversation.
func (s *Session) Fork(_ context.Context, req control.ForkRequest) (control.Forked, error) {
	return archive.Fork(s.cfg.Place, req, agent.Meta{Version: s.cfg.Info.Version, Cwd: s.cfg.Info.Project})
}
