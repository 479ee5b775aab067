package session

import (
	"strings"
	"sync"
	"testing"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/task"
)

// What a model of another program asks for is bound by the user's bans, in any
// spelling; what the user types is not.
func TestGuarded(t *testing.T) {
	r := open(t, "", func(c *Config) { c.Agents.Rules.Deny = []string{"Bash(touch:*)"} })
	guarded := func(q *control.StartRequest) { q.ByModel = true }
	for _, line := range []string{"touch x", "true && touch x", `t"ouch" x`, "timeout 5 touch x"} {
		if got := r.ask(line, guarded); got.Error == nil || got.Error.Code != control.Invalid {
			t.Errorf("%s: %+v", line, got)
		}
	}
	byArgs := r.ask("", guarded, func(q *control.StartRequest) { q.Shell = &control.ShellRequest{Args: []string{"touch", "x"}} })
	if byArgs.Error == nil {
		t.Error("arguments are bound too")
	}
	for _, got := range []control.Started{r.ask("true", guarded), r.ask("touch x")} {
		if got.Error != nil {
			t.Error(got.Error)
			continue
		}
		r.wait(string(got.Task.ID))
	}
}

// A rule of another program's settings that is not understood stops nobody: it
// bans its whole tool, and the user is told once. One of our own is an error.
func TestForeignRules(t *testing.T) {
	var mu sync.Mutex
	var notes []string
	script := `
  main:
    - tools: [{name: Glob, input: {pattern: "*"}}, {name: Read, input: {file_path: x}}]
    - text: "{{last}}"
  explore:
    - {text: ok}
`
	wrong := []string{"Glob(a{{{)", "Deploy(now)"}
	change := func(c *Config) {
		c.Agents.Rules.Deny = wrong
		c.Tell = func(_ task.ID, text string) { mu.Lock(); defer mu.Unlock(); notes = append(notes, text) }
	}
	r := open(t, script, change)
	if _, err := r.OpenMain(r.ctx, MainConfig{}); err == nil {
		t.Error("rules of our own that are wrong were taken")
	}
	c := converse(open(t, script, change, func(c *Config) { c.Agents.Foreign = wrong }))
	c.say("go")
	turn := c.next()
	if turn.Err != nil || len(turn.Result.Denials) != 1 || turn.Result.Denials[0].Name != "Glob" {
		t.Errorf("turn %+v", turn)
	}
	started, err := c.Start(c.ctx, []control.StartRequest{{Agent: &control.AgentRequest{Type: "explore", Prompt: "x"}, Env: c.cfg.Agents.Env, Cwd: c.folder}})
	if err != nil || started[0].Error != nil {
		t.Fatalf("%+v, %v", started, err)
	}
	if done := c.wait(string(started[0].Task.ID)); done[0].Status != task.Completed {
		t.Errorf("agent: %+v", done[0])
	}
	if got := c.ask("true", func(q *control.StartRequest) { q.ByModel = true }); got.Error != nil {
		t.Errorf("a command of a client: %v", got.Error)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(notes) != 2 || !strings.Contains(notes[0]+notes[1], "Deploy(now)") {
		t.Errorf("told %q", notes)
	}
}
