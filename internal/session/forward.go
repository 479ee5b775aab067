package session

import (
	"context"
	"errors"
	"fmt"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/session/sandboxes"
)

// Forward implements [control.API].
func (s *Session) Forward(_ context.Context, req control.ForwardRequest) (control.Forwards, error) {
	switch {
	case req == control.ForwardRequest{}:
	case req.Port < 1 || req.Port > 65535 || req.HostPort < 0 || req.HostPort > 65535:
		return control.Forwards{}, control.Refuse(control.Invalid, "forward a port: ports are 1 to 65535", "")
	case req.End:
		if !s.sandboxes.EndForward(req.Port) {
			return control.Forwards{}, control.Refuse(control.NotFound,
				fmt.Sprintf("port %d of session %s is not forwarded", req.Port, s.cfg.Info.Session), "")
		}
	default:
		err := s.sandboxes.Forward(req.Port, req.HostPort)
		if errors.Is(err, sandboxes.ErrNoRoom) {
			return control.Forwards{}, control.Refuse(control.Unavailable,
				fmt.Sprintf("forward port %d of session %s: %v", req.Port, s.cfg.Info.Session, err), "")
		}
		if err != nil {
			return control.Forwards{}, control.Refuse(control.Conflict,
				fmt.Sprintf("forward port %d of session %s: %v", req.Port, s.cfg.Info.Session, err),
				"choose another port of this machine")
		}
	}
	out := control.Forwards{Forwards: []control.Forward{}}
	for _, f := range s.sandboxes.Forwards() {
		out.Forwards = append(out.Forwards, control.Forward(f))
	}
	return out, nil
}
