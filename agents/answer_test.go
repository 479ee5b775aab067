package agents_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover"
	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/agents"
	"github.com/drover-dev/drover/task"
)

// calls is a model that makes one call and answers with its result.
type calls struct{ tool, input string }

func (c calls) Reply(_ context.Context, req *agent.Request, _ func(agent.Part)) (*agent.Reply, error) {
	blocks, err := req.Messages[len(req.Messages)-1].Blocks()
	if err != nil {
		return nil, err
	}
	for _, b := range blocks { // a note may follow the result
		if b.Type == "tool_result" {
			return says(req, fmt.Sprint(b.IsError, " ", string(b.Content)))
		}
	}
	call := agent.Block{Type: "tool_use", ID: "call_1", Name: c.tool, Input: json.RawMessage(c.input)}
	return &agent.Reply{Model: req.Model, Blocks: []agent.Block{call}, StopReason: "tool_use"}, nil
}

// withSettings opens a runtime of a user with these settings.
func withSettings(t *testing.T, text string, c agents.Config) *agents.Runtime {
	t.Helper()
	user := t.TempDir()
	for _, name := range []string{"HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR"} {
		t.Setenv(name, user)
	}
	file := filepath.Join(user, "drover", "settings.json")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c.Dir, c.Home = t.TempDir(), filepath.Join(user, "state")
	rt, err := agents.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := rt.Close(); err != nil {
			t.Error(err)
		}
	})
	return rt
}

// answerOf runs an agent to its end.
func answerOf(t *testing.T, rt *agents.Runtime, a agents.Agent) (task.Record, string) {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), 30*time.Second, errors.New("the agent does not end"))
	defer cancel()
	r, err := rt.Agent(ctx, a)
	if err != nil {
		t.Fatal(err)
	}
	if r, err = rt.Wait(ctx, r.ID); err != nil {
		t.Fatal(err)
	}
	text, err := rt.Result(ctx, r.ID)
	if err != nil {
		t.Fatal(err)
	}
	return r, text
}

// A function of the program answers the questions of agents: its reply decides the call,
// and the model reads why a call was denied. What it does not answer is denied in time,
// and is said to the log.
func TestAnswer(t *testing.T) {
	touch := calls{"Bash", `{"command":"touch report.txt","description":"make a report"}`}
	for name, tt := range map[string]struct {
		model  calls
		answer func(context.Context, task.Question) (task.Reply, error)
		file   string // that there is in the end
		reads  string // by the model
		allow  bool
		by     task.Actor
		logs   string
	}{
		"allow": {touch, func(context.Context, task.Question) (task.Reply, error) {
			return task.Reply{Allow: true}, nil
		}, "report.txt", "false", true, task.ByClient, ""},
		"other input": {touch, func(context.Context, task.Question) (task.Reply, error) {
			input := json.RawMessage(`{"command":"touch other.txt","description":"make another"}`)
			return task.Reply{Allow: true, Input: input}, nil
		}, "other.txt", "false", true, task.ByClient, ""},
		"deny": {touch, func(context.Context, task.Question) (task.Reply, error) {
			return task.Reply{Reason: "not on a Friday"}, nil
		}, "", "not on a Friday", false, task.ByClient, ""},
		"error": {touch, func(context.Context, task.Question) (task.Reply, error) {
			return task.Reply{}, errors.New("no terminal")
		}, "", "nobody answered within ", false, task.ByRuntime, "no terminal"},
		"not a reply": {touch, func(context.Context, task.Question) (task.Reply, error) {
			return task.Reply{Text: "maybe"}, nil
		}, "", "nobody answered within ", false, task.ByRuntime, "a denial takes a reason, and no text"},
		"never": {touch, func(ctx context.Context, _ task.Question) (task.Reply, error) {
			<-ctx.Done()
			return task.Reply{Allow: true}, nil
		}, "", "nobody answered within ", false, task.ByRuntime, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var log strings.Builder
			rt := withSettings(t, `{"permissions":{"askTimeout":"300ms"}}`, agents.Config{
				Model: tt.model, Config: drover.Config{Answer: tt.answer, Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))},
			})
			r, text := answerOf(t, rt, agents.Agent{Prompt: "go"})
			if r.Status != task.Completed || !strings.Contains(text, tt.reads) {
				t.Errorf("%s: the model read %q, want %q", r.Status, text, tt.reads)
			}
			if a := r.LastAnswer; a == nil || a.Allow != tt.allow || a.Cause.Actor != tt.by {
				t.Errorf("the record has the answer %+v", a)
			}
			for _, file := range []string{"report.txt", "other.txt"} {
				if _, err := os.Stat(filepath.Join(r.Cwd, file)); (err == nil) != (file == tt.file) {
					t.Errorf("%s: %v", file, err)
				}
			}
			if err := rt.Close(); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(log.String(), tt.logs) || tt.logs == "" && log.Len() > 0 {
				t.Errorf("the log says %q, want %q", log.String(), tt.logs)
			}
		})
	}
}

// A model that the program brings is its own decision: the user's list of models holds for
// models that agents name, and not for it.
func TestOwnModelIsAvailable(t *testing.T) {
	for _, name := range []string{"", "mine", "sonnet", "claude-opus-4-1", "openai/gpt-5"} {
		t.Run("name "+name, func(t *testing.T) {
			rt := withSettings(t, `{"models":{"available":["haiku"]}}`, agents.Config{
				Model: echo{}, ModelName: name, Config: drover.Config{Env: []string{"PATH=" + os.Getenv("PATH")}},
			})
			for _, named := range []string{"", name} {
				if r, text := answerOf(t, rt, agents.Agent{Prompt: "hello", Model: named}); text != "You said: hello" {
					t.Errorf("agent with the model %q: %s %s: %q", named, r.Model, r.Error, text)
				}
			}
			_, err := rt.Agent(t.Context(), agents.Agent{Prompt: "hello", Model: "claude-3-opus-latest"})
			if err == nil || !strings.Contains(err.Error(), "is not available") {
				t.Errorf("a model that the user does not allow: %v", err)
			}
		})
	}
}
