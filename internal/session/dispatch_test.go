package session

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/session/agents"
	"github.com/drover-dev/drover/internal/session/conversation"
	"github.com/drover-dev/drover/internal/tool/tasktools"
	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/test/modeltest"
)

// begun is the first task of a kind to begin.
func (r *testSession) begun(kind task.Kind) task.Record {
	r.t.Helper()
	for e, err := range r.Events(r.ctx, 0) {
		if err != nil {
			r.t.Fatal(err)
		}
		if e.Verb == task.Begin && e.Task.Kind == kind {
			return e.Task
		}
	}
	r.t.Fatal("nothing began")
	return task.Record{}
}

// turned is how many turns have ended.
func turned(m *Main) int {
	at, _ := m.State()
	return at.Turns
}

// An agent in the background does not hold its parent up: the call returns with
// the ID, prompts are answered meanwhile, and its end starts a turn by itself.
func TestDispatch(t *testing.T) {
	hold := make(chan struct{})
	held := modeltest.Text("found it")
	held.Wait = hold
	launch := modeltest.ToolUse("toolu_launch", "Agent", map[string]any{"description": "Look", "prompt": "look", "subagent_type": "explore", "run_in_background": true})
	r, server := served(t, modeltest.Turns(map[string][]modeltest.Answer{
		"main":    {blocks(launch), modeltest.Text("started"), modeltest.Text("two"), modeltest.Text("three"), modeltest.Text("told")},
		"explore": {held},
	}))
	c := converse(r)
	c.say("one")
	if turn := c.next(); turn.Err != nil || turn.Result.Text != "started" {
		t.Fatalf("turn %+v", turn)
	}
	child := c.only("explore")
	if child.Status.Terminal() || !child.Backgrounded || child.ToolUseID != "toolu_launch" {
		t.Errorf("the child while the parent goes on: %+v", child)
	}
	if got := of(server, "main")[1].LastText(); !strings.Contains(got, "Agent ID: "+string(child.ID)+"\n") {
		t.Errorf("the call returned %s", got)
	}
	c.say("two")
	c.say("three")
	for _, want := range []string{"two", "three"} {
		if turn := c.next(); turn.Err != nil || turn.Result.Text != want || turn.Origin != "" {
			t.Errorf("turn %+v, want %s", turn, want)
		}
	}
	type answer struct {
		live, turns int
		err         error
	}
	settled := make(chan answer, 1)
	go func() {
		_, err := c.settle(time.Minute)
		settled <- answer{c.live(), turned(c.main), err}
	}()
	close(hold)
	turn := c.next()
	if turn.Origin != conversation.TaskOrigin || turn.Result.Text != "told" {
		t.Errorf("turn %+v", turn)
	}
	last := of(server, "main")
	if got := last[len(last)-1].LastText(); !strings.Contains(got, "<task-id>"+string(child.ID)+"<") || !strings.Contains(got, "<tool-use-id>toolu_launch<") {
		t.Errorf("the notification: %s", got)
	}
	if got := <-settled; got != (answer{live: 0, turns: 4}) {
		t.Errorf("when it settled: %+v", got)
	}
}

// Three calls of one message work side by side: each answer waits until all
// three have asked.
func TestSideBySide(t *testing.T) {
	var all sync.WaitGroup
	all.Add(3)
	turns := modeltest.Turns(map[string][]modeltest.Answer{
		"main": {blocks(delegate("plan", "a"), delegate("plan", "b"), delegate("plan", "c")), modeltest.Text("done")},
		"plan": {modeltest.Text("here")},
	})
	r, _ := served(t, func(ctx context.Context, q *modeltest.Request) modeltest.Answer {
		if q.Agent() == "plan" {
			all.Done()
			together := make(chan struct{})
			go func() { all.Wait(); close(together) }()
			select {
			case <-together:
			case <-ctx.Done():
			}
		}
		return turns(ctx, q)
	})
	c := converse(r)
	c.say("go")
	if turn := c.next(); turn.Err != nil || turn.Result.Text != "done" {
		t.Errorf("turn %+v", turn)
	}
	for _, rec := range c.sup.List(0) {
		if rec.Status != task.Completed || rec.Backgrounded {
			t.Errorf("%+v", rec)
		}
	}
}

