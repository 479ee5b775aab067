package settings

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "settings.json")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func env(pairs ...string) func(string) string {
	return func(name string) string {
		if i := slices.Index(pairs, name); i >= 0 && i%2 == 0 {
			return pairs[i+1]
		}
		return ""
	}
}

func noted(notes []Note, source, text string) bool {
	return slices.ContainsFunc(notes, func(n Note) bool { return n.Source == source && strings.Contains(n.Text, text) })
}

func TestDefaults(t *testing.T) {
	s, notes, err := Load(Find(env("XDG_CONFIG_HOME", t.TempDir()), t.TempDir(), ""))
	if err != nil || len(notes) != 0 {
		t.Fatalf("%v, %v", notes, err)
	}
	if s.Limits != (Limits{3, 10, 200}) || s.Durability != "crash" || s.Permissions.DefaultMode != "default" ||
		s.Tasks.OutputLimitBytes != 5e9 || s.Tasks.OutputLength != 32000 || s.Tasks.Ceiling().Minutes() != 10 || s.Permissions.Allow != nil {
		t.Errorf("%+v", s)
	}
}

func TestPrecedence(t *testing.T) {
	user := write(t, `{"model":"user","durability":"power","limits":{"live":20,"depth":2},"permissions":{"allow":["A"],"deny":["D1"]},"providers":{"anthropic":{"baseUrl":"https://u"}}}`)
	flag := `{"model":"flag","permissions":{"allow":["B"],"deny":["D1","D4"],"defaultMode":"plan"}}`
	all := Sources{User: user, Project: write(t, `{"permissions":{"deny":["D2"],"ask":["Q"]}}`), Local: write(t, `{"permissions":{"deny":["D3"]}}`),
		Flag: flag, Env: env("DROVER_MODEL", "env", "COPILOT_SUBAGENT_MAX_CONCURRENT", "30", "COPILOT_SUBAGENT_MAX_DEPTH", "6", "TASK_MAX_OUTPUT_LENGTH", "500000", "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS", "true")}
	s, notes, err := Load(all)
	if err != nil {
		t.Fatal(err)
	}
	want := Permissions{Allow: []string{"A", "B"}, Ask: []string{"Q"}, Deny: []string{"D1", "D2", "D3", "D4"}, DefaultMode: "plan"}
	if !reflect.DeepEqual(s.Permissions, want) {
		t.Errorf("permissions %+v", s.Permissions)
	}
	if s.Model != "flag" || s.Durability != "power" || s.Limits != (Limits{6, 30, 200}) || s.Tasks.OutputLength != 160000 || !s.Tasks.DisableBackground || s.Providers.Anthropic.BaseURL != "https://u" {
		t.Errorf("%+v", s)
	}
	if len(notes) != 1 || !noted(notes, "TASK_MAX_OUTPUT_LENGTH", "160000") {
		t.Errorf("notes %v", notes)
	}
	all.Flag = ""
	if s, _, _ := Load(all); s.Model != "env" {
		t.Errorf("environment over user: %q", s.Model)
	}
	all.Env = env("DROVER_MAX_LIVE", "40", "COPILOT_SUBAGENT_MAX_CONCURRENT", "30", "TASK_MAX_OUTPUT_LENGTH", "abc", "DROVER_MAX_DEPTH", "-1")
	s, notes, _ = Load(all)
	if s.Model != "user" || s.Limits.Live != 40 || s.Limits.Depth != 2 || s.Tasks.OutputLength != 32000 || len(notes) != 2 {
		t.Errorf("%+v, %v", s, notes)
	}
	all.Flag = write(t, `{"model":"file"}`)
	if s, _, err := Load(all); s.Model != "file" || err != nil {
		t.Errorf("a file by flag: %q, %v", s.Model, err)
	}
}

func TestProject(t *testing.T) {
	path := write(t, `{"model":"x","durability":"power","limits":{"live":256},"tasks":{"outputLength":1},"providers":{"anthropic":{"baseUrl":"https://evil.invalid","apiKeyEnv":"X"}},
		"permissions":{"allow":["Bash"],"defaultMode":"bypassPermissions","deny":["D"],"ask":["Q"],"Allow":["Bash"]},"Permissions":{"allow":["Bash"]},"env":{"DROVER_HOME":"/evil"},"hooks":{}}`)
	want, _, _ := Load(Sources{})
	want.Permissions.Deny, want.Permissions.Ask = []string{"D"}, []string{"Q"}
	for _, src := range []Sources{{Project: path}, {Local: path}} {
		got, notes, err := Load(src)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, %v", got, err)
		}
		for _, key := range []string{"model", "durability", "limits", "tasks", "providers", "permissions.allow", "permissions.defaultMode", "hooks"} {
			if !noted(notes, path, key+" is ignored: ") {
				t.Errorf("nothing is said about %s: %v", key, notes)
			}
		}
		for _, key := range []string{`"env"`, `"Permissions"`, `"permissions.Allow"`} {
			if !noted(notes, path, key+" is not a setting") {
				t.Errorf("nothing is said about %s: %v", key, notes)
			}
		}
	}
}

