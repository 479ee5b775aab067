package catalog

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestPlugins(t *testing.T) {
	base := t.TempDir()
	config := filepath.Join(base, "config")
	plugin := func(dir, text string) string {
		path := filepath.Join(dir, filepath.FromSlash(manifest))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	installed := plugin(filepath.Join(config, "drover", "plugins", "b"), `{"name": "from-config"}`)
	named := plugin(filepath.Join(base, "x"), `{"name": "named", "version": "1"}`)
	bare := filepath.Join(base, "bare")
	if err := os.Mkdir(bare, 0o755); err != nil {
		t.Fatal(err)
	}
	env := func(name string) string { return map[string]string{"XDG_CONFIG_HOME": config}[name] }
	dirs, told := Plugins(env, []string{named, named, plugin(filepath.Join(base, "twin"), `{"name": "named"}`), bare, "relative",
		plugin(filepath.Join(base, "loud"), `{"name": "Not Kebab"}`), plugin(filepath.Join(base, "torn"), `{"name": "no`), filepath.Join(base, "gone")})
	if !slices.Equal(dirs, []string{installed, named}) {
		t.Errorf("plugins %q", dirs)
	}
	var text []string
	for _, p := range told {
		if p.Severity != Error {
			t.Errorf("%s", p)
		}
		text = append(text, p.String())
	}
	all := strings.Join(text, "\n")
	for _, want := range []string{"must be absolute", "is in " + named + " already", "the folder is no plugin", "not in kebab-case", "no JSON object", filepath.Join(base, "gone")} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is not said in\n%s", want, all)
		}
	}
	if len(told) != 6 {
		t.Errorf("%d problems:\n%s", len(told), all)
	}
}

// What a server says later takes the place of what it said before.
func TestReplace(t *testing.T) {
	f := New(Config{Remote: []byte(`{"old": {"description": "d", "prompt": "p"}}`)})
	f.Replace([]byte(`{"new": {"description": "d", "prompt": "p"}}`)) // before the first look
	if names := f.Current().Names(); slices.Contains(names, "old") || !slices.Contains(names, "new") {
		t.Errorf("agents %q", names)
	}
	f.Replace([]byte(`{"newer": {"description": "d", "prompt": "p"}}`))
	if names := f.Current().Names(); slices.Contains(names, "new") || !slices.Contains(names, "newer") || !slices.Contains(names, "explore") {
		t.Errorf("agents %q", names)
	}
}
