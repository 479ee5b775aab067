package settings

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// What a trusted project sets in the files of another program counts, but for what leads
// models, connections or programs elsewhere. The rest is named once for a file.
func TestForeignProject(t *testing.T) {
	home, folder := t.TempDir(), t.TempDir()
	if err := os.MkdirAll(filepath.Join(folder, ".claude"), 0o700); err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) string {
		path := filepath.Join(folder, ".claude", name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	shared := write("settings.json", `{
		"permissions": {"allow": ["Bash(make:*)"], "ask": ["Q"], "deny": ["D"], "defaultMode": "plan",
			"additionalDirectories": ["../lib", "~/docs", "/abs", ""], "disableBypassPermissionsMode": "disable"},
		"model": "haiku", "statusLine": {"command": "x"}, "outputStyle": "terse",
		"enabledPlugins": {"one@market": true, "two@market": false},
		"env": {"LEVEL": "debug", "JOBS": 3, "PATH": "/evil", "LD_PRELOAD": "x", "https_proxy": "x", "ANTHROPIC_BASE_URL": "x",
			"OPENAI_API_KEY": "x", "MY_API_KEY": "x", "DROVER_HOME": "x", "BASH_ENV": "x", "A=B": "x"}}`)
	local := write("settings.local.json", `{"permissions":{"allow":["Read"],"defaultMode":"acceptEdits"},"env":{"LEVEL":"info"}}`)
	src := Find(env("HOME", home), folder, "")

	s, notes, err := Load(src)
	if err != nil || s.Permissions.Allow != nil || s.Model != "" || s.Env != nil || s.PluginSwitches != nil || s.Permissions.Dirs != nil ||
		s.Permissions.DefaultMode != "default" || !slices.Equal(s.Permissions.Deny, []string{"D"}) {
		t.Errorf("not trusted: %+v, %v", s, err)
	}
	if len(notes) != 2 || !notes[0].Untrusted || !noted(notes, shared, "permissions.allow, permissions.additionalDirectories") {
		t.Errorf("not trusted: %v", notes)
	}

	src.Trusted = true
	s, notes, err = Load(src)
	if err != nil {
		t.Fatal(err)
	}
	p := s.Permissions
	if !slices.Equal(p.Allow, []string{"Bash(make:*)", "Read"}) || !slices.Equal(p.Foreign, []string{"Bash(make:*)", "Q", "D", "Read"}) ||
		p.DefaultMode != "acceptEdits" || s.Model != "haiku" {
		t.Errorf("%+v", s)
	}
	dirs := []string{filepath.Join(filepath.Dir(folder), "lib"), filepath.Join(home, "docs"), "/abs"}
	if !slices.Equal(p.Dirs, dirs) {
		t.Errorf("folders %q", p.Dirs)
	}
	if !maps.Equal(s.Env, map[string]string{"LEVEL": "info", "JOBS": "3"}) {
		t.Errorf("variables %v", s.Env)
	}
	if !maps.Equal(s.PluginSwitches, map[string]bool{"one": true, "two": false}) {
		t.Errorf("plugins %v", s.PluginSwitches)
	}
	if len(notes) != 1 || notes[0].Source != shared || notes[0].Untrusted {
		t.Fatalf("notes %v", notes)
	}
	for _, name := range []string{"env.PATH", "env.LD_PRELOAD", "env.https_proxy", "env.ANTHROPIC_BASE_URL", "env.OPENAI_API_KEY",
		"env.MY_API_KEY", "env.DROVER_HOME", "env.BASH_ENV", "env.A=B", "statusLine", "outputStyle",
		"permissions.disableBypassPermissionsMode"} {
		if !strings.Contains(notes[0].Text, name) {
			t.Errorf("%s is not named in %q", name, notes[0].Text)
		}
	}

	for _, mode := range []string{"bypassPermissions", "auto", "odd"} {
		write("settings.local.json", `{"permissions":{"defaultMode":"`+mode+`"}}`)
		if s, notes, err := Load(src); err != nil || s.Permissions.DefaultMode != "plan" || !noted(notes, local, mode) {
			t.Errorf("%s: %q, %v, %v", mode, s.Permissions.DefaultMode, notes, err)
		}
	}
}
