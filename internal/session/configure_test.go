package session

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/policy"
)

// scriptOf writes a script and returns the name of its model.
func scriptOf(t *testing.T, turns string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "second.yaml")
	if err := os.WriteFile(path, []byte("version: 1\nagents:\n"+turns), 0o600); err != nil {
		t.Fatal(err)
	}
	return "script:" + path
}

// Model and mode of a live session change with the next call, for the main agent and for
// agents that it starts afterwards; who follows the state is told.
func TestConfigure(t *testing.T) {
	c := converse(open(t, `
  main:
    - {text: from the first}
`, func(c *Config) { c.Agents.Rules.Mode = policy.Plan }))
	before, err := c.State(c.ctx, control.StateRequest{})
	if err != nil || before.Settings == nil || before.Settings.Mode != "plan" || before.Settings.Model != c.main.Model() {
		t.Fatalf("%+v, %v", before.Settings, err)
	}
	c.say("one")
	if turn := c.next(); turn.Result.Text != "from the first" {
		t.Errorf("%+v", turn)
	}
	second := scriptOf(t, `
  main:
    - {text: the turn that the first model has answered}
    - tools: [{name: Bash, input: {command: "touch made", description: make}}]
    - {text: from the second}
`)
	mode := string(policy.Bypass)
	now, err := c.Configure(c.ctx, control.ConfigureRequest{Model: &second, Mode: &mode})
	if err != nil || now.Mode != mode || now.Model == before.Settings.Model {
		t.Fatalf("%+v, %v", now, err)
	}
	after, err := c.State(c.ctx, control.StateRequest{After: before.Version, Wait: patience})
	if err != nil || after.Settings == nil || *after.Settings != now {
		t.Errorf("the state has %+v, %v", after.Settings, err)
	}
	c.say("two")
	if turn := c.next(); turn.Result.Text != "from the second" {
		t.Errorf("%+v", turn)
	}
	if _, err := os.Stat(filepath.Join(c.folder, "made")); err != nil {
		t.Errorf("the mode of the main agent is still plan: %v", err)
	}
	if got := c.main.environment().Me.Mode(); got != policy.Bypass {
		t.Errorf("a subagent would begin in mode %s", got)
	}
}

// A change that cannot be made changes nothing, and says how to fix it.
func TestConfigureRefused(t *testing.T) {
	c := converse(open(t, "\n  main:\n    - {text: ok}\n"))
	before, err := c.Configure(c.ctx, control.ConfigureRequest{})
	if err != nil {
		t.Fatal(err)
	}
	text := func(s string) *string { return &s }
	for want, req := range map[string]control.ConfigureRequest{
		"permission mode \"wild\"":   {Mode: text("wild"), Thinking: &control.Thinking{Effort: "low"}},
		"effort \"huge\" is not":     {Mode: text("plan"), Thinking: &control.Thinking{Effort: "huge"}},
		"change the model":           {Mode: text("plan"), Model: text("script:/nowhere/x.yaml")},
		"change the permission mode": {Mode: text(" "), Thinking: &control.Thinking{Effort: "low"}},
	} {
		if _, err := c.Configure(c.ctx, req); code(err) != control.Invalid || !strings.Contains(err.Error(), want) {
			t.Errorf("want %s, got %v", want, err)
		}
	}
	if now, err := c.Configure(c.ctx, control.ConfigureRequest{}); err != nil || now != before {
		t.Errorf("%+v, %v, want %+v", now, err, before)
	}
	alone := open(t, "")
	if _, err := alone.Configure(alone.ctx, control.ConfigureRequest{}); code(err) != control.Unavailable {
		t.Errorf("without a main agent: %v", err)
	}
}

// The cost guard binds agents: people and clients may choose what costs more than what the
// conversation has, for itself and for an agent.
func TestGuardLetsPeopleChoose(t *testing.T) {
	c := converse(open(t, "\n  main:\n    - {text: ok}\n", func(cfg *Config) {
		cfg.Agents.Env = append(cfg.Agents.Env, "ANTHROPIC_API_KEY=none", "ANTHROPIC_BASE_URL=http://127.0.0.1:9")
		cfg.Agents.Policy.Multipliers = map[string]float64{"script:*": 0, "haiku": 1, "sonnet": 2, "opus": 3}
	}))
	for _, name := range []string{"haiku", "sonnet", "opus"} {
		model := name
		if now, err := c.Configure(c.ctx, control.ConfigureRequest{Model: &model}); err != nil || !strings.Contains(now.Model, name) {
			t.Errorf("%s: %+v, %v", name, now, err)
		}
	}
	haiku := "haiku"
	if _, err := c.Configure(c.ctx, control.ConfigureRequest{Model: &haiku}); err != nil {
		t.Fatal(err)
	}
	started := func(byModel bool) string {
		got, err := c.Start(c.ctx, []control.StartRequest{{Agent: &control.AgentRequest{Type: "plan", Prompt: "x", Model: "opus"},
			Env: c.cfg.Agents.Env, Cwd: c.folder, ByModel: byModel}})
		if err != nil || len(got) != 1 || got[0].Error != nil {
			t.Fatalf("%+v, %v", got, err)
		}
		return got[0].Task.Model
	}
	if got := started(false); !strings.Contains(got, "opus") {
		t.Errorf("an agent that a person starts has %q", got)
	}
	if got := started(true); !strings.Contains(got, "haiku") {
		t.Errorf("an agent that an agent elsewhere starts has %q", got)
	}
}
