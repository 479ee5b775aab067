package hook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/drover-dev/drover/agent"
)

//rules:constant a flag of the test binary
var update = flag.Bool("update", false, "write the golden files")

// TestPayloads keeps what hooks of either form read, event by event.
func TestPayloads(t *testing.T) {
	for name, spell := range map[string]func(Event) string{
		"snake": func(e Event) string { return string(e) },
		"camel": func(e Event) string {
			if f := factOf(e); f.copilot != "" {
				return f.copilot
			}
			return lowerFirst(string(e))
		},
	} {
		t.Run(name, func(t *testing.T) {
			var e ears
			var all []Callback
			for _, f := range facts() {
				if !f.is(silent) {
					all = append(all, e.on(spell(f.event), ""))
				}
			}
			main := func(b *Base) {
				toolbox(b)
				b.SessionID, b.Cwd, b.Model = "s1", "/work", "some-model"
				b.Effort = func() string { return "high" }
				b.PermissionMode = func() string { return "plan" }
			}
			fire(playSet(t, with(t, all...), main))
			sub := playSet(t, with(t, all...), main, func(b *Base) {
				b.AgentID, b.AgentType, b.DisplayName, b.Description, b.AgentTranscript = "a1", "explore", "Explore", "looks around", "/a1.jsonl"
			})
			fireSub(sub)
			golden(t, name, e.all)
		})
	}
}

func fixed(s *stage) *stage {
	s.now = func() time.Time { return time.UnixMilli(1700000000000) }
	return s
}

func fire(s *stage) {
	fixed(s)
	ctx := context.Background()
	s.SessionStart(ctx, "startup")
	_, _ = s.UserPromptSubmit(ctx, "do <it>")
	// The model has spelled the name as it liked.
	_, _ = NewGate(s.Runner, &rules{says: Ask}).Check(ctx, call("bash", `{"command":"ls"}`))
	l := NewLoop(s.Runner, func() []Background {
		return []Background{{ID: "b1", Type: "shell", Status: "running", Description: "a server", Command: "serve"}}
	})
	ok := agent.Output{Text: "fine", Structured: map[string]any{"files": 1}}
	l.Called(ctx, call("Bash", `{"command":"ls"}`), ok, 1500*time.Millisecond)
	l.Called(ctx, call("mcp__fs__read", `{}`), agent.Refuse("no such file"), time.Millisecond)
	l.Batch(ctx, []agent.Done{{Call: call("Bash", `{"command":"ls"}`), Output: ok}, {Call: call("Read", `half {`), Output: agent.Refuse("bad")}})
	l.Stop(ctx, agent.TurnResult{Text: "done", StopReason: "end_turn"}, 2)
	s.StopFailure(ctx, errors.New("overloaded"), "half")
	_, _ = s.PreCompact(ctx, "overflow", "keep names")
	s.PostCompact(ctx, "manual", "the summary")
	s.Notify(ctx, "permission_prompt", "", "a question waits")
	_ = s.TaskCreated(ctx, Todo{ID: "1", Subject: "write", Description: "a page"})
	_ = s.TaskCompleted(ctx, Todo{ID: "1", Subject: "write", Teammate: "mate", Team: "team"})
	s.SessionEnd(ctx, "exit")
}

func fireSub(s *stage) {
	fixed(s)
	ctx := context.Background()
	l := NewLoop(s.Runner, nil)
	l.Start(ctx)
	l.End(ctx, agent.TurnResult{Text: "half", Reason: "max_turns"}, errors.New("limit"))
}

func golden(t *testing.T, name string, payloads []map[string]any) {
	t.Helper()
	for _, p := range payloads {
		for _, key := range []string{"tool_use_id", "toolUseId", "prompt_id", "promptId"} { // new for each start
			if id, _ := p[key].(string); len(id) > 20 {
				p[key] = "ID"
			}
		}
	}
	got, err := json.MarshalIndent(payloads, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", "payloads-"+name+".json")
	if *update {
		if err := os.WriteFile(path, append(got, '\n'), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(append(got, '\n'), want) {
		t.Errorf("%s differs (go test -update writes it):\n%s", path, got)
	}
}
