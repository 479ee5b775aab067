//go:build linux

package soak

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/test/modeltest"
)

// model plays every agent of both hosts.
type model struct {
	*modeltest.Server
	tally *tally

	over atomic.Bool // nothing more is to be started

	mu    sync.Mutex
	turns map[string]int // requests of each subagent that is at work
	n     int            // calls of the main agent so far
}

func newModel(c *tally) (*model, error) {
	m := &model{tally: c, turns: map[string]int{}}
	var err error
	if m.Server, err = modeltest.New(m.answer); err == nil {
		m.Keep(1)
	}
	return m, err
}

// answer tells what a request has cost by its size, so that conversations fill up.
func (m *model) answer(ctx context.Context, r *modeltest.Request) modeltest.Answer {
	last := r.LastText()
	var a modeltest.Answer
	switch {
	case strings.Contains(last, "This conversation is about to be replaced"):
		m.tally.add("compactions")
		a = modeltest.Text("1. Request: go on as before.")
	case r.AgentID() == "":
		a = m.main(last)
	default:
		a = m.sub(ctx, r, last)
	}
	a.Usage = agent.Usage{InputTokens: int64(len(r.Body) / 4), OutputTokens: 20}
	return a
}

// main starts some work whenever it is told of an end, and ends its turn otherwise. So
// something is always at work, whose end begins the next turn.
func (m *model) main(last string) modeltest.Answer {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.over.Load() {
		return modeltest.Text("done")
	}
	// What was started is at work while no end was told since.
	if m.n > 0 && !strings.Contains(last, "<task-notification>") && !strings.Contains(last, "go on as before") {
		return modeltest.Text("waiting")
	}
	m.tally.add("turns")
	m.n++
	var a modeltest.Answer
	call := func(tool string, in map[string]any) { a.Blocks = append(a.Blocks, modeltest.ToolUse("", tool, in)) }
	short := func(line string) {
		call("Bash", map[string]any{"command": line, "run_in_background": true, "description": fmt.Sprintf("command %d", m.n)})
	}
	short(fmt.Sprintf("sleep 0.2; echo done %d; exit %d", m.n, m.n%3))
	switch m.n % 8 {
	case 1, 5:
		call("Agent", map[string]any{"description": fmt.Sprintf("agent %d", m.n), "prompt": fmt.Sprintf("part %d", m.n), "subagent_type": "general-purpose", "run_in_background": true})
	case 2:
		call("Monitor", map[string]any{"description": fmt.Sprintf("monitor %d", m.n), "command": fmt.Sprintf("echo ERR %d; sleep 0.3; echo fine", m.n), "match": "^ERR"})
	case 3:
		call("Workflow", map[string]any{"file": "flow.yaml", "params": map[string]any{"n": fmt.Sprint(m.n)}})
	case 4:
		call("Bash", map[string]any{"command": fmt.Sprintf("sleep 1000 & exec sleep %d", 1000+m.n), "run_in_background": true, "description": fmt.Sprintf("long %d", m.n)})
	case 6:
		call("Bash", map[string]any{"command": fmt.Sprintf("seq %d", 200+m.n%50), "description": "in the foreground"})
	}
	return a
}

// sub is a subagent: it starts a command behind, works on, hears of its end, and answers.
// Those that are told to wait think until they are stopped.
func (m *model) sub(ctx context.Context, r *modeltest.Request, last string) modeltest.Answer {
	m.mu.Lock()
	m.turns[r.AgentID()]++
	turn := m.turns[r.AgentID()]
	if turn > 3 {
		delete(m.turns, r.AgentID())
	}
	m.mu.Unlock()
	switch {
	case strings.Contains(last, "wait for ever"):
		<-ctx.Done()
		return modeltest.Text("never")
	case turn == 1:
		return modeltest.Call("Bash", map[string]any{"command": "echo behind", "run_in_background": true, "description": "behind"})
	case turn == 2:
		return modeltest.Call("Bash", map[string]any{"command": "sleep 0.2; echo before", "description": "before"})
	case turn == 3:
		return modeltest.Call("Bash", map[string]any{"command": "echo again " + r.AgentID(), "description": "again"})
	}
	return modeltest.Text("the part is done")
}
