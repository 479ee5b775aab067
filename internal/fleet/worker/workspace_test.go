package worker

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/fleet/fleetwire"
)

// counted is a tool that counts its calls.
type counted struct {
	n    atomic.Int64
	hold chan struct{} // a call waits for its end
}

func (c *counted) Spec() agent.ToolSpec { return agent.ToolSpec{Name: "Count"} }

func (c *counted) Call(context.Context, agent.Call) (agent.Output, error) {
	n := c.n.Add(1)
	<-c.hold
	return agent.Output{Text: fmt.Sprint(n)}, nil
}

// A call is done once, however often and whenever it is asked for.
func TestCallOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tool := &counted{hold: make(chan struct{})}
		ws := &workspace{calls: map[string]*call{}, tools: []agent.Tool{tool}}
		ask := func(id string) string {
			a, err := ws.call(t.Context(), fleetwire.Call{ID: id, Tool: "Count"})
			if err != nil {
				t.Error(err)
			}
			return a.Text
		}
		var asking sync.WaitGroup
		for range 5 {
			asking.Go(func() {
				if got := ask("one"); got != "1" {
					t.Errorf("the answer is %q", got)
				}
			})
		}
		synctest.Wait()
		close(tool.hold)
		asking.Wait()
		if got := ask("one"); got != "1" {
			t.Errorf("asked again after its end: %q", got)
		}
		if got := ask("two"); got != "2" {
			t.Errorf("another call: %q", got)
		}
		for i := range keptCalls {
			ask(fmt.Sprint(i))
		}
		if len(ws.calls) > keptCalls || len(ws.order) > keptCalls {
			t.Errorf("%d answers are kept", len(ws.calls))
		}
		ws.end()
		if _, err := ws.call(t.Context(), fleetwire.Call{ID: "late", Tool: "Count"}); err == nil {
			t.Error("a workspace that has ended takes a call")
		}
	})
}

// Only the claim that has the workspace may use it.
func TestWorkspaceOf(t *testing.T) {
	w := New(Config{Name: "w"})
	c := newClaim("session", "task", fleetwire.Grant{Epoch: 3}, "start")
	w.claims["task"] = c
	if _, err := w.workspaceOf("task", "session", 3); err == nil || !strings.Contains(err.Error(), "not there yet") {
		t.Errorf("before it is made: %v", err)
	}
	c.workspace = &workspace{}
	if ws, err := w.workspaceOf("task", "session", 3); ws != c.workspace || err != nil {
		t.Errorf("its own: %v", err)
	}
	for name, f := range map[string]func() (*workspace, error){
		"an older epoch":  func() (*workspace, error) { return w.workspaceOf("task", "session", 2) },
		"a newer epoch":   func() (*workspace, error) { return w.workspaceOf("task", "session", 4) },
		"another session": func() (*workspace, error) { return w.workspaceOf("task", "other", 3) },
		"another task":    func() (*workspace, error) { return w.workspaceOf("other", "session", 3) },
	} {
		if ws, err := f(); ws != nil || err == nil {
			t.Errorf("%s has it", name)
		}
	}
}
