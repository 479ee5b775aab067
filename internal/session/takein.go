package session

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/drover-dev/drover/internal/api/archive"
	"github.com/drover-dev/drover/internal/driver/remote"
	"github.com/drover-dev/drover/internal/engine/child"
	"github.com/drover-dev/drover/internal/engine/journal"
	"github.com/drover-dev/drover/internal/engine/process"
	"github.com/drover-dev/drover/internal/engine/supervise"
	"github.com/drover-dev/drover/internal/fleet/placement"
	"github.com/drover-dev/drover/internal/platform/failpoint"
	"github.com/drover-dev/drover/task"
)

// takeIn passes the tasks of earlier hosts to the supervisor.
func (s *Session) takeIn(ctx context.Context) error {
	if s.log.Last() == 0 {
		return nil
	}
	left, err := s.Snapshots.Read(ctx)
	if err != nil {
		return err
	}
	old := make([]supervise.Old, len(left.States))
	begun := archive.Begun(left.States, s.cfg.Place.ExitFile)
	for i, st := range left.States {
		old[i] = supervise.Old{Born: st.Born, Task: st.Task}
		if p, ok := begun[st.Task.ID]; ok {
			old[i].Begun = &p
		}
	}
	s.budgets.Restore(left.States, left.Ended)
	for _, st := range left.States {
		if s.tree.GoesOn(st.Task) && st.Task.Parked != nil {
			s.agents.Parking.Restore(*st.Task.Parked)
		}
	}
	s.sup.Remember(left.Ended)
	if err := s.sup.Adopt(ctx, old, s.agents.Driver); err != nil {
		return err
	}
	_ = failpoint.Hit("session/adopted")
	if slices.ContainsFunc(left.States, func(st journal.State) bool { return placement.Misses(st.Task, time.Now()) }) {
		s.jobs.Go(func() { s.fleet.Listen(s.life) })
	}
	remote.RemoveSidecars(s.cfg.Place, func(id task.ID) bool {
		r, known := s.sup.Get(id)
		return known && r.Status.Terminal()
	})
	if err := s.settleLost(ctx, left.States); err != nil {
		return err
	}
	s.endOrphans()
	return nil
}

// lostWait limits how long opening waits until the tasks that died with the earlier host are
// recorded as ended.
const lostWait = 5 * time.Second

// settleLost waits for those records, so that the notifications are delivered with the first
// prompt and not after its answer.
func (s *Session) settleLost(ctx context.Context, states []journal.State) error {
	var dead []task.ID
	for _, st := range states {
		if !st.Task.Status.Terminal() && (!st.Task.Keep || departed(st.Task)) && !s.tree.GoesOn(st.Task) {
			dead = append(dead, st.Task.ID)
		}
	}
	wait, cancel := context.WithTimeoutCause(ctx, lostWait, supervise.ErrTimeout)
	defer cancel()
	_, err := s.sup.Wait(wait, dead, false)
	if errors.Is(err, supervise.ErrTimeout) {
		return nil // it is delivered later
	}
	return err
}

// departed reports whether a command has ended although its end could not be recorded.
func departed(r task.Record) bool {
	p := r.Process
	return p != nil && !process.Alive(process.Identity{PID: p.PID, Start: p.Start, Boot: p.Boot})
}

// endOrphans ends processes of earlier hosts that those did not record.
func (s *Session) endOrphans() {
	kept := map[task.ID]bool{}
	for _, r := range s.sup.List(0) {
		if r.Keep && !r.Status.Terminal() {
			kept[r.ID] = true
		}
	}
	child.EndOrphans(s.cfg.Info.Session, kept)
}
