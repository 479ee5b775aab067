package session

import (
	"context"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/api/archive"
	"github.com/drover-dev/drover/internal/api/control"
)

// Prompts are what the user has written in the conversation.
func (s *Session) Prompts(context.Context) (control.Prompts, error) {
	return archive.Prompts(s.cfg.Place)
}

// Fork makes another session that continues a copy of the conversation.
func (s *Session) Fork(_ context.Context, req control.ForkRequest) (control.Forked, error) {
	return archive.Fork(s.cfg.Place, req, agent.Meta{Version: s.cfg.Info.Version, Cwd: s.cfg.Info.Project})
}
