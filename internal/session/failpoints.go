package session

import (
	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/platform/failpoint"
)

// reached reports calls of tools: the agent knows nothing of fail points.
func reached(e agent.Event) {
	switch e.Kind {
	case agent.ToolStartEvent:
		_ = failpoint.Hit("call/begun")
	case agent.ToolDoneEvent:
		_ = failpoint.Hit("call/done")
	}
}
