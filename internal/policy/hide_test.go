package policy

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/drover-dev/drover/agent"
)

// What deny rules of Read name is hidden in the folder and in its copies, and nothing that commands need.
func TestDenied(t *testing.T) {
	dir := tree(t, "a/.env", "a/keys/one.pem", "a/keys/two.txt", "a/deep/er/.env", "copy/keys/three.pem", "home/.ssh/id")
	at := func(name string) string { return filepath.Join(dir, name) }
	rules := Rules{Cwd: at("a"), Home: at("home"), Copies: []Copy{{Of: at("a"), At: at("copy")}}, Deny: []string{
		"Read(.env)", "Read(keys/*.pem)", "Read(./later)", "Read(vault/**)", "Read(~/.ssh)", "Read(../**)", "Read(/**)",
		"Read(~/**)", "Read(//usr/**)", "Edit(./other)", "Bash(rm:*)",
	}}
	g, errs := New(rules)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	paths, notes := g.Denied()
	want := []string{
		"a/.env", "a/deep/er/.env", "a/keys/one.pem", "a/later", "a/vault", "copy/keys/three.pem", "copy/later", "copy/vault", "home/.ssh",
	}
	for i, name := range want {
		want[i] = at(name)
	}
	if !slices.Equal(paths, want) {
		t.Errorf("hidden:\n%s\nwant:\n%s", strings.Join(paths, "\n"), strings.Join(want, "\n"))
	}
	for _, rule := range []string{"Read(../**)", "Read(/**)", "Read(~/**)", "Read(//usr/**)"} {
		if !slices.ContainsFunc(notes, func(n string) bool { return strings.Contains(n, rule) }) {
			t.Errorf("no note about %s: %q", rule, notes)
		}
	}
}

// A search that is too long says so, and the words of a line are looked at as before.
func TestDeniedMuch(t *testing.T) {
	dir := t.TempDir()
	for i := range maxDeniedFiles + 1 {
		if err := os.WriteFile(filepath.Join(dir, strings.Repeat("x", i%100+1)+string(rune('a'+i/100))+".pem"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	g, _ := New(Rules{Cwd: dir, Deny: []string{"Read(*.pem)"}})
	if paths, notes := g.Denied(); len(paths) != maxDeniedFiles || len(notes) != 1 {
		t.Errorf("%d files, notes %q", len(paths), notes)
	}
}

// Git shows what commits hold from its objects, which no sandbox hides.
func TestCommitted(t *testing.T) {
	dir := tree(t, "p/.env", "p/.env.example", "p/src/main.go")
	p := filepath.Join(dir, "p")
	git(t, p, "init", "-q", ".")
	git(t, p, "add", ".env.example", "src")
	decide := func(line string) Outcome {
		g, _ := New(Rules{Cwd: p, Deny: []string{"Read(./.env)"}})
		g = g.Within(Bounds{Whole: true, Hides: true})
		return g.Decide(agent.Call{Name: "Bash", Input: []byte(`{"command":"` + line + `"}`)}).Decision
	}
	shows := []string{
		"git log -p", "git grep x", "git archive HEAD", "git show", "git diff", "git cat-file -p HEAD", "git stash show -p", "cd src && git show",
		"git -C src show", "git worktree add ../w", "git clone . /tmp/x", "make; git log -p",
	}
	for _, line := range shows {
		if got := decide(line); got != Allow {
			t.Errorf("%s without the file in a commit: %s", line, got)
		}
	}
	for _, version := range []string{"2", "4"} {
		git(t, p, "add", ".env")
		git(t, p, "update-index", "--index-version", version)
		for _, line := range shows {
			if got := decide(line); got != Ask {
				t.Errorf("%s with the file in an index of version %s: %s", line, version, got)
			}
		}
	}
	for _, line := range []string{"git log", "git status", "git show --stat", "git diff -- src", "git commit -m x", "grep -r x .", "tar c ."} {
		if got := decide(line); got != Allow {
			t.Errorf("%s: %s", line, got)
		}
	}
}

// tree makes a folder with files.
func tree(t *testing.T, files ...string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, path, name)
	}
	return dir
}
