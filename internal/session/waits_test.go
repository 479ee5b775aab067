package session

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/engine/mailbox"
	"github.com/drover-dev/drover/internal/tool/tasktools"
	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/test/modeltest"
)

// waiting is an agent that starts a command that waits for [testSession.free], and answers what it reads.
const waiting = `
  general-purpose:
    - tools: [{name: Bash, input: {command: "read x < go; echo over", run_in_background: true}}]
    - text: started
    - {text: "heard {{last}}", repeat: -1}
`

// background starts an agent that works in the background.
func (r *testSession) background(agentType string) task.Record {
	r.t.Helper()
	out, err := r.asMain().Agent(r.ctx, tasktools.AgentRequest{Description: "d", Prompt: "p", Type: agentType, Background: true})
	if err != nil {
		r.t.Fatal(err)
	}
	return out.Task
}

// gate makes what the command of [waiting] waits for.
func (r *testSession) gate() {
	r.t.Helper()
	if err := syscall.Mkfifo(filepath.Join(r.folder, "go"), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// free lets that command end.
func (r *testSession) free() {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.folder, "go"), []byte("x\n"), 0); err != nil {
		r.t.Fatal(err)
	}
}

// command is the only command of the session.
func (r *testSession) command() (found task.Record) {
	for _, rec := range r.sup.List(0) {
		if rec.Kind == task.LocalBash {
			found = rec
		}
	}
	return found
}

// names checks that the record of an agent, and what its owner reads of its end, name the one command.
func (r *testSession) names(agent task.ID, word string) {
	r.t.Helper()
	rec, err := r.Get(r.ctx, string(agent))
	if err != nil {
		r.t.Fatal(err)
	}
	id := r.command().ID
	if len(rec.LeftTasks) != 1 || rec.LeftTasks[0].ID != id ||
		!strings.Contains(mailbox.Render(mailbox.Delivery{Task: rec}), word+": command "+string(id)) {
		r.t.Errorf("%s %+v has left %+v", rec.Status, rec.Cause, rec.LeftTasks)
	}
}

// An agent in the background is not done while its command runs: it rests without a place, says
// what it waits for, counts as work, and goes on with the end of the command.
func TestWaitsForCommand(t *testing.T) {
	r := open(t, waiting+`
  plan:
    - text: planned
`, func(c *Config) { c.Options.Limits.Live = 1 })
	r.gate()
	rt, a := r.asMain(), r.background("general-purpose")
	rec, want := r.idle(a.ID), "command "+string(r.command().ID)
	if rec.Status != task.Running || !strings.Contains(rec.WaitsFor, want) || rec.Resting() {
		t.Fatalf("after its answer %s, it waits for %q", rec.Status, rec.WaitsFor)
	}
	if out, err := rt.Agent(r.ctx, tasktools.AgentRequest{Description: "d", Prompt: "p", Type: "plan"}); err != nil || out.Text != "planned" {
		t.Errorf("the place of the waiting agent: %+v, %v", out, err)
	}
	if s, err := r.State(r.ctx, control.StateRequest{}); err != nil || s.Idle {
		t.Errorf("the session is idle: %+v, %v", s, err)
	}
	if work := r.Session.idle.WaitedFor(); !slices.ContainsFunc(work, func(w task.Record) bool { return w.ID == a.ID }) {
		t.Error("the end of a conversation does not wait for it")
	}
	if got, late, err := rt.Wait(r.ctx, string(a.ID), time.Millisecond); err != nil || !late || got.Status != task.Running {
		t.Errorf("TaskOutput waits for it: %v, %v", late, err)
	}
	r.free()
	if got := r.wait(string(a.ID))[0]; got.Status != task.Completed || got.Run != a.Run || got.WaitsFor != "" || len(got.LeftTasks) != 0 {
		t.Errorf("it ended as %+v", got)
	}
	answer, err := control.WholeResult(r.ctx, r, string(a.ID))
	if err != nil || strings.Count(answer.Text, "<task-notification>") != 1 || !strings.Contains(answer.Text, string(r.command().ID)) {
		t.Errorf("its answer is %q, %v", answer.Text, err)
	}
	if n := r.owed(r.cfg.Info.Session); n != 1 {
		t.Errorf("its owner was notified %d times", n)
	}
}

