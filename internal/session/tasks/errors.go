package tasks

import (
	"errors"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/engine/supervise"
	"github.com/drover-dev/drover/task"
)

// Refusal converts an error of the engine into one for the user.
func Refusal(err error) *control.Error {
	var limit *supervise.LimitError
	var several *supervise.AmbiguousError
	var mute *task.SteerError
	switch {
	case errors.Is(err, supervise.ErrUnknown):
		e := control.NotFoundError("")
		e.Message = err.Error()
		return e
	case errors.As(err, &several):
		e := control.Refuse(control.Ambiguous, err.Error(), "give more of the ID")
		for _, r := range several.Matches {
			e.Matches = append(e.Matches, string(r.ID))
		}
		return e
	case errors.As(err, &limit),
		errors.Is(err, supervise.ErrClosing),
		errors.Is(err, supervise.ErrFrozen):
		return control.Refuse(control.Unavailable, err.Error(), "")
	case errors.As(err, &mute):
		return control.Refuse(control.Conflict, err.Error(), "")
	}
	return control.AsError(err)
}

// NotStarted is the error of a refused start. A start that is refused because the session is
// closing may be sent to its next host.
func NotStarted(err error) *control.Error {
	e := Refusal(err)
	if errors.Is(err, supervise.ErrClosing) {
		e.NotAccepted = true
	}
	return e
}
