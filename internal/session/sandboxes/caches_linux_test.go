package sandboxes

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Commands read the caches of the user and write them aside: the user's files stay as they are, the next session of
// the project finds what was written, and a session beside it has a folder of its own.
func TestCaches(t *testing.T) {
	home := folder(t, map[string]string{".cache/tool/file": "good", ".deno/bin/deno": "good", ".gradle/gradle.properties": "good", "work/x": ""})
	c := config(t)
	c.Home, c.Caches, c.Env = home, folder(t, nil), append(c.Env, "YARN_CACHE_FOLDER=/elsewhere")
	open := func() (*Sandboxes, trial, []string) {
		t.Helper()
		s := New(c)
		t.Cleanup(s.Close)
		start, err := s.Command(Wish{Folders: []string{home + "/work"}})
		if err != nil {
			t.Fatal(err)
		}
		if s.room == nil || len(s.room.Aside()) != 3 {
			t.Skipf("SKIPPED: this machine mounts no overlays: %v", s.why)
		}
		return s, trial{ctx: t.Context(), work: home + "/work", fork: start.Fork}, start.Environ(nil)
	}
	first, tr, env := open()
	const line = "cd; cat .cache/tool/file && echo evil > .deno/bin/deno && rm .gradle/gradle.properties && mkdir .gradle/init.d &&" +
		"echo evil > .cache/tool/new && mv .cache/tool .cache/moved 2>/dev/null; cat .deno/bin/deno"
	if ok, out := tr.run("HOME=" + home + ";" + line); !ok || out != "goodevil" {
		t.Errorf("inside: %v %s", ok, out)
	}
	for path, want := range map[string]string{".cache/tool/file": "good", ".deno/bin/deno": "good", ".gradle/gradle.properties": "good"} {
		if got, err := os.ReadFile(filepath.Join(home, path)); string(got) != want {
			t.Errorf("%s of the user: %q, %v", path, got, err)
		}
	}
	for _, path := range []string{".gradle/init.d", ".cache/tool/new"} {
		if _, err := os.Lstat(filepath.Join(home, path)); err == nil {
			t.Errorf("%s appears in the home of the user", path)
		}
	}
	// A tool whose cache is not there has one of the project; the others keep theirs.
	has := func(name string) bool {
		return slices.ContainsFunc(env, func(kv string) bool { return strings.HasPrefix(kv, name+"="+c.Caches) })
	}
	if !has("npm_config_cache") || has("XDG_CACHE_HOME") || has("YARN_CACHE_FOLDER") || has("DENO_DIR") {
		t.Errorf("variables: %q", env)
	}
	if ok, out := tr.run("mkdir -p " + c.Caches + "/own/x && touch " + c.Caches + "/own/x/y"); !ok {
		t.Errorf("caches of the project: %s", out)
	}
	_, beside, _ := open()
	if ok, out := beside.run("cat " + home + "/.deno/bin/deno"); !ok || out != "good" {
		t.Errorf("a session beside it reads %s", out)
	}
	first.Close()
	_, next, _ := open()
	if ok, out := next.run("cat " + home + "/.deno/bin/deno"); !ok || out != "evil" {
		t.Errorf("the next session reads %s", out)
	}
}
