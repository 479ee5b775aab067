package session

import (
	"context"
	"errors"
	"os"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/session/schedule"
	"github.com/drover-dev/drover/task"
)

// maxSchedules limits the file of the schedules.
const maxSchedules = 4 << 20

// openSchedules reads the schedules of the project, which its background session has.
func (s *Session) openSchedules() error {
	if s.cfg.Info.Role != RoleBackground {
		return nil
	}
	root, path := s.cfg.Place.Project().Root(), s.cfg.Place.Project().SchedulesFile()
	var err error
	s.schedules, err = schedule.Open(schedule.Config{
		Read: func() ([]byte, error) { return root.ReadFile(path, maxSchedules) },
		Write: func(data []byte) error {
			if len(data) > 0 {
				return root.WriteAtomic(path, data)
			}
			if err := root.Below().Remove(path); !errors.Is(err, os.ErrNotExist) {
				return err
			}
			return nil
		},
		Start:  s.startScheduled,
		Live:   s.tree.Alive,
		Report: s.tree.Say,
	})
	return err
}

// startScheduled starts the task of a schedule, in the environment of the host.
func (s *Session) startScheduled(ctx context.Context, req control.StartRequest) (task.Record, error) {
	req.Env = s.cfg.Agents.Env
	got, err := s.Start(ctx, []control.StartRequest{req})
	switch {
	case err != nil:
		return task.Record{}, err
	case got[0].Error != nil:
		return task.Record{}, got[0].Error
	}
	return *got[0].Task, nil
}

// Schedules implements [control.API].
func (s *Session) Schedules(ctx context.Context, req control.ScheduleRequest) (control.Schedules, error) {
	if err := s.unscheduled; err != nil {
		return control.Schedules{}, &control.Error{Code: control.Unavailable, Message: err.Error(),
			Fix: "mend or remove " + s.cfg.Place.Project().SchedulesFile() +
				": the next host reads it, and this one ends when it has nothing to do"}
	}
	if s.schedules == nil {
		return control.Schedules{}, control.Refuse(control.Unavailable, "this session has no schedules",
			"ask the background session of the project, as `drover schedule` does")
	}
	out, err := s.schedules.Do(ctx, req)
	if err == nil && (req.Remove != "" || req.Pause != "") {
		s.idle.Change() // the host may end now
	}
	return out, err
}
