package tasks

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/options"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// opened is an open session of tasks, which the test closes.
func opened(t *testing.T) *Session {
	t.Helper()
	folder, id := t.TempDir(), task.NewSessionID()
	project := home.At(filepath.Join(t.TempDir(), "state")).Project(folder)
	if err := project.Ensure(); err != nil {
		t.Fatal(err)
	}
	s, err := Open(Config{Place: project.Session(id), Options: options.Default(),
		Info: control.Info{Session: id, Project: folder, Role: control.RoleRun, Version: "test"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// The death of the keeper stops the commands that nobody could end any more, and who holds the session hears of it.
func TestKeeperLost(t *testing.T) {
	s := opened(t)
	started, err := s.Start(t.Context(), []control.StartRequest{
		{Cwd: t.TempDir(), Shell: &control.ShellRequest{Line: "sleep 1000"}},
		{Cwd: t.TempDir(), Shell: &control.ShellRequest{Line: "true"}},
	})
	if err != nil || started[0].Error != nil || started[1].Error != nil {
		t.Fatal(started, err)
	}
	if _, err := s.Wait(t.Context(), control.WaitRequest{Refs: []string{string(started[1].Task.ID)}}); err != nil {
		t.Fatal(err)
	}
	died := make(chan struct{})
	close(died)
	s.watchKeeper(t.Context(), died)
	if why := context.Cause(s.Alone()); why == nil || why.Error() != "the keeper is gone" {
		t.Errorf("the cause is %v", why)
	}
	for i, want := range []task.Status{task.Killed, task.Completed} {
		r, err := s.Get(t.Context(), string(started[i].Task.ID))
		if err != nil || r.Status != want || want == task.Killed && (r.Cause.Reason != task.ReasonKeeperLost || r.Cause.Actor != task.ByRuntime) {
			t.Errorf("task %d: %+v, %v", i, r, err)
		}
	}
}

// A session of tasks refuses what only one with agents can do, and says so.
func TestNoAgents(t *testing.T) {
	s := opened(t)
	started, err := s.Start(t.Context(), []control.StartRequest{
		{Cwd: t.TempDir(), Agent: &control.AgentRequest{Type: "explore", Prompt: "x"}},
		{Cwd: t.TempDir(), Shell: &control.ShellRequest{Line: "true", Sandbox: true}},
		{Cwd: t.TempDir(), Shell: &control.ShellRequest{Line: "true"}, ByModel: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, one := range started {
		if one.Error == nil || one.Error.Code != control.Unavailable {
			t.Errorf("start %d: %+v", i, one)
		}
	}
	_, diff := s.Diff(t.Context(), control.DiffRequest{Ref: "x"})
	_, set := s.Configure(t.Context(), control.ConfigureRequest{})
	for what, err := range map[string]error{"prompt": s.Prompt(t.Context(), control.PromptRequest{Text: "x"}), "diff": diff, "configure": set} {
		if e := control.AsError(err); e == nil || e.Code != control.Unavailable {
			t.Errorf("%s: %v", what, err)
		}
	}
	if now, err := s.State(t.Context(), control.StateRequest{}); err != nil || !now.Idle || now.IdleCount != 1 {
		t.Errorf("state %+v, %v", now, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if why := context.Cause(s.Alone()); !errors.Is(why, context.Canceled) {
		t.Errorf("closed, and lost: %v", why)
	}
}
