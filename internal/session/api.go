package session

import (
	"context"
	"iter"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/session/requests"
)

var _ control.API = (*Session)(nil)

// Info returns the description of this session.
func (s *Session) Info(context.Context) (control.Info, error) {
	info := s.info()
	info.DiskBytes = s.space.Size()
	info.Problem, _ = s.space.Problem()
	return info, nil
}

// Approvals returns the open questions.
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

// HoldLease holds a lease while ctx lives, and then stops the tasks that were started under it.
func (s *Session) HoldLease(ctx context.Context, name string) error { return s.leases.Keep(ctx, name) }

// State returns the state of the whole session.
func (s *Session) State(ctx context.Context, req control.StateRequest) (control.State, error) {
	return s.idle.State(ctx, req)
}

// Expect keeps a host alive for a while that was started for a client to attach.
func (s *Session) Expect() { s.audience.Expect() }

// Watch yields the events in the conversation of the main agent.
func (s *Session) Watch(ctx context.Context, req control.WatchRequest) iter.Seq2[control.Piece, error] {
	return s.audience.Watch(ctx, req)
}

// abandoned is called when the last attached client has left.
func (s *Session) abandoned() {
	s.idle.Change()
	s.mu.Lock()
	m := s.main
	s.mu.Unlock()
	if m != nil {
		m.Detached()
	}
}
