package main

import (
	"context"
	"time"

	"github.com/drover-dev/drover/internal/api/ended"
	"github.com/drover-dev/drover/internal/frontend/cli/console"
	"github.com/drover-dev/drover/internal/frontend/cli/project"
	"github.com/drover-dev/drover/internal/options"
)

// RemoveOld removes overdue sessions. It continues after an error, and returns the first one.
func (b storage) RemoveOld(ctx context.Context, age string, all bool) (out []project.Removal, err error) {
	keep, err := b.keep(age)
	if err != nil {
		return nil, err
	}
	folder := b.cwd
	if all {
		folder = ""
	}
	over, err := ended.Overdue(b.root, folder, keep, time.Now())
	if err != nil {
		return nil, err
	}
	for _, p := range over {
		if ctx.Err() != nil {
			return out, context.Cause(ctx)
		}
		r, wrong := p.Remove(ctx, true)
		if wrong != nil {
			if err == nil {
				err = byForce(p.Place.ID(), wrong)
			}
			continue
		}
		out = append(out, project.Removal{Session: r.Session, Owed: r.Owed, Kept: r.Kept})
	}
	return out, err
}

// keep is the retention: a given age, else the settings.
func (b storage) keep(age string) (options.Retention, error) {
	if age != "" {
		d, err := options.ParseAge(age)
		if err != nil {
			return options.Retention{}, console.Usage("--old "+err.Error(), "")
		}
		return options.Retention{Age: max(d, 1)}, nil
	}
	set, err := b.Settings("")
	if err != nil {
		return options.Retention{}, err
	}
	if set.Tasks.Retention == (options.Retention{}) {
		return options.Retention{}, console.Usage("--old has no age, and tasks.retention is not set",
			"give an age, as in --old=30d, or set tasks.retention")
	}
	return set.Tasks.Retention, nil
}
