package session

import (
	"context"

	"github.com/drover-dev/drover/internal/api/control"
)

// Configure changes the model settings of the main agent.
func (s *Session) Configure(_ context.Context, req control.ConfigureRequest) (control.Settings, error) {
	s.mu.Lock()
	m := s.main
	s.mu.Unlock()
	if m == nil {
		return control.Settings{}, control.Refuse(control.Unavailable,
			"this session has no main agent whose settings could change", "start one with `drover -p`")
	}
	return m.environment().Configure(m.Conversation, req)
}
