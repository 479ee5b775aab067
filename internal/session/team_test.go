package session

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/internal/policy"
	"github.com/drover-dev/drover/internal/policy/hook"
	"github.com/drover-dev/drover/internal/project/todo"
	"github.com/drover-dev/drover/internal/session/agents"
	"github.com/drover-dev/drover/internal/tool/tasktools"
	"github.com/drover-dev/drover/internal/tool/toolkit"
	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/test/modeltest"
)

// enlist starts a teammate for the main agent.
func (r *testSession) enlist(name, team, prompt string, change ...func(*tasktools.AgentRequest)) task.Record {
	r.t.Helper()
	req := tasktools.AgentRequest{Description: "d", Prompt: prompt, Type: "general-purpose", Name: name, Team: team}
	for _, c := range change {
		c(&req)
	}
	out, err := r.asMain().Agent(r.ctx, req)
	if err != nil || !out.Backgrounded {
		r.t.Fatalf("start %s of %s: %+v, %v", name, team, out, err)
	}
	return out.Task
}

// tell writes to a teammate for the main agent.
func (r *testSession) tell(to, text string) {
	r.t.Helper()
	if _, err := r.asMain().Send(r.ctx, tasktools.SendRequest{To: to, Text: text}); err != nil {
		r.t.Fatal(err)
	}
}

// answered waits until an agent rests after so many answers in its run.
func (r *testSession) answered(id task.ID, n int) task.Record {
	r.t.Helper()
	for {
		committed := r.NextCommit()
		events, err := r.log.Since(r.ctx, 0)
		if err != nil {
			r.t.Fatal(err)
		}
		rec := r.tree.Latest(id)
		rests := 0
		for _, e := range events {
			if e.Task.ID == id && e.Task.Run == rec.Run && e.Verb == task.Rest {
				rests++
			}
		}
		if rests >= n || rec.Status.Terminal() {
			return rec
		}
		select {
		case <-committed:
		case <-r.ctx.Done():
			r.t.Fatalf("%s has rested %d times: %v", id, rests, context.Cause(r.ctx))
		}
	}
}

// mailed is what the main agent has not read, by kind.
func (r *testSession) mailed(kind task.MessageKind) (out []task.Message) {
	r.t.Helper()
	all, err := r.log.Unread(r.ctx, r.cfg.Info.Session)
	if err != nil {
		r.t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(m task.Message) bool { return m.Kind != kind })
}

func echo(_ context.Context, q *modeltest.Request) modeltest.Answer {
	said := q.LastText()
	if i := strings.LastIndex(said, "</system-reminder>"); i >= 0 {
		said = strings.TrimSpace(said[i+len("</system-reminder>"):])
	}
	return modeltest.Text("answer to " + said)
}

func text(s string) modeltest.Answer { return modeltest.Text(s) }

