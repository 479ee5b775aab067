package session

import (
	"context"

	"github.com/drover-dev/drover/internal/api/archive"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/task"
)

// Messages are the newest messages of an agent.
func (s *Session) Messages(_ context.Context, req control.MessagesRequest) (control.Messages, error) {
	r, err := s.tree.Find(req.Ref)
	if own := s.cfg.Info.Session; err != nil && req.Ref == string(own) {
		r, err = task.Record{ID: own, Session: own, Kind: task.MainKind}, nil
	}
	if err != nil {
		return control.Messages{}, refusal(err)
	}
	return archive.Messages(s.cfg.Place, r, req.Limit)
}
