package session

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/engine/supervise"
	"github.com/drover-dev/drover/internal/model/usage"
	"github.com/drover-dev/drover/internal/session/conversation"
	"github.com/drover-dev/drover/internal/tool/tasktools"
	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/test/modeltest"
)

// defining adds sorts of agents.
func defining(defs ...subagent.Definition) func(*Config) {
	return func(c *Config) {
		c.Agents.Catalog = func() subagent.Catalog { return subagent.NewCatalog(append(subagent.Builtin().All(), defs...)...) }
	}
}

func commanded(line string, background bool) modeltest.Answer {
	return blocks(modeltest.ToolUse("", "Bash", map[string]any{"command": line, "run_in_background": background}))
}

// prices are those that everybody pays.
func prices(t *testing.T) usage.Table {
	t.Helper()
	table, wrong := usage.NewTable(nil, nil)
	if len(wrong) > 0 {
		t.Fatal(wrong)
	}
	return table
}

// costing is an answer that has cost so many tokens.
func costing(tokens int64, a modeltest.Answer) modeltest.Answer {
	a.Usage.InputTokens, a.Usage.OutputTokens = tokens-100, 100
	return a
}

// What the user has stopped begins no turn: it waits for the prompt of the user,
// or comes with a turn that begins for another reason.
func TestLatch(t *testing.T) {
	c := converse(open(t, `
  main:
    - {text: "{{last}}", repeat: -1}
`))
	owned := func() task.ID {
		t.Helper()
		rec, err := c.sup.Start(c.ctx, sleeper{}, task.Spec{Owner: c.cfg.Info.Session, Backgrounded: true, Description: "nap"})
		if err != nil {
			t.Fatal(err)
		}
		return rec.ID
	}
	stop := func(id task.ID, by task.Actor) {
		t.Helper()
		if _, err := c.Stop(c.ctx, control.StopRequest{Refs: []string{string(id)}, Actor: by}); err != nil {
			t.Fatal(err)
		}
	}
	one, two, three := owned(), owned(), owned()
	stop(one, task.ByUser)
	if n := c.owed(c.cfg.Info.Session); n != 1 || len(c.turns) != 0 {
		t.Fatalf("%d notifications are owed, and %d turns have begun", n, len(c.turns))
	}
	stop(two, task.ByClient) // the user has nothing to do with it
	turn := c.next()
	if turn.Origin != conversation.TaskOrigin || !strings.Contains(turn.Result.Text, string(one)) || !strings.Contains(turn.Result.Text, string(two)) {
		t.Errorf("a turn for another reason said %+v", turn)
	}
	stop(three, task.ByUser)
	c.until("rest of a session that waits for its user", isIdle)
	if _, err := c.settle(time.Minute); err != nil {
		t.Errorf("settle: %v", err)
	}
	c.say("what now?")
	if turn := c.next(); turn.Origin != "" || !strings.Contains(turn.Result.Text, string(three)) || !strings.Contains(turn.Result.Text, "what now?") {
		t.Errorf("the next prompt: %+v", turn)
	}
	if len(c.turns) != 0 {
		t.Error("a turn too many")
	}
}

// sleeper sleeps until it is stopped.
type sleeper struct{}

func (sleeper) Kind() task.Kind             { return task.LocalWorkflow }
func (sleeper) Check(json.RawMessage) error { return nil }
func (sleeper) Run(ctx context.Context, _ task.Host) (task.Result, error) {
	<-ctx.Done()
	return task.Result{}, context.Cause(ctx)
}

// What ends while a turn runs comes together in the next.
func TestOneWindow(t *testing.T) {
	hold, asked := make(chan struct{}), make(chan struct{}, 10)
	r, _ := served(t, func(_ context.Context, q *modeltest.Request) modeltest.Answer {
		asked <- struct{}{}
		a := modeltest.Text(q.LastText())
		a.Wait = hold
		return a
	})
	c := converse(r)
	c.say("go")
	<-asked
	var ids []task.ID
	for range 10 {
		rec, err := r.sup.Start(r.ctx, sleeper{}, task.Spec{Owner: r.cfg.Info.Session, Backgrounded: true})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, rec.ID)
	}
	if _, err := r.sup.Stop(r.ctx, ids, supervise.StopRequest{Cause: task.Cause{Actor: task.ByClient, Reason: task.ReasonStopped}}); err != nil {
		t.Fatal(err)
	}
	close(hold)
	if turn := c.next(); turn.Err != nil {
		t.Fatal(turn.Err)
	}
	turn := c.next()
	for _, id := range ids {
		if !strings.Contains(turn.Result.Text, string(id)) {
			t.Errorf("the turn does not tell of %s", id)
		}
	}
	if _, err := c.settle(time.Minute); err != nil || len(c.turns) != 0 {
		t.Errorf("%d further turns, %v", len(c.turns), err)
	}
}