// A teammate stays for messages without the setting for many turns: its identity is
// in its record, its answers reach its leader as mail, it is written to by either of
// its names, and resting changes neither its status nor its end.
func TestTeammate(t *testing.T) {
	r, server := served(t, echo)
	ada, bob := r.enlist("ada", "crew", "look left"), r.enlist("bob", "crew", "look right")
	if kind, _ := ada.ID.Kind(); ada.Kind != task.InProcessTeammate || kind != ada.Kind || ada.ID[0] != 't' || ada.Owner != r.cfg.Info.Session {
		t.Errorf("ada is %+v", ada)
	}
	if want := (task.Team{AgentID: "ada@crew", Name: "ada", Team: "crew", Color: lifecycle.TeamColors()[0]}); ada.Team == nil || *ada.Team != want || ada.Name != "ada@crew" {
		t.Errorf("ada is known as %q, %+v", ada.Name, ada.Team)
	}
	if bob.Team.Color == ada.Team.Color {
		t.Errorf("both are %s", bob.Team.Color)
	}
	for _, m := range []task.Record{ada, bob} {
		if rec := r.answered(m.ID, 1); rec.Status != task.Running || !rec.Idle || rec.EndTime != nil || rec.Activity() != "idle" {
			t.Errorf("after the answer %+v", rec)
		}
	}
	told := r.mailed(task.AgentIdle)
	if len(told) != 2 || !strings.Contains(told[0].Text+told[1].Text, "answer to look left") || !strings.HasSuffix(told[0].From, "@crew") {
		t.Errorf("the leader was told %+v", told)
	}
	r.tell("ada", "further")
	r.answered(ada.ID, 2)
	if _, err := r.Send(r.ctx, control.SendRequest{Ref: "ada@crew", Text: "and further"}); err != nil {
		t.Fatal(err)
	}
	if rec := r.answered(ada.ID, 3); rec.Run != ada.Run {
		t.Errorf("another run: %+v", rec)
	}
	for _, q := range server.Requests() { // contexts do not leak
		body, mine, other := string(q.Body), "look left", "look right"
		if q.AgentID() == string(bob.ID) {
			mine, other = other, mine
		}
		if !strings.Contains(body, mine) || strings.Contains(body, other) {
			t.Errorf("%s was sent %s", q.AgentID(), body)
		}
	}
	if data, err := os.ReadFile(r.cfg.Place.OutputLink(ada.ID)); err != nil || !strings.Contains(string(data), "and further") {
		t.Errorf("the link to the transcript: %q, %v", data, err)
	}
	if data, err := os.ReadFile(ada.OutputFile); err != nil || !strings.Contains(string(data), "answer to look left") {
		t.Errorf("the output: %q, %v", data, err)
	}
	receipt, err := r.Stop(r.ctx, control.StopRequest{Refs: []string{"ada"}})
	if err != nil || len(receipt.Stopped) != 1 || receipt.Stopped[0].Status != task.Killed {
		t.Errorf("stopped: %+v, %v", receipt, err)
	}
	if rec, _ := r.sup.Get(ada.ID); rec.Status != task.Killed || rec.Idle || rec.EndTime == nil || !rec.Notified {
		t.Errorf("stopped as %+v", rec)
	}
}

