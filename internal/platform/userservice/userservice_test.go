package userservice

import (
	"context"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// awkward has characters that mean something to systemd, to shells or in XML.
func awkward(dir string) Service {
	return Service{Name: "drover-test", Description: "Drover: 100% of <schedules> & agents",
		Args: []string{filepath.Join(dir, `a b $c %i`), "service", `$HOME %h \ "x"`},
		Env:  []string{`PATH=/usr/bin:/x y/%i`, `DROVER_HOME=/srv/"q"/$x&<y>`}}
}

// systemd reads the unit as it was meant.
func TestUnit(t *testing.T) {
	dir := t.TempDir()
	s := awkward(dir)
	if err := os.WriteFile(s.Args[0], []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	text, err := Manager{OS: "linux"}.text(s)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"service" "$$HOME %%h \\ \"x\""`, `"DROVER_HOME=/srv/\"q\"/$x&<y>"`, `"PATH=/usr/bin:/x y/%%i"`,
		"KillMode=process", "WantedBy=default.target"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	file := filepath.Join(dir, "drover-test.service")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip(err)
	}
	cmd := exec.CommandContext(t.Context(), analyze, "verify", "--user", file)
	cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+dir)
	if out, err := cmd.CombinedOutput(); err != nil || strings.Contains(string(out), "drover-test") {
		t.Errorf("systemd-analyze verify: %v\n%s\n%s", err, out, text)
	}
}

// The property list is well formed and has the words as they are.
func TestPlist(t *testing.T) {
	s := awkward("/opt")
	text, err := Manager{OS: "darwin"}.text(s)
	if err != nil {
		t.Fatal(err)
	}
	var words []string
	d := xml.NewDecoder(strings.NewReader(text))
	for {
		tok, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		if c, ok := tok.(xml.CharData); ok && strings.TrimSpace(string(c)) != "" {
			words = append(words, string(c))
		}
	}
	want := []string{"Label", "dev.drover-test", "ProgramArguments", s.Args[0], s.Args[1], s.Args[2], "EnvironmentVariables",
		"PATH", "/usr/bin:/x y/%i", "DROVER_HOME", `/srv/"q"/$x&<y>`, "RunAtLoad", "KeepAlive", "AbandonProcessGroup"}
	if !slices.Equal(words, want) {
		t.Errorf("words %q, want %q", words, want)
	}
}

// What is installed can be looked at and is removed without a rest; a manager that cannot be
// reached is told of.
func TestInstall(t *testing.T) {
	for _, system := range []string{"linux", "darwin"} {
		var ran []string
		var broken error
		dir := t.TempDir()
		m := Manager{OS: system, Home: dir, Config: filepath.Join(dir, ".config"), UID: 7,
			Run: func(_ context.Context, name string, args ...string) (string, error) {
				ran = append(ran, name+" "+strings.Join(args, " "))
				return "active\n", broken
			}}
		file, err := m.Install(t.Context(), awkward("/opt"))
		if err != nil {
			t.Fatal(err)
		}
		if last := ran[len(ran)-1]; system == "linux" && last != "systemctl --user restart drover-test.service" ||
			system == "darwin" && last != "launchctl bootstrap gui/7 "+file {
			t.Errorf("%s: ran %q", system, ran)
		}
		if st, err := m.Look(t.Context(), "drover-test"); err != nil || !st.Installed || !st.Active || st.File != file {
			t.Errorf("%s: %+v, %v", system, st, err)
		}
		broken = errors.New("no bus")
		if _, err := m.Install(t.Context(), awkward("/opt")); !errors.Is(err, broken) {
			t.Errorf("%s: installed without a manager: %v", system, err)
		}
		broken = nil
		for _, want := range []bool{true, false} {
			if had, err := m.Uninstall(t.Context(), "drover-test"); err != nil || had != want {
				t.Errorf("%s: uninstall: %v, %v", system, had, err)
			}
		}
		if left, _ := os.ReadDir(filepath.Dir(file)); len(left) != 0 {
			t.Errorf("%s: left %v", system, left)
		}
	}
	if _, err := (Manager{OS: "plan9"}).Install(t.Context(), awkward("/opt")); err == nil {
		t.Error("installed on a system without a manager")
	}
}
