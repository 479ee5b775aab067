package shell_test

import (
	"testing"

	"github.com/drover-dev/drover/internal/driver/shell"
)

// A command writes by a descriptor of its own to the file: its output does not go
// through the host, which may die.
func TestOwnDescriptor(t *testing.T) {
	h := newHost(t, shell.Command{Line: "readlink /proc/$$/fd/1 /proc/$$/fd/2"})
	if _, err := run(t, h); err != nil || h.text() != h.path+"\n"+h.path+"\n" {
		t.Errorf("it writes to %q, %v", h.text(), err)
	}
}
