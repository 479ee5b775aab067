package session

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/session/agents"
	"github.com/drover-dev/drover/internal/tool/tasktools"
	"github.com/drover-dev/drover/internal/tool/toolkit"
	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/test/modeltest"
)

// asMain is the tools' view of the main agent.
func (r *testSession) asMain() *agents.Runtime {
	return r.agents.Runtime(agents.Caller{ID: r.cfg.Info.Session, Cwd: r.folder, Env: r.cfg.Agents.Env, Model: r.cfg.Options.Model, Rules: r.cfg.Agents.Rules})
}

// A message reaches an agent at its next step, its own message reaches the main
// agent, and one that has ended goes on under its ID.
func TestSendMessage(t *testing.T) {
	hold, asked := make(chan struct{}), make(chan struct{})
	subs := 0
	r, server := served(t, func(_ context.Context, q *modeltest.Request) modeltest.Answer {
		last := q.LastText()
		if q.Agent() == "main" {
			switch {
			case strings.Contains(last, "Background task started"):
				<-asked
				return blocks(modeltest.ToolUse("", "SendMessage", map[string]any{"to": "general-purpose", "message": "look <left>", "summary": "left"}))
			case strings.Contains(last, "reads it before its next step"):
				close(hold)
				return modeltest.Text("sent")
			case strings.Contains(last, "begin now"):
				return blocks(delegate("general-purpose", "look", "mode", "background"))
			case strings.Contains(last, "once more"):
				return blocks(modeltest.ToolUse("", "write_agent", map[string]any{"agent_id": "general-purpose", "message": "look right"}))
			}
			return modeltest.Text("heard: " + last)
		}
		subs++
		switch subs {
		case 1:
			close(asked)
			a := blocks(modeltest.ToolUse("", "ListTasks", map[string]any{}))
			a.Wait = hold
			return a
		case 2:
			return blocks(modeltest.ToolUse("", "SendMessage", map[string]any{"to": "main", "message": "found a door"}))
		case 3:
			return modeltest.Text("first report")
		}
		return modeltest.Text("second report")
	})
	c := converse(r)
	begin := func(prompt string) string {
		c.say(prompt)
		var said strings.Builder
		for !strings.Contains(said.String(), "<task-notification>") {
			turn := c.next()
			if turn.Err != nil {
				t.Fatal(turn.Err)
			}
			said.WriteString(turn.Result.Text)
		}
		return said.String()
	}
	if said := begin("begin now"); !strings.Contains(said, `<agent-message from="general-purpose" kind="message">`) || !strings.Contains(said, "found a door") {
		t.Errorf("the main agent heard %s", said)
	}
	if got := of(server, "general-purpose")[1].LastText(); !strings.Contains(got, "<agent-message from=\"main\" kind=\"message\">\nlook &lt;left&gt;") {
		t.Errorf("the agent read %s", got)
	}
	before := r.only("general-purpose")
	begin("once more")
	after := r.only("general-purpose")
	if after.ID != before.ID || after.Run == before.Run || !after.Backgrounded || after.Status != task.Completed || after.Prompt != "look right" {
		t.Errorf("the agent went on as %+v", after)
	}
	if body := string(of(server, "general-purpose")[3].Body); !strings.Contains(body, "first report") || !strings.Contains(body, "look right") {
		t.Errorf("it was sent %s", body)
	}
	got, err := r.asMain().Responses(r.ctx, string(after.ID), 1, 0)
	if err != nil || len(got.List) != 2 || got.List[0].Turn != 2 || got.List[0].Text != "first report" || !got.List[1].Final || got.List[1].Text != "second report" {
		t.Errorf("responses after 1: %+v, %v", got, err)
	}
}

// A message that comes while the last answer is written is answered too.
func TestSendBehindLastCall(t *testing.T) {
	hold, asked := make(chan struct{}), make(chan struct{}, 10)
	r, _ := served(t, func(_ context.Context, q *modeltest.Request) modeltest.Answer {
		asked <- struct{}{}
		if strings.Contains(q.LastText(), "one more thing") {
			return modeltest.Text("that too")
		}
		a := modeltest.Text("done")
		a.Wait = hold
		return a
	})
	rt := r.asMain()
	out, err := rt.Agent(r.ctx, tasktools.AgentRequest{Description: "d", Prompt: "p", Type: "general-purpose", Background: true})
	if err != nil {
		t.Fatal(err)
	}
	<-asked
	if _, err := rt.Send(r.ctx, tasktools.SendRequest{To: string(out.Task.ID), Text: "one more thing"}); err != nil {
		t.Fatal(err)
	}
	waited := make(chan tasktools.Responses, 1)
	go func() { got, _ := rt.Responses(r.ctx, string(out.Task.ID), -1, patience); waited <- got }()
	close(hold)
	if got := <-waited; len(got.List) == 0 || got.List[0].Text != "done" || got.TimedOut {
		t.Errorf("a reader that waited got %+v", got)
	}
	r.wait(string(out.Task.ID))
	if a, err := control.WholeResult(r.ctx, r, string(out.Task.ID)); err != nil || a.Text != "that too" {
		t.Errorf("result %+v, %v", a, err)
	}
	if got, err := rt.Responses(r.ctx, string(out.Task.ID), 1, patience); err != nil || len(got.List) != 0 || got.TimedOut {
		t.Errorf("of an agent that has ended: %+v, %v", got, err)
	}
}

