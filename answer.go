package drover

import (
	"context"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/task"
)

// answerPoll is how long one wait for questions takes. A new one ends it at once.
const answerPoll = time.Minute

// answer gives each question to f, until the runtime closes.
func (rt *Runtime) answer(f func(context.Context, task.Question) (task.Reply, error)) {
	ctx, cancel := context.WithCancelCause(context.Background())
	rt.unanswer = cancel
	rt.answers.Go(func() {
		given := map[string]context.CancelFunc{} // by the question
		version := int64(-1)
		for {
			open, err := rt.s.Approvals(ctx, control.ApprovalsRequest{After: version, Wait: answerPoll})
			if err != nil || ctx.Err() != nil {
				return
			}
			version = open.Version
			isOpen := map[string]bool{}
			for _, q := range open.Questions {
				isOpen[q.ID] = true
				if given[q.ID] != nil {
					continue
				}
				one, end := context.WithCancel(ctx)
				given[q.ID] = end
				rt.answers.Go(func() { rt.answerOne(one, q, f) })
			}
			for id, end := range given {
				if !isOpen[id] {
					end()
					delete(given, id)
				}
			}
		}
	})
}

func (rt *Runtime) answerOne(
	ctx context.Context,
	q task.Question,
	f func(context.Context, task.Question) (task.Reply, error),
) {
	if q.Hidden > 0 { // the answer needs the whole request
		whole, err := rt.s.Approvals(ctx, control.ApprovalsRequest{ID: q.ID})
		if err != nil || len(whole.Questions) == 0 {
			return
		}
		q = whole.Questions[0]
	}
	reply, err := f(ctx, q)
	if ctx.Err() != nil {
		return
	}
	if err == nil {
		err = q.Check(reply)
	}
	if err != nil {
		rt.log.Warn("question "+q.ID+" was not answered: "+err.Error(), "task", string(q.Task))
		return
	}
	// An answer that was given meanwhile wins: the error is of no use.
	_ = rt.s.Decide(ctx, control.DecideRequest{ID: q.ID, Digest: q.Digest, Reply: reply, Actor: task.ByClient})
}