// Two agents that do nothing but answer each other are stopped by the length of
// their chain, and told so. A word of the user lets them go on.
func TestPingPong(t *testing.T) {
	refused := make(chan string, 10)
	var sent atomic.Int64
	r, _ := served(t, func(_ context.Context, q *modeltest.Request) modeltest.Answer {
		last, other := q.LastText(), "ada"
		if strings.Contains(string(q.Body), "ada: begin") {
			other = "bob"
		}
		switch {
		case strings.Contains(last, "bob: wait"):
			return modeltest.Text("ready")
		case strings.Contains(last, "answered each other"):
			refused <- last
			return modeltest.Text("enough")
		case strings.Contains(last, "<agent-message") || strings.Contains(last, "begin"):
			sent.Add(1)
			return blocks(modeltest.ToolUse("", "SendMessage", map[string]any{"to": other, "message": "your turn"}))
		}
		return modeltest.Text("passed on")
	}, manyTurns(time.Hour), func(c *Config) { c.Options.Limits.Live, c.Options.Limits.MessageHops = 10, 7 })
	rt := r.asMain()
	for _, name := range []string{"bob: wait", "ada: begin"} {
		if _, err := rt.Agent(r.ctx, tasktools.AgentRequest{Description: "d", Prompt: name, Type: "general-purpose", Name: name[:3], Background: true}); err != nil {
			t.Fatal(err)
		}
		if name == "bob: wait" {
			b, _ := r.sup.Find("bob")
			r.idle(b.ID)
		}
	}
	wait := func() string {
		select {
		case text := <-refused:
			return text
		case <-r.ctx.Done():
			t.Fatal(context.Cause(r.ctx))
			return ""
		}
	}
	if text := wait(); !strings.Contains(text, "by 7 messages in a row") {
		t.Errorf("told %s", text)
	}
	if n := sent.Load(); n != 8 { // the last was refused
		t.Errorf("%d messages were sent", n)
	}
	if _, err := r.Send(r.ctx, control.SendRequest{Ref: "ada", Text: "go on"}); err != nil {
		t.Fatal(err)
	}
	wait()
	if n := sent.Load(); n != 16 {
		t.Errorf("%d messages were sent, with a word of the user", n)
	}
}

// leaver leaves what it has started to the one who started it.
func leaver() subagent.Definition {
	return subagent.Definition{Name: "leaver", Description: "Leaves.", Prompt: "Leave.", OnEnd: task.Reparents}
}

// begun is the command that says when it is ready, once it has.
func begun(r *testSession) task.Record {
	r.t.Helper()
	for e, err := range r.Events(r.ctx, 0) {
		if err != nil {
			r.t.Fatal(err)
		}
		if e.Verb == task.Begin && strings.Contains(e.Task.Command, "echo ready") {
			r.ready(string(e.Task.ID))
			return e.Task
		}
	}
	return task.Record{}
}

// What an agent in the foreground leaves running goes to its parent, which reads of it in the
// result of its call, hears of the end once, and may use it.
func TestReparent(t *testing.T) {
	for _, who := range []string{"leaver", "general-purpose"} {
		t.Run(who, func(t *testing.T) { reparent(t, who) })
	}
}

