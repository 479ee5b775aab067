package settings_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/drover-dev/drover/internal/project/settings"
)

// What the set-up page has kept counts only where nobody says anything of its provider: a key must not go to
// the address of another one.
func TestSaved(t *testing.T) {
	dir := t.TempDir()
	file, user := filepath.Join(dir, "credentials.json"), filepath.Join(dir, "settings.json")
	for name, c := range map[string]struct {
		env, user string
		want      []string
		model     string
	}{
		"alone":              {"", `{}`, []string{"OPENAI_API_KEY=sk", "OPENAI_BASE_URL=http://gw"}, "openai/m"},
		"another provider":   {"ANTHROPIC_API_KEY=a", `{"providers":{"anthropic":{"baseUrl":"http://x"}}}`, []string{"OPENAI_API_KEY=sk", "OPENAI_BASE_URL=http://gw"}, "openai/m"},
		"a key":              {"OPENAI_API_KEY=x", `{}`, nil, ""},
		"an address":         {"OPENAI_BASE_URL=http://x", `{}`, nil, ""},
		"a setting":          {"", `{"providers":{"openai":{"baseUrl":"http://x"}}}`, nil, ""},
		"a key by a setting": {"", `{"providers":{"openai":{"apiKeyEnv":"MY_KEY"}}}`, nil, ""},
		"another model":      {"", `{"model":"opus"}`, []string{"OPENAI_API_KEY=sk", "OPENAI_BASE_URL=http://gw"}, "opus"},
	} {
		t.Run(name, func(t *testing.T) {
			env := func(name string) string {
				if value, ok := strings.CutPrefix(c.env, name+"="); ok {
					return value
				}
				return ""
			}
			for path, text := range map[string]string{user: c.user,
				file: `{"provider":"openai","base_url":"http://gw","api_key":"sk","model":"openai/m"}`} {
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			set, _, err := settings.Load(settings.Sources{User: user, Saved: file, Env: env})
			if err != nil {
				t.Fatal(err)
			}
			got := set.Saved.Variables(env, set.Providers)
			slices.Sort(got)
			if !slices.Equal(got, c.want) || set.Model != c.model {
				t.Errorf("got %q and model %q, want %q and %q", got, set.Model, c.want, c.model)
			}
		})
	}
	if err := os.WriteFile(file, []byte(`{`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := settings.Load(settings.Sources{Saved: file}); err == nil || !strings.Contains(err.Error(), "remove it") {
		t.Errorf("a cut file: %v", err)
	}
}
