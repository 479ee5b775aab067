package settings

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWithRule(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"empty", "{}\n", "{\n  \"permissions\": {\n    \"allow\": [\n      \"Bash(a<b:*)\"\n    ]\n  }\n}\n"},
		{"other", "{\n  \"model\": \"opus\"\n}\n",
			"{\n  \"model\": \"opus\",\n  \"permissions\": {\n    \"allow\": [\n      \"Bash(a<b:*)\"\n    ]\n  }\n}\n"},
		{"no list", `{"permissions": {"deny": ["X"]}, "model": "a"}`,
			"{\"permissions\": {\"deny\": [\"X\"],\n    \"allow\": [\n      \"Bash(a<b:*)\"\n    ]\n  }, \"model\": \"a\"}"},
		{"list", "{\"permissions\": {\n    \"allow\": [\n      \"Edit\"\n    ],\n \"ask\":[]}}",
			"{\"permissions\": {\n    \"allow\": [\n      \"Edit\",\n      \"Bash(a<b:*)\"\n    ],\n \"ask\":[]}}"},
		{"short list", `{"permissions":{"allow":["Edit"]}}`,
			"{\"permissions\":{\"allow\":[\"Edit\",\n      \"Bash(a<b:*)\"\n    ]}}"},
		{"comments", "// mine\n{\"permissions\": {\"allow\": [\n      \"Edit\", // b\n    ],},}",
			"// mine\n{\"permissions\": {\"allow\": [\n      \"Edit\",\n      \"Bash(a<b:*)\", // b\n    ],},}"},
		{"there", `{"permissions":{"allow":["Bash(a<b:*)"]}}`, `{"permissions":{"allow":["Bash(a<b:*)"]}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := withRule([]byte(c.in), "Bash(a<b:*)")
			if err != nil || string(got) != c.want {
				t.Errorf("%v:\n%s\nwant:\n%s", err, got, c.want)
			}
		})
	}
	for _, bad := range []string{"", "[]", `{"permissions":1}`, `{"permissions":{"allow":{}}}`, `{"a":1,"a":2}`,
		`{"permissions":null}`, `{"permissions":{"allow":null}}`} {
		if got, err := withRule([]byte(bad), "Edit"); err == nil {
			t.Errorf("%s became %s", bad, got)
		}
	}
}

func TestAllow(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, LocalFile)
	for _, rule := range []string{"Bash(ls:*)", "Edit(./a)", "Bash(ls:*)"} {
		if _, err := Allow(t.Context(), dir, rule); err != nil {
			t.Fatal(err)
		}
	}
	set, _, err := Load(Sources{Local: file, Trusted: true})
	if err != nil || strings.Join(set.Permissions.Allow, " ") != "Bash(ls:*) Edit(./a)" {
		t.Errorf("%v, %v", set.Permissions.Allow, err)
	}
	if err := os.WriteFile(file, []byte("{ mine\n}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Allow(t.Context(), dir, "Edit"); err == nil || !strings.Contains(err.Error(), LocalFile) {
		t.Errorf("a file that is no JSON: %v", err)
	}
	if data, _ := os.ReadFile(file); string(data) != "{ mine\n}" {
		t.Errorf("the file was changed: %s", data)
	}
	if err := os.Rename(file, file+".else"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(file+".else", file); err != nil {
		t.Fatal(err)
	}
	if _, err := Allow(t.Context(), dir, "Edit"); err == nil {
		t.Error("a link was followed")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Allow(ctx, filepath.Join(dir, "none"), "Edit"); err == nil {
		t.Error("no folder")
	}
}
