package ended

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/drover-dev/drover/internal/api/stored"
	"github.com/drover-dev/drover/internal/driver/builtin"
	"github.com/drover-dev/drover/internal/driver/mcptask"
	"github.com/drover-dev/drover/internal/driver/shell"
	"github.com/drover-dev/drover/internal/engine/child"
	"github.com/drover-dev/drover/internal/engine/journal"
	"github.com/drover-dev/drover/internal/engine/process"
	"github.com/drover-dev/drover/internal/engine/spool"
	"github.com/drover-dev/drover/internal/engine/supervise"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/task"
)

// EndLost ends the processes that hosts of any session left when they died together with their
// keeper, and records the ends. Kept tasks continue, and the next host of their session adopts
// them. It skips a session that another process has open; for a dead session it waits for
// another process that cleans up.
func EndLost(ctx context.Context, root home.Root, died ...task.ID) error {
	lost := map[task.ID]bool{}
	var table process.Table
	for _, p := range table.Read() {
		if id := p.Mark(process.MarkSession); child.Orphaned(p) && home.SessionID(id) {
			lost[task.ID(id)] = true
		}
	}
	if len(lost) == 0 {
		return nil
	}
	projects, err := root.Projects()
	errs := []error{err}
	for _, p := range projects {
		for id := range lost {
			place := p.Session(id)
			if _, err := place.Below().Lstat(place.DB()); err != nil {
				continue // it belongs to another project, or another state folder
			}
			if err := endLost(ctx, place, slices.Contains(died, id)); err != nil && !errors.Is(err, home.ErrLocked) {
				errs = append(errs, fmt.Errorf("end what session %s has left running: %w", id, stored.Explain(place, err)))
			}
		}
	}
	return errors.Join(errs...)
}

// endLostWait limits the cleanup of one session.
const endLostWait = 20 * time.Second

// otherWait is how long to wait for another process that has a dead session open: a listing
// that cleans up, or the next host, which stays.
const otherWait = 5 * time.Second

func endLost(ctx context.Context, place home.Session, wait bool) error {
	lock := place.Lock
	if wait {
		lock = func() (func(), error) {
			ctx, cancel := context.WithTimeoutCause(ctx, otherWait, home.ErrLocked)
			defer cancel()
			return home.Await(ctx, place.Lock)
		}
	}
	unlock, err := lock()
	if err != nil {
		return err
	}
	defer unlock()
	log, err := journal.Open(place.DB(), journal.Options{})
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // each event was synced when it was written
	if err := stored.Lost(place, log); err != nil {
		return err
	}
	states, err := log.Tasks(ctx)
	if err != nil {
		return err
	}
	kept := map[task.ID]bool{}
	var old []supervise.Old
	var ids []task.ID
	for _, s := range states {
		switch r := s.Task; {
		case r.Status.Terminal():
		case r.Keep:
			kept[r.ID] = true
		case r.Process != nil:
			old, ids = append(old, supervise.Old{Born: s.Born, Task: r}), append(ids, r.ID)
		}
	}
	sup := supervise.New(supervise.Config{Session: place.ID(), Log: log, OutputPath: place.Output,
		Output: func(r task.Record, _ bool) (supervise.OutputFile, error) {
			f, err := spool.Reopen(r.OutputFile, spool.Options{Below: place.Below().For(r.OutputFile)})
			if err != nil {
				return nil, nil // the cleanup does not need it
			}
			return f, nil
		}})
	defer sup.Close()
	kinds := builtin.New(shell.Config{ExitFile: place.ExitFile, Keys: place.KeysFile}, nil, mcptask.Config{}, nil)
	if err := sup.Adopt(ctx, old, kinds.For); err != nil {
		return err
	}
	bound, cancel := context.WithTimeoutCause(ctx, endLostWait, fmt.Errorf("they have not ended within %s", endLostWait))
	defer cancel()
	if _, err := sup.Wait(bound, ids, false); err != nil {
		return err
	}
	child.EndProcesses(place.ID(), kept)
	return nil
}
