package agents

import (
	"errors"
	"testing"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/driver/shell"
	"github.com/drover-dev/drover/task"
)

// A model cannot send a command to a machine of which the session does not know the bounds.
func TestModelStaysHere(t *testing.T) {
	r := control.StartRequest{On: "auto", ByModel: true, Cwd: "/", Shell: &control.ShellRequest{Line: "true"}}
	_, err := (&Set{}).Command(r, task.Spec{}, shell.Client{})
	var refused *control.Error
	if !errors.As(err, &refused) || refused.Code != control.Invalid {
		t.Errorf("a model's command for a worker: %v, want a refusal", err)
	}
}
