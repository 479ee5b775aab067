package session

import (
	"cmp"

	"github.com/drover-dev/drover/internal/api/archive"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/platform/home"
)

// carried keeps what the description of a session says of where it was before,
// which is written anew by each host.
func carried(place home.Session, info control.Info) control.Info {
	if old, err := archive.ReadInfo(place); err == nil {
		info.Aliases, info.TeleportedFrom = old.Aliases, old.TeleportedFrom
		info.Title = cmp.Or(info.Title, old.Title) // it goes on without a new prompt
	}
	return info
}
