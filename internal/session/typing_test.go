package session

import (
	"errors"
	"strings"
	"testing"

	"github.com/drover-dev/drover/internal/api/control"
)

// Keys are no prompt.
func TestKeysForAgent(t *testing.T) {
	r := open(t, "")
	_, err := r.Send(r.ctx, control.SendRequest{Ref: string(r.cfg.Info.Session), Text: "\x03", Raw: true})
	var e *control.Error
	if !errors.As(err, &e) || e.Code != control.Conflict || !strings.Contains(e.Message, "no terminal") {
		t.Errorf("got %v", err)
	}
}
