package session

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/policy"
	"github.com/drover-dev/drover/internal/policy/hook"
	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/test/modeltest"
)

// Mail for an agent that waits for a place is there when it begins.
func TestMailWhileQueued(t *testing.T) {
	r := open(t, `
  general-purpose:
    - tools: [{name: Bash, input: {command: "until [ -e go ]; do sleep 0.02; done"}}]
    - {text: done}
  explore:
    - {text: "read {{last}}"}
`, func(c *Config) { c.Options.Limits.Live = 1 })
	start := func(kind string) task.ID {
		got, err := r.Start(r.ctx, []control.StartRequest{{Agent: &control.AgentRequest{Type: kind, Prompt: "x"}, Env: r.cfg.Agents.Env, Cwd: r.folder}})
		if err != nil || got[0].Error != nil {
			t.Fatalf("%+v, %v", got, err)
		}
		return got[0].Task.ID
	}
	first, second := start("general-purpose"), start("explore")
	if _, err := r.sup.Post(r.ctx, task.Message{To: second, From: "main", Kind: task.TaskAssignment, Text: "to-do 7 is yours"}); err != nil {
		t.Fatal(err)
	}
	r.run("touch go")
	r.wait(string(first), string(second))
	if left, err := r.log.Unread(r.ctx, second); err != nil || len(left) != 0 {
		t.Errorf("%d messages are unread after the run, %v", len(left), err)
	}
}

// What hooks say at the start of a session reaches the first prompt that is let
// through, and is said once.
func TestBlockedStart(t *testing.T) {
	set, problems := hook.Load([]hook.Source{{Path: "test", Trusted: true, User: true, Data: json.RawMessage(`{"hooks":{
		"SessionStart":[{"hooks":[{"type":"command","command":"echo the house rule"}]}],
		"UserPromptSubmit":[{"hooks":[{"type":"command","command":"if grep -q forbidden; then echo no >&2; exit 2; fi"}]}]}}`)}})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	c := converse(open(t, `
  main:
    - {text: one}
    - {text: two}
`, func(c *Config) { c.Agents.Hooks = set }))
	c.say("forbidden")
	if turn := c.next(); turn.Err == nil {
		t.Fatal("the prompt passed")
	}
	for _, prompt := range []string{"hello", "again"} {
		c.say(prompt)
		if turn := c.next(); turn.Err != nil {
			t.Fatal(turn.Err)
		}
	}
	var said strings.Builder
	for _, m := range c.main.Messages() {
		blocks, err := m.Blocks()
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range blocks {
			said.WriteString(b.Text)
		}
	}
	if n := strings.Count(said.String(), "the house rule"); n != 1 || strings.Contains(said.String(), "forbidden") {
		t.Errorf("said %d times in %s", n, said.String())
	}
}

// The mode of a definition holds for the main agent too.
func TestModeOfDefinition(t *testing.T) {
	r := open(t, `
  main:
    - {text: ok}
`, func(c *Config) {
		c.Agents.Catalog = fixed(subagent.Definition{Name: "planner", Prompt: "x", PermissionMode: "plan"})
	})
	m, err := r.OpenMain(r.ctx, MainConfig{Agent: "planner"})
	if err != nil || m.environment().Me.Rules.Mode != policy.Plan {
		t.Errorf("as the main agent: %v, %v", m.environment().Me.Rules.Mode, err)
	}
}

// A client may start an agent while the main agent is being opened.
func TestStartBesideOpen(t *testing.T) {
	r := open(t, `
  main:
    - {text: ok}
  explore:
    - {text: ok}
`)
	done := make(chan error, 1)
	go func() {
		started, err := r.Start(r.ctx, []control.StartRequest{{Agent: &control.AgentRequest{Type: "explore", Prompt: "x"}, Env: r.cfg.Agents.Env, Cwd: r.folder}})
		if err == nil && started[0].Error != nil {
			err = started[0].Error
		}
		done <- err
	}()
	if _, err := r.OpenMain(r.ctx, MainConfig{}); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A prompt that nobody would answer any more is refused, and not swallowed.
func TestPromptAfterEnd(t *testing.T) {
	r := open(t, `
  main:
    - {text: one}
    - {text: two}
`)
	m, err := r.OpenMain(r.ctx, MainConfig{})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"one", "two"} {
		rec := r.start(m, "go", time.Second)
		if done := r.wait(string(rec.ID))[0]; done.Status != task.Completed || m.Last().Result.Text != want {
			t.Errorf("%s: %s, %q", want, done.Status, m.Last().Result.Text)
		}
		if err := m.Prompt(r.ctx, "more"); code(err) != control.Unavailable {
			t.Errorf("a prompt after the end: %v", err)
		}
	}
}

// The main agent of a definition begins as an agent of it does, once.
func TestOpeningOfMain(t *testing.T) {
	r, server := served(t, modeltest.Turns(map[string][]modeltest.Answer{"main": {modeltest.Text("one"), modeltest.Text("two"), modeltest.Text("three")}}),
		func(c *Config) {
			c.Agents.Catalog = fixed(subagent.Definition{Name: "clerk", Prompt: "x", InitialPrompt: "Begin with the ledger."})
		})
	ask := func(prompt string) {
		t.Helper()
		m, err := r.OpenMain(r.ctx, MainConfig{Agent: "clerk"})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			rec := r.start(m, prompt, time.Second)
			r.wait(string(rec.ID))
		}
	}
	ask("first")
	last := of(server, "main")[1]
	r.reopen()
	ask("second")
	for _, req := range []*modeltest.Request{last, of(server, "main")[2]} {
		if n := strings.Count(string(req.Body), "Begin with the ledger."); n != 1 {
			t.Errorf("said %d times: %s", n, req.Body)
		}
	}
}

// A prompt whose main agent cannot be opened leaves no session behind that would
// be taken for the last conversation. What has happened in one is kept.
func TestVoid(t *testing.T) {
	for name, c := range map[string]struct {
		use  func(r *testSession)
		gone bool
	}{
		"nothing": {func(r *testSession) {
			if _, err := r.OpenMain(r.ctx, MainConfig{Agent: "nobody"}); err == nil {
				t.Error("an unknown agent was opened")
			}
		}, true},
		"task": {func(r *testSession) { r.wait(string(r.run("true").ID)) }, false},
		"main": {func(r *testSession) {
			if _, err := r.OpenMain(r.ctx, MainConfig{}); err != nil {
				t.Error(err)
			}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := open(t, "\n  main:\n    - {text: ok}\n")
			c.use(r)
			r.close()
			if _, err := os.Stat(r.cfg.Place.Dir()); os.IsNotExist(err) != c.gone {
				t.Errorf("its folder: %v", err)
			}
			if !c.gone {
				return
			}
			r.reopen() // the same ID is free again
			r.wait(string(r.run("true").ID))
		})
	}
}
