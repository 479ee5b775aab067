package session

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/drover-dev/drover/internal/policy"
	"github.com/drover-dev/drover/internal/project/command"
	"github.com/drover-dev/drover/internal/project/definitions"
	"github.com/drover-dev/drover/internal/project/skill"
	"github.com/drover-dev/drover/internal/session/agents"
	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/test/modeltest"
)

// withCommands is a session in a folder with files of commands.
func withCommands(t *testing.T, trusted bool, files map[string]string, lists map[string][]modeltest.Answer,
	change ...func(*Config)) (*testSession, *modeltest.Server, *sayings) {
	t.Helper()
	heard := &sayings{}
	r, server := served(t, modeltest.Turns(lists), append([]func(*Config){func(c *Config) {
		folder := c.Info.Project
		for name, text := range files {
			path := filepath.Join(folder, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			write(t, path, text)
		}
		env := func(string) string { return "" }
		c.Agents.Commands = func() command.Catalog {
			return command.Find(definitions.Usual(env, folder, trusted, nil, "commands"), skill.Find(definitions.Usual(env, folder, trusted, nil, "skills")))
		}
		c.Agents.Rules = policy.Rules{Mode: policy.Default, Home: folder, Path: os.Getenv("PATH"), ReadOnlyAuto: true}
		c.Tell = heard.tell
	}}, change...)...)
	return r, server, heard
}

const shipFile = "---\nallowed-tools: Bash(touch made-$1)\n---\nShip $1.\n\nState: !`touch made; echo it is $2`\n\nSee @notes.md and @nobody.\n"

func TestCommandExpands(t *testing.T) {
	r, server, _ := withCommands(t, true, map[string]string{
		".claude/commands/ship.md":      strings.Replace(shipFile, "touch made-$1", "touch made", 1),
		".claude/skills/tidy/SKILL.md":  "---\nname: tidy\ndescription: d\nallowed-tools: Bash(rm x)\n---\nTidy $ARGUMENTS; !`echo of a skill` @more.md",
		".claude/skills/tidy/more.md":   "more of the skill",
		".github/prompts/how.prompt.md": "---\nmode: ask\n---\nHow does ${input:what} work?",
		"notes.md":                      "first note\n",
	}, map[string][]modeltest.Answer{"main": {modeltest.Text("one"), modeltest.Text("two"), modeltest.Text("three"), modeltest.Text("four"),
		modeltest.Text("five")}})
	c := converse(r)
	for i, p := range []struct {
		prompt string
		want   []string
	}{
		{"/ship it now", []string{"Ship it.", "State: it is now", "See notes.md and @nobody.", "<file path=\"notes.md\">", "first note"}},
		{"/tidy all of it", []string{"Tidy all of it;", "of a skill", "more of the skill"}},
		{"/how the lock", []string{"How does the lock work?"}},
		{"/etc/hosts is wrong", []string{"/etc/hosts is wrong"}},
		{"/tmp is full", []string{"/tmp is full"}},
	} {
		c.say(p.prompt)
		if turn := c.next(); turn.Err != nil {
			t.Fatalf("%s: %v", p.prompt, turn.Err)
		}
		said := of(server, "main")[i].LastText()
		for _, want := range p.want {
			if !strings.Contains(said, want) {
				t.Errorf("%s: the model does not read %q: %s", p.prompt, want, said)
			}
		}
	}
	if _, err := os.Stat(filepath.Join(r.cfg.Info.Project, "made")); err != nil {
		t.Errorf("the shell line has not run: %v", err)
	}
}

// A prompt that is refused reaches no model and leaves the conversation as it was.
func TestCommandRefused(t *testing.T) {
	for _, c := range []struct {
		name, prompt string
		trusted      bool
		want         string
	}{
		{"unknown", "/shpi it", true, "did you mean /ship?"},
		{"not-allowed", "/ship it now", true, "/ship was not sent: `touch made; echo it is now`"},
		{"untrusted", "/ship it now", false, "waits until you trust this folder (see `drover trust`)"},
		{"file-outside", "/out", true, "/out was not sent: @/etc/shadow"},
		{"untrusted-file-outside", "/out", false, "waits until you trust this folder"},
		{"denied-file", "/secret", true, "denied by the rule Read(secret.txt)"},
		{"many", "/many", true, "more than 20"},
		{"no-question", "/research", true, "/research needs a question"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, server, _ := withCommands(t, c.trusted, map[string]string{
				".claude/commands/ship.md":   shipFile,
				".claude/commands/out.md":    "See @/etc/shadow",
				".claude/commands/secret.md": "See @secret.txt",
				".claude/commands/many.md":   strings.Repeat("!`true` ", 21),
				"secret.txt":                 "hidden",
			}, map[string][]modeltest.Answer{"main": {modeltest.Text("again")}}, func(c *Config) {
				c.Agents.Rules.Deny = []string{"Read(secret.txt)"}
			})
			d := converse(r)
			d.say(c.prompt)
			turn := d.next()
			if turn.Err == nil || !strings.Contains(turn.Err.Error(), c.want) {
				t.Errorf("turn ended with %v, want %q", turn.Err, c.want)
			}
			if n := len(server.Requests()); n != 0 {
				t.Errorf("the model was asked %d times", n)
			}
			if _, err := os.Stat(filepath.Join(r.cfg.Info.Project, "made")); err == nil {
				t.Error("the shell line has run")
			}
			d.say("something else")
			if turn := d.next(); turn.Err != nil || turn.Result.Text != "again" {
				t.Errorf("the next turn: %+v", turn)
			}
			if text := of(server, "main")[0].LastText(); strings.Contains(text, c.prompt) {
				t.Errorf("the refused prompt came later: %s", text)
			}
		})
	}
}

