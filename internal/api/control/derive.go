package control

import (
	"time"

	"github.com/drover-dev/drover/task"
)

// The event names of the Copilot CLI; docs/control-api.md lists their fields. The spelling is
// unchanged.
const (
	agentCompletedEvent = "agent_completed"
	agentIdleEvent      = "agent_idle"
	boundaryEvent       = "subagent_session_boundary"
	idleEvent           = "session.idle"
	taskCompleteEvent   = "session.task_complete"
)

// derived is an event under a foreign name.
type derived struct {
	name string
	data any
}

// agentData is common to all events about a subagent.
type agentData struct {
	Type        string     `json:"type,omitempty"` // of a boundary: start, end or failure
	Status      string     `json:"status,omitempty"`
	AgentID     task.ID    `json:"agentId"`
	AgentType   string     `json:"agentType"`
	Name        string     `json:"name"`
	Description string     `json:"description,omitempty"`
	RunID       task.RunID `json:"runId"`
	SessionID   task.ID    `json:"sessionId"`
	ParentID    task.ID    `json:"parentId,omitempty"`
	ToolCallID  string     `json:"toolCallId,omitempty"`
	Model       string     `json:"model,omitempty"`
	Error       string     `json:"error,omitempty"`
	Reason      string     `json:"reason,omitempty"` // why the run ended
	Usage       *agentUsed `json:"usage,omitempty"`
	At          time.Time  `json:"timestamp"`
}

type agentUsed struct {
	Tokens     int64 `json:"totalTokens"`
	ToolCalls  int   `json:"toolCalls"`
	DurationMS int64 `json:"durationMs"`
}

type idleData struct {
	N int64 `json:"n"` // 1 for the first time
}

// derive returns the foreign events that follow from one event, in order. They depend on it
// alone, so that reading a log again gives the same. A run that began has one start and one end
// or failure; one that ended in the queue has neither.
func derive(e task.Event) []derived {
	r := e.Task
	if !r.Traits().Boundary || r.IsConversation() {
		return nil
	}
	boundary := func(what string) derived {
		d := about(e)
		d.Type, d.Status, d.Usage = what, "", nil
		return derived{boundaryEvent, d}
	}
	switch e.Verb {
	case task.Begin:
		if len(r.Attempts) > 0 {
			return nil // it has begun before
		}
		return []derived{boundary("start")}
	case task.Rest:
		if !r.Resting() {
			return nil
		}
		return []derived{{agentIdleEvent, about(e)}}
	case task.Complete, task.Fail, task.Stop:
		completed := derived{agentCompletedEvent, about(e)}
		if r.StartTime == nil {
			return []derived{completed}
		}
		what := "end"
		if r.Status != task.Completed {
			what = "failure"
		}
		return []derived{boundary(what), completed}
	}
	return nil
}

func about(e task.Event) agentData {
	r := e.Task
	d := agentData{
		Status:      dialect(r),
		AgentID:     r.ID,
		AgentType:   r.AgentType,
		Name:        r.Name,
		Description: r.Description,
		RunID:       r.Run,
		SessionID:   r.Session,
		ParentID:    r.Parent,
		ToolCallID:  r.ToolUseID,
		Model:       r.Model,
		Error:       r.Error,
		At:          e.At,
	}
	if r.Cause != nil {
		d.Reason = string(r.Cause.Reason)
	}
	if u := r.Usage; u != nil {
		d.Usage = &agentUsed{Tokens: u.TotalTokens, ToolCalls: u.ToolUses, DurationMS: u.DurationMS}
	}
	return d
}

// dialect returns a status in the spelling of that program.
func dialect(r task.Record) string {
	switch {
	case r.Status == task.Killed:
		return "cancelled"
	case r.Status.Terminal():
		return string(r.Status)
	case r.Resting():
		return "idle"
	}
	return "running"
}
