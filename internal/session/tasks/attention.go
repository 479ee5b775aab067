package tasks

import (
	"context"
	"errors"
	"time"

	"github.com/drover-dev/drover/internal/api/attention"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/engine/supervise"
	"github.com/drover-dev/drover/task"
)

const (
	seenLimit     = 500                    // number of newest tasks that are checked for failures
	attentionRest = 100 * time.Millisecond // interval between two checks of a waiting caller
	attentionTick = 2 * time.Second        // interval of checks while an item can disappear without an event
)

// Attention returns what needs the user. Events wake a waiting caller; a timer does so only
// while a command waits for input or a limit delays an agent.
func (s *Session) Attention(ctx context.Context, req control.AttentionRequest) (control.Attention, error) {
	wait, cancel := ctx, context.CancelFunc(func() {})
	if req.Wait > 0 {
		wait, cancel = context.WithTimeoutCause(ctx, req.Wait, supervise.ErrTimeout)
	}
	defer cancel()
	for {
		asked, committed := s.Tree.Tasks.QuestionsChanged(), s.Tree.Log.NextCommit()
		problem, changed := s.Space.Problem()
		now, err := s.attention(ctx, problem)
		if err != nil || req.Wait <= 0 || now.Version != req.After {
			return now, err
		}
		var tick <-chan time.Time
		for _, i := range now.Items {
			if i.Kind == attention.Stalled || i.Kind == attention.Parked {
				tick = time.After(attentionTick)
				break
			}
		}
		select {
		case <-asked:
		case <-committed:
		case <-changed.Done():
		case <-tick:
		case <-wait.Done():
		}
		if restFor(wait, attentionRest); wait.Err() == nil {
			continue
		}
		if err := context.Cause(wait); !errors.Is(err, supervise.ErrTimeout) {
			return control.Attention{}, err
		}
		return now, nil
	}
}

// restFor sleeps, or until ctx ends.
func restFor(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func (s *Session) attention(ctx context.Context, problem string) (control.Attention, error) {
	f := attention.Facts{Session: s.Tree.Info.Session, Problem: problem, Waits: s.more.Waits}
	for _, r := range s.Tree.Tasks.List(0) { // all live tasks
		f.Tasks = append(f.Tasks, r)
	}
	known := map[task.ID]bool{}
	for _, r := range f.Tasks {
		known[r.ID] = true
	}
	page, err := s.List(ctx, control.ListRequest{All: true, Limit: seenLimit})
	if err != nil {
		return control.Attention{}, err
	}
	for _, r := range page.Tasks {
		if !known[r.ID] {
			f.Tasks = append(f.Tasks, r)
		}
	}
	f.Questions, _ = s.Tree.Tasks.Questions()
	return control.NewAttention(f, time.Now())
}

// MarkSeen records that the user has seen how tasks ended.
func (s *Session) MarkSeen(ctx context.Context, refs []string) ([]task.Record, error) {
	ids := make([]task.ID, len(refs))
	for i, ref := range refs {
		r, err := s.Get(ctx, ref)
		if err != nil {
			return nil, err
		}
		if !r.Status.Terminal() {
			return nil, Refusal(&task.MoveError{ID: r.ID, From: r.Status, Verb: task.MarkSeen})
		}
		ids[i] = r.ID
	}
	var err error
	out := make([]task.Record, len(ids))
	for i, id := range ids {
		if out[i], err = s.Tree.Tasks.MarkSeen(ctx, id); err != nil {
			return nil, Refusal(err)
		}
	}
	return out, nil
}
