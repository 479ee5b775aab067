package session

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/tool/tasktools"
	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/test/modeltest"
)

// What somebody outside sends reaches agents, alive or not, and the main agent;
// a command cannot read it, and the error says what to do.
func TestSteer(t *testing.T) {
	hold, asked := make(chan struct{}), make(chan struct{}, 10)
	r, server := served(t, func(_ context.Context, q *modeltest.Request) modeltest.Answer {
		a := modeltest.Text("answer to " + q.LastText())
		if q.Agent() == "explore" && strings.Contains(q.LastText(), "look around") {
			asked <- struct{}{}
			a.Wait = hold
		}
		return a
	})
	c := converse(r)
	out, err := r.asMain().Agent(r.ctx, tasktools.AgentRequest{Description: "d", Prompt: "look around", Type: "explore", Name: "ada", Background: true})
	if err != nil {
		t.Fatal(err)
	}
	id := string(out.Task.ID)
	<-asked
	if rec, err := r.Send(r.ctx, control.SendRequest{Ref: "ada", Text: "and behind"}); err != nil || rec.ID != out.Task.ID || rec.Run != out.Task.Run {
		t.Errorf("to a running agent: %+v, %v", rec, err)
	}
	if _, err := r.Resume(r.ctx, control.ResumeRequest{Ref: "ada"}); code(err) != control.Conflict || !strings.Contains(err.Error(), "not paused") {
		t.Errorf("resume of a running agent: %v", err)
	}
	close(hold)
	r.wait(id)
	if a, err := control.WholeResult(r.ctx, r, id); err != nil || !strings.Contains(a.Text, "<agent-message from=\"user\" kind=\"message\">\nand behind") {
		t.Errorf("the agent answers %q, %v", a.Text, err)
	}
	for _, tt := range []struct {
		name string
		do   func() (task.Record, error)
		want string
	}{
		{"a message", func() (task.Record, error) { return r.Send(r.ctx, control.SendRequest{Ref: id, Text: "more"}) }, "more"},
		{"resume", func() (task.Record, error) { return r.Resume(r.ctx, control.ResumeRequest{Ref: id}) }, "Go on."},
		{"resume with a prompt", func() (task.Record, error) {
			return r.Resume(r.ctx, control.ResumeRequest{Ref: id, Prompt: "the rest"})
		}, "the rest"},
	} {
		before, _ := r.sup.Get(out.Task.ID)
		rec, err := tt.do()
		if err != nil || rec.ID != before.ID || rec.Run == before.Run || !rec.Backgrounded || rec.Owner != before.Owner {
			t.Fatalf("%s to an agent that has ended: %+v, %v", tt.name, rec, err)
		}
		r.wait(id)
		requests := of(server, "explore")
		if got := requests[len(requests)-1]; got.LastText() != tt.want || !strings.Contains(string(got.Body), "look around") {
			t.Errorf("%s: it was sent %s", tt.name, got.Body)
		}
	}
	if rec, err := r.Send(r.ctx, control.SendRequest{Ref: string(r.cfg.Info.Session), Text: "and you"}); err != nil || rec.ID != r.cfg.Info.Session {
		t.Errorf("to the session: %+v, %v", rec, err)
	}
	for {
		turn := c.next()
		if turn.Origin == "" && strings.Contains(turn.Result.Text, "and you") {
			break
		}
	}
	shell := r.run("exec sleep 100")
	if _, err := r.Send(r.ctx, control.SendRequest{Ref: string(shell.ID), Text: "yes"}); code(err) != control.Conflict || !strings.Contains(err.Error(), "drover stop "+string(shell.ID)) {
		t.Errorf("to a command: %v", err)
	}
	if _, err := r.Stop(r.ctx, control.StopRequest{Refs: []string{string(shell.ID)}}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Resume(r.ctx, control.ResumeRequest{Ref: string(shell.ID)}); code(err) != control.Conflict || !strings.Contains(err.Error(), "cannot go on") {
		t.Errorf("resume of a command: %v", err)
	}
	if _, err := r.Pause(r.ctx, []string{string(shell.ID)}); code(err) != control.Conflict {
		t.Errorf("pause of what has ended: %v", err)
	}
	for _, req := range []control.SendRequest{{Ref: id, Text: " "}, {Ref: "nobody", Text: "x"}} {
		if _, err := r.Send(r.ctx, req); code(err) != control.Invalid && code(err) != control.NotFound {
			t.Errorf("%+v: %v", req, err)
		}
	}
}

// A paused agent asks its model for nothing and begins no call, its place is free,
// its commands stand still, and then all go on where they were.
func TestPause(t *testing.T) {
	hold, asked := make(chan struct{}), make(chan string, 10)
	r, server := served(t, func(_ context.Context, q *modeltest.Request) modeltest.Answer {
		asked <- q.Agent()
		switch {
		case q.Agent() == "plan":
			return modeltest.Text("planned")
		case len(replies(q)) == 0:
			return blocks(modeltest.ToolUse("", "Bash", map[string]any{"command": "while sleep 0.01; do echo tick; done", "description": "tick", "run_in_background": true}))
		case len(replies(q)) == 1:
			a := blocks(modeltest.ToolUse("", "ListTasks", map[string]any{}))
			a.Wait = hold
			return a
		}
		return modeltest.Text("worked")
	}, func(cfg *Config) { cfg.Options.Limits.Live, cfg.Options.Agents.WaitForTasks = 1, time.Millisecond })
	rt := r.asMain()
	out, err := rt.Agent(r.ctx, tasktools.AgentRequest{Description: "d", Prompt: "work", Type: "general-purpose", Name: "ada", Background: true})
	if err != nil {
		t.Fatal(err)
	}
	<-asked
	<-asked // the second reply is on its way
	var shell task.Record
	for _, rec := range r.sup.List(0) {
		if rec.Kind == task.LocalBash {
			shell = rec
		}
	}
	for shell.Status != task.Running {
		committed := r.NextCommit()
		if shell, _ = r.sup.Get(shell.ID); shell.Status.Terminal() {
			t.Fatalf("the command ended as %+v", shell)
		}
		if shell.Status == task.Pending {
			<-committed
		}
	}
	recs, err := r.Pause(r.ctx, []string{"ada"})
	if err != nil || len(recs) != 2 || recs[0].ID != out.Task.ID || !recs[0].Paused || !recs[1].Paused {
		t.Fatalf("paused %+v, %v", recs, err)
	}
	shell, _ = r.sup.Get(shell.ID)
	for stateOf(t, shell.Process.PID) != "T" { // a signal needs a moment, and the kernel tells nobody
		if r.ctx.Err() != nil {
			t.Fatal("the command does not stand still")
		}
	}
	close(hold) // the reply ends, and its call does not begin
	next, err := rt.Agent(r.ctx, tasktools.AgentRequest{Description: "d", Prompt: "plan", Type: "plan"})
	if err != nil || next.Text != "planned" {
		t.Fatalf("the place of the paused agent: %+v, %v", next, err)
	}
	if rec, _ := r.sup.Get(out.Task.ID); rec.Status != task.Running || !rec.Paused {
		t.Errorf("meanwhile %+v", rec)
	}
	if n := len(of(server, "general-purpose")); n != 2 {
		t.Errorf("%d requests while paused", n)
	}
	if rec, err := r.Resume(r.ctx, control.ResumeRequest{Ref: "ada"}); err != nil || rec.Paused {
		t.Fatalf("resumed %+v, %v", rec, err)
	}
	for stateOf(t, shell.Process.PID) == "T" {
		if r.ctx.Err() != nil {
			t.Fatal("the command stands still")
		}
	}
	got := r.wait(string(out.Task.ID))
	if got[0].Status != task.Completed || got[0].Run != out.Task.Run {
		t.Errorf("ended as %+v", got[0])
	}
}

// stateOf is the letter of a process in the kernel's table.
func stateOf(t *testing.T, pid int) string {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Skip("no process table here")
	}
	_, rest, _ := strings.Cut(string(data), ") ")
	return rest[:1]
}

// replies are the replies of the agent so far, as a request holds them.
func replies(q *modeltest.Request) []string {
	return strings.Split(string(q.Body), `"role":"assistant"`)[1:]
}