// However an agent ends while its command runs, its owner reads what was stopped with it.
func TestNamesWhatIsStopped(t *testing.T) {
	limited := subagent.Definition{Name: "limited", Description: "d", Prompt: "p", MaxTurns: 2}
	timed := subagent.Definition{Name: "timed", Description: "d", Prompt: "p", Budget: task.Budget{WallMS: 300}}
	stops := subagent.Definition{Name: "stops", Description: "d", Prompt: "p", OnEnd: task.Stops}
	for name, tt := range map[string]struct {
		agent  string
		change func(*Config)
		end    func(*testSession, task.Record)
		status task.Status
	}{
		"cap":     {"general-purpose", func(c *Config) { c.Options.Agents.WaitForTasks = time.Millisecond }, nil, task.Completed},
		"on-end":  {"stops", nil, nil, task.Completed},
		"turns":   {"limited", nil, nil, task.Failed},
		"time":    {"timed", nil, nil, task.Failed},
		"user":    {"general-purpose", nil, func(r *testSession, a task.Record) { r.stop(string(a.ID)) }, task.Killed},
		"all":     {"general-purpose", nil, func(r *testSession, a task.Record) { r.stop(string(r.command().ID), string(a.ID)) }, task.Killed},
		"closing": {"general-purpose", nil, func(r *testSession, _ task.Record) { r.reopen() }, task.Killed},
	} {
		t.Run(name, func(t *testing.T) {
			script := strings.ReplaceAll(waiting, "general-purpose", tt.agent)
			r := open(t, script, defining(limited, timed, stops), func(c *Config) {
				if tt.change != nil {
					tt.change(c)
				}
			})
			r.gate()
			a := r.background(tt.agent)
			if tt.end != nil {
				r.idle(a.ID)
				tt.end(r, a)
			}
			if got := r.wait(string(a.ID))[0]; got.Status != tt.status {
				t.Errorf("it is %s: %+v", got.Status, got.Cause)
			}
			r.names(a.ID, "Stopped with the agent")
			if rec := r.command(); rec.Status != task.Killed {
				t.Errorf("the command is %s", rec.Status)
			}
		})
	}
}

func (r *testSession) stop(refs ...string) {
	r.t.Helper()
	if _, err := r.Stop(r.ctx, control.StopRequest{Refs: refs, Actor: task.ByUser}); err != nil {
		r.t.Fatal(err)
	}
}

// A stop of a waiting agent ends its commands first. That wakes it for nothing, also while one of
// them takes its time.
func TestStopOfWaiting(t *testing.T) {
	r, server := served(t, modeltest.Turns(map[string][]modeltest.Answer{
		"general-purpose": {
			commanded("trap '' TERM; echo ready; while :; do sleep 0.1; done", true),
			commanded("exec sleep 1000", true), modeltest.Text("started"), modeltest.Text("woken"),
		},
	}))
	a := r.background("general-purpose")
	begun(r)
	r.idle(a.ID)
	r.stop(string(a.ID))
	if n := len(of(server, "general-purpose")); n != 3 {
		t.Errorf("it has asked its model %d times", n)
	}
}

// An end that comes while an agent gives its last answer is read by the agent, in the foreground too.
func TestEndWhileAnswering(t *testing.T) {
	for _, background := range []bool{true, false} {
		var r *testSession
		r, server := served(t, func(_ context.Context, q *modeltest.Request) modeltest.Answer {
			switch n := len(replies(q)); n {
			case 0:
				return commanded("true", true)
			case 1:
				for _, rec := range r.sup.List(0) {
					if rec.Kind == task.LocalBash {
						<-r.sup.Done(rec.ID)
					}
				}
				return modeltest.Text("started")
			}
			return modeltest.Text("heard")
		})
		out, err := r.asMain().Agent(r.ctx, tasktools.AgentRequest{Description: "d", Prompt: "p", Type: "general-purpose", Background: background})
		if err != nil {
			t.Fatal(err)
		}
		r.wait(string(out.Task.ID))
		asked := of(server, "general-purpose")
		if len(asked) != 3 || !strings.Contains(asked[2].LastText(), string(r.command().ID)) {
			t.Errorf("background %v: %d requests", background, len(asked))
		}
	}
}

// An agent that is moved to the background in its turn waits as one that was started there.
func TestPromotedWaits(t *testing.T) {
	hold, asked := make(chan struct{}), make(chan struct{}, 10)
	r, _ := served(t, func(_ context.Context, q *modeltest.Request) modeltest.Answer {
		switch {
		case q.Agent() == "main" && len(replies(q)) == 0:
			return blocks(delegate("general-purpose", "go"))
		case q.Agent() == "main":
			return modeltest.Text(q.LastText())
		case len(replies(q)) == 0:
			return commanded("read x < go", true)
		case len(replies(q)) == 1:
			asked <- struct{}{}
			a := modeltest.Text("started")
			a.Wait = hold
			return a
		}
		return modeltest.Text("SUB HEARD " + q.LastText())
	})
	r.gate()
	c := converse(r)
	c.say("go")
	<-asked
	a := r.only("general-purpose")
	if _, err := r.Promote(r.ctx, string(a.ID)); err != nil {
		t.Fatal(err)
	}
	close(hold)
	if rec := r.idle(a.ID); rec.WaitsFor == "" || rec.Status != task.Running {
		t.Fatalf("after its answer %s, it waits for %q", rec.Status, rec.WaitsFor)
	}
	c.next() // the call has answered that the agent goes on
	r.free()
	if turn := c.next(); !strings.Contains(turn.Result.Text, "SUB HEARD") {
		t.Errorf("the owner has read %s", turn.Result.Text)
	}
	if _, err := c.settle(time.Minute); err != nil || len(c.turns) != 0 {
		t.Errorf("%d further turns, %v", len(c.turns), err)
	}
}