func reparent(t *testing.T, who string) {
	fifo := filepath.Join(t.TempDir(), "end")
	r, _ := served(t, modeltest.Turns(map[string][]modeltest.Answer{
		"main": {blocks(delegate(who, "go")), modeltest.Text("done"), modeltest.Text("ended")},
		who:    {commanded("mkfifo "+fifo+"; echo ready; cat "+fifo, true), modeltest.Text("bye")},
	}), defining(leaver()))
	c := converse(r)
	c.say("go")
	command := begun(r)
	c.next()
	rec, _ := r.sup.Get(command.ID)
	leaverID := r.only(who).ID
	if rec.Parent != "" || rec.Owner != r.cfg.Info.Session || rec.Depth != 1 || rec.Status != task.Running {
		t.Fatalf("it went from %s to %+v", command.Parent, rec)
	}
	var order []string
	events, err := r.Since(r.ctx, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		if e.Verb == task.Create && e.Task.ID == command.ID && e.Task.Parent != leaverID {
			t.Errorf("it began below %s", e.Task.Parent)
		}
		if e.Verb == task.Reparent || e.Task.ID == leaverID && e.Task.Status.Terminal() {
			order = append(order, string(e.Verb))
		}
	}
	if !slices.Equal(order, []string{"reparent", "complete"}) { // a host that dies between them loses nothing
		t.Errorf("events %v", order)
	}
	if got, err := r.asMain().Find(r.ctx, string(command.ID)); err != nil || got.ID != command.ID {
		t.Errorf("its new owner finds %+v, %v", got, err)
	}
	free := r.run("echo > " + fifo)
	r.wait(string(free.ID), string(command.ID))
	c.next()
	if _, err := c.settle(patience); err != nil || len(c.turns) != 0 {
		t.Errorf("%d further turns, %v", len(c.turns), err)
	}
	said := string(r.transcript())
	if strings.Count(said, fmt.Sprintf("yours now: command %s", command.ID)) != 1 || strings.Count(said, "<task-id>"+string(command.ID)) != 1 {
		t.Errorf("the conversation says %s", said)
	}
}

// transcript is that of the main agent.
func (r *testSession) transcript() []byte {
	r.t.Helper()
	data, err := os.ReadFile(r.cfg.Place.Transcript())
	if err != nil {
		r.t.Fatal(err)
	}
	return data
}

// A stop of the new parent reaches what it was left; one that is stopped leaves
// nothing.
func TestReparentStop(t *testing.T) {
	r, _ := served(t, modeltest.Turns(map[string][]modeltest.Answer{
		"general-purpose": {blocks(delegate("leaver", "go")), commanded("exec sleep 100", false)},
		"leaver":          {commanded("echo ready; exec sleep 100", true), modeltest.Text("bye")},
	}), defining(leaver()))
	rt := r.asMain()
	top, err := rt.Agent(r.ctx, tasktools.AgentRequest{Description: "d", Prompt: "p", Type: "general-purpose", Background: true})
	if err != nil {
		t.Fatal(err)
	}
	command := begun(r)
	r.eventually(func() bool { rec, _ := r.sup.Get(command.ID); return rec.Parent == top.Task.ID })
	receipt, err := r.Stop(r.ctx, control.StopRequest{Refs: []string{string(top.Task.ID)}})
	if err != nil || !slices.ContainsFunc(receipt.Stopped, func(s task.Stopped) bool { return s.ID == command.ID && s.Status == task.Killed }) {
		t.Errorf("receipt %+v, %v", receipt, err)
	}
	if rec, _ := r.sup.Get(command.ID); rec.Depth != 2 || rec.Owner != top.Task.ID {
		t.Errorf("it was left as %+v", rec)
	}

	r, _ = served(t, modeltest.Turns(map[string][]modeltest.Answer{
		"leaver": {commanded("echo ready; exec sleep 100", true), commanded("exec sleep 100", false)},
	}), defining(leaver()))
	one, err := r.asMain().Agent(r.ctx, tasktools.AgentRequest{Description: "d", Prompt: "p", Type: "leaver", Background: true})
	if err != nil {
		t.Fatal(err)
	}
	command = begun(r)
	if _, err := r.Stop(r.ctx, control.StopRequest{Refs: []string{string(one.Task.ID)}}); err != nil {
		t.Fatal(err)
	}
	if rec, _ := r.sup.Get(command.ID); rec.Status != task.Killed || rec.Parent != one.Task.ID {
		t.Errorf("an agent that was stopped has left %+v", rec)
	}
}

// eventually waits for something that an event brings about.
func (r *testSession) eventually(done func() bool) {
	r.t.Helper()
	for {
		committed := r.NextCommit()
		if done() {
			return
		}
		select {
		case <-committed:
		case <-r.ctx.Done():
			r.t.Fatal(context.Cause(r.ctx))
		}
	}
}

