package ended

import (
	"cmp"
	"context"
	"strings"

	"github.com/drover-dev/drover/internal/api/archive"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/api/stored"
	"github.com/drover-dev/drover/internal/platform/annotate"
	"github.com/drover-dev/drover/internal/platform/home"
)

// Describe writes session.json again, from the log and the folder. It takes the session's lock.
func (p Session) Describe(ctx context.Context, version string) (err error) {
	defer annotate.Error(&err, "describe session %s", p.Place.ID())
	unlock, err := p.Place.Lock()
	if err != nil {
		return err
	}
	defer unlock()
	a, err := archive.Open(ctx, p.Place, p.Info)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, a.Close()) }()
	info, err := a.Info(ctx)
	if err != nil {
		return err
	}
	all, err := a.List(ctx, control.ListRequest{All: true})
	if err != nil {
		return err
	}
	end := info.StartTime // of a damaged session: the last write to its log
	for _, r := range all.Tasks {
		if r.CreateTime.Before(info.StartTime) {
			info.StartTime = r.CreateTime
		}
		if r.EndTime != nil && r.EndTime.After(end) {
			end = *r.EndTime
		}
		if r.ID == p.Place.ID() {
			info.Title = r.Description
		}
	}
	info.Damaged, info.Version, info.EndTime, info.Role = false, version, &end, roleOf(p.Place)
	info.OutputBytes = stored.OutputBytes(p.Place)
	return stored.WriteInfo(p.Place, info)
}

// roleOf returns the role of a session, as far as its folder and its project show it.
func roleOf(place home.Session) string {
	project := place.Project()
	if id, err := project.Root().ReadFile(project.BackgroundFile(), 1<<10); err == nil &&
		strings.TrimSpace(string(id)) == string(place.ID()) {
		return control.RoleBackground
	}
	if _, err := place.Below().Lstat(place.Transcript()); err == nil {
		return control.RolePrompt
	}
	return control.RoleRun
}
