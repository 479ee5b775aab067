package assemble

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/model/usage"
	"github.com/drover-dev/drover/internal/session"
)

// Agents that a client starts reach the provider of the settings, with the key
// that the client has; and no command is given the key, whatever it is called.
func TestClientProviders(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	keys := make(chan string, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		keys <- r.Header.Get("Authorization")
		w.WriteHeader(http.StatusBadRequest)
	}))
	defer server.Close()
	c := config(t)
	c.Settings.Providers.OpenAI.BaseURL, c.Settings.Providers.OpenAI.APIKeyEnv = server.URL, "WORK_KEY"
	c.Model = "openai/x"
	s, err := Open(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	env := append([]string{"WORK_KEY=open-sesame"}, c.Env...)
	started, err := s.Start(ctx, []control.StartRequest{
		{Agent: &control.AgentRequest{Type: "explore", Prompt: "x"}, Env: env, Cwd: c.Folder},
		{Shell: &control.ShellRequest{Line: "env"}, Env: env, Cwd: c.Folder},
	})
	if err != nil || started[0].Error != nil || started[1].Error != nil {
		t.Fatalf("%+v, %v", started, err)
	}
	refs := []string{string(started[0].Task.ID), string(started[1].Task.ID)}
	done, err := s.Wait(ctx, control.WaitRequest{Refs: refs})
	if err != nil {
		t.Fatal(err)
	}
	select {
	case got := <-keys:
		if got != "Bearer open-sesame" {
			t.Errorf("the provider was shown %q", got)
		}
	default:
		t.Errorf("the provider was not asked: %s", done.Tasks[0].Error)
	}
	out, err := s.Output(ctx, control.OutputRequest{Ref: refs[1]})
	if err != nil || !strings.Contains(string(out.Data), "PATH=") || strings.Contains(string(out.Data), "open-sesame") {
		t.Errorf("the command was given %s, %v", out.Data, err)
	}
}

// The background session of a project is the same for ever: what its earlier
// hosts have spent is counted, and does not use up its budget.
func TestBackgroundBudget(t *testing.T) {
	for role, left := range map[string]bool{session.RoleBackground: true, session.RoleRun: false} {
		t.Run(role, func(t *testing.T) {
			c := config(t)
			c.Session, c.Role, c.Settings.MaxBudget = "s00000001", role, 1
			place := c.Root.Project(c.Folder).Session(c.Session)
			if err := place.Ensure(); err != nil {
				t.Fatal(err)
			}
			line := `{"time":"2026-01-01T00:00:00Z","agent_id":"a","agent_type":"explore","model":"m","input_tokens":10,"output_tokens":10,"cost_usd":1.5}` + "\n"
			if err := os.WriteFile(filepath.Join(place.Dir(), usage.FileName), []byte(line), 0o600); err != nil {
				t.Fatal(err)
			}
			s, err := Open(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}()
			if got := s.accounts.Totals().USD; got != 1.5 {
				t.Errorf("counted %v", got)
			}
			free, err := s.accounts.For(usage.Node{ID: "a1"}).Reserve(t.Context(), "m", 10)
			if (err == nil) != left {
				t.Errorf("a call: %v", err)
			}
			if err == nil {
				free()
			}
		})
	}
}
