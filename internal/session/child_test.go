package session

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/engine/supervise"
	"github.com/drover-dev/drover/internal/session/agents"
	"github.com/drover-dev/drover/internal/tool/tasktools"
	"github.com/drover-dev/drover/internal/tool/toolkit"
	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/test/modeltest"
)

// served opens a session whose models are a server of the test.
func served(t *testing.T, handle modeltest.Handler, change ...func(*Config)) (*testSession, *modeltest.Server) {
	t.Helper()
	server, err := modeltest.New(handle)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	r := open(t, "", append([]func(*Config){func(c *Config) {
		c.Agents.Env = append(slices.Clone(c.Agents.Env), "ANTHROPIC_BASE_URL="+server.URL, "ANTHROPIC_API_KEY=x", "ANTHROPIC_AUTH_TOKEN=")
		c.Options.Model = "sonnet"
	}}, change...)...)
	return r, server
}

// of are the requests of one sort of agent, in order.
func of(s *modeltest.Server, label string) (out []*modeltest.Request) {
	for _, r := range s.Requests() {
		if r.Agent() == label {
			out = append(out, r)
		}
	}
	return out
}

func params(t *testing.T, r *modeltest.Request) modeltest.Params {
	t.Helper()
	p, err := r.Params()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func toolNames(p modeltest.Params) (names []string) {
	for _, tool := range p.Tools {
		names = append(names, tool.Name)
	}
	slices.Sort(names)
	return names
}

func delegate(agentType, prompt string, more ...string) agent.Block {
	in := map[string]any{"description": "Some work", "prompt": prompt, "subagent_type": agentType}
	for i := 0; i+1 < len(more); i += 2 {
		in[more[i]] = more[i+1]
	}
	return modeltest.ToolUse("", "Agent", in)
}

func blocks(b ...agent.Block) modeltest.Answer { return modeltest.Answer{Blocks: b} }

// A child gets its own instructions, tools and model, its prompt, and nothing
// else of the one who asked; what it says goes to nobody but that one.
func TestChildRequest(t *testing.T) {
	var mu sync.Mutex
	said := map[task.ID]string{}
	c, server := served(t, modeltest.Turns(map[string][]modeltest.Answer{
		"main": {
			blocks(agent.TextBlock("PARENT thinks aloud"), delegate("explore", "look into it"), delegate("writer", "write it down", "model", "opus")),
			modeltest.Text("summed up"),
		},
		"explore": {modeltest.Text("CHILD found")},
		"writer":  {modeltest.Text("CHILD wrote")},
	}), func(c *Config) {
		c.Agents.Catalog = fixed(append(subagent.Builtin().All(), subagent.Definition{Name: "writer", Description: "Writes.",
			Prompt: "You write.", Tools: []string{"Write", "Bash"}, DisallowedTools: []string{"Bash"}, Model: "haiku"})...)
		c.Agents.On = func(from task.ID, e agent.Event) {
			if e.Kind == agent.PartEvent && e.Part.Kind == agent.TextPart {
				mu.Lock()
				said[from] += e.Part.Text
				mu.Unlock()
			}
		}
	})
	m := converse(c)
	m.say("PARENT was told a secret")
	if turn := m.next(); turn.Err != nil || turn.Result.Text != "summed up" {
		t.Fatalf("turn %+v", turn)
	}
	models := map[string]bool{params(t, of(server, "main")[0]).Model: true}
	for _, want := range []struct{ label, prompt, system, tools string }{
		{"explore", "look into it", "changes nothing", "Glob Grep Read"},
		{"writer", "write it down", "You write.", "Write"},
	} {
		requests := of(server, want.label)
		if len(requests) != 1 {
			t.Fatalf("%s asked %d times", want.label, len(requests))
		}
		p := params(t, requests[0])
		if strings.Contains(string(requests[0].Body), "PARENT") {
			t.Errorf("%s was sent something of its parent: %s", want.label, requests[0].Body)
		}
		var got []agent.Block
		if len(p.Messages) == 1 {
			got, _ = p.Messages[0].Blocks()
		}
		if len(got) != 1 || got[0].Text != want.prompt {
			t.Errorf("%s was sent the messages %s", want.label, requests[0].Body)
		}
		def, _ := c.Catalog().Find(want.label)
		first, _, _ := strings.Cut(def.Prompt, "\n")
		if sys := string(p.System); !strings.Contains(sys, strings.ReplaceAll(first, `"`, `\"`)) || !strings.Contains(sys, "Working folder: "+c.folder) {
			t.Errorf("%s has the instructions %s", want.label, sys)
		}
		if names := strings.Join(toolNames(p), " "); names != want.tools {
			t.Errorf("%s has the tools %s", want.label, names)
		}
		rec := c.only(want.label)
		if requests[0].AgentID() != string(rec.ID) || rec.Cwd != c.folder {
			t.Errorf("%s asks as %s from %s", want.label, requests[0].AgentID(), rec.Cwd)
		}
		models[p.Model] = true
		mu.Lock()
		if !strings.HasPrefix(said[rec.ID], "CHILD") {
			t.Errorf("%s said %q under its own name", want.label, said[rec.ID])
		}
		mu.Unlock()
	}
	mu.Lock()
	defer mu.Unlock()
	if got := said[c.cfg.Info.Session]; strings.Contains(got, "CHILD") {
		t.Errorf("the main agent's stream holds what a child said: %q", got)
	}
	if len(models) != 2 { // explore inherits; writer was given another one
		t.Errorf("models %v", models)
	}
}

// At the deepest place there is no Agent tool, also for an agent that is resumed
// from above.
func TestDeepest(t *testing.T) {
	m, server := served(t, modeltest.Turns(map[string][]modeltest.Answer{
		"main":            {blocks(delegate("general-purpose", "out")), modeltest.Text("done"), blocks(delegate("deep", "more", "resume", "deep")), modeltest.Text("done")},
		"general-purpose": {blocks(delegate("deep", "in", "name", "deep")), modeltest.Text("outer")},
		"deep":            {blocks(delegate("deep", "deeper")), modeltest.Text("inner"), modeltest.Text("again")},
	}), func(c *Config) {
		c.Options.Limits.Depth = 2
		c.Agents.Catalog = fixed(append(subagent.Builtin().All(), subagent.Definition{Name: "deep", Description: "Digs.", Prompt: "You dig."})...)
	})
	c := converse(m)
	for range 2 {
		c.say("go")
		if turn := c.next(); turn.Err != nil {
			t.Fatal(turn.Err)
		}
	}
	for label, want := range map[string]bool{"main": true, "general-purpose": true, "deep": false} {
		for i, r := range of(server, label) {
			if got := slices.Contains(toolNames(params(t, r)), "Agent"); got != want {
				t.Errorf("request %d of %s has the Agent tool: %v", i, label, got)
			}
		}
	}
	if n := len(of(server, "deep")); n != 3 {
		t.Errorf("the deepest agent asked %d times", n)
	}
	if rec := c.only("deep"); rec.Depth != 2 || rec.Status != task.Completed {
		t.Errorf("the deepest agent: %+v", rec)
	}
}

// Of several faults the first in the order of the checks is told: the type, the
// model, the depth. What is refused leaves no task.
func TestLaunchOrder(t *testing.T) {
	hold := make(chan struct{})
	r, _ := served(t, func(context.Context, *modeltest.Request) modeltest.Answer {
		return modeltest.Answer{Blocks: []agent.Block{agent.TextBlock("x")}, Wait: hold}
	}, func(c *Config) { c.Options.Limits.Depth = 1 })
	defer close(hold)
	me := agents.Caller{Cwd: r.folder, Env: r.cfg.Agents.Env, Model: "sonnet", Rules: r.cfg.Agents.Rules}
	top, _, err := r.agents.Launch(r.ctx, subagent.Input{Prompt: "x"}, task.Spec{}, me)
	if err != nil {
		t.Fatal(err)
	}
	under := task.Spec{Parent: top.ID}
	var kind *subagent.UnknownTypeError
	if _, _, err := r.agents.Launch(r.ctx, subagent.Input{Prompt: "x", Type: "nobody", Model: "no/such"}, under, me); !errors.As(err, &kind) {
		t.Errorf("type, model and depth are wrong: %v", err)
	}
	if _, _, err := r.agents.Launch(r.ctx, subagent.Input{Prompt: "x", Model: "no/such"}, under, me); err == nil || !strings.Contains(err.Error(), "unknown provider") {
		t.Errorf("model and depth are wrong: %v", err)
	}
	var limit *supervise.LimitError
	if _, _, err := r.agents.Launch(r.ctx, subagent.Input{Prompt: "x"}, under, me); !errors.As(err, &limit) || limit.Limit != "depth" {
		t.Errorf("the depth is wrong: %v", err)
	}
	if _, total := r.sup.Live(); total != 1 {
		t.Errorf("%d tasks", total)
	}
}

// The output file is where it is said to be, and is a file; the link to the
// transcript stands beside it.
func TestPlaces(t *testing.T) {
	c := converse(open(t, `
  main:
    - tools: [{name: Agent, input: {description: Look, prompt: look}}, {name: Bash, input: {command: "echo x"}}]
    - text: done
  general-purpose:
    - text: here
`))
	c.say("go")
	if turn := c.next(); turn.Err != nil {
		t.Fatal(turn.Err)
	}
	dir := filepath.Join(c.cfg.Place.Project().Dir(), string(c.cfg.Info.Session))
	for _, rec := range c.sup.List(0) {
		want := filepath.Join(dir, "tasks", string(rec.ID)+".output")
		info, err := os.Lstat(rec.OutputFile)
		if rec.OutputFile != want || !filepath.IsAbs(want) || err != nil || !info.Mode().IsRegular() {
			t.Errorf("output of %s: %s, %v", rec.ID, rec.OutputFile, err)
		}
	}
	rec := c.only("general-purpose")
	to, err := filepath.EvalSymlinks(c.cfg.Place.OutputLink(rec.ID))
	if want := filepath.Join(dir, "subagents", "agent-"+string(rec.ID)+".jsonl"); err != nil || to != want {
		t.Errorf("transcript %s, want %s, %v", to, want, err)
	}
}

// fixed is a catalog that never changes.
func fixed(defs ...subagent.Definition) func() subagent.Catalog {
	c := subagent.NewCatalog(defs...)
	return func() subagent.Catalog { return c }
}

// In the conversation of a subagent happens what happens in that of a main agent that
// does the same.
func TestChildEvents(t *testing.T) {
	var mu sync.Mutex
	kinds := map[task.ID][]agent.EventKind{}
	work := []modeltest.Answer{intends("looking"), modeltest.Text("found")}
	r, _ := served(t, modeltest.Turns(map[string][]modeltest.Answer{"main": work, "general-purpose": work}), func(c *Config) {
		c.Agents.On = func(from task.ID, e agent.Event) {
			mu.Lock()
			defer mu.Unlock()
			kinds[from] = append(kinds[from], e.Kind)
		}
	})
	m := converse(r)
	m.say("look")
	m.next()
	child, err := r.asMain().Agent(r.ctx, tasktools.AgentRequest{Description: "d", Prompt: "look", Type: "general-purpose"})
	if err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if main, sub := kinds[r.cfg.Info.Session], kinds[child.Task.ID]; len(sub) == 0 || !slices.Equal(sub, main) {
		t.Errorf("events of the subagent %v, of the main agent %v", sub, main)
	}
}

// Without any setting a model that does not exist is refused, with those that do.
func TestNoSuchModel(t *testing.T) {
	r := open(t, "", func(c *Config) {
		c.Agents.Env = append(slices.Clone(c.Agents.Env), "ANTHROPIC_API_KEY=x", "ANTHROPIC_BASE_URL=")
		c.Options.Model = "sonnet"
	})
	_, err := r.asMain().Agent(r.ctx, tasktools.AgentRequest{Description: "d", Prompt: "p", Type: "explore", Model: "sonet"})
	want := `model "sonet" is not available (did you mean "sonnet"? available: PROVIDER/NAME, best, default, haiku, opus, script:FILE, sonnet)`
	var refused *toolkit.Refusal
	if !errors.As(err, &refused) || refused.Text != want {
		t.Errorf("%v\nwant %s", err, want)
	}
}

// The names by which a model calls the tools of a main agent.
func TestToolNames(t *testing.T) {
	r, _ := served(t, modeltest.Turns(nil))
	want := []string{"Agent", "Bash", "CallTool", "Edit", "ExitPlanMode", "Glob", "Grep", "ListTasks", "Monitor", "Read", "SendMessage", "TaskOutput", "TaskStop",
		"ToolSearch", "Workflow", "Write",
		"read_agent", "report_intent"}
	if got := slices.Sorted(slices.Values(converse(r).main.Tools())); !slices.Equal(got, want) {
		t.Errorf("tools %q\nwant  %q", got, want)
	}
}
