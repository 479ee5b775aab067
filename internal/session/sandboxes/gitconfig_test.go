package sandboxes

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// What a configuration of git names in the workspace is protected with it.
func TestObeyed(t *testing.T) {
	work := t.TempDir()
	git := filepath.Join(work, ".git")
	files := map[string]string{
		".git/config": "[core]\n\thooksPath = scripts/hooks\n[include]\n\tpath = ../team.conf\n\tpath = ~/mine\n\tpath = /etc/gitconfig\n" +
			"[includeIf \"onbranch:x\"] path=\"../branch.conf\"\n[remote \"x\"]\n\tpath = ../not-included\n",
		"team.conf":   "[include]\n path = deeper/own.conf\n[core]\n hookspath = " + work + "/other\n",
		"branch.conf": "[include]\npath = branch.conf\n", // itself
	}
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(work, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(work, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, _ := namedByConfig(git, work)
	slices.Sort(got)
	var want []string
	for _, name := range []string{"branch.conf", "deeper/own.conf", "other", "scripts/hooks", "team.conf"} {
		want = append(want, filepath.Join(work, name))
	}
	if got = slices.Compact(got); !slices.Equal(got, want) {
		t.Errorf("obeyed are %q, want %q", got, want)
	}
	s := New(Config{Mode: Best})
	b := s.bounds([]string{work})
	for _, path := range want {
		if !slices.Contains(b.Fixed, path) {
			t.Errorf("%s can be written", path)
		}
	}
	// What is remembered of a configuration is given up when one of its files changes.
	if err := os.WriteFile(filepath.Join(work, "team.conf"), []byte("[core]\nhookspath = elsewhere\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if b := s.bounds([]string{work}); !slices.Contains(b.Fixed, filepath.Join(work, "elsewhere")) {
		t.Errorf("after a change: %q", b.Fixed)
	}
}
