package session

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/drover-dev/drover/internal/api/control"
)

// A session runs as many workflows at the same time as limits.workflows says.
func TestManyWorkflows(t *testing.T) {
	r := open(t, "", func(c *Config) { c.Options.Limits.Workflows = 1 })
	file := filepath.Join(r.folder, "wait.yaml")
	if err := os.WriteFile(file, []byte("name: wait\nsteps:\n  - {id: wait, shell: sleep 60}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	start := func() error {
		got, err := r.Start(r.ctx, []control.StartRequest{{Workflow: &control.WorkflowRequest{File: file}, Env: os.Environ(), Cwd: r.folder}})
		if err != nil {
			t.Fatal(err)
		}
		if got[0].Error != nil {
			return got[0].Error
		}
		return nil
	}
	if err := start(); err != nil {
		t.Fatal(err)
	}
	if err := start(); code(err) != control.Unavailable || !strings.Contains(err.Error(), "limits.workflows") {
		t.Errorf("a second one: %v", err)
	}
}
