package tasks

import (
	"context"
	"errors"

	"github.com/drover-dev/drover/internal/engine/supervise"
	"github.com/drover-dev/drover/task"
)

// watchKeeper stops all commands when the keeper dies, since nothing would end them if this
// process died too.
func (s *Session) watchKeeper(ctx context.Context, died <-chan struct{}) {
	select {
	case <-died:
	case <-ctx.Done():
		return
	}
	why := task.Cause{Reason: task.ReasonKeeperLost, Detail: "the keeper has died"}
	s.StopLost(why, func(r task.Record) bool {
		return (r.Process != nil || r.Traits().Work == task.ByCommand) && !r.Keep
	})
	s.Lose(errors.New("the keeper is gone"))
}

// Lose ends the context of Alone with a cause.
func (s *Session) Lose(cause error) { s.lose(cause) }

// StopLost stops the live tasks that are affected by a loss.
func (s *Session) StopLost(why task.Cause, affected func(task.Record) bool) task.Receipt {
	var ids []task.ID
	for _, r := range s.Tree.Tasks.List(0) {
		if !r.Status.Terminal() && affected(r) {
			ids = append(ids, r.ID)
		}
	}
	why.Actor = task.ByRuntime
	receipt, _ := s.Tree.Tasks.Stop(
		context.Background(), ids, supervise.StopRequest{Cause: why}) // it names every task, and all of them exist
	return receipt
}
