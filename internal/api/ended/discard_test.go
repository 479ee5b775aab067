package ended

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/engine/journal"
	"github.com/drover-dev/drover/internal/engine/process"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/task"
)

// A session with a damaged log, or one that is gone, goes by force only, and not
// while a process carries its mark.
func TestDiscard(t *testing.T) {
	for name, plant := range map[string]func(path string) error{
		"damaged": func(path string) error { return os.WriteFile(path, []byte("no database"), 0o600) },
		"empty":   func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"gone":    func(string) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			place := home.At(filepath.Join(t.TempDir(), "state")).Project(t.TempDir()).Session(task.NewSessionID())
			err := place.Ensure()
			if err == nil {
				err = plant(place.DB())
			}
			if err == nil {
				err = os.WriteFile(place.Output("b12345678"), nil, 0o600)
			}
			now := time.Now().UTC()
			data, _ := json.Marshal(control.Info{Session: place.ID(), StartTime: now, EndTime: &now})
			if err == nil {
				err = os.WriteFile(place.InfoFile(), data, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			p, ok := look(place)
			if !ok {
				t.Fatal("it is not there")
			}
			if r, err := p.Remove(t.Context(), true); !journal.Damaged(err) || !strings.Contains(err.Error(), "drover sessions repair "+string(place.ID())) {
				t.Errorf("retention: %+v, %v", r, err)
			}
			cmd := exec.Command("sleep", "60")
			cmd.Env = append(os.Environ(), process.MarkSession+"="+string(place.ID()))
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			r, err := p.Discard(t.Context())
			_ = cmd.Process.Kill()
			_ = cmd.Wait() // it was killed
			if err != nil || !strings.Contains(r.Kept, "still at work") {
				t.Errorf("while something is at work: %+v, %v", r, err)
			}
			if r, err = p.Discard(t.Context()); err != nil || r.Kept != "" || r.Unseen == "" {
				t.Errorf("%+v, %v", r, err)
			}
			if _, err := os.Lstat(place.Dir()); !os.IsNotExist(err) {
				t.Errorf("it is there: %v", err)
			}
		})
	}
}
