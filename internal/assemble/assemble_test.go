package assemble

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/assemble/bare"
	"github.com/drover-dev/drover/internal/options"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/policy"
	"github.com/drover-dev/drover/internal/project/settings"
	"github.com/drover-dev/drover/internal/session"
	"github.com/drover-dev/drover/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// config is that of a session in a folder of its own.
func config(t *testing.T) Config {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "da") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	set := settings.Settings{Options: options.Default()}
	set.Sandbox.Mode = "off"
	return Config{Config: bare.Config{Settings: set, Root: home.At(filepath.Join(dir, "h")), Folder: t.TempDir(), Role: session.RoleBackground, Version: "test",
		Env: []string{"PATH=" + os.Getenv("PATH"), "XDG_RUNTIME_DIR=" + dir, "TMPDIR=" + dir, "HOME=" + dir}}}
}

func TestClose(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	c := config(t)
	s, err := Open(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	s.Serve()
	info, err := s.Info(ctx)
	if err != nil {
		t.Fatal(err)
	}
	client := control.Dial(info.Socket)
	defer client.Close()
	started, err := client.Start(ctx, []control.StartRequest{{Name: "busy", Shell: &control.ShellRequest{Args: []string{"sleep", "100"}}, Env: c.Env, Cwd: c.Folder}})
	if err != nil || started[0].Error != nil {
		t.Fatalf("start %+v, %v", started, err)
	}

	// A second one for the same session is refused, and takes nothing away.
	again := c
	again.Session = s.Place.ID()
	if _, err := Open(ctx, again); !errors.Is(err, home.ErrLocked) {
		t.Errorf("opened twice: %v", err)
	}
	if _, err := client.Info(ctx); err != nil {
		t.Errorf("the first one does not answer any more: %v", err)
	}

	type answer struct {
		reply control.WaitReply
		err   error
	}
	told := make(chan answer, 1)
	for e, err := range client.Events(ctx, 0) { // the waiter comes before the close
		if err != nil {
			t.Fatal(err)
		}
		if e.Verb == task.Begin {
			go func() {
				reply, err := client.Wait(ctx, control.WaitRequest{Refs: []string{"busy"}})
				told <- answer{reply, err}
			}()
			break
		}
	}
	if reply, err := client.Wait(ctx, control.WaitRequest{Refs: []string{"busy"}, Timeout: 50 * time.Millisecond}); err != nil || !reply.TimedOut {
		t.Fatalf("wait %+v, %v", reply, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	got := <-told
	if got.err != nil || len(got.reply.Tasks) != 1 || got.reply.Tasks[0].Status != task.Killed || got.reply.Tasks[0].Cause.Reason != task.ReasonClosing {
		t.Errorf("the waiter was told %+v, %v", got.reply, got.err)
	}
	if _, err := os.Lstat(info.Socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is still there: %v", err)
	}

	s, err = Open(ctx, again)
	if err != nil {
		t.Fatalf("opened again: %v", err)
	}
	if r, err := s.Get(ctx, "busy"); err != nil || r.Status != task.Killed {
		t.Errorf("after that %+v, %v", r, err)
	}
	if err := s.ServeUntilIdle(ctx, time.Millisecond); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// A session whose socket cannot be made is not open.
func TestNoSocket(t *testing.T) {
	c := config(t)
	c.Session = "s00000001"
	at, err := c.Root.Project(c.Folder).Session(c.Session).SocketPath(home.Lookup(c.Env))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(at, "in-the-way"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), c); err == nil {
		t.Fatal("opened without a socket")
	}
	if err := os.RemoveAll(at); err != nil {
		t.Fatal(err)
	}
	s, err := Open(t.Context(), c)
	if err != nil {
		t.Fatalf("the place was not given back: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestRules(t *testing.T) {
	var set settings.Settings
	set.Permissions.DefaultMode = "plan"
	set.Permissions.Allow, set.Permissions.Deny = []string{"Read"}, []string{"Bash(rm *)"}
	set.Add(settings.Source{Name: "--allowed-tools", Allow: []string{"Bash(ls *)"}})
	set.Add(settings.Source{Name: "--disallowed-tools", Deny: []string{"Write"}})
	c := Config{Config: bare.Config{Settings: set, Env: []string{"HOME=/old", "HOME=/h", "PATH=/bin"}}}
	r := Rules(c)
	if r.Mode != policy.Plan || r.Home != "/h" || r.Path != "/bin" || !slices.Equal(r.Deny, []string{"Bash(rm *)", "Write"}) {
		t.Errorf("rules %+v", r)
	}
	for _, rule := range []string{"Read", "Bash(ls *)", "Agent", "TaskStop", "TaskOutput"} {
		if !slices.Contains(r.Allow, rule) {
			t.Errorf("%s is not in %q", rule, r.Allow)
		}
	}
	c.Settings.Permissions.DefaultMode = "dontAsk"
	if r := Rules(c); r.Mode != policy.DontAsk {
		t.Errorf("mode %s", r.Mode)
	}
}

func TestProviders(t *testing.T) {
	var p options.Providers
	p.Anthropic.BaseURL, p.Anthropic.APIKeyEnv = "http://settings", "MY_KEY"
	get := home.Lookup(withProviders([]string{"MY_KEY=k"}, settings.Settings{Options: options.Options{Providers: p}}))
	if get("ANTHROPIC_BASE_URL") != "http://settings" || get("ANTHROPIC_API_KEY") != "k" {
		t.Errorf("base %q, key %q", get("ANTHROPIC_BASE_URL"), get("ANTHROPIC_API_KEY"))
	}
	if get := home.Lookup(withProviders([]string{"ANTHROPIC_BASE_URL=http://env"}, settings.Settings{Options: options.Options{Providers: p}})); get("ANTHROPIC_BASE_URL") != "http://env" || get("ANTHROPIC_API_KEY") != "" {
		t.Errorf("base %q, key %q", get("ANTHROPIC_BASE_URL"), get("ANTHROPIC_API_KEY"))
	}
}
