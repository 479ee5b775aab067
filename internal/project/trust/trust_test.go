package trust

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is a store and a folder.
type bench struct {
	t      *testing.T
	store  Store
	folder string
}

func open(t *testing.T, files map[string]string) *bench {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t, At(filepath.Join(t.TempDir(), "trust.json")), dir}
	for name, text := range files {
		b.put(name, text)
	}
	return b
}

func (b *bench) put(name, text string) {
	b.t.Helper()
	path := filepath.Join(b.folder, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) check(folder string) State {
	b.t.Helper()
	st, err := b.store.Check(filepath.Join(b.folder, folder))
	if err != nil {
		b.t.Fatal(err)
	}
	return st
}

func (b *bench) grant() {
	b.t.Helper()
	if err := b.store.Grant(b.t.Context(), b.check(".")); err != nil {
		b.t.Fatal(err)
	}
	if st := b.check("."); !st.Trusted || len(st.Changed) != 0 || st.Needed() {
		b.t.Fatalf("just trusted: %+v", st)
	}
}

func lines(items []Item) []string {
	out := make([]string, len(items))
	for i, item := range items {
		out[i] = item.File + " " + item.What
	}
	return out
}

const hook = `{"hooks":{"PreToolUse":[{"matcher":"Bash","hooks":[{"type":"command","command":"./scripts/check.sh --fast"}]}]}}`

func everything() map[string]string {
	return map[string]string{
		".drover/settings.json":       `{"$schema":"x","hooks":{"Stop":[{"hooks":[{"type":"command","command":"evil"},{"type":"http","url":"https://x.invalid"}]}]},"permissions":{"allow":["Bash(make:*)"],"deny":["Read(.env)"],"defaultMode":"plan"},"limits":{"live":3}}`,
		".drover/settings.local.json": `{"permissions":{"deny":["Edit"],"ask":["Bash"]}}`,
		".claude/settings.json":       hook,
		".claude/settings.local.json": `{"permissions":{"allow":["Bash"],"deny":["Read(x)"],"additionalDirectories":["../lib"]},"model":"haiku","env":{"A":"b"},"statusLine":{"command":"x"},"SessionStart":[{"hooks":[{"command":"bare"}]}]}`,
		".github/hooks/a.json":        `{"version":1,"hooks":{"sessionStart":[{"type":"command","bash":"echo $X","powershell":"Write-Host"}],"preToolUse":[{"odd":1}],"none":[]}}`,
		".mcp.json":                   `{"mcpServers":{"fs":{"command":"npx","args":["-y","server-fs"]},"web":{"type":"http","url":"https://mcp.invalid"},"odd":{}}}`,
		".claude/agents/sub/a.md":     "---\nname: a\ndescription: x: y\nhooks:\n  Stop:\n    - hooks:\n        - command: agent-hook\nmcpServers: [github]\n---\n",
		".github/agents/b.agent.md":   "---\nname: b\ndescription: x\nmcp-servers:\n  k:\n    type: local\n    command: docker\n    args: ['run']\n---\n",
		".drover/agents/harmless.md":  "---\nname: harmless\ndescription: x\ntools: Bash\n---\nText with hooks: none\n",
		".drover/skills/s/SKILL.md":   "---\nname: s\ndescription: x\nallowed-tools: Bash(git commit:*), Edit\n---\n",
		".claude/skills/t/SKILL.md":   "---\nname: t\ndescription: x\n---\n",
		".claude/commands/a/ship.md":  "---\nmodel: big\n---\nShip !`./scripts/ship.sh $1` and @../up.md",
		".claude/commands/text.md":    "Only text of $1, and @README.md",
		".github/prompts/p.prompt.md": "---\nallowed-tools: Bash(make:*)\n---\nx",
		".github/skills/u/SKILL.md":   "---\nname: u\ndescription: x\n---\n!`make tidy`",
		".claude/agents/vendor.md":    "---\nname: v\ndescription: x\nacp: {command: sh, args: [scripts/vendor.sh]}\n---\n",
		"scripts/vendor.sh":           "vendor",
		"scripts/ship.sh":             "echo ship",
		"scripts/check.sh":            "echo one",
		"README.md":                   "x",
	}
}

func TestSurvey(t *testing.T) {
	st := open(t, everything()).check(".")
	want := []string{
		`.claude/agents/sub/a.md runs at Stop: agent-hook`,
		`.claude/agents/sub/a.md uses the MCP server github`,
		`.claude/agents/vendor.md is an agent of another vendor: {"args":["scripts/vendor.sh"],"command":"sh"}`,
		`.claude/commands/a/ship.md includes when it is called: ../up.md`,
		`.claude/commands/a/ship.md runs when it is called: ./scripts/ship.sh $1`,
		`.claude/commands/a/ship.md wants the model big`,
		`.claude/settings.json runs at PreToolUse: ./scripts/check.sh --fast`,
		`.claude/settings.local.json allows Bash without a question`,
		`.claude/settings.local.json runs at SessionStart: bare`,
		`.claude/settings.local.json sets env to {"A":"b"}`,
		`.claude/settings.local.json sets model to "haiku"`,
		`.claude/settings.local.json sets permissions.additionalDirectories to ["../lib"]`,
		`.drover/settings.json allows Bash(make:*) without a question`,
		`.drover/settings.json runs at Stop: evil`,
		`.drover/settings.json runs at Stop: https://x.invalid`,
		`.drover/settings.json sets limits to {"live":3}`,
		`.drover/settings.json sets permissions.defaultMode to "plan"`,
		`.drover/skills/s/SKILL.md allows Bash(git commit:*) without a question, once the skill is used`,
		`.drover/skills/s/SKILL.md allows Edit without a question, once the skill is used`,
		`.github/agents/b.agent.md starts the MCP server k: docker run`,
		`.github/hooks/a.json has a hook at preToolUse: [{"odd":1}]`,
		`.github/hooks/a.json runs at sessionStart: echo $X`,
		`.github/prompts/p.prompt.md allows Bash(make:*) without a question, while its prompt is worked on`,
		`.github/skills/u/SKILL.md runs when it is called: make tidy`,
		`.mcp.json connects to the MCP server web at https://mcp.invalid`,
		`.mcp.json has the MCP server odd: {}`,
		`.mcp.json starts the MCP server fs: npx -y server-fs`,
	}
	if got := lines(st.Effects); !slices.Equal(got, want) {
		t.Errorf("would\n%s", strings.Join(got, "\n"))
	}
	if st.Trusted || !st.Needed() || len(st.Unreadable) != 0 || len(st.Changed) != 0 {
		t.Errorf("%+v", st)
	}
	if st := open(t, map[string]string{"README.md": "x"}).check("."); st.Trusted || st.Needed() {
		t.Errorf("a folder with nothing: %+v", st)
	}
}

// Trust is for exactly what was shown (C3).
func TestChanged(t *testing.T) {
	for _, c := range []struct {
		name, file, text string // empty: removed
		want             []Change
	}{
		{"hook", ".claude/settings.json", strings.Replace(hook, "--fast", "--slow", 1), []Change{{".claude/settings.json", "changed"}}},
		{"script", "scripts/check.sh", "echo two", []Change{{"scripts/check.sh", "changed"}}},
		{"script-gone", "scripts/check.sh", "", []Change{{"scripts/check.sh", "removed"}}},
		{"new-server", ".drover/agents/new.md", "---\nname: n\nmcpServers: [x]\n---\n", []Change{{".drover/agents/new.md", "added"}}},
		{"server", ".mcp.json", `{"mcpServers":{"fs":{"command":"evil"}}}`, []Change{{".mcp.json", "changed"}}},
		{"rule", ".claude/skills/t/SKILL.md", "---\nname: t\nallowed-tools: Bash\n---\n", []Change{{".claude/skills/t/SKILL.md", "added"}}},
		{"command", ".claude/commands/text.md", "now !`evil`", []Change{{".claude/commands/text.md", "added"}}},
		{"command-text", ".claude/commands/text.md", "other text", []Change{}},
		{"command-script", "scripts/ship.sh", "evil", []Change{{"scripts/ship.sh", "changed"}}},
		{"program-script", "scripts/vendor.sh", "evil", []Change{{"scripts/vendor.sh", "changed"}}},
		{"twice", ".github/hooks/b.json", `{"hooks":{"x":[{"bash":"evil"}]},"hooks":{}}`, []Change{{".github/hooks/b.json", "added"}}},
		{"gone", ".mcp.json", "", []Change{{".mcp.json", "removed"}}},
		{"readme", "README.md", "other", []Change{}},
		{"prompt", ".drover/agents/harmless.md", "---\nname: harmless\ndescription: other\n---\n", []Change{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := open(t, everything())
			b.grant()
			if c.text == "" {
				if err := os.Remove(filepath.Join(b.folder, c.file)); err != nil {
					t.Fatal(err)
				}
			} else {
				b.put(c.file, c.text)
			}
			st := b.check(".")
			if !reflect.DeepEqual(st.Changed, c.want) || st.Trusted != (len(c.want) == 0) || len(st.Effects) == 0 {
				t.Errorf("trusted %v, changed %v", st.Trusted, st.Changed)
			}
		})
	}
}

// What changes between the question and the answer is not trusted.
func TestGrantIsForWhatWasShown(t *testing.T) {
	b := open(t, everything())
	shown := b.check(".")
	b.put(".mcp.json", `{"mcpServers":{"fs":{"command":"evil"}}}`)
	if err := b.store.Grant(t.Context(), shown); err != nil {
		t.Fatal(err)
	}
	if st := b.check("."); st.Trusted || len(st.Changed) != 1 {
		t.Errorf("%+v", st)
	}
}

// A repository, a worktree or a plain folder below a trusted one has to be
// trusted for itself (H9).
func TestOneFolder(t *testing.T) {
	b := open(t, everything())
	b.put("inner/.git/HEAD", "x")
	b.put("inner/.mcp.json", `{"mcpServers":{"x":{"command":"evil"}}}`)
	b.put("worktree/.git", "gitdir: x")
	b.put("worktree/.claude/settings.json", hook)
	b.grant()
	for _, folder := range []string{"inner", "worktree", "scripts"} {
		if b.check(folder).Trusted {
			t.Errorf("%s is trusted with the folder above", folder)
		}
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(b.folder, link); err != nil {
		t.Fatal(err)
	}
	if st, err := b.store.Check(link); err != nil || !st.Trusted || st.Folder != b.folder {
		t.Errorf("by another name: %+v, %v", st, err)
	}
	if had, err := b.store.Revoke(t.Context(), link); !had || err != nil || b.check(".").Trusted {
		t.Errorf("revoked: %v, %v", had, err)
	}
	if had, err := b.store.Revoke(t.Context(), link); had || err != nil {
		t.Errorf("revoked again: %v, %v", had, err)
	}
}

// What cannot be looked at is not trusted.
func TestBlind(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.MkdirAll(filepath.Join(outside, "agents"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(outside, "mcp.json"), []byte(`{}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, plant := range map[string]func(b *bench) error{
		".mcp.json": func(b *bench) error {
			return os.Symlink(filepath.Join(outside, "mcp.json"), filepath.Join(b.folder, ".mcp.json"))
		},
		".claude/settings.local.json": func(b *bench) error {
			return syscall.Mkfifo(filepath.Join(b.folder, ".claude/settings.local.json"), 0o600)
		},
		".drover/settings.json":  func(b *bench) error { b.put(".drover/settings.json", `{"hooks":`); return nil },
		".github/hooks/big.json": func(b *bench) error { b.put(".github/hooks/big.json", strings.Repeat(" ", maxFile+1)); return nil },
		".claude/agents":         func(b *bench) error { return os.Symlink(outside, filepath.Join(b.folder, ".claude/agents")) },
		".drover/agents/more":    func(b *bench) error { return os.Symlink(outside, filepath.Join(b.folder, ".drover/agents/more")) },
		".drover/agents/open.md": func(b *bench) error { b.put(".drover/agents/open.md", "---\nhooks: x\n"); return nil },
	} {
		t.Run(filepath.Base(name), func(t *testing.T) {
			b := open(t, map[string]string{".claude/settings.json": hook, ".drover/agents/x.md": "x"})
			b.grant()
			if err := plant(b); err != nil {
				t.Fatal(err)
			}
			st := b.check(".")
			if st.Trusted || !st.Needed() || len(st.Unreadable) != 1 || st.Unreadable[0].File != name || !strings.Contains(st.Unreadable[0].What, "cannot be looked at: ") {
				t.Fatalf("%+v", st)
			}
			if err := b.store.Grant(t.Context(), st); !errors.Is(err, ErrBlind) || !strings.Contains(err.Error(), name) {
				t.Errorf("granted: %v", err)
			}
		})
	}
}

func TestStore(t *testing.T) {
	b := open(t, everything())
	b.grant()
	info, err := os.Stat(b.store.path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	for _, text := range []string{"", "{", `{"v":2,"folders":{}}`, `[]`} {
		if err := os.WriteFile(b.store.path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		st, err := b.store.Check(b.folder)
		if err == nil || st.Trusted || !strings.Contains(err.Error(), b.store.path) {
			t.Errorf("%q: %v, %v", text, st.Trusted, err)
		}
		if err := b.store.Grant(t.Context(), st); err == nil {
			t.Errorf("%q was written over", text)
		}
	}
	if _, err := b.store.Check(filepath.Join(b.folder, "gone")); err == nil {
		t.Error("a folder that is not there")
	}
	if had, err := At(filepath.Join(t.TempDir(), "t.json")).Revoke(t.Context(), filepath.Join(b.folder, "gone")); had || err != nil {
		t.Errorf("%v, %v", had, err)
	}
}

// Many at once lose nothing, and one who waits in vain is told.
func TestTogether(t *testing.T) {
	b := open(t, nil)
	var wg sync.WaitGroup
	for i := range 20 {
		dir := fmt.Sprintf("p%d", i)
		b.put(dir+"/.mcp.json", `{"mcpServers":{"x":{"command":"a"}}}`)
		wg.Go(func() {
			st, err := b.store.Check(filepath.Join(b.folder, dir))
			if err == nil {
				err = b.store.Grant(t.Context(), st)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	var c content
	data, err := os.ReadFile(b.store.path)
	if err != nil || json.Unmarshal(data, &c) != nil || len(c.Folders) != 20 {
		t.Errorf("%d folders, %v", len(c.Folders), err)
	}
	f, err := os.Open(b.store.path + ".lock")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("no patience")
	cancel(gone)
	if _, err := b.store.Revoke(ctx, b.folder); !errors.Is(err, gone) {
		t.Errorf("error %v", err)
	}
}

// Whatever the files say, looking at them neither fails nor trusts.
func FuzzSurvey(f *testing.F) {
	for _, text := range everything() {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, read := range []reading{object(ours), object(hooks), object(servers), agent, allowed} {
			var e effects
			if err := read(&e, data); err != nil && len(e.what)+len(e.commands) > 0 {
				t.Errorf("%q: items beside an error", data)
			}
		}
	})
}

// What the user has written by Drover takes no trust away, and gives none to what
// somebody else has changed meanwhile.
func TestKeep(t *testing.T) {
	const local, rule = ".drover/settings.local.json", `{"permissions":{"allow":["Bash(ls:*)"]}}`
	for _, c := range []struct {
		name          string
		files         map[string]string
		grant         bool
		other, behind string // another file, and other content, that come in between
		want          bool
	}{
		{"nothing to trust", nil, false, "", "", true},
		{"trusted", map[string]string{".drover/settings.json": `{"model":"opus"}`}, true, "", "", true},
		{"not trusted", map[string]string{".drover/settings.json": `{"model":"opus"}`}, false, "", "", false},
		{"another file", map[string]string{".drover/settings.json": `{"model":"opus"}`}, true, ".mcp.json", "", false},
		{"another text", nil, false, "", `{"permissions":{"allow":["Bash"]}}`, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := open(t, c.files)
			before := b.check(".")
			if c.grant {
				if err := b.store.Grant(t.Context(), before); err != nil {
					t.Fatal(err)
				}
				before = b.check(".")
			}
			b.put(local, rule)
			if c.behind != "" {
				b.put(local, c.behind)
			}
			if c.other != "" {
				b.put(c.other, `{"mcpServers":{"x":{"command":"evil"}}}`)
			}
			kept, err := b.store.Keep(t.Context(), before, local, []byte(rule))
			if err != nil || kept != c.want || b.check(".").Trusted != c.want {
				t.Errorf("kept %v, %v; trusted %v, want %v", kept, err, b.check(".").Trusted, c.want)
			}
		})
	}
}
