package control

import (
	"errors"
	"testing"
)

// A request names one thing to start, and nothing is guessed.
func TestStartCheck(t *testing.T) {
	for name, c := range map[string]struct {
		r    StartRequest
		good bool
	}{
		"command":  {StartRequest{Shell: &ShellRequest{Line: "x"}}, true},
		"workflow": {StartRequest{Workflow: &WorkflowRequest{File: "/x"}}, true},
		"dream":    {StartRequest{Dream: &DreamRequest{}}, true},
		"nothing":  {StartRequest{}, false},
		"two":      {StartRequest{Dream: &DreamRequest{}, Remote: &RemoteRequest{}}, false},
		"others":   {StartRequest{Monitor: &MonitorRequest{}, Agent: &AgentRequest{}}, false},
		"negative": {StartRequest{Shell: &ShellRequest{Line: "x"}, Timeout: -1}, false},
	} {
		err := c.r.Check()
		var shown *Error
		if (err == nil) != c.good || err != nil && (!errors.As(err, &shown) || shown.Code != Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
