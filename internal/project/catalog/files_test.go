package catalog

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/drover-dev/drover/internal/project/definitions"
	"github.com/drover-dev/drover/subagent"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func plant(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		write(t, filepath.Join(dir, name), text)
	}
	return dir
}

func text(name, description, more string) string {
	return fmt.Sprintf("---\nname: %s\ndescription: %s\n%s---\nBody of %s.\n", name, description, more, description)
}

// told reports whether a problem with the end of this path holds the text.
func told(problems []Problem, path, want string) bool {
	return slices.ContainsFunc(problems, func(p Problem) bool { return strings.HasSuffix(p.File, path) && strings.Contains(p.What, want) })
}

func describe(t *testing.T, c subagent.Catalog, name string) string {
	t.Helper()
	d, err := c.Find(name)
	if err != nil {
		t.Error(err)
	}
	return d.Description
}

func environment(home string) func(string) string {
	return func(name string) string { return map[string]string{"HOME": home}[name] }
}

// Of one name the nearest counts, and each that does not is named with it.
func TestPrecedence(t *testing.T) {
	repo := plant(t, map[string]string{
		".claude/agents/a.md": text("a", "repo", ""), ".claude/agents/root.md": text("root", "repo", ""),
		"sub/.drover/agents/a.md": text("A", "drover", ""), "sub/.claude/agents/a.md": text("a", "claude", ""), "sub/.claude/agents/b.md": text("b", "claude", ""),
		"sub/.github/agents/b.agent.md": text("Other", "github", ""), "sub/.github/agents/c.md": text("Other", "github", ""),
		"sub/.claude/agents/deep/er/d.md": text("d", "claude", ""), "sub/.claude/agents/.hidden.md": text("hidden", "x", ""), "sub/.claude/agents/notes.txt": "x",
	})
	home := plant(t, map[string]string{".config/drover/agents/c.md": text("c", "user", ""), ".config/drover/agents/e.md": text("e", "user", ""),
		".claude/agents/e.md": text("e", "user-claude", ""), ".claude/agents/explore.md": text("Explore", "user-claude", "")})
	plugin := plant(t, map[string]string{"agents/e.md": text("e", "plugin", ""), "agents/f.md": text("f", "plugin", "")})
	if err := os.Mkdir(filepath.Join(repo, ".git"), 0o700); err != nil {
		t.Fatal(err)
	}
	f := New(Config{Places: Places(environment(home), filepath.Join(repo, "sub"), false, []string{plugin}),
		Given:  []byte(`{"d": {"description": "given", "prompt": "p"}}`),
		Remote: []byte(`{"f": {"description": "remote", "prompt": "p"}, "g": {"description": "remote", "prompt": "p", "hooks": {"Stop": [1]}}, "plan": {"description": "remote", "prompt": "p"}}`)})
	c := f.Current()
	for name, want := range map[string]string{"a": "drover", "b": "claude", "c": "github", "d": "given", "e": "user", "f": "plugin", "g": "remote", "root": "repo",
		"explore": "user-claude", "plan": "remote"} {
		if got := describe(t, c, name); got != want {
			t.Errorf("%s is that of %s, want %s", name, got, want)
		}
	}
	if _, err := c.Find("hidden"); err == nil {
		t.Error("a hidden file is an agent")
	}
	if got := len(c.Names()); got != 10+len(subagent.Builtin().Names())-2 {
		t.Errorf("%d agents: %v", got, c.Names())
	}
	problems := f.Problems()
	for hidden, by := range map[string]string{"sub/.claude/agents/a.md": "sub/.drover/agents/a.md", repo + "/.claude/agents/a.md": "sub/.drover/agents/a.md",
		"b.agent.md": "sub/.claude/agents/b.md", "drover/agents/c.md": ".github/agents/c.md", "deep/er/d.md": "--agents"} {
		if !slices.ContainsFunc(problems, func(p Problem) bool {
			return strings.HasSuffix(p.File, hidden) && p.Severity == Note && strings.Contains(p.What, "is hidden by that in ") && strings.HasSuffix(p.What, by)
		}) {
			t.Errorf("it is not said that %s is hidden by %s", hidden, by)
		}
	}
	if len(problems) != 9 || !told(problems, "remote catalog", "hooks of a remote catalog have no effect") {
		t.Errorf("%d problems: %v", len(problems), problems)
	}
	entries := f.Entries()
	i := slices.IndexFunc(entries, func(e Entry) bool { return e.Name == "e" })
	same(t, "those named e", []string{entries[i].Description, entries[i+1].Description, entries[i+2].Description, entries[i].HiddenBy, filepath.Base(entries[i+2].HiddenBy)},
		[]string{"user", "user-claude", "plugin", "", "e.md"})
}

