package cli

import (
	"context"

	"github.com/drover-dev/drover/internal/api/control"
)

// revive opens the session of a task that is to go on. What a detached host has left
// that died is taken up by the next, which is started for that.
func (a *app) revive(ctx context.Context, f found) (control.API, func(), error) {
	if f.live() || f.session.Info().Role != "background" || !f.record.Traits().Resumable {
		return f.open(ctx)
	}
	api, done, err := f.session.Revive(ctx)
	if err != nil {
		return nil, nil, err
	}
	if info, err := api.Info(ctx); err == nil && info.Session == f.session.Info().Session {
		return api, done, nil
	}
	done()
	return f.open(ctx) // another session is the project's now
}
