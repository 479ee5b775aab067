package tui

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/project/todo"
	"github.com/drover-dev/drover/task"
)

func (s *session) Environment(context.Context) (control.Environment, error) {
	return someEnvironment(), nil
}

func (s *session) Start(_ context.Context, reqs []control.StartRequest) ([]control.Started, error) {
	s.did("start %s in %s", reqs[0].Remote.Prompt, reqs[0].Cwd)
	return []control.Started{{Task: &task.Record{ID: "r12345678", Kind: task.RemoteAgent}}}, nil
}

func someEnvironment() control.Environment {
	local := "/home/ann/project/.drover/settings.local.json"
	return control.Environment{
		Mode: "default",
		Rules: []control.Rule{{Effect: "deny", Rule: "Read(./.env)", Source: "/home/ann/.config/drover/settings.json"},
			{Effect: "ask", Rule: "Bash(git push:*)", Source: "/home/ann/project/.drover/settings.json"},
			{Effect: "allow", Rule: "Bash(go test:*)", Source: local}, {Effect: "allow", Rule: "Glob", Source: "--allowed-tools"}},
		Directories: []string{"/home/ann/shared"},
		Hooks: []control.Hook{{Event: "PreToolUse", Matcher: "Bash", Command: "./check.sh", Source: local, Runs: true},
			{Event: "Stop", Command: "notify-send done", Source: "/home/ann/project/.claude/settings.json"}},
		Servers: []control.MCPServer{{Name: "github", Status: "connected", Tools: 12}, {Name: "slow", Status: "pending"},
			{Name: "broken", Status: "failed", Error: "start of broken: exit status 1"}},
		AgentTypes: []control.AgentType{{Name: "explore", Description: "Finds things in the code", Model: "haiku"},
			{Name: "tester", Description: "Writes tests", Source: "/home/ann/project/.drover/agents/tester.md"}},
		Models: []string{"haiku", "opus", "sonnet"},
		Offered: []control.ModelOffer{{Name: "haiku", Full: "claude-haiku-5-5", Title: "Haiku 5.5", Window: 1_000_000, Input: 0.1, Output: 0.5},
			{Name: "opus", Full: "claude-opus-5-5", Title: "Opus 5.5", Current: true}, {Name: "sonnet", Full: "mine"}},
		Instructions: "Contents of AGENTS.md:\n\nUse tabs.\n",
		Memory:       []control.MemoryFile{{Path: "/home/ann/.local/state/drover/memory/MEMORY.md", Bytes: 1234, Changed: time.Date(2026, 1, 1, 3, 0, 0, 0, time.UTC)}},
		Spent: []control.Spending{{Model: "opus", Calls: 12, Input: 45_000, Output: 6000, CacheRead: 300_000, USD: 1.25},
			{Model: "haiku", Calls: 3, Input: 900, Output: 80, USD: 0.002}, {Model: "own", Calls: 1, Unpriced: 1}},
		Budget: 5,
		Context: control.Context{Tokens: 50_000, Window: 200_000, CompactAt: 160_000,
			Parts: []control.ContextPart{{Name: "system prompt", Bytes: 8000}, {Name: "instructions", Bytes: 1200}, {Name: "tools", Bytes: 24_000}}},
	}
}

func hostileEnvironment(evil string) control.Environment {
	return control.Environment{Mode: evil, Rules: []control.Rule{{Effect: "deny", Rule: evil, Source: evil}}, Directories: []string{evil},
		Hooks:   []control.Hook{{Event: evil, Matcher: evil, Command: evil, Source: evil}},
		Servers: []control.MCPServer{{Name: evil, Status: evil, Error: evil}}, AgentTypes: []control.AgentType{{Name: evil, Description: evil, Model: evil, Source: evil}},
		Models: []string{evil}, Offered: []control.ModelOffer{{Name: evil, Full: evil, Title: evil}}, Instructions: evil, Memory: []control.MemoryFile{{Path: evil}}, Spent: []control.Spending{{Model: evil}},
		Context: control.Context{Parts: []control.ContextPart{{Name: evil, Bytes: 1}}}}
}

const someDiff = `diff --git a/parse.go b/parse.go
--- a/parse.go
+++ b/parse.go
@@ -1,2 +1,2 @@
 a := 1
-b := 2
+b := 3
?? new.go
`

