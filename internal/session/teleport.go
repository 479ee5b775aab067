package session

import (
	"cmp"

	"github.com/drover-dev/drover/internal/api/archive"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/platform/home"
)

// carried keeps the part of the session description that says where the session came from; each
// host writes the rest anew.
func carried(place home.Session, info control.Info) control.Info {
	if old, err := archive.ReadInfo(place); err == nil {
		info.Aliases, info.TeleportedFrom = old.Aliases, old.TeleportedFrom
		info.Title = cmp.Or(info.Title, old.Title) // it continues without a new prompt
	}
	return info
}