// A home folder that is a project too holds the user's agents, not a project's.
func TestHomeIsProject(t *testing.T) {
	home := t.TempDir()
	for _, p := range Places(environment(home), home, false, nil) {
		if p.Path() == filepath.Join(home, ".claude", "agents") && (p.Level != definitions.User || !p.Trusted) {
			t.Errorf("%+v", p)
		}
	}
}

// A repository that somebody else has put above the folder is not looked at.
func TestStrangersRepository(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("giving a folder away needs root")
	}
	repo := plant(t, map[string]string{".git/x": "", "sub/x": ""})
	if got := repository(filepath.Join(repo, "sub")); got != repo {
		t.Fatalf("the repository is %q", got)
	}
	if err := os.Chown(filepath.Join(repo, ".git"), 12345, -1); err != nil {
		t.Fatal(err)
	}
	if got := repository(filepath.Join(repo, "sub")); got != "" {
		t.Errorf("that of somebody else, %s, is taken", got)
	}
}

// Whoever asks again sees the files as they are.
func TestLive(t *testing.T) {
	dir := t.TempDir()
	folder := filepath.Join(dir, ".claude", "agents")
	path := filepath.Join(folder, "a.md")
	f := New(Config{Places: []definitions.Place{{Root: dir, Dir: ".claude/agents", Level: definitions.Project}}})
	if _, err := f.Current().Find("a"); err == nil {
		t.Fatal("an agent of nothing")
	}
	write(t, path, text("a", "one", ""))
	if got := describe(t, f.Current(), "a"); got != "one" {
		t.Errorf("added: %s", got)
	}
	held := f.Current()
	for i := range 300 { // of the same length, many in one tick of the clock of files
		want := strconv.Itoa(100 + i)
		write(t, path, text("a", want, ""))
		if got := describe(t, f.Current(), "a"); got != want {
			t.Fatalf("edited: %s, want %s", got, want)
		}
	}
	write(t, path, text("a", "two", ""))
	if got := describe(t, f.Current(), "a"); got != "two" {
		t.Errorf("edited: %s", got)
	}
	if got := describe(t, held, "a"); got != "one" {
		t.Errorf("a catalog that was given out is now %s", got)
	}
	write(t, path, "---\nname: a\ndescr")
	if got := describe(t, f.Current(), "a"); got != "two" || !told(f.Problems(), "a.md", "no end; the agent stays as it was before") {
		t.Errorf("broken: %s, %v", got, f.Problems())
	}
	write(t, path, "")
	if got := describe(t, f.Current(), "a"); got != "two" || !told(f.Problems(), "a.md", "not an agent; the agent stays") {
		t.Errorf("emptied: %s, %v", got, f.Problems())
	}
	write(t, path+".new", text("a", "three", ""))
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	if got := describe(t, f.Current(), "a"); got != "three" || len(f.Problems()) != 0 {
		t.Errorf("replaced: %s, %v", got, f.Problems())
	}
	write(t, filepath.Join(folder, "below", "b.md"), text("b", "four", ""))
	if got := describe(t, f.Current(), "b"); got != "four" {
		t.Errorf("added below: %s", got)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Current().Find("a"); err == nil {
		t.Error("a removed agent is still there")
	}
	if err := os.RemoveAll(filepath.Join(dir, ".claude")); err != nil {
		t.Fatal(err)
	}
	same(t, "all removed", f.Current().Names(), subagent.Builtin().Names())
}

// settled makes a catalog believe that its files are old.
func settled(f *Files) *Files {
	f.now = func() time.Time { return time.Now().Add(time.Hour) }
	return f
}

// What has not changed is not read again, also when its neighbour has.
func TestUnchanged(t *testing.T) {
	dir := plant(t, map[string]string{"a.md": text("a", "one", ""), "b.md": text("b", "one", "")})
	f := settled(New(Config{Places: []definitions.Place{{Root: dir, Dir: ".", Level: definitions.User}}}))
	f.Current()
	before := f.seen.files
	f.Current()
	if before[0] != f.seen.files[0] {
		t.Error("all was looked at again")
	}
	write(t, filepath.Join(dir, "b.md"), text("b", "changed", ""))
	f.seen.files[0].parsed.Prompt = "kept in memory"
	if d, err := f.Current().Find("a"); err != nil || d.Prompt != "kept in memory" {
		t.Errorf("the file beside the changed one was read again: %v, %v", d, err)
	}
	if got := describe(t, f.Current(), "b"); got != "changed" {
		t.Errorf("b is %s", got)
	}
}

// A file so young that a further edit could leave its stamp as it is, is read
// each time.
func TestYoung(t *testing.T) {
	dir := plant(t, map[string]string{"a.md": text("a", "x", "")})
	f := New(Config{Places: []definitions.Place{{Root: dir, Dir: ".", Level: definitions.User}}})
	f.Current()
	before := f.seen.files[0]
	before.parsed.Prompt = "kept in memory"
	if d, err := f.Current().Find("a"); err != nil || d.Prompt != "Body of x." || f.seen.files[0] == before {
		t.Errorf("it was not read again: %q, %v", d.Prompt, err)
	}
}

// An edit that puts the time of the file back, as some programs do, is seen.
func TestTimePutBack(t *testing.T) {
	dir := plant(t, map[string]string{"a.md": text("a", "one", "")})
	path := filepath.Join(dir, "a.md")
	old := time.Now().Add(-time.Hour)
	changed := func() unix.Timespec {
		var st unix.Stat_t
		if err := errors.Join(os.Chtimes(path, old, old), unix.Stat(path, &st)); err != nil {
			t.Fatal(err)
		}
		return st.Ctim
	}
	first := changed()
	f := settled(New(Config{Places: []definitions.Place{{Root: dir, Dir: ".", Level: definitions.User}}}))
	f.Current()
	write(t, path, text("a", "two", ""))
	for changed() == first { // until the clock of files has moved on
	}
	if got := describe(t, f.Current(), "a"); got != "two" {
		t.Errorf("still %s", got)
	}
}

// What is no ordinary file in its folder is named, and stops nobody.
func TestHostile(t *testing.T) {
	outside := plant(t, map[string]string{"evil.md": text("evil", "secret", ""), "more/evil.md": text("evil", "secret", "")})
	dir := plant(t, map[string]string{"good.md": text("good", "x", ""), "folder.md/x.md": text("inner", "x", ""), "large.md": strings.Repeat("x", maxText+1)})
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := syscall.Mkfifo(at("pipe.md"), 0o600); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{"out.md": filepath.Join(outside, "evil.md"), "in.md": "good.md", "nothing.md": "nowhere", "up": "..", "folder": filepath.Join(outside, "more"),
		"same": "folder.md", "device.md": "/dev/zero"} {
		if err := os.Symlink(to, at(link)); err != nil {
			t.Fatal(err)
		}
	}
	write(t, at("sparse.md"), "")
	if err := os.Truncate(at("sparse.md"), 2<<30); err != nil {
		t.Fatal(err)
	}
	f := New(Config{Places: []definitions.Place{{Root: dir, Dir: ".", Level: definitions.Project}}})
	c := f.Current()
	for name, want := range map[string]bool{"good": true, "inner": true, "evil": false} {
		if _, err := c.Find(name); (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
	problems := f.Problems()
	for name, want := range map[string]string{"pipe.md": "not a regular file", "out.md": "a link leads out of the folder", "nothing.md": "no such file", "sparse.md": "2147483648 bytes",
		"large.md": "262145 bytes", "device.md": "a link leads out of the folder", "in.md": "is hidden by that in ", "same": "it is a link to a folder"} {
		if !told(problems, "/"+name, want) {
			t.Errorf("%s: %q is not said", name, want)
		}
	}
	if len(problems) != 8 {
		t.Errorf("%d problems: %v", len(problems), problems)
	}
}

// A folder of agents that is itself a link out of the project is not read.
func TestLinkedPlace(t *testing.T) {
	outside := plant(t, map[string]string{"evil.md": text("evil", "x", "")})
	project := plant(t, map[string]string{".claude/x": ""})
	if err := os.Symlink(outside, filepath.Join(project, ".claude", "agents")); err != nil {
		t.Fatal(err)
	}
	f := New(Config{Places: Places(environment(""), project, true, nil)})
	if _, err := f.Current().Find("evil"); err == nil || !told(f.Problems(), ".claude/agents", "a link leads out of the folder") {
		t.Errorf("%v, %v", err, f.Problems())
	}
}

func TestBounds(t *testing.T) {
	files := map[string]string{}
	for i := range MaxFiles + 3 {
		files[fmt.Sprintf("%03d.md", i)] = text(fmt.Sprintf("n%03d", i), "x", "")
	}
	files["deep/2/3/4/5/x.md"] = text("deep", "x", "")
	dir := plant(t, files)
	f := New(Config{Places: []definitions.Place{{Root: dir, Dir: ".", Level: definitions.User}}})
	if got := len(f.Current().Names()) - len(subagent.Builtin().Names()); got != MaxFiles {
		t.Errorf("%d agents", got)
	}
	if p := f.Problems(); len(p) != 2 || !told(p, "500.md", "only 500 files are read") || !told(p, "deep/2/3/4/5", "folders so deep") {
		t.Errorf("%v", p)
	}
}

func TestTotal(t *testing.T) {
	files, body := map[string]string{}, strings.Repeat("x", maxText-1000)
	for i := range maxTotal/maxText + 3 {
		files[fmt.Sprintf("%03d.md", i)] = text(fmt.Sprintf("n%03d", i), "x", "") + body
	}
	dir := plant(t, files)
	f := settled(New(Config{Places: []definitions.Place{{Root: dir, Dir: ".", Level: definitions.User}}}))
	refused := func() int {
		f.Current()
		return len(f.Problems())
	}
	if n := refused(); n == 0 || n > 3 || !told(f.Problems(), "130.md", "all agents together have more than") {
		t.Errorf("%d refused: %v", n, f.Problems())
	}
	write(t, filepath.Join(dir, "zzz.md"), text("last", "x", "")+body)
	if !told(f.Problems(), "zzz.md", "all agents together have more than") {
		t.Errorf("one more was read: %v", f.Problems())
	}
}

const deeds = "hooks: {Stop: [{hooks: [{type: command, command: make}]}]}\nmcpServers: {db: {command: x}}\n"

func hooked(t *testing.T, f *Files, name string) bool {
	t.Helper()
	d, err := f.Current().Find(name)
	if err != nil {
		t.Fatal(err)
	}
	if (len(d.Hooks) > 0) != (len(d.MCPServers) > 0) {
		t.Errorf("one part of %s counts, and one does not", name)
	}
	return len(d.Hooks) > 0
}

// What a project's files would execute is no part of a definition until the
// project is trusted.
func TestTrust(t *testing.T) {
	project := plant(t, map[string]string{".claude/agents/a.md": text("a", "x", deeds)})
	home := plant(t, map[string]string{".claude/agents/own.md": text("own", "x", deeds)})
	kept := filepath.Join(t.TempDir(), "trust.json")
	trusted, asked := false, 0
	f := settled(New(Config{Places: Places(environment(home), project, false, nil), Also: []string{kept}, Trusted: func(root string) bool {
		asked++
		return trusted && root == project
	}}))
	if hooked(t, f, "a") || !hooked(t, f, "own") {
		t.Error("the project's count, or the user's do not")
	}
	if !told(f.Problems(), "a.md", "hooks and mcpServers without effect: waits for trust") || len(f.Problems()) != 1 || asked != 1 {
		t.Errorf("asked %d times, %v", asked, f.Problems())
	}
	trusted = true
	write(t, kept, "granted")
	if !hooked(t, f, "a") || len(f.Problems()) != 0 {
		t.Errorf("trusted now: %v", f.Problems())
	}
	trusted = false // as the keeper of trust says once a file has changed
	write(t, filepath.Join(project, ".claude/agents/a.md"), text("a", "other", deeds))
	if hooked(t, f, "a") {
		t.Error("a changed file kept its trust")
	}
}

// A file that changes while trust is asked for is not the one that is trusted.
func TestTrustRace(t *testing.T) {
	project := plant(t, map[string]string{".claude/agents/a.md": text("a", "x", deeds)})
	asked := 0
	f := New(Config{Places: Places(environment(""), project, false, nil), Trusted: func(string) bool {
		if asked++; asked == 1 {
			write(t, filepath.Join(project, ".claude/agents/a.md"), text("a", "longer than before", deeds))
		}
		return true
	}})
	if hooked(t, f, "a") {
		t.Error("what was read before counts")
	}
	if !hooked(t, f, "a") || describe(t, f.Current(), "a") != "longer than before" {
		t.Error("what is there now does not count")
	}
}

// Trust in a folder is none in the repository around it.
func TestTrustOfRepository(t *testing.T) {
	repo := plant(t, map[string]string{".git/x": "", ".claude/agents/up.md": text("up", "x", deeds), "sub/.claude/agents/a.md": text("a", "x", deeds)})
	f := New(Config{Places: Places(environment(""), filepath.Join(repo, "sub"), true, nil)})
	if !hooked(t, f, "a") || hooked(t, f, "up") {
		t.Error("the folder's do not count, or the repository's do")
	}
}

// Without anybody to ask, only what was there at the first look has the trust
// of its place.
func TestTrustOfPlace(t *testing.T) {
	for _, trusted := range []bool{true, false} {
		project := plant(t, map[string]string{".claude/agents/a.md": text("a", "x", deeds), ".claude/agents/b.md": text("b", "x", "")})
		f := New(Config{Places: Places(environment(""), project, trusted, nil)})
		if hooked(t, f, "a") != trusted {
			t.Fatalf("trusted %v, and hooks the other way", trusted)
		}
		write(t, filepath.Join(project, ".claude/agents/a.md"), text("a", "other words", deeds))
		write(t, filepath.Join(project, ".claude/agents/b.md"), text("b", "x", deeds))
		write(t, filepath.Join(project, ".claude/agents/c.md"), text("c", "x", deeds))
		if hooked(t, f, "a") != trusted || hooked(t, f, "b") || hooked(t, f, "c") {
			t.Errorf("trusted %v: what came later counts, or what stayed does not", trusted)
		}
		write(t, filepath.Join(project, ".claude/agents/a.md"), text("a", "other words", strings.ReplaceAll(deeds, "make", "evil")))
		if hooked(t, f, "a") {
			t.Errorf("trusted %v: changed hooks count", trusted)
		}
	}
}

func TestPlacesIn(t *testing.T) {
	project := plant(t, map[string]string{".claude/agents/a.md": text("a", "x", deeds), ".github/agents/b.md": text("Other", "x", ""), "README.md": "x", "loose/c.md": text("c", "x", ""),
		"plugin/.claude-plugin/plugin.json": "{}", "plugin/agents/d.md": text("d", "x", ""), "plugin/README.md": "x"})
	for path, want := range map[string]string{".": "a b", "loose": "c", "loose/c.md": "c", "plugin": "d", ".github/agents": "b", ".github/agents/b.md": "b"} {
		places, err := PlacesIn(filepath.Join(project, path))
		if err != nil {
			t.Error(err)
			continue
		}
		var got []string
		f := New(Config{Places: places})
		for _, e := range f.Entries() {
			if e.Level != definitions.BuiltIn {
				got = append(got, e.Name)
			}
		}
		if strings.Join(got, " ") != want || len(f.Problems()) != 0 {
			t.Errorf("%s: %v, want %s; %v", path, got, want, f.Problems())
		}
	}
	if _, err := PlacesIn(filepath.Join(project, "nowhere")); err == nil {
		t.Error("a path that is not there")
	}
}

// Several may ask while files change.
func TestTogether(t *testing.T) {
	dir := plant(t, map[string]string{"a.md": text("a", "x", "")})
	f := New(Config{Places: []definitions.Place{{Root: dir, Dir: ".", Level: definitions.User}}})
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 20 {
				if i == 0 {
					write(t, filepath.Join(dir, "b.md"), text("b", "x", ""))
				}
				if _, err := f.Current().Find("a"); err != nil {
					t.Error(err)
				}
				f.Problems()
				f.Entries()
			}
		})
	}
	all.Wait()
}

// At most 1 ms for 200 files that have not changed.
func BenchmarkUnchanged(b *testing.B) {
	dir := b.TempDir()
	for i := range 200 {
		name := fmt.Sprintf("agent-%d", i)
		if err := os.WriteFile(filepath.Join(dir, name+".md"), []byte(text(name, "x", "")), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	f := settled(New(Config{Places: []definitions.Place{{Root: dir, Dir: ".", Level: definitions.User}}}))
	for b.Loop() {
		f.Current()
	}
}
