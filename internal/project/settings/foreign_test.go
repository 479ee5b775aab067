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
	if err != nil || s.Permissions.Allow != nil || s.Model != "" || s.Env != nil || s.PluginSwitches != nil || s.Dirs != nil ||
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
	if !slices.Equal(p.Allow, []string{"Bash(make:*)", "Read"}) || !slices.Equal(s.Foreign, []string{"Bash(make:*)", "Q", "D", "Read"}) ||
		p.DefaultMode != "acceptEdits" || s.Model != "haiku" {
		t.Errorf("%+v", s)
	}
	dirs := []string{filepath.Join(filepath.Dir(folder), "lib"), filepath.Join(home, "docs"), "/abs"}
	if !slices.Equal(s.Dirs, dirs) {
		t.Errorf("folders %q", s.Dirs)
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

// A file of another program stops nothing. What it forbids counts as far as it can be found, and
// what cannot be read is said.
func TestForeignDamaged(t *testing.T) {
	for name, c := range map[string]struct {
		text      string
		deny, ask []string
		says      string // empty: nothing is to be said
	}{
		"empty":     {"", nil, nil, ""},
		"blank":     {"\xef\xbb\xbf \n// nothing yet\n", nil, nil, ""},
		"mark":      {"\xef\xbb\xbf{\"permissions\":{\"deny\":[\"Bash\"]}}", []string{"Bash"}, nil, ""},
		"comments":  {"{// c\n\"permissions\":{/* x */\"deny\":[\"Bash\",],},}", []string{"Bash"}, nil, ""},
		"cut":       {`{"permissions":{"ask":["Edit"],"deny":["Bash(a\"b)", "Re`, []string{`Bash(a"b)`, "Re"}, []string{"Edit"}, `deny "Re"`},
		"no comma":  {`{"permissions":{"deny":["Bash"] "allow":["Edit"]}}`, []string{"Bash"}, nil, `deny "Bash"`},
		"twice":     {`{"permissions":{"deny":["A"]},"permissions":{"deny":["B"]}}`, []string{"A", "B"}, nil, `"permissions" is set twice`},
		"wide":      {"\xff\xfe{\x00\"\x00d\x00e\x00n\x00y\x00\"\x00:\x00[\x00\"\x00A\x00\"\x00]\x00", []string{"A"}, nil, "UTF-16"},
		"one text":  {`{"permissions":{"deny":"Bash"}}`, []string{"Bash"}, nil, ""},
		"mixed":     {`{"permissions":{"deny":[5,"Bash"]}}`, []string{"Bash"}, nil, "permissions.deny is not a list of texts"},
		"no list":   {`{"permissions":{"deny":{"Bash":true}}}`, nil, nil, "permissions.deny is not a list of texts"},
		"no object": {`{"permissions":["Bash"]}`, nil, nil, "permissions is not an object"},
		"hooks":     {`{"hooks":[1],"permissions":{"deny":["A"]}}`, []string{"A"}, nil, "no hook of it runs"},
		"array":     {`[]`, nil, nil, "cannot be read"},
		"large":     {`{"a":"` + strings.Repeat("x", maxFile) + `"}`, nil, nil, "no rule and no hook of it counts"},
	} {
		path := write(t, c.text)
		for _, src := range []Sources{{UserForeign: []string{path}}, {ProjectForeign: []string{path}}, {ProjectForeign: []string{path}, Trusted: true}} {
			s, notes, err := Load(src)
			if err != nil || !slices.Equal(s.Permissions.Deny, c.deny) || !slices.Equal(s.Permissions.Ask, c.ask) || len(s.Permissions.Allow) > 0 {
				t.Errorf("%s: deny %q, ask %q, %v", name, s.Permissions.Deny, s.Permissions.Ask, err)
			}
			if (c.says == "") != (len(notes) == 0) || !noted(notes, path, c.says) && c.says != "" {
				t.Errorf("%s: %v", name, notes)
			}
		}
	}
}