// What cannot be a teammate is refused, and says why.
func TestTeammateRefusals(t *testing.T) {
	r, _ := served(t, echo)
	r.enlist("ada", "crew", "p")
	r.run("exec sleep 100", named("bob@crew"))
	for name, tt := range map[string]struct {
		name, team, want string
	}{
		"twice":      {"ada", "crew", "ada@crew is there already"},
		"taken":      {"bob", "crew", "give the teammate another name"},
		"main":       {"main", "crew", "a teammate cannot be called main"},
		"at":         {"a@b", "crew", "the name of a teammate is 1 to 40 letters"},
		"team":       {"eve", "my crew", "the name of a team is 1 to 40 letters"},
		"path":       {"..", "crew", "the name of a teammate"},
		"other case": {"eve", strings.Repeat("x", 41), "the name of a team"},
	} {
		_, err := r.asMain().Agent(r.ctx, tasktools.AgentRequest{Description: "d", Prompt: "p", Type: "plan", Name: tt.name, Team: tt.team})
		var refusal *toolkit.Refusal
		if !errors.As(err, &refusal) || !strings.Contains(refusal.Text, tt.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	out, err := r.asMain().Agent(r.ctx, tasktools.AgentRequest{Description: "d", Prompt: "p", Type: "plan", Name: "ada", Team: "other"})
	if err != nil || out.Task.Name != "ada@other" {
		t.Errorf("one of another team: %+v, %v", out, err)
	}
	if _, err := r.asMain().Send(r.ctx, tasktools.SendRequest{To: "ada", Text: "x"}); err == nil || !strings.Contains(err.Error(), "fits 2 tasks") {
		t.Errorf("a name that two teams have: %v", err)
	}
	foreground, _ := served(t, echo, func(c *Config) { c.Options.Tasks.DisableBackground = true })
	if _, err := foreground.asMain().Agent(r.ctx, tasktools.AgentRequest{Description: "d", Prompt: "p", Type: "plan", Name: "eve", Team: "crew"}); err == nil || !strings.Contains(err.Error(), "background work is turned off") {
		t.Errorf("without background work: %v", err)
	}
}

// An agent of an agent leads no team, unless its own agents may run in the
// background; and a team has one leader.
func TestTeammateLeader(t *testing.T) {
	ask := func(nested bool) string {
		said := make(chan string, 10)
		r, _ := served(t, func(_ context.Context, q *modeltest.Request) modeltest.Answer {
			switch {
			case q.Agent() != "general-purpose":
				return text("seen")
			case strings.Contains(q.LastText(), "have a team"):
				return blocks(delegate("plan", "p", "name", "eve", "team_name", "crew"))
			}
			said <- q.LastText()
			return text("done")
		}, func(c *Config) { c.Options.Agents.NestedBackground = nested })
		if nested {
			r.enlist("ada", "crew", "look")
		}
		if _, err := r.asMain().Agent(r.ctx, tasktools.AgentRequest{Description: "d", Prompt: "have a team", Type: "general-purpose", Background: true}); err != nil {
			t.Fatal(err)
		}
		for s := range said {
			if strings.Contains(s, "team") {
				return s
			}
		}
		return ""
	}
	if got := ask(false); !strings.Contains(got, "only the main agent can have teammates") {
		t.Errorf("nested: %s", got)
	}
	if got := ask(true); !strings.Contains(got, "the team crew is led by another") {
		t.Errorf("a second leader: %s", got)
	}
}

// Teammates write to each other by name, and to who leads them.
func TestTeammateTalk(t *testing.T) {
	r, server := served(t, func(_ context.Context, q *modeltest.Request) modeltest.Answer {
		switch last := q.LastText(); {
		case strings.Contains(last, "tell bob"):
			return blocks(modeltest.ToolUse("", "SendMessage", map[string]any{"to": "bob", "message": "the door is <left>"}))
		case strings.Contains(last, "the door is"):
			return blocks(modeltest.ToolUse("", "SendMessage", map[string]any{"to": "main", "message": "ada found a door"}))
		default:
			return text("ok: " + last)
		}
	})
	converse(r).main.Interrupt() // it is there, and reads nothing by itself
	bob := r.enlist("bob", "crew", "wait")
	r.enlist("bob", "other", "wait")
	r.answered(bob.ID, 1)
	r.enlist("ada", "crew", "tell bob")
	r.answered(bob.ID, 2)
	heard := r.mailed(task.PlainMessage)
	if len(heard) != 1 || heard[0].From != "bob@crew" || heard[0].Text != "ada found a door" {
		t.Errorf("the leader heard %+v", heard)
	}
	read := 0
	for _, q := range server.Requests() {
		if strings.Contains(q.LastText(), `<agent-message from="ada@crew" kind="message">`+"\nthe door is &lt;left&gt;") && q.AgentID() == string(bob.ID) {
			read++
		}
	}
	if read != 1 {
		t.Errorf("bob read the message %d times", read)
	}
}

// A to-do that gets a teammate as its owner wakes it, by either name; of two of
// that name the one of the same team.
func TestTeammateAssignment(t *testing.T) {
	r, server := served(t, echo)
	ada := r.enlist("ada", "crew", "wait")
	r.answered(ada.ID, 1)
	for i, by := range []struct{ owner, who string }{{"ada", agents.MainName}, {"ada@crew", agents.MainName}, {"ada", "bob@crew"}} {
		if i == 2 {
			r.enlist("ada", "other", "wait")
		}
		if err := r.agents.Assign(r.ctx, by.owner, todo.Item{ID: todo.ID(i + 1), Subject: "sweep"}, by.who); err != nil {
			t.Fatal(err)
		}
		r.answered(ada.ID, i+2)
	}
	n := 0
	for _, q := range server.Requests() {
		if q.AgentID() == string(ada.ID) && strings.Contains(q.LastText(), `kind="task_assignment">`) {
			n++
		}
	}
	if n != 3 {
		t.Errorf("%d assignments were read", n)
	}
}

// A model that ends a teammate lets it finish: it takes one turn, and its last words
// come as mail with its end. One that takes too long is stopped.
func TestTeammateDismissed(t *testing.T) {
	hold := make(chan struct{})
	r, _ := served(t, func(_ context.Context, q *modeltest.Request) modeltest.Answer {
		last := q.LastText()
		if strings.Contains(last, "never ends") {
			a := text("late")
			a.Wait = hold
			return a
		}
		if strings.Contains(last, `kind="shutdown_request">`) {
			return text("handed back")
		}
		return text("at work")
	})
	defer close(hold)
	rt := r.asMain()
	ada := r.enlist("ada", "crew", "look")
	r.answered(ada.ID, 1)
	rec, receipt, err := rt.Stop(r.ctx, "ada")
	if err != nil || rec.Status != task.Completed || rec.Cause.Reason != task.ReasonDone || len(receipt.Stopped) != 1 {
		t.Errorf("ended as %+v, %+v, %v", rec, receipt, err)
	}
	if a, err := control.WholeResult(r.ctx, r, "ada"); err != nil || a.Text != "handed back" {
		t.Errorf("answer %+v, %v", a, err)
	}
	owed, err := r.log.Unacknowledged(r.ctx, r.cfg.Info.Session)
	if err != nil || len(owed) != 1 {
		t.Fatalf("owed %+v, %v", owed, err)
	}
	said, err := r.mail.Text(r.ctx, owed[0])
	if err != nil || !strings.HasPrefix(said, `<agent-message from="ada@crew" kind="teammate_end">`) || !strings.Contains(said, "handed back") || strings.Contains(said, "task-notification") {
		t.Errorf("the leader reads %s, %v", said, err)
	}
	r.cfg.Options.Agents.TeammateGrace = time.Millisecond
	r.reopen()
	rt = r.asMain()
	bob := r.enlist("bob", "crew", "this never ends")
	r.begun(task.InProcessTeammate)
	if rec, _, err = rt.Stop(r.ctx, "bob"); err != nil || rec.Status != task.Killed || rec.Cause.Actor != task.ByModel {
		t.Errorf("late: %+v, %v", rec, err)
	}
	if n := len(r.mailed(task.TeammateEnd)); n != 0 || r.owed(r.cfg.Info.Session) != 1 {
		t.Errorf("who was answered by the stop of %s is told of it again", bob.ID)
	}
}

// A leader that ends takes its teammates with it, and the receipt names them.
func TestTeammateEndsWithLeader(t *testing.T) {
	r, _ := served(t, func(_ context.Context, q *modeltest.Request) modeltest.Answer {
		if strings.Contains(q.LastText(), "have a team") {
			return blocks(delegate("plan", "p", "name", "eve", "team_name", "crew"), modeltest.ToolUse("", "Bash", map[string]any{"command": "exec sleep 100"}))
		}
		return text("seen")
	}, func(c *Config) { c.Options.Agents.NestedBackground = true })
	out, err := r.asMain().Agent(r.ctx, tasktools.AgentRequest{Description: "d", Prompt: "have a team", Type: "general-purpose", Background: true})
	if err != nil {
		t.Fatal(err)
	}
	eve := r.begun(task.InProcessTeammate)
	r.answered(eve.ID, 1)
	receipt, err := r.Stop(r.ctx, control.StopRequest{Refs: []string{string(out.Task.ID)}})
	if err != nil || !slices.ContainsFunc(receipt.Stopped, func(s task.Stopped) bool { return s.ID == eve.ID }) || len(receipt.Survivors) != 0 {
		t.Errorf("receipt %+v, %v", receipt, err)
	}
	if rec, _ := r.sup.Get(eve.ID); !rec.Status.Terminal() {
		t.Errorf("eve is %+v", rec)
	}
}

// A teammate that ended with its session goes on in a further run of the same kind,
// and reads then what was sent to it before.
func TestTeammateGoesOn(t *testing.T) {
	r, server := served(t, echo)
	ada := r.enlist("ada", "crew", "first")
	r.answered(ada.ID, 1)
	r.reopen()
	old, err := r.Get(r.ctx, "ada")
	if err != nil || old.Status != task.Completed {
		t.Fatalf("after the session %+v, %v", old, err)
	}
	if _, err := r.sup.Post(r.ctx, task.Message{To: ada.ID, From: "bob@crew", Kind: task.PlainMessage, Text: "unread until now"}); err != nil {
		t.Fatal(err)
	}
	owed, err := r.log.Unacknowledged(r.ctx, r.cfg.Info.Session)
	if err != nil || len(owed) != 1 {
		t.Fatalf("owed %+v, %v", owed, err)
	}
	if said, err := r.mail.Text(r.ctx, owed[0]); err != nil || !strings.Contains(said, "has not read: 1") {
		t.Errorf("the leader reads %s, %v", said, err)
	}
	r.tell("ada@crew", "second")
	rec := r.answered(ada.ID, 1)
	if rec.ID != ada.ID || rec.Kind != task.InProcessTeammate || rec.Run == ada.Run || rec.Team == nil || rec.Team.Color != ada.Team.Color || !rec.Idle {
		t.Errorf("it went on as %+v", rec)
	}
	all := server.Requests()
	body := string(all[len(all)-1].Body)
	for _, want := range []string{"answer to first", "unread until now", "second"} {
		if !strings.Contains(body, want) {
			t.Errorf("it was not sent %q: %s", want, body)
		}
	}
}

// A teammate in plan mode changes nothing until its leader has approved a plan, and
// then works in a mode that is no wider than that of the leader.
func TestPlanApproval(t *testing.T) {
	for _, tt := range []struct {
		name    string
		leader  policy.Mode
		answer  *tasktools.PlanAnswer // of the first plan; the second is approved
		mode    string
		written bool
	}{
		{"approved", policy.Bypass, &tasktools.PlanAnswer{Approve: true, Feedback: "mind the tests"}, "acceptEdits", true},
		{"rejected", policy.AcceptEdits, &tasktools.PlanAnswer{Feedback: "too much"}, "acceptEdits", true},
		{"narrow", policy.DontAsk, &tasktools.PlanAnswer{Approve: true}, "dontAsk", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file := ""
			r, server := served(t, func(_ context.Context, q *modeltest.Request) modeltest.Answer {
				write := modeltest.ToolUse("", "Write", map[string]any{"file_path": file, "content": "x"})
				switch last := q.LastText(); {
				case strings.Contains(last, "plan mode: only reading"), strings.Contains(last, `kind="plan_rejected">`):
					return blocks(modeltest.ToolUse("", "submit_plan", map[string]any{"plan": "write the file"}))
				case strings.Contains(last, "look around"), strings.Contains(last, `kind="plan_approved">`):
					return blocks(write)
				default:
					return text("ended with " + last)
				}
			}, func(c *Config) { c.Agents.Rules.Mode = tt.leader })
			file = filepath.Join(r.folder, "out.txt")
			ada := r.enlist("ada", "crew", "look around", func(q *tasktools.AgentRequest) { q.PermissionMode = "plan" })
			if ada.Mode != "plan" {
				t.Fatalf("it works in mode %q", ada.Mode)
			}
			r.answered(ada.ID, 1)
			if _, err := os.Stat(file); err == nil {
				t.Fatal("the file was written in plan mode")
			}
			plans := r.mailed(task.PlanRequest)
			if len(plans) != 1 || !strings.Contains(plans[0].Text, "write the file") || plans[0].From != "ada@crew" || len(r.mailed(task.AgentIdle)) != 0 {
				t.Fatalf("the leader was sent %+v", plans)
			}
			id := between(plans[0].Text, "request ", ".")
			rt := r.asMain()
			answer := func(to string, a tasktools.PlanAnswer) error {
				_, err := rt.Send(r.ctx, tasktools.SendRequest{To: to, Plan: &a})
				return err
			}
			if err := answer("ada", tasktools.PlanAnswer{RequestID: "plan-other", Approve: true}); err == nil || !strings.Contains(err.Error(), "waits for an answer") {
				t.Errorf("an answer to another plan: %v", err)
			}
			tt.answer.RequestID = id
			if err := answer("ada", *tt.answer); err != nil {
				t.Fatal(err)
			}
			if err := answer("ada", tasktools.PlanAnswer{RequestID: id, Approve: true}); err == nil {
				t.Error("a plan was answered twice")
			}
			r.answered(ada.ID, 2)
			if !tt.answer.Approve {
				if _, err := os.Stat(file); err == nil {
					t.Fatal("the file was written although the plan was rejected")
				}
				plans = r.mailed(task.PlanRequest)
				second := between(plans[1].Text, "request ", ".")
				if err := answer("ada", tasktools.PlanAnswer{RequestID: id, Approve: true}); err == nil || second == id {
					t.Error("the first plan was approved in place of the second")
				}
				if err := answer("ada", tasktools.PlanAnswer{RequestID: second, Approve: true}); err != nil {
					t.Fatal(err)
				}
				r.answered(ada.ID, 3)
			}
			if _, err := os.Stat(file); (err == nil) != tt.written {
				t.Errorf("written: %v", err == nil)
			}
			said := ""
			for _, q := range server.Requests() {
				said += q.LastText()
			}
			for _, want := range []string{tt.answer.Feedback, "permission mode " + tt.mode} {
				if !strings.Contains(said, want) {
					t.Errorf("the teammate was not told %q: %s", want, said)
				}
			}
		})
	}
}

// between is what stands in a text behind one piece and before the next of another.
func between(text, from, to string) string {
	_, text, _ = strings.Cut(text, from)
	text, _, _ = strings.Cut(text, to)
	return text
}

// Who leads in plan mode cannot let others leave it, and nobody else answers a plan.
func TestPlanForbidden(t *testing.T) {
	r, _ := served(t, func(_ context.Context, q *modeltest.Request) modeltest.Answer {
		if strings.Contains(q.LastText(), "look around") {
			return blocks(modeltest.ToolUse("", "submit_plan", map[string]any{"plan": "write"}))
		}
		return text("told: " + q.LastText())
	}, func(c *Config) { c.Agents.Rules.Mode = policy.Plan })
	ada := r.enlist("ada", "crew", "look around")
	r.answered(ada.ID, 1)
	if got := r.mailed(task.AgentIdle); len(got) != 1 || !strings.Contains(got[0].Text, "nobody here can let you leave plan mode") || len(r.mailed(task.PlanRequest)) != 0 {
		t.Errorf("the leader was told %+v", got)
	}
	other := r.agents.Runtime(agents.Caller{ID: "a00000000"})
	if _, err := other.Send(r.ctx, tasktools.SendRequest{To: string(ada.ID), Plan: &tasktools.PlanAnswer{RequestID: "plan-1", Approve: true}}); err == nil || !strings.Contains(err.Error(), "only the agent that leads ada@crew") {
		t.Errorf("answered by another: %v", err)
	}
}

// Where a person leads, the plan is a question like any other.
func TestPlanPerson(t *testing.T) {
	file := ""
	r, _ := served(t, func(_ context.Context, q *modeltest.Request) modeltest.Answer {
		switch last := q.LastText(); {
		case strings.Contains(last, "look around"):
			return blocks(modeltest.ToolUse("", "submit_plan", map[string]any{"plan": "write"}))
		case strings.Contains(last, "carry it out"):
			return blocks(modeltest.ToolUse("", "Write", map[string]any{"file_path": file, "content": "x"}))
		}
		return text("done")
	}, func(c *Config) { c.Agents.AskWait = patience })
	file = filepath.Join(r.folder, "out.txt")
	started, err := r.Start(r.ctx, []control.StartRequest{{Name: "ada", Cwd: r.folder, Env: r.cfg.Agents.Env,
		Agent: &control.AgentRequest{Type: "general-purpose", Prompt: "look around", PermissionMode: "plan", Team: "crew"}}})
	if err != nil || started[0].Error != nil {
		t.Fatalf("%+v, %v", started, err)
	}
	open, err := r.Approvals(r.ctx, control.ApprovalsRequest{After: 0, Wait: patience})
	for err == nil && len(open.Questions) == 0 {
		open, err = r.Approvals(r.ctx, control.ApprovalsRequest{After: open.Version, Wait: patience})
	}
	if err != nil || open.Questions[0].Tool != "submit_plan" || !strings.Contains(string(open.Questions[0].Input), `"write"`) {
		t.Fatalf("questions %+v, %v", open, err)
	}
	q := open.Questions[0]
	if err := r.Decide(r.ctx, control.DecideRequest{ID: q.ID, Digest: q.Digest, Reply: task.Reply{Allow: true}}); err != nil {
		t.Fatal(err)
	}
	if rec := r.answered(started[0].Task.ID, 1); !rec.Idle || rec.Name != "ada@crew" {
		t.Errorf("it is %+v", rec)
	}
	if _, err := os.Stat(file); err != nil {
		t.Error("the approved plan was not carried out")
	}
}

// Hooks hear of a teammate that is about to rest and may send it on; its start and
// its stop are told once for a run, however often it rests.
func TestTeammateHooks(t *testing.T) {
	heard := make(chan string, 100)
	sent := 0
	tell := func(event string, answer func() string) hook.Callback {
		return hook.Callback{Event: event, Call: func(_ context.Context, raw json.RawMessage) (json.RawMessage, error) {
			var p struct {
				Name string `json:"teammate_name"`
				Team string `json:"team_name"`
			}
			_ = json.Unmarshal(raw, &p)
			heard <- strings.TrimSpace(event + " " + p.Name + " " + p.Team)
			if answer == nil {
				return nil, nil
			}
			return json.RawMessage(answer()), nil
		}}
	}
	set, problems := new(hook.Set).With(tell("SubagentStart", nil), tell("SubagentStop", nil), tell("TeammateIdle", func() string {
		if sent++; sent == 1 {
			return `{"decision":"block","reason":"look behind you too"}`
		}
		return `{}`
	}))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	r, server := served(t, echo, func(c *Config) { c.Agents.Hooks = set })
	ada := r.enlist("ada", "crew", "look")
	r.answered(ada.ID, 1)
	r.tell("ada", "again")
	r.answered(ada.ID, 2)
	if _, _, err := r.asMain().Stop(r.ctx, "ada"); err != nil {
		t.Fatal(err)
	}
	close(heard)
	var got []string
	for e := range heard {
		got = append(got, e)
	}
	want := []string{"SubagentStart", "TeammateIdle ada crew", "TeammateIdle ada crew", "TeammateIdle ada crew", "SubagentStop"}
	if !slices.Equal(got, want) {
		t.Errorf("heard %q, want %q", got, want)
	}
	if all := server.Requests(); !strings.Contains(all[1].LastText(), "look behind you too") {
		t.Errorf("it was sent on with %q", all[1].LastText())
	}
}

// A message for which an ended teammate cannot go on is not told later: who was refused
// sends it anew.
func TestMessageTakenBack(t *testing.T) {
	known := subagent.Builtin()
	r, _ := served(t, echo, func(c *Config) { c.Agents.Catalog = func() subagent.Catalog { return known } })
	ada := r.enlist("ada", "crew", "look left")
	r.answered(ada.ID, 1)
	if _, err := r.Stop(r.ctx, control.StopRequest{Refs: []string{"ada"}}); err != nil {
		t.Fatal(err)
	}
	known = subagent.Catalog{}
	for name, send := range map[string]func() error{
		"user": func() error { _, err := r.Send(r.ctx, control.SendRequest{Ref: "ada", Text: "further"}); return err },
		"model": func() error {
			_, err := r.asMain().Send(r.ctx, tasktools.SendRequest{To: "ada", Text: "further"})
			return err
		},
	} {
		if err := send(); err == nil {
			t.Errorf("%s: an agent of an unknown kind goes on", name)
		}
		if left, err := r.log.Unread(r.ctx, ada.ID); err != nil || len(left) != 0 {
			t.Errorf("%s: its mailbox holds %+v, %v", name, left, err)
		}
	}
	known = subagent.Builtin()
	r.tell("ada", "once more")
	r.answered(ada.ID, 1)
}

// Who rests and has mail that it has not read is about to wake: nobody who waits for
// the session to be quiet may overlook it.
func TestRests(t *testing.T) {
	s := open(t, "")
	r := task.Record{ID: "t00000001", Idle: true}
	if !s.mail.Waits(r) {
		t.Error("an agent without a mailbox is at work")
	}
	if _, err := s.mail.Open(s.ctx, r.ID); err != nil {
		t.Fatal(err)
	}
	if !s.mail.Waits(r) {
		t.Error("an agent without mail is at work")
	}
	if _, err := s.log.Post(s.ctx, task.Message{To: r.ID, From: "x", Kind: task.PlainMessage, Text: "wake up"}); err != nil {
		t.Fatal(err)
	}
	if s.mail.Waits(r) {
		t.Error("an agent with mail rests")
	}
	if r.Idle = false; s.mail.Waits(r) {
		t.Error("an agent at work rests")
	}
}

// The newest messages of an agent can be read, by face and by program.
func TestMessages(t *testing.T) {
	r, _ := served(t, func(_ context.Context, q *modeltest.Request) modeltest.Answer {
		if strings.Contains(q.LastText(), "look") {
			return blocks(modeltest.ToolUse("", "Bash", map[string]any{"command": "echo found"}))
		}
		return text("done")
	})
	ada := r.enlist("ada", "crew", "look")
	r.answered(ada.ID, 1)
	got, err := r.Messages(r.ctx, control.MessagesRequest{Ref: "ada"})
	if err != nil || got.Task.ID != ada.ID || len(got.List) != 4 {
		t.Fatalf("%+v, %v", got, err)
	}
	call, result := got.List[1].Parts[0], got.List[2].Parts[0]
	if call.Tool != "Bash" || !strings.Contains(call.Text, "echo found") || result.Type != "tool_result" || !strings.Contains(result.Text, "found") || got.List[3].Role != "assistant" {
		t.Errorf("%+v", got.List)
	}
	if last, err := r.Messages(r.ctx, control.MessagesRequest{Ref: string(ada.ID), Limit: 1}); err != nil || len(last.List) != 1 || last.List[0].Parts[0].Text != "done" {
		t.Errorf("the last: %+v, %v", last, err)
	}
	r.run("exec sleep 100", named("slow"))
	if _, err := r.Messages(r.ctx, control.MessagesRequest{Ref: "slow"}); code(err) != control.Conflict {
		t.Errorf("of a command: %v", err)
	}
	if _, err := r.Messages(r.ctx, control.MessagesRequest{Ref: "nobody"}); code(err) != control.NotFound {
		t.Errorf("of nobody: %v", err)
	}
	if none, err := r.Messages(r.ctx, control.MessagesRequest{Ref: string(r.cfg.Info.Session)}); err != nil || len(none.List) != 0 {
		t.Errorf("of a main agent that is not there: %+v, %v", none, err)
	}
}

// The newest event of a task is found behind more events than the log gives at once.
func TestLatest(t *testing.T) {
	r := open(t, "")
	id := r.run("exec sleep 100").ID
	var refs []string
	for range 50 {
		refs = append(refs, string(r.run("true").ID))
	}
	r.wait(refs...)
	if _, err := r.Stop(r.ctx, control.StopRequest{Refs: []string{string(id)}, Actor: task.ByUser}); err != nil {
		t.Fatal(err)
	}
	if got := r.tree.Latest(id); got.Status != task.Killed || r.log.Last() > 256 {
		t.Errorf("%s after %d events", got.Status, r.log.Last())
	}
}