// What a command allows holds while its prompt is worked on.
func TestCommandAllows(t *testing.T) {
	touch := func(name string) modeltest.Answer {
		return modeltest.Call("Bash", map[string]any{"command": "touch " + name, "description": "d"})
	}
	r, _, _ := withCommands(t, true, map[string]string{
		".claude/commands/go.md": "---\nallowed-tools: Bash(touch first), Bash(touch second)\n---\nGo.",
	}, map[string][]modeltest.Answer{"main": {touch("first"), modeltest.Text("done"), touch("second"), modeltest.Text("done")}})
	c := converse(r)
	c.say("/go")
	if turn := c.next(); turn.Err != nil || len(turn.Result.Denials) != 0 {
		t.Errorf("the command's turn: %+v", turn)
	}
	c.say("go on")
	if turn := c.next(); turn.Err != nil || len(turn.Result.Denials) != 1 {
		t.Errorf("the turn behind it: %+v", turn)
	}
}

func TestCommandAgent(t *testing.T) {
	r, server, heard := withCommands(t, true, map[string]string{
		".claude/commands/look.md":  "---\nagent: explore\nmodel: haiku\n---\nLook at $1.",
		".claude/commands/other.md": "---\nagent: nobody-there\nmodel: haiku\n---\nLook.",
	}, map[string][]modeltest.Answer{"main": {modeltest.Text("one"), modeltest.Text("two")}})
	c := converse(r)
	c.say("/look x.go")
	c.next()
	text := of(server, "main")[0].LastText()
	for _, want := range []string{`subagent_type "explore"`, `model "haiku"`, "<prompt>\nLook at x.go.\n</prompt>"} {
		if !strings.Contains(text, want) {
			t.Errorf("the prompt does not say %q: %s", want, text)
		}
	}
	c.say("/other")
	c.next()
	if text := of(server, "main")[1].LastText(); text != "Look." && !strings.HasSuffix(text, "Look.") {
		t.Errorf("without its agent: %s", text)
	}
	told := heard.all()
	for _, want := range []string{`wants the agent "nobody-there"`, `wants the model "haiku"`} {
		if !strings.Contains(told, want) {
			t.Errorf("nobody is told %q: %s", want, told)
		}
	}
}