// However many agents are started, no more than the limit work at once.
func TestPeak(t *testing.T) {
	const limit, agents = 2, 7
	var mu sync.Mutex
	busy, peak := 0, 0
	both := make(chan struct{})
	r, _ := served(t, func(ctx context.Context, q *modeltest.Request) modeltest.Answer {
		mu.Lock()
		if busy++; busy > peak {
			if peak = busy; peak == limit {
				close(both)
			}
		}
		mu.Unlock()
		defer func() { mu.Lock(); busy--; mu.Unlock() }()
		select {
		case <-both:
		case <-ctx.Done():
		}
		return modeltest.Text("done")
	}, func(c *Config) { c.Options.Limits.Live = limit })
	var reqs []control.StartRequest
	for range agents {
		reqs = append(reqs, control.StartRequest{Agent: &control.AgentRequest{Type: "plan", Prompt: "x"}, Cwd: r.folder, Env: r.cfg.Agents.Env})
	}
	started, err := r.Start(r.ctx, reqs)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range started {
		if s.Error != nil {
			t.Fatal(s.Error)
		}
		if got := r.wait(string(s.Task.ID))[0]; got.Status != task.Completed {
			t.Errorf("%s: %s", got.Status, got.Error)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if peak != limit {
		t.Errorf("%d at once, want %d", peak, limit)
	}
}

// An agent of an agent that is wanted in the background is waited for.
func TestNestedBackground(t *testing.T) {
	inner := modeltest.ToolUse("", "Agent", map[string]any{"description": "In", "prompt": "in", "subagent_type": "plan", "run_in_background": true})
	r, server := served(t, modeltest.Turns(map[string][]modeltest.Answer{
		"main":            {blocks(delegate("general-purpose", "out")), modeltest.Text("done")},
		"general-purpose": {blocks(inner), modeltest.Text("outer")},
		"plan":            {modeltest.Text("inner answer")},
	}))
	c := converse(r)
	c.say("go")
	if turn := c.next(); turn.Err != nil {
		t.Fatal(turn.Err)
	}
	if got := of(server, "general-purpose")[1].LastText(); !strings.Contains(got, "inner answer") || !strings.Contains(got, "run in the foreground") {
		t.Errorf("the call returned %s", got)
	}
	if c.only("plan").Backgrounded {
		t.Error("it went to the background")
	}
}

// With background work turned off nothing gets there, by any way.
func TestNoBackground(t *testing.T) {
	later := func(tool string, in map[string]any) agent.Block {
		in["run_in_background"] = true
		return modeltest.ToolUse("", tool, in)
	}
	r, server := served(t, modeltest.Turns(map[string][]modeltest.Answer{
		"main": {blocks(later("Bash", map[string]any{"command": "echo printed"})),
			blocks(later("Agent", map[string]any{"description": "x", "prompt": "x", "subagent_type": "plan"})), modeltest.Text("done")},
		"plan": {modeltest.Text("the plan")},
	}), func(c *Config) { c.Options.Tasks.DisableBackground = true })
	c := converse(r)
	c.say("go")
	if turn := c.next(); turn.Err != nil {
		t.Fatal(turn.Err)
	}
	asked := of(server, "main")
	for i, want := range []string{"printed", "the plan"} {
		if got := asked[i+1].LastText(); !strings.Contains(got, want) {
			t.Errorf("call %d returned %s", i, got)
		}
	}
	for _, rec := range c.sup.List(0) {
		if rec.Backgrounded {
			t.Errorf("%+v", rec)
		}
		if _, err := c.Promote(c.ctx, string(rec.ID)); code(err) != control.Unavailable {
			t.Errorf("promote: %v", err)
		}
	}
}

// A command in the background: the call returns while it runs, and its record
// says all there is to know of it. One that the model stops itself is no news.
func TestBackgroundCommand(t *testing.T) {
	c := converse(open(t, `
  main:
    - tools: [{name: Bash, id: toolu_bash, input: {command: "echo ready; exec sleep 100", description: Wait, run_in_background: true}}]
    - text: started
`))
	c.say("go")
	if turn := c.next(); turn.Err != nil || turn.Result.Text != "started" {
		t.Fatalf("turn %+v", turn)
	}
	id := string(c.begun(task.LocalBash).ID)
	c.ready(id)
	rec, err := c.Get(c.ctx, id)
	if err != nil || rec.Status != task.Running || !rec.Backgrounded || rec.Command != "echo ready; exec sleep 100" || rec.Process == nil ||
		rec.Process.PID <= 0 || rec.ToolUseID != "toolu_bash" || rec.Owner != c.cfg.Info.Session || rec.OutputFile != c.cfg.Place.Output(rec.ID) {
		t.Errorf("record %+v, %v", rec, err)
	}
	rt := c.agents.Runtime(agents.Caller{ID: c.cfg.Info.Session})
	// A wait that is over gives what there is so far.
	if got, late, err := rt.Wait(c.ctx, id, time.Millisecond); err != nil || !late || got.Status != task.Running {
		t.Errorf("wait: %+v, %v, %v", got, late, err)
	}
	if text, err := rt.Text(c.ctx, rec); err != nil || text != "ready\n" {
		t.Errorf("text %q, %v", text, err)
	}
	if _, _, err := rt.Stop(c.ctx, id); err != nil {
		t.Fatal(err)
	}
	if _, err := c.settle(time.Minute); err != nil {
		t.Error(err)
	}
	if n := c.owed(c.cfg.Info.Session); n != 0 || len(c.turns) != 0 {
		t.Errorf("%d notifications, %d turns after the model stopped it", n, len(c.turns))
	}
}

// A command of an agent whose definition says so ends with it, and the result of the agent names it.
func TestCommandOfChild(t *testing.T) {
	stopper := subagent.Definition{Name: "stopper", Description: "d", Prompt: "p", OnEnd: task.Stops}
	c := converse(open(t, `
  main:
    - tools: [{name: Agent, input: {description: Look, prompt: look, subagent_type: stopper}}]
    - {text: "{{last}}"}
  stopper:
    - tools: [{name: Bash, input: {command: mkfifo gate}}]
    - tools: [{name: Bash, input: {command: "echo up > gate; exec sleep 100", run_in_background: true}}]
    - tools: [{name: Bash, input: {command: read x < gate}}]
    - text: left it
`, defining(stopper)))
	c.say("go")
	turn := c.next()
	if turn.Err != nil {
		t.Fatal(turn.Err)
	}
	child := c.only("stopper")
	var got task.Record
	for _, rec := range c.sup.List(0) {
		if rec.Backgrounded && rec.Kind == task.LocalBash {
			got = rec
		}
	}
	if got.Parent != child.ID || got.Owner != child.ID || got.Status != task.Killed || got.Cause.Reason != task.ReasonParentEnded {
		t.Fatalf("the command %+v, %+v", got, got.Cause)
	}
	if got.Process == nil {
		t.Fatal("it has no process")
	}
	if !strings.Contains(turn.Result.Text, "Stopped with the agent: command "+string(got.ID)) {
		t.Errorf("the result of the agent says %s", turn.Result.Text)
	}
	if err := syscall.Kill(got.Process.PID, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("its process is there still: %v", err)
	}
}

// Output that a model sees is cut, and says where the rest is.
func TestLongOutput(t *testing.T) {
	r := open(t, "", func(c *Config) { c.Options.Tasks.OutputLength = 200 })
	rec := r.run("seq 1 1000")
	r.wait(string(rec.ID))
	rt := r.agents.Runtime(agents.Caller{ID: r.cfg.Info.Session})
	out, err := tasktools.New(tasktools.Config{Tasks: rt, OutputLimit: 200})[1].Call(r.ctx, agent.Call{ID: "x", Name: "TaskOutput", Input: []byte(fmt.Sprintf(`{"task_id":%q}`, rec.ID))})
	if err != nil || !strings.Contains(out.Text, "[Truncated. Full output: "+rec.OutputFile+"]") || !strings.Contains(out.Text, "1000") ||
		strings.Contains(out.Text, "\n500\n") {
		t.Errorf("%s, %v", out.Text, err)
	}
}