// The output of a whole tree has one budget: a command ends where it does, and the
// agent hands back what it has.
func TestOutputBudget(t *testing.T) {
	r, server := served(t, modeltest.Turns(map[string][]modeltest.Answer{
		"general-purpose": {commanded("echo ready; head -c 100000 /dev/zero | tr '\\0' x; exec sleep 100", false), modeltest.Text("half of it")},
	}), counted(t, 0), func(c *Config) { c.Options.Agents.BudgetOutput = 20_000 })
	out, err := r.asMain().Agent(r.ctx, tasktools.AgentRequest{Description: "d", Prompt: "p", Type: "general-purpose"})
	if err != nil || out.Text != "half of it" || out.Task.Status != task.Failed || out.Task.Cause.Reason != usage.LimitOutput {
		t.Fatalf("%+v, %v", out, err)
	}
	command, _ := r.sup.Get(begun(r).ID)
	if command.Status != task.Failed || command.Cause.Reason != task.ReasonOutputLimit {
		t.Errorf("the command %+v", command)
	}
	if body := string(of(server, "general-purpose")[1].Body); !strings.Contains(body, "of 20000 bytes of output are used (your budget") {
		t.Errorf("not warned: %s", body)
	}
	if out.Task.Budget.OutputBytes != 20_000 {
		t.Errorf("its budget is %+v", out.Task.Budget)
	}
}

// A run of an agent has its own time, and never more than those above it have
// left; when it is up it hands back what it has.
func TestWallBudget(t *testing.T) {
	quick := subagent.Definition{Name: "quick", Description: "d", Prompt: "p", Budget: task.Budget{WallMS: 1000}}
	slow := subagent.Definition{Name: "slow", Description: "d", Prompt: "p", Budget: task.Budget{WallMS: 3_600_000}}
	r, _ := served(t, modeltest.Turns(map[string][]modeltest.Answer{
		"quick":           {commanded("exec sleep 1000", false), modeltest.Text("half of it")},
		"slow":            {modeltest.Text("all of it")},
		"plan":            {modeltest.Text("planned")},
		"general-purpose": {blocks(delegate("slow", "go")), modeltest.Text("done")},
	}), defining(quick, slow), func(c *Config) { c.Options.Agents.BudgetWall = time.Minute })
	rt := r.asMain()
	out, err := rt.Agent(r.ctx, tasktools.AgentRequest{Description: "d", Prompt: "p", Type: "quick"})
	if err != nil || out.Text != "half of it" || out.Task.Cause.Reason != task.ReasonTimeout || out.Task.Budget.WallMS != 1000 || out.Task.TimeoutMS != 1000 {
		t.Errorf("%+v, %v", out, err)
	}
	if out, err := rt.Agent(r.ctx, tasktools.AgentRequest{Description: "d", Prompt: "p", Type: "general-purpose"}); err != nil || out.Task.TimeoutMS != 60_000 {
		t.Errorf("an agent at the top %+v, %v", out, err)
	}
	if rec := r.only("slow"); rec.Depth != 2 || rec.TimeoutMS <= 0 || rec.TimeoutMS > 60_000 {
		t.Errorf("an agent below it may work %d ms", rec.TimeoutMS)
	}
}

// A start that does not fit is refused before anything is recorded, and what an
// agent has not used is free again at its end.
func TestReservedBeforeStart(t *testing.T) {
	hold, asked := make(chan struct{}), make(chan struct{}, 10)
	r, _ := served(t, func(_ context.Context, q *modeltest.Request) modeltest.Answer {
		asked <- struct{}{}
		a := costing(1000, modeltest.Text("done"))
		if q.Agent() == "greedy" {
			a.Wait = hold
		}
		return a
	}, defining(subagent.Definition{Name: "greedy", Description: "d", Prompt: "p", Budget: task.Budget{Tokens: 90_000}}), func(c *Config) {
		p, err := usage.Open(usage.Config{Table: prices(t), Budget: usage.Budget{Tokens: 100_000}})
		if err != nil {
			t.Fatal(err)
		}
		c.Agents.Accounts = p
	})
	rt := r.asMain()
	first, err := rt.Agent(r.ctx, tasktools.AgentRequest{Description: "d", Prompt: "p", Type: "greedy", Background: true})
	if err != nil || first.Task.Budget.Tokens != 90_000 {
		t.Fatalf("%+v, %v", first, err)
	}
	<-asked
	_, err = rt.Agent(r.ctx, tasktools.AgentRequest{Description: "d", Prompt: "p", Type: "plan"})
	if err == nil || !strings.Contains(err.Error(), "0 is spent, 90000 is set aside for what runs, and a start needs 24000") {
		t.Errorf("a second one: %v", err)
	}
	if n := len(slices.Collect(func(yield func(task.Record) bool) {
		for _, rec := range r.sup.List(0) {
			yield(rec)
		}
	})); n != 1 {
		t.Errorf("%d tasks are recorded", n)
	}
	close(hold)
	r.wait(string(first.Task.ID))
	if out, err := rt.Agent(r.ctx, tasktools.AgentRequest{Description: "d", Prompt: "p", Type: "plan"}); err != nil || out.Text != "done" {
		t.Errorf("after the end of the first: %+v, %v", out, err)
	}
	if rec, _ := r.sup.Get(first.Task.ID); rec.Usage == nil || rec.Usage.CostUSD == nil || *rec.Usage.CostUSD < 0.001 {
		t.Errorf("what it has cost is not in %+v", rec.Usage)
	}
}