// /research has its agents do the work: every other tool is refused, whatever the mode
// is, and the report is where it says.
func TestResearch(t *testing.T) {
	var r *testSession
	report := func() string { return filepath.Join(r.cfg.Place.Reports(), "how-does-the-lock-work.md") }
	lists := map[string][]modeltest.Answer{"research": {modeltest.Text("found it")}}
	heard := &sayings{}
	turn := 0
	handle := func() modeltest.Answer {
		turn++
		switch turn {
		case 1:
			return blocks(
				modeltest.ToolUse("", "Bash", map[string]any{"command": "touch made", "description": "d"}),
				modeltest.ToolUse("", "Grep", map[string]any{"pattern": "lock"}),
				modeltest.ToolUse("", "Agent", map[string]any{"subagent_type": "explore", "description": "d", "prompt": "p"}),
				modeltest.ToolUse("", "Agent", map[string]any{"subagent_type": "research", "mode": "sync", "description": "d", "prompt": "p"}))
		case 2:
			return modeltest.Call("Write", map[string]any{"file_path": report(), "content": "# Locks\n"})
		case 4:
			return modeltest.Call("Bash", map[string]any{"command": "touch made", "description": "d"})
		}
		return modeltest.Text("done")
	}
	agents := modeltest.Turns(lists)
	r, _ = served(t, func(ctx context.Context, q *modeltest.Request) modeltest.Answer {
		if q.Agent() == "main" {
			return handle()
		}
		return agents(ctx, q)
	}, func(c *Config) { c.Tell = heard.tell })
	c := converse(r)
	c.say("/research How does the lock work?")
	first := c.next()
	if first.Err != nil || len(first.Result.Denials) != 3 {
		t.Errorf("turn %+v", first)
	}
	for _, d := range first.Result.Denials {
		if !strings.Contains(d.Reason, "is restricted to Agent(research)") {
			t.Errorf("denied: %+v", d)
		}
	}
	if data, err := os.ReadFile(report()); err != nil || string(data) != "# Locks\n" {
		t.Errorf("report %q, %v", data, err)
	}
	if told := heard.all(); !strings.Contains(told, "the report of /research is written to "+report()) {
		t.Errorf("nobody is told where the report is: %s", told)
	}
	r.only("research")
	c.say("and now?")
	if second := c.next(); second.Err != nil || len(second.Result.Denials) != 0 {
		t.Errorf("the next prompt is restricted: %+v", second)
	}
}

// The list of the API has what can be called, and why something cannot.
func TestCommandsList(t *testing.T) {
	r, _, _ := withCommands(t, false, map[string]string{
		".claude/commands/ship.md":   shipFile,
		".claude/commands/review.md": "ours",
		".claude/commands/bad.md":    "---\n",
	}, nil)
	list, err := r.Commands(r.ctx)
	if err != nil || len(list.Problems) != 1 {
		t.Fatalf("%+v, %v", list, err)
	}
	found := 0
	for _, one := range list.Commands {
		switch {
		case one.Name == "ship":
			found++
			if len(one.WaitsForTrust) != 2 || one.Level != "project" || one.Source == "" {
				t.Errorf("ship %+v", one)
			}
		case one.Name == "review" && one.Level == "project":
			found++
			if one.ShadowedBy != "the built-in /review" {
				t.Errorf("review %+v", one)
			}
		}
	}
	if found != 2 {
		t.Errorf("list %+v", list.Commands)
	}
}

// An interruption ends what a command runs, and the turn.
func TestCommandInterrupted(t *testing.T) {
	r, server, _ := withCommands(t, true, map[string]string{
		".claude/commands/wait.md": "---\nallowed-tools: Bash(sleep 60)\n---\nWait: !`sleep 60`",
	}, nil)
	c := converse(r)
	c.say("/wait")
	line := r.begun(task.LocalBash)
	c.main.Interrupt()
	turn := c.next()
	var refused *agents.RefusedError
	if turn.Err == nil || errors.As(turn.Err, &refused) || len(server.Requests()) != 0 {
		t.Errorf("turn ended with %v", turn.Err)
	}
	if ended := r.wait(string(line.ID))[0]; ended.Status != task.Killed {
		t.Errorf("the shell line has ended as %s", ended.Status)
	}
}

// all is what the user was told so far.
func (s *sayings) all() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.texts, "\n")
}
