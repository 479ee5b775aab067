package assemble

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/drover-dev/drover/internal/assemble/bare"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/project/settings"
	"github.com/drover-dev/drover/internal/session"
	"github.com/drover-dev/drover/internal/session/agents"
)

// A session dreams by itself only where that is set, and where it may live longer
// than its work.
func TestMemoryAuto(t *testing.T) {
	for name, c := range map[string]struct {
		set  string
		role string
		last bool
		auto bool
	}{
		"default":    {`{}`, session.RoleBackground, false, false},
		"off":        {`{"memory":{"dream":"off"}}`, session.RoleBackground, false, false},
		"background": {`{"memory":{"dream":"auto"}}`, session.RoleBackground, false, true},
		"prompt":     {`{"memory":{"dream":"auto"}}`, session.RolePrompt, false, true},
		"brief":      {`{"memory":{"dream":"auto"}}`, session.RolePrompt, true, false},
		"run":        {`{"memory":{"dream":"auto"}}`, session.RoleRun, false, false},
		"disabled":   {`{"memory":{"dream":"auto","enabled":"off"}}`, session.RoleBackground, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			set, _, err := settings.Load(settings.Sources{Flag: c.set})
			if err != nil {
				t.Fatal(err)
			}
			var a agents.Config
			cfg := Config{Config: bare.Config{Settings: set, Role: c.role}, Brief: c.last}
			remember(&a, cfg, home.At(t.TempDir()).Project(t.TempDir()), t.Logf)
			if auto := cfg.options("").Memory.Auto(); auto != c.auto || (a.Memory == nil) != (name == "disabled") {
				t.Errorf("by itself %v, store %v", auto, a.Memory)
			}
		})
	}
}

// What is remembered stands behind the notes, and agents may read the rest of it.
func TestMemoryTold(t *testing.T) {
	set, _, err := settings.Load(settings.Sources{})
	if err != nil {
		t.Fatal(err)
	}
	project := home.At(t.TempDir()).Project(t.TempDir())
	a := agents.Config{Notes: "the notes"}
	remember(&a, Config{Config: bare.Config{Settings: set}}, project, t.Logf)
	if a.Notes != "the notes" {
		t.Errorf("nothing is remembered, and agents are told %q", a.Notes)
	}
	if err := os.MkdirAll(project.Memory(), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(project.Memory(), "MEMORY.md"), []byte("- uses make\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	remember(&a, Config{Config: bare.Config{Settings: set}}, project, t.Logf)
	if !strings.HasPrefix(a.Notes, "the notes\n\n<memory ") || !strings.Contains(a.Notes, "- uses make") {
		t.Errorf("told %q", a.Notes)
	}
	if rule := a.Rules.Allow[len(a.Rules.Allow)-1]; rule != "Read("+project.Memory()+"/**)" {
		t.Errorf("rule %q", rule)
	}
}
