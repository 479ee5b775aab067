package settings

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestMemory(t *testing.T) {
	s, notes, err := Load(Sources{})
	if err != nil || len(notes) > 0 {
		t.Fatal(err, notes)
	}
	m := s.Memory
	if !m.On() || m.Auto() || m.ShutdownRun || m.IdleAfter != 5*time.Minute || m.Every != 24*time.Hour ||
		m.Sessions != 5 || m.ShutdownTurns != 3 {
		t.Errorf("the defaults are %+v", m)
	}
	s, notes, err = Load(Sources{Flag: `{"memory":{"dream":"always","idleAfter":"1ms","sessions":0,"enabled":"on"}}`})
	if err != nil || len(notes) != 3 || s.Memory.Auto() || s.Memory.IdleAfter != 5*time.Minute || s.Memory.Sessions != 1 {
		t.Errorf("%v, notes %v: %+v", err, notes, s.Memory)
	}
	s, _, err = Load(Sources{Flag: `{"memory":{"dream":"auto","enabled":"off"}}`})
	if err != nil || s.Memory.Auto() || s.Memory.On() {
		t.Errorf("%v: %+v", err, s.Memory)
	}
	for _, name := range []string{"DROVER_SUBCONSCIOUS", "COPILOT_SUBCONSCIOUS"} {
		if s, _, err := Load(Sources{Env: env(name, "1")}); err != nil || !s.Memory.ShutdownRun {
			t.Errorf("%s: %v, %+v", name, err, s.Memory)
		}
	}
}

// A repository decides neither what is spent on memory nor what is remembered.
func TestMemoryOfProject(t *testing.T) {
	path := filepath.Join(t.TempDir(), "settings.json")
	if err := os.WriteFile(path, []byte(`{"memory":{"dream":"auto","shutdownRun":true}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, trusted := range []bool{false, true} {
		s, notes, err := Load(Sources{Project: path, Trusted: trusted})
		if err != nil || s.Memory.Auto() || s.Memory.ShutdownRun || len(notes) != 1 ||
			!strings.Contains(notes[0].String(), "memory is ignored") {
			t.Errorf("trusted %v: %v, %v, %+v", trusted, err, notes, s.Memory)
		}
	}
}