// What a tree has spent, and how often it was started, outlives its host.
func TestLedgerOverHosts(t *testing.T) {
	path := filepath.Join(t.TempDir(), usage.FileName)
	accounts := func() *usage.Accounts {
		p, err := usage.Open(usage.Config{Table: prices(t), Path: path})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.Close() })
		return p
	}
	r, _ := served(t, func(_ context.Context, q *modeltest.Request) modeltest.Answer {
		if q.Agent() == "general-purpose" && !strings.Contains(string(q.Body), "tool_result") {
			return costing(1000, blocks(delegate("explore", "look")))
		}
		return costing(1000, modeltest.Text("done"))
	}, func(c *Config) {
		c.Agents.Accounts, c.Options.Agents.BudgetTokens, c.Options.Limits.PerRoot = accounts(), 6000, 6
	})
	again := func() (tasktools.AgentOutcome, error) {
		rt := r.asMain()
		if _, err := r.sup.Find("ada"); err != nil {
			return rt.Agent(r.ctx, tasktools.AgentRequest{Description: "d", Prompt: "p", Type: "general-purpose", Name: "ada"})
		}
		return rt.Agent(r.ctx, tasktools.AgentRequest{Description: "d", Prompt: "more", Resume: "ada"})
	}
	for round, spent := range []int64{3000, 4000, 5000, 6000} { // its first run has one below it
		out, err := again()
		if err != nil || out.Text != "done" || out.Task.Resumes != round {
			t.Fatalf("round %d: %+v, %v", round, out, err)
		}
		if got := r.cfg.Agents.Accounts.Spent(string(out.Task.ID)).Tokens; got != spent {
			t.Fatalf("round %d: the tree has spent %d", round, got)
		}
		r.cfg.Agents.Accounts = accounts()
		r.reopen()
	}
	if s := r.only("general-purpose").Spent(); s.CostUSD == nil || *s.CostUSD < 0.01 {
		t.Errorf("the record says %+v", s)
	}
	if _, err := again(); err == nil || !strings.Contains(err.Error(), "of 6000 tokens is spent (6000)") {
		t.Errorf("beyond its budget: %v", err)
	}
	r.cfg.Agents.Accounts, r.cfg.Options.Agents.BudgetTokens = accounts(), 0
	r.reopen()
	_, err := again() // the fifth run of the one, with the run of the other
	if err == nil {
		_, err = again()
	}
	if err == nil || !strings.Contains(err.Error(), "this session may start 6 of these") {
		t.Errorf("beyond the runs of its tree: %v", err)
	}
}

// An agent that is not for models is neither offered to one nor started by it.
func TestNotForModels(t *testing.T) {
	private := subagent.Definition{Name: "private", Description: "Private work.", Prompt: "p", NoModel: true}
	r, server := served(t, modeltest.Turns(map[string][]modeltest.Answer{
		"main":    {blocks(delegate("private", "go")), modeltest.Text("done")},
		"private": {modeltest.Text("by a person")},
	}), defining(private))
	c := converse(r)
	c.say("go")
	c.next()
	asked := of(server, "main")
	if strings.Contains(string(asked[0].Body), "Private work.") {
		t.Error("it is offered")
	}
	if last := asked[1].LastText(); !strings.Contains(last, "agents of type private are started by people only") {
		t.Errorf("the call gave %s", last)
	}
	started, err := r.Start(r.ctx, []control.StartRequest{{Agent: &control.AgentRequest{Type: "private", Prompt: "go"}, Env: r.cfg.Agents.Env, Cwd: r.folder}})
	if err != nil || started[0].Error != nil {
		t.Fatal(started, err)
	}
	if got := r.wait(string(started[0].Task.ID))[0]; got.Status != task.Completed {
		t.Errorf("for a person %+v", got)
	}
}