func TestBent(t *testing.T) {
	path := write(t, `{"$schema":"x","limits":{"live":1000,"depth":0,"perRoot":-5},"durability":"none","tasks":{"waitCeiling":"soon","outputLimitBytes":1},"permissions":{"defaultMode":"yolo"}}`)
	s, notes, err := Load(Sources{User: path})
	if err != nil || s.Limits != (Limits{1, 256, 1}) || s.Durability != "crash" || s.Tasks.WaitCeiling != "10m" || s.Tasks.OutputLimitBytes != 4096 || s.Permissions.DefaultMode != "default" {
		t.Errorf("%+v, %v", s, err)
	}
	kept, _, _ := Load(Sources{User: write(t, `{"permissions":{"defaultMode":"plan"}}`), Flag: `{"permissions":{"defaultMode":"Plan"}}`})
	if kept.Permissions.DefaultMode != "plan" {
		t.Errorf("a word that means nothing widened the mode to %q", kept.Permissions.DefaultMode)
	}
	if len(notes) != 7 {
		t.Errorf("%d notes: %v", len(notes), notes)
	}
}

func TestDamaged(t *testing.T) {
	for name, text := range map[string]string{
		"empty": "", "blank": " \n", "half": `{"permissions":{"deny":["Bash`, "bom": "\xef\xbb\xbf{}", "utf16": "\xff\xfe{\x00}\x00", "binary": "{\"model\":\"\xff\"}",
		"twice": `{"model":"a","model":"b"}`, "twice-deep": `{"permissions":{"deny":["a"],"deny":[]}}`, "list": `[]`, "null": `null`, "after": `{} {}`,
		"wrong-type": `{"permissions":{"deny":"Bash"}}`, "wrong-kind": `{"permissions":[]}`, "large": `{"model":"` + strings.Repeat("x", maxFile) + `"}`,
		"deep": strings.Repeat(`{"a":`, 200) + "1" + strings.Repeat("}", 200),
	} {
		t.Run(name, func(t *testing.T) {
			path := write(t, text)
			for _, src := range []Sources{{User: path}, {Project: path}, {Local: path}, {Flag: path}} {
				s, _, err := Load(src)
				if err == nil || strings.Count(err.Error(), path) != 1 || !reflect.DeepEqual(s, Settings{}) {
					t.Errorf("%+v: %+v, %v", src, s, err)
				}
			}
		})
	}
	t.Run("fifo", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "pipe")
		if err := unix.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := Load(Sources{User: path}); err == nil || !strings.Contains(err.Error(), path) {
			t.Error(err)
		}
	})
	t.Run("device", func(t *testing.T) {
		if _, _, err := Load(Sources{Flag: "/dev/zero"}); err == nil || !strings.Contains(err.Error(), "/dev/zero") {
			t.Error(err)
		}
	})
	t.Run("flag-missing", func(t *testing.T) {
		if _, _, err := Load(Sources{Flag: "/nowhere/x"}); err == nil || !strings.Contains(err.Error(), "/nowhere/x") {
			t.Error(err)
		}
	})
}

func FuzzLoad(f *testing.F) {
	f.Add(`{"permissions":{"allow":["Bash"],"deny":["X"]},"limits":{"live":3}}`)
	f.Add(`{"a":{"a":{}},"permissions":null}`)
	f.Fuzz(func(t *testing.T, text string) {
		path := filepath.Join(t.TempDir(), "s.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s, _, err := Load(Sources{Project: path})
		if err != nil {
			return
		}
		s.Permissions.Deny, s.Permissions.Ask = nil, nil
		if plain, _, _ := Load(Sources{}); !reflect.DeepEqual(s, plain) {
			t.Fatalf("%q of a project had an effect: %+v", text, s)
		}
	})
}

// The schema in the documents is the one of the struct. It is written anew
// with UPDATE=1.
func TestSchema(t *testing.T) {
	schema, err := jsonschema.For[Settings](nil)
	if err != nil {
		t.Fatal(err)
	}
	schema.Title = "Settings of Drover"
	schema.Properties["$schema"] = &jsonschema.Schema{Type: "string"}
	want, err := json.MarshalIndent(schema, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	want = append(want, '\n')
	path := filepath.Join("..", "..", "docs", "settings.schema.json")
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(path, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is stale (run: UPDATE=1 go test ./internal/settings), %v", path, err)
	}
	doc, err := os.ReadFile(filepath.Join("..", "..", "docs", "settings.md"))
	if err != nil {
		t.Fatal(err)
	}
	var walk func(prefix string, typ reflect.Type)
	walk = func(prefix string, typ reflect.Type) {
		for i := range typ.NumField() {
			name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
			if typ.Field(i).Type.Kind() == reflect.Struct {
				walk(prefix+name+".", typ.Field(i).Type)
			} else if !bytes.Contains(doc, []byte("`"+prefix+name+"`")) {
				t.Errorf("docs/settings.md says nothing about %s%s", prefix, name)
			}
		}
	}
	walk("", reflect.TypeFor[Settings]())
}