// Each reason that ends the wait of a reader.
func TestResponsesWait(t *testing.T) {
	hold, asked := make(chan struct{}), make(chan struct{}, 10)
	r, _ := served(t, func(context.Context, *modeltest.Request) modeltest.Answer {
		asked <- struct{}{}
		a := modeltest.Text("done")
		a.Wait = hold
		return a
	})
	rt := r.asMain()
	ended := make(chan error, 1)
	go func() {
		_, err := rt.Agent(r.ctx, tasktools.AgentRequest{Description: "d", Prompt: "p", Type: "explore"})
		ended <- err
	}()
	<-asked
	id := string(r.only("explore").ID)
	if got, err := rt.Responses(r.ctx, id, -1, time.Millisecond); err != nil || !got.TimedOut || len(got.List) != 0 {
		t.Errorf("after the time: %+v, %v", got, err)
	}
	waited := make(chan tasktools.Responses, 1)
	wait := func() {
		looked := make(chan struct{})
		ctx := &bounded{Context: r.ctx, looked: sync.OnceFunc(func() { close(looked) })}
		go func() { got, _ := rt.Responses(ctx, id, -1, patience); waited <- got }()
		<-looked
	}
	wait()
	if _, err := r.Promote(r.ctx, id); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if got := <-waited; got.TimedOut || !got.Task.Backgrounded || len(got.List) != 0 {
		t.Errorf("after the move: %+v", got)
	}
	wait()
	close(hold)
	if got := <-waited; got.TimedOut || len(got.List) != 1 || got.List[0].Text != "done" || !got.List[0].Final {
		t.Errorf("after the answer: %+v", got)
	}
	r.wait(id)
	if got, err := rt.Responses(r.ctx, id, 0, patience); err != nil || got.TimedOut || got.Task.Status != task.Completed {
		t.Errorf("after the end: %+v, %v", got, err)
	}
}

// bounded says when a time is set to a wait, which by then knows how its agent was.
type bounded struct {
	context.Context
	looked func()
}

func (b *bounded) Done() <-chan struct{} {
	b.looked()
	return b.Context.Done()
}

// Who may write to whom, and what an agent is told that writes to somebody else.
func TestSendReach(t *testing.T) {
	hold, asked := make(chan struct{}), make(chan string, 10)
	defer close(hold)
	r, _ := served(t, func(_ context.Context, q *modeltest.Request) modeltest.Answer {
		if strings.Contains(q.LastText(), "outer") {
			return blocks(delegate("explore", "inner", "name", "below"))
		}
		asked <- q.Agent()
		a := modeltest.Text("done")
		a.Wait = hold
		return a
	})
	main := r.asMain()
	launch := func(name, agentType, prompt string) task.Record {
		out, err := main.Agent(r.ctx, tasktools.AgentRequest{Description: "d", Prompt: prompt, Type: agentType, Name: name, Background: true})
		if err != nil {
			t.Fatal(err)
		}
		<-asked
		return out.Task
	}
	a, b := launch("ada", "general-purpose", "outer"), launch("bob", "plan", "beside")
	as := func(id task.ID) *agents.Runtime {
		rec, _ := r.sup.Get(id)
		return r.agents.Runtime(agents.Caller{ID: id, Host: &still{rec: rec}})
	}
	below := r.only("explore").ID
	shell := r.run("exec sleep 100")
	for _, tt := range []struct {
		name string
		from *agents.Runtime
		to   string
		want string // of the refusal; empty: it goes through
	}{
		{"main to its agent", main, "ada", ""},
		{"main to one further down", main, "below", ""},
		{"down", as(a.ID), "below", ""},
		{"up", as(below), "ada", ""},
		{"beside", as(b.ID), "ada", ""},
		{"past the parent", as(below), "bob", "live agents: ada (" + string(a.ID) + ")"},
		{"to nobody", main, "eve", `unknown agent: "eve"; live agents: `},
		{"to itself", as(b.ID), "bob", "unknown agent"},
		{"to a main agent that is not there", as(b.ID), "main", "unknown agent"},
		{"to a command", main, string(shell.ID), "is a command without a terminal"},
	} {
		_, err := tt.from.Send(r.ctx, tasktools.SendRequest{To: tt.to, Text: "x"})
		var refused *toolkit.Refusal
		switch {
		case tt.want == "" && err != nil:
			t.Errorf("%s: %v", tt.name, err)
		case tt.want != "" && (!errors.As(err, &refused) || !strings.Contains(refused.Text, tt.want)):
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}

// still is a host that only knows its task.
type still struct {
	task.Host
	rec task.Record
}

func (s *still) Record() task.Record { return s.rec }

// A further run of an agent may do no more than its first one, whoever asks for
// it and by whatever way.
func TestModeIsKept(t *testing.T) {
	r, _ := served(t, func(_ context.Context, q *modeltest.Request) modeltest.Answer {
		if strings.Contains(q.LastText(), "write it") {
			return blocks(modeltest.ToolUse("", "Write", map[string]any{"file_path": "made", "content": "x"}))
		}
		return modeltest.Text("heard: " + q.LastText())
	})
	main := r.asMain()
	first, err := main.Agent(r.ctx, tasktools.AgentRequest{Prompt: "look", Description: "look", PermissionMode: "plan"})
	if err != nil || first.Task.Mode != "plan" {
		t.Fatalf("mode %q, %v", first.Task.Mode, err)
	}
	for _, asked := range []string{"", "bypassPermissions"} {
		again, err := main.Agent(r.ctx, tasktools.AgentRequest{Prompt: "write it", Description: "write", Resume: string(first.Task.ID), PermissionMode: asked})
		if err != nil || !strings.Contains(again.Text, "plan mode") {
			t.Errorf("asked with mode %q it answered %q, %v", asked, again.Text, err)
		}
	}
	if _, err := os.Stat(filepath.Join(r.folder, "made")); err == nil {
		t.Error("the file was written")
	}
}
