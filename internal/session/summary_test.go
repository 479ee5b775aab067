package session

import (
	"context"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/tool/tasktools"
	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/test/modeltest"
)

// While an agent runs its summary is renewed from what it reports. Its progress and its
// summary do not overwrite each other.
func TestSummaries(t *testing.T) {
	first, second := make(chan struct{}), make(chan struct{})
	r, _ := served(t, func(_ context.Context, q *modeltest.Request) modeltest.Answer {
		a := modeltest.Text("done")
		switch body := string(q.Body); {
		case strings.Contains(body, "*.none"):
			a.Wait = second
		case strings.Contains(body, "Reading the parser"):
			a = modeltest.Call("Glob", map[string]any{"pattern": "*.none"})
			a.Wait = first
		default:
			a = intends("Reading the parser")
		}
		return a
	}, func(c *Config) { c.Options.Agents.Summaries = time.Millisecond })
	next, stop := iter.Pull2(r.Events(r.ctx, 0))
	defer stop()
	shows := func(what string, want func(task.Progress) bool) {
		t.Helper()
		for {
			e, err, _ := next()
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if p := e.Task.Progress; p != nil && want(*p) {
				return
			}
		}
	}
	out, err := r.asMain().Agent(r.ctx, tasktools.AgentRequest{Description: "d", Prompt: "p", Type: "general-purpose", Background: true})
	if err != nil {
		t.Fatal(err)
	}
	const one = "Reading the parser. 1 call so far, the last one report_intent."
	const two = "Reading the parser. 2 calls so far, the last one Glob *.none."
	shows("the intent", func(p task.Progress) bool { return p.Summary == one })
	close(first)
	shows("progress beside the summary", func(p task.Progress) bool { return p.Summary == one && p.ToolUseCount == 2 })
	shows("the call", func(p task.Progress) bool { return p.Summary == two && p.ToolUseCount == 2 })
	close(second)
	if rec := r.wait(string(out.Task.ID))[0]; rec.Status != task.Completed || rec.Progress.Summary != two {
		t.Errorf("it ended as %s with %+v", rec.Status, rec.Progress)
	}
}
