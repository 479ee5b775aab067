package session

import (
	"errors"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/engine/supervise"
)

// notStarted is the refusal of a start. What comes when the session is closing can
// be given to its next host.
func notStarted(err error) *control.Error {
	e := refusal(err)
	if errors.Is(err, supervise.ErrClosing) {
		e.NotAccepted = true
	}
	return e
}