// A monitor alone holds no agent: it is stopped with the agent, and named.
func TestMonitorHoldsNothing(t *testing.T) {
	r := open(t, `
  general-purpose:
    - tools: [{name: Monitor, input: {description: watch, command: "exec sleep 1000"}}]
    - text: started
`)
	a := r.background("general-purpose")
	got := r.wait(string(a.ID))[0]
	if got.Status != task.Completed || len(got.LeftTasks) != 1 || got.LeftTasks[0].Noun != "monitor" || got.LeftTasks[0].Status != task.Killed {
		t.Errorf("%s, it has left %+v", got.Status, got.LeftTasks)
	}
}

// A teammate that waits for its command is at work; one that is ended names the command.
func TestTeammateWaits(t *testing.T) {
	r := open(t, waiting)
	r.gate()
	a := r.enlist("ada", "crew", "p")
	if rec := r.idle(a.ID); !strings.Contains(rec.WaitsFor, "command ") {
		t.Errorf("it waits for %q", rec.WaitsFor)
	}
	if s, err := r.State(r.ctx, control.StateRequest{}); err != nil || s.Idle {
		t.Errorf("the session is idle: %v", err)
	}
	r.stop(string(a.ID))
	r.names(a.ID, "Stopped with the agent")
}

// A paused agent outlasts the limit.
func TestPausedWaits(t *testing.T) {
	r := open(t, waiting, func(c *Config) { c.Options.Agents.WaitForTasks = 500 * time.Millisecond })
	r.gate()
	a := r.background("general-purpose")
	r.idle(a.ID)
	if _, err := r.Pause(r.ctx, []string{string(a.ID)}); err != nil {
		t.Fatal(err)
	}
	ctx, done := context.WithTimeout(r.ctx, time.Second)
	defer done()
	if _, err := r.Wait(ctx, control.WaitRequest{Refs: []string{string(a.ID)}}); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("it has ended: %v", err)
	}
	if _, err := r.Resume(r.ctx, control.ResumeRequest{Ref: string(a.ID)}); err != nil {
		t.Fatal(err)
	}
	r.free()
	if got := r.wait(string(a.ID))[0]; got.Status != task.Completed || len(got.LeftTasks) != 0 {
		t.Errorf("%s, it has left %+v", got.Status, got.LeftTasks)
	}
}

// What an agent reads of a task that it has started promises what its setting keeps.
func TestPromises(t *testing.T) {
	stops := subagent.Definition{Name: "stops", Description: "d", Prompt: "p", OnEnd: task.Stops}
	passes := subagent.Definition{Name: "passes", Description: "d", Prompt: "p", OnEnd: task.Reparents}
	const stopped, passed = "unless you end before: then it is stopped", "unless you end before: then it belongs to the agent that started you"
	for _, tt := range []struct {
		agent          string
		background     bool
		command, watch string
	}{
		{"general-purpose", true, "also after your answer, and go on then; what runs 10m0s after an answer is stopped", stopped},
		{"general-purpose", false, passed, passed},
		{"stops", true, stopped, stopped},
		{"stops", false, stopped, stopped},
		{"passes", true, passed, passed},
	} {
		r, server := served(t, modeltest.Turns(map[string][]modeltest.Answer{tt.agent: {
			commanded("true", true),
			blocks(modeltest.ToolUse("", "Monitor", map[string]any{"description": "d", "command": "exec sleep 1000"})),
			modeltest.Text("done"), modeltest.Text("done"), modeltest.Text("done"),
		}}), defining(stops, passes))
		out, err := r.asMain().Agent(r.ctx, tasktools.AgentRequest{Description: "d", Prompt: "p", Type: tt.agent, Background: tt.background})
		if err != nil {
			t.Fatal(err)
		}
		r.wait(string(out.Task.ID))
		asked := of(server, tt.agent)
		for i, want := range []string{"You will be told when it ends, " + tt.command, "of its end, " + tt.watch} {
			if body := string(asked[i+1].Body); !strings.Contains(body, want) {
				t.Errorf("%s, in the background %v: it reads %s", tt.agent, tt.background, body[max(0, len(body)-900):])
			}
		}
	}
}
