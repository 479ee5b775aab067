package control

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/drover-dev/drover/task"
)

// ErrAnswered is the cause of the context of [EachQuestion] when the question is no longer open.
var ErrAnswered = errors.New("the question was answered elsewhere")

// questionWait is how long one request waits for another list.
const questionWait = time.Minute

// EachQuestion calls ask for each open question, each in a goroutine of its own, until ctx ends or the
// session does not answer. The context of a call ends with [ErrAnswered] when its question is no longer open.
// With person the caller shows the questions to a person. All calls have returned when EachQuestion returns;
// the error is nil if ctx has ended.
func EachQuestion(ctx context.Context, api API, person bool, ask func(context.Context, task.Question)) error {
	var asking sync.WaitGroup
	defer asking.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	open := map[string]context.CancelCauseFunc{} // by ID
	for version := int64(0); ; {
		now, err := api.Approvals(ctx, ApprovalsRequest{After: version, Wait: questionWait, Person: person})
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		version = now.Version
		listed := map[string]bool{}
		for _, q := range now.Questions {
			listed[q.ID] = true
			if open[q.ID] == nil {
				one, stop := context.WithCancelCause(ctx)
				open[q.ID] = stop
				asking.Go(func() { ask(one, q) })
			}
		}
		for id, stop := range open {
			if !listed[id] {
				stop(ErrAnswered)
				delete(open, id)
			}
		}
	}
}

// WholeQuestion returns an open question with its complete input, of which a listing may have a part.
func WholeQuestion(ctx context.Context, api API, q task.Question) (whole task.Question, ok bool) {
	if q.Hidden == 0 {
		return q, true
	}
	one, err := api.Approvals(ctx, ApprovalsRequest{ID: q.ID})
	if err != nil || len(one.Questions) != 1 {
		return q, false
	}
	return one.Questions[0], one.Questions[0].Hidden == 0
}

// IsCode reports whether err is an error of the API with this code.
func IsCode(err error, code Code) bool {
	var e *Error
	return errors.As(err, &e) && e.Code == code
}
