package session

import (
	"context"
	"iter"

	"github.com/drover-dev/drover/internal/api/control"
)

var _ control.API = (*Session)(nil)

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
