package session

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/session/agents"
	"github.com/drover-dev/drover/internal/session/conversation"
	"github.com/drover-dev/drover/task"
)

// The main agent stops a command of a subagent that works on.
func TestOtherOwner(t *testing.T) {
	c := converse(open(t, `
  main:
    - tools: [{name: Agent, input: {description: Outer, prompt: out, subagent_type: general-purpose, run_in_background: true}}]
    - text: started
    - tools: [{name: TaskStop, input: {task_id: '{{last}}'}}]
    - {text: x, repeat: -1}
  general-purpose:
    - tools: [{name: Bash, input: {command: "sleep 100", run_in_background: true}}]
    - delay: 5s
      text: "done"
`))
	c.say("go")
	c.next()
	var id task.ID
	for e, err := range c.Events(c.ctx, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Verb == task.Begin && e.Task.Process != nil {
			id = e.Task.ID
			break
		}
	}
	rt := c.agents.Runtime(agents.Caller{ID: c.cfg.Info.Session, Cwd: "/"})
	r, _, err := rt.Stop(context.Background(), string(id))
	if err != nil {
		t.Fatal(err)
	}
	ns, _ := c.log.Notifications(c.ctx)
	for _, n := range ns {
		if n.Task == id && n.Acked {
			t.Errorf("owner %s, stopped by %s: its notification was born acknowledged (%+v)", n.Owner, rt.ID, r.Cause)
		}
	}
}

// Closing while the main agent, as a task, is in a turn.
func TestCloseTurn(t *testing.T) {
	r := open(t, `
  main:
    - tools: [{name: Bash, input: {command: "echo ready; exec sleep 100"}}]
    - text: "x"
`)
	var turns []conversation.Turn
	m, err := r.OpenMain(r.ctx, MainConfig{Done: func(turn conversation.Turn) { turns = append(turns, turn) }})
	if err != nil {
		t.Fatal(err)
	}
	r.start(m, "go", time.Minute)
	for e, err := range r.Events(r.ctx, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Verb == task.Begin && e.Task.Process != nil {
			break
		}
	}
	err = r.Close()
	for _, turn := range turns {
		t.Logf("turn: %v", turn.Err)
		if turn.Err != nil && strings.Contains(turn.Err.Error(), "closed") {
			t.Errorf("the transcript was closed under the turn: %v", turn.Err)
		}
	}
	rec, _ := r.sup.Get(r.cfg.Info.Session)
	t.Logf("close: %v; main: %s %+v %s", err, rec.Status, rec.Cause, rec.Error)
}

// Who reads the log to its end has the time for that: the ends of what the session ends are in it, and it is open.
func TestEnded(t *testing.T) {
	var told []task.Seq
	var read []task.Event
	var r *testSession
	r = open(t, "", func(c *Config) {
		c.Ended = func(last task.Seq) {
			told = append(told, last)
			for e, err := range r.Events(r.ctx, 0) {
				if err != nil {
					t.Error(err)
					return
				}
				if read = append(read, e); e.Seq == last {
					return
				}
			}
		}
	})
	if _, err := r.Start(r.ctx, []control.StartRequest{{Shell: &control.ShellRequest{Line: "exec sleep 1000"}}}); err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if len(told) != 1 || len(read) == 0 {
		t.Fatalf("told of the end %v, read %d events", told, len(read))
	}
	if e := read[len(read)-1]; e.Task.Status != task.Killed {
		t.Errorf("the last event is %s of a task that is %s", e.Verb, e.Task.Status)
	}
}
