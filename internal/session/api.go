package session

import (
	"context"
	"iter"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/session/requests"
)

var _ control.API = (*Session)(nil)

// Info says which session this is.
func (s *Session) Info(context.Context) (control.Info, error) {
	info := s.info()
	info.DiskBytes = s.space.Size()
	info.Problem, _ = s.space.Problem()
	return info, nil
}

// Approvals returns the questions that wait for an answer.
func (s *Session) Approvals(ctx context.Context, req control.ApprovalsRequest) (control.Approvals, error) {
	return s.approvals.Open(ctx, req)
}

// Decide answers a question.
func (s *Session) Decide(ctx context.Context, req control.DecideRequest) error {
	if err := s.approvals.Decide(ctx, req); err != nil {
		return requests.Refusal(err)
	}
	return nil
}

// HoldLease keeps a lease while ctx lives, then stops what was started under it.
func (s *Session) HoldLease(ctx context.Context, name string) error { return s.leases.Keep(ctx, name) }

// State says where the session stands as a whole.
func (s *Session) State(ctx context.Context, req control.StateRequest) (control.State, error) {
	return s.idle.State(ctx, req)
}

// Expect keeps the host for a while that was started for somebody to attach.
func (s *Session) Expect() { s.audience.Expect() }

// Watch yields what happens in the conversation of the main agent.
func (s *Session) Watch(ctx context.Context, req control.WatchRequest) iter.Seq2[control.Piece, error] {
	return s.audience.Watch(ctx, req)
}

// abandoned is called when the last who was attached has gone.
func (s *Session) abandoned() {
	s.idle.Change()
	s.mu.Lock()
	m := s.main
	s.mu.Unlock()
	if m != nil {
		m.Detached()
	}
}
