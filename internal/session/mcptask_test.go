package session

import (
	"testing"

	"github.com/drover-dev/drover/task"
)

// A task of an MCP server holds the session from being idle, as an agent does.
func TestMCPTaskHoldsIdle(t *testing.T) {
	r := open(t, "")
	r.until("rest", isIdle)
	_, h := r.hold(task.MCPTask)
	r.until("work", busy)
	close(h.end)
	if s := r.until("last rest", isIdle); s.IdleCount != 2 {
		t.Errorf("at last %+v", s)
	}
}
