package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/api/a2a"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/task"
)

func TestPace(t *testing.T) {
	busy := &a2a.StatusError{Code: 503}
	p := Pace{Jitter: func() float64 { return 0 }}
	now := time.Unix(1000, 0)
	for i, want := range []time.Duration{1, 2, 4, 8, 16, 30, 30} {
		if got, err := p.Bad(now, busy); err != nil || got != want*time.Second {
			t.Errorf("after failure %d: %v, %v", i+1, got, err)
		}
	}
	if got, _ := p.Bad(now, &a2a.StatusError{Code: 429, RetryAfter: time.Minute}); got != time.Minute {
		t.Errorf("Retry-After: %v", got)
	}
	if got, _ := p.Bad(now, &a2a.StatusError{Code: 429, RetryAfter: 24 * time.Hour}); got != retryMost {
		t.Errorf("a day: %v", got)
	}
	var gone *UnreachableError
	if _, err := p.Bad(now.Add(DefaultOffline), busy); !errors.As(err, &gone) || !errors.Is(err, busy) {
		t.Errorf("for too long: %v", err)
	}
	p.Good(0, true)
	if got, err := p.Bad(now.Add(2*DefaultOffline), busy); err != nil || got != time.Second {
		t.Errorf("after a good answer: %v, %v", got, err)
	}
	if _, err := p.Bad(now, &a2a.StatusError{Code: 403}); err == nil {
		t.Error("what will not pass is waited for")
	}
	p.Jitter = func() float64 { return 0.999 }
	p.Good(0, true)
	if got, _ := p.Bad(now, busy); got < time.Second/2 || got >= time.Second {
		t.Errorf("with jitter: %v", got)
	}

	p = Pace{}
	for i, want := range []time.Duration{1, 2, 4, 4} {
		if got := p.Good(0, false); got != want*time.Second {
			t.Errorf("quiet for the %d. time: %v", i+1, got)
		}
	}
	if got := p.Good(300*time.Millisecond, true); got != 700*time.Millisecond {
		t.Errorf("after news: %v", got)
	}
	if got := p.Good(maxHold, false); got != 0 {
		t.Errorf("after a poll that was held: %v", got)
	}
}

func TestSidecarFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r1.json")
	want := Sidecar{Task: "r1", Session: "s1", Type: "ultraplan", Metadata: json.RawMessage(`{"a":1}`)}
	if err := WriteSidecar(path, want); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadSidecar(path); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, %v", got, err)
	}
	if err := errors.Join(RemoveSidecar(path), RemoveSidecar(path)); err != nil {
		t.Error(err)
	}
	if _, err := ReadSidecar(path); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	for _, bad := range []string{"", "{", `{"sessionId":"../x"}`} {
		if err := os.WriteFile(path, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadSidecar(path); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

// Sidecars of work that has ended are removed, and no others.
func TestRemoveSidecars(t *testing.T) {
	place := home.At(filepath.Join(t.TempDir(), "state")).Project(t.TempDir()).Session(task.NewSessionID())
	if err := place.Ensure(); err != nil {
		t.Fatal(err)
	}
	ended, live := place.RemoteFile("r00000001"), place.RemoteFile("r00000002")
	if err := os.MkdirAll(filepath.Dir(ended), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{ended, live} {
		if err := os.WriteFile(path, []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	RemoveSidecars(place, func(id task.ID) bool { return id == "r00000001" })
	if _, err := os.Lstat(ended); !os.IsNotExist(err) {
		t.Errorf("the sidecar of ended work: %v", err)
	}
	if _, err := os.Lstat(live); err != nil {
		t.Errorf("the sidecar of live work: %v", err)
	}
}

// A command says by its exit and its output whether the work is done; nothing of
// it is left.
func TestCommand(t *testing.T) {
	dir := t.TempDir()
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}
	now := a2a.News{State: a2a.Working, Phase: "x", Said: []string{"said"}}
	for name, c := range map[string]struct {
		line string
		want string // "-": nil
		says string // of the error
	}{
		"goes-on":  {"true", "-", ""},
		"done":     {`read -r line; case $line in *'"pr":7'*'"said"'*) echo merged;; esac`, "merged", ""},
		"unread":   {"echo merged", "merged", ""},
		"fails":    {"echo merged; exit 3", "", "exit code 3"},
		"signal":   {"kill -9 $$", "", "SIGKILL"},
		"flood":    {"yes | head -c 3000000", strings.TrimSpace(strings.Repeat("y\n", checkText/2)), ""},
		"straggle": {"(trap '' TERM; exec -a straggler sleep 600) & echo $! > pid; echo merged", "merged", ""},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := (&Command{Line: c.line, Dir: dir, Env: env}).Check(t.Context(), json.RawMessage(`{"pr":7}`), now)
			got := "-"
			if text != nil {
				got = *text
			}
			if (err != nil) != (c.says != "") || err == nil && got != c.want || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("%.60q, %v", got, err)
			}
		})
	}
	pid, err := os.ReadFile(filepath.Join(dir, "pid"))
	if err != nil {
		t.Fatal(err)
	}
	if line, _ := os.ReadFile("/proc/" + strings.TrimSpace(string(pid)) + "/cmdline"); strings.Contains(string(line), "straggler") {
		t.Errorf("left: %q", line)
	}
	unsafe := &Command{Line: "echo merged", Dir: dir, Env: env, Ready: func() error { return errors.New("nobody looks") }}
	if _, err := unsafe.Check(t.Context(), nil, now); err == nil {
		t.Error("a command was started that nobody would end")
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	if _, err := (&Command{Line: "sleep 600", Dir: dir, Env: env}).Check(ctx, nil, now); err == nil {
		t.Error("a check went on after its end")
	}
}