// What commands show, at three sizes.
func TestPages(t *testing.T) {
	for _, c := range pageCommands() {
		if c.name == "help" {
			continue // it grows with every key: see TestPageScroll
		}
		for _, size := range [][2]int{{60, 20}, {80, 24}, {140, 40}} {
			t.Run(fmt.Sprintf("page-%s-%dx%d", c.name, size[0], size[1]), func(t *testing.T) {
				u := start(t, size[0], size[1], func(o *Options) {
					o.Diff = func(_ context.Context, folder string) (string, error) { return someDiff, nil }
					o.Todos = func(context.Context, task.ID) (todo.List, error) { return someTodos("main"), nil }
				})
				cost := 0.9
				u.api.pages = []task.Record{{ID: "a1", Kind: task.LocalAgent, AgentType: "explore", Status: task.Completed, Description: "Find the parser",
					Usage: &task.Usage{TotalTokens: 4321, CostUSD: &cost}}}
				u.types("/" + c.name)
				u.press("enter")
				golden(t, u.screen())
			})
		}
	}
}

// A page scrolls to its end and no further, and esc goes back to the conversation.
func TestPageScroll(t *testing.T) {
	u := start(t, 80, 24)
	u.talk()
	u.press("f1")
	u.sees("/help · all keys", "1–")
	u.press("pgdown", "end", "pgdown", "down")
	u.sees("What a command shows", "back to the conversation")
	u.press("home")
	u.sees("Commands of the terminal UI")
	u.press("esc")
	u.sees("● Done.")
}

// Long lines of a diff are seen by scrolling to the side.
func TestPageSide(t *testing.T) {
	u := start(t, 60, 20, func(o *Options) {
		o.Diff = func(context.Context, string) (string, error) { return "+" + strings.Repeat("x", 80) + "the end\n", nil }
	})
	u.types("/diff")
	u.press("enter")
	u.misses("the end")
	u.press("right", "right")
	u.sees("the end")
}

// A model is chosen from the list, and the session is told.
func TestPageModel(t *testing.T) {
	u := start(t, 80, 24)
	u.types("/model")
	u.press("enter")
	u.sees("▸ haiku      Haiku 5.5    claude-haiku-5-5    1000k $0.1/$0.5\n",
		"  opus *     Opus 5.5     claude-opus-5-5\n")
	u.press("down", "enter")
	u.did("configure opus default")
	u.sees("opus · default")
}

// Autopilot is changed for the session, and shown.
func TestAutopilot(t *testing.T) {
	u := start(t, 80, 24)
	u.types("/autopilot")
	u.press("enter")
	u.did("configure autopilot")
	u.sees("autopilot")
	u.types("/autopilot on")
	u.press("enter")
	u.did("configure autopilot")
	u.types("/autopilot off")
	u.press("enter")
	u.did("configure interactive")
	u.misses("autopilot")
	u.types("/autopilot maybe")
	u.press("enter")
	u.did("")
	u.sees("/autopilot on, off, or nothing")
}

// Work is sent elsewhere, and is a task.
func TestTeleport(t *testing.T) {
	u := start(t, 80, 24)
	u.types("/teleport port it to arm")
	u.press("enter")
	u.did("start port it to arm in /home/ann/project")
	u.sees("r12345678 has begun elsewhere")
}

// Before there is a session, a page that shows what it has begins it, and a page of the UI
// does not.
func TestPageLater(t *testing.T) {
	fail, begun := errors.New("the folder is gone"), 0
	u := start(t, 80, 24, func(o *Options) {
		o.Later = true
		connect := o.Connect
		o.Connect = func(ctx context.Context) (Connection, error) {
			if begun++; fail != nil {
				return Connection{}, fail
			}
			return connect(ctx)
		}
	})
	u.press("f1")
	u.sees("/help · all keys")
	u.press("q")
	if begun != 0 {
		t.Error("the session has begun for a list of keys")
	}
	u.types("/permissions")
	u.press("enter")
	u.sees("/permissions", "the folder is gone")
	fail = nil
	u.press("r")
	u.sees("Read(./.env)")
	u.press("q")
	u.types("hello")
	u.press("enter")
	u.did("prompt hello")
	if begun != 2 {
		t.Errorf("the session was reached %d times", begun)
	}
}
