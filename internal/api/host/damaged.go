package host

import (
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/api/stored"
	"github.com/drover-dev/drover/internal/platform/home"
)

// undescribed describes a session without a readable session.json, as a power
// cut may leave it. It is an error if the session is being created at this moment, or was never
// used.
func undescribed(place home.Session) (info control.Info, err error) {
	log, err := place.Below().Lstat(place.DB())
	if err != nil {
		return info, err
	}
	unlock, err := place.Lock()
	if err != nil {
		return info, err
	}
	unlock()
	if info, err := readInfo(place); err == nil { // it has just been made
		return info, nil
	}
	if _, err := place.Below().Lstat(place.Transcript()); err != nil && stored.Void(place) {
		return info, err
	}
	return control.Info{
		Session:   place.ID(),
		Project:   place.Project().Folder(),
		Dir:       place.Dir(),
		StartTime: log.ModTime().UTC(),
		Damaged:   true,
	}, nil
}
