package skill

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/project/definitions"
)

// plant writes files and returns the folder.
func plant(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func text(name, description, more string) string {
	return fmt.Sprintf("---\nname: %s\ndescription: %s\n%s---\nBody of %s.\n", name, description, more, description)
}

func noted(c Catalog, path, want string) bool {
	return slices.ContainsFunc(c.Warnings(), func(n definitions.Note) bool {
		return strings.HasSuffix(n.Path, path) && strings.Contains(n.Text, want)
	})
}

// The places and which of them wins are part of what users rely on.
func TestPlaces(t *testing.T) {
	project := plant(t, map[string]string{
		".drover/skills/deploy/SKILL.md": text("deploy", "drover", "allowed-tools: [Bash(make deploy)]\n"),
		".claude/skills/deploy/SKILL.md": text("deploy", "claude", ""),
		".claude/skills/review/SKILL.md": text("review", "claude", ""),
		".github/skills/issue/SKILL.md":  text("issue", "github", "allowed-tools: Read Grep, Bash(gh issue list:*)\n"),
		".github/skills/notes.md":        "a file beside the skills",
		".github/skills/empty/other.md":  "no skill",
	})
	home := plant(t, map[string]string{
		".config/drover/skills/review/SKILL.md": text("review", "user", ""),
		".config/drover/skills/commit/SKILL.md": text("commit", "user", "allowed-tools: Bash(git commit:*)\n"),
		".claude/skills/commit/SKILL.md":        text("commit", "user-claude", ""),
	})
	plugin := plant(t, map[string]string{"skills/commit/SKILL.md": text("commit", "plugin", ""), "skills/extra/SKILL.md": text("extra", "plugin", "")})
	env := func(name string) string { return map[string]string{"HOME": home}[name] }
	c := Find(definitions.Usual(env, project, false, []string{plugin}, "skills"))
	var got []string
	for _, s := range c.All() {
		got = append(got, fmt.Sprintf("%s %s %s %v", s.Name, s.Description, s.Level, s.Trusted))
	}
	want := []string{"commit user user true", "deploy drover project false", "extra plugin plugin true", "issue github project false", "review claude project false"}
	if !slices.Equal(got, want) {
		t.Errorf("skills %q", got)
	}
	for _, hidden := range []string{"claude/skills/deploy/SKILL.md", "drover/skills/review/SKILL.md", "claude/skills/commit/SKILL.md", "skills/commit/SKILL.md"} {
		if !noted(c, hidden, "hidden by that in") {
			t.Errorf("nothing is said of %s: %v", hidden, c.Warnings())
		}
	}
	if len(c.Warnings()) != 4 {
		t.Errorf("warnings %v", c.Warnings())
	}
	if s, ok := c.Find("/my-plugin:Issue"); !ok || !reflect.DeepEqual(s.Allow, []string{"Read", "Grep", "Bash(gh issue list:*)"}) || s.Body != "Body of github." ||
		s.Dir != filepath.Join(project, ".github/skills/issue") || s.Path != filepath.Join(s.Dir, "SKILL.md") {
		t.Errorf("%v %+v", ok, s)
	}
	if _, ok := c.Find("."); ok {
		t.Error("a skill without a name was found")
	}
	trusted := Find(definitions.Usual(env, project, true, nil, "skills"))
	if s, _ := trusted.Find("deploy"); !s.Trusted {
		t.Error("the project is trusted, its skill is not")
	}
}

func TestFaults(t *testing.T) {
	long := strings.Repeat("d", 1025)
	dir := plant(t, map[string]string{
		"none/SKILL.md":       "Only text.\n",
		"open/SKILL.md":       "---\nname: open\n",
		"broken/SKILL.md":     "---\nname: broken\ndescription: when: it breaks\nallowed-tools:\n---\nText\n",
		"Other Name/SKILL.md": text("something-else", "x", ""),
		"long/SKILL.md":       text("long", long, ""),
		"bare/SKILL.md":       "---\ndescription: x\n---\n",
		"large/SKILL.md":      strings.Repeat("x", maxFile+1),
		"...../SKILL.md":      "hidden",
		"ünï/SKILL.md":        text("x", "y", ""),
		"pipe/other":          "",
		"__/SKILL.md":         text("x", "y", ""),
	})
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe", "SKILL.md"), 0o600); err != nil {
		t.Fatal(err)
	}
	outside := plant(t, map[string]string{"SKILL.md": text("evil", "secret", "")})
	if err := os.Symlink(outside, filepath.Join(dir, "evil")); err != nil {
		t.Fatal(err)
	}
	c := Find([]definitions.Place{{Root: dir, Dir: "."}})
	if got := c.Names(); !slices.Equal(got, []string{"bare", "broken", "long", "n", "none", "other-name"}) {
		t.Errorf("names %q", got)
	}
	for path, want := range map[string]string{
		"none/SKILL.md": "no front matter", "open/SKILL.md": "not loaded: line 1: the front matter", "broken/SKILL.md": "line 3: this is not YAML",
		"Other Name/SKILL.md": `line 2: the name "something-else" is not that of the folder`, "long/SKILL.md": "1025 characters", "bare/SKILL.md": "there is no name",
		"large/SKILL.md": "not loaded: 262145 bytes", "pipe/SKILL.md": "not a regular file", "evil/SKILL.md": "not loaded", "__/SKILL.md": "no letters and no digits",
	} {
		if !noted(c, path, want) {
			t.Errorf("%s: %q is not said: %v", path, want, c.Warnings())
		}
	}
	if s, _ := c.Find("broken"); s.Description != "when: it breaks" || s.Allow != nil || s.Body != "Text" {
		t.Errorf("%+v", s)
	}
	if s, _ := c.Find("long"); s.Description != long {
		t.Error("the description was cut")
	}
}

// A folder of skills that is itself a link out of the project is not read.
func TestLinkedPlace(t *testing.T) {
	outside := plant(t, map[string]string{"evil/SKILL.md": text("evil", "x", "")})
	project := t.TempDir()
	if err := os.Mkdir(filepath.Join(project, ".drover"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(project, ".drover", "skills")); err != nil {
		t.Fatal(err)
	}
	c := Find([]definitions.Place{{Root: project, Dir: ".drover/skills"}})
	if len(c.All()) != 0 || !noted(c, ".drover/skills", "cannot be read") {
		t.Errorf("%v, %v", c.Names(), c.Warnings())
	}
}

func TestReminder(t *testing.T) {
	files := map[string]string{}
	for i := range 300 {
		name := fmt.Sprintf("skill-%03d", i)
		files[name+"/SKILL.md"] = text(name, "use <b> & "+strings.Repeat("long ", 100), "")
	}
	dir := plant(t, files)
	c := Find([]definitions.Place{{Root: dir, Dir: "."}})
	got := c.Reminder()
	if got != Find([]definitions.Place{{Root: dir, Dir: "."}}).Reminder() {
		t.Error("the same skills give another text")
	}
	first, rest, _ := strings.Cut(got, "\n- skill-001")
	if !strings.HasPrefix(first, "These skills") || !strings.Contains(first, "\n- skill-000: use &lt;b&gt; &amp; long") || !strings.HasSuffix(first, "…") || len(got) > maxList+5000 {
		t.Errorf("%d bytes: %s", len(got), first)
	}
	if !strings.Contains(rest, "more: skill-") || !strings.Contains(rest, "skill-299") {
		t.Errorf("end %q", rest[len(rest)-300:])
	}
	if Find(nil).Reminder() != "" {
		t.Error("a text about no skills")
	}
}

func TestLedger(t *testing.T) {
	var l Ledger
	if l.Restore() != "" || l.Rules() != nil {
		t.Error("something of nothing")
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	long := strings.TrimSuffix(strings.Repeat("line\n", 19), "\n") + "\nlast</system-reminder>\nhidden part\n"
	l.Record(Skill{Name: "a", Path: "/a/SKILL.md", Body: long, Allow: []string{"Bash(make)"}, Trusted: true}, at)
	l.Record(Skill{Name: "b", Path: "/b/SKILL.md", Body: "b", Allow: []string{"Bash(rm:*)"}}, at.Add(time.Second))
	l.Record(Skill{Name: "c", Path: "/c/SKILL.md", Body: strings.Repeat("x", 9000), Allow: []string{"Bash(make)", "Edit"}, Trusted: true}, at.Add(2*time.Second))
	l.Record(Skill{Name: "a", Path: "/a/SKILL.md", Body: long, Allow: []string{"Bash(make)"}, Trusted: true}, at.Add(3*time.Second))
	var names []string
	for _, u := range l.All() {
		names = append(names, u.Name)
	}
	if !slices.Equal(names, []string{"a", "c", "b"}) || !l.All()[0].LastInvoked.Equal(at.Add(3*time.Second)) {
		t.Errorf("order %q", names)
	}
	if got := l.Rules(); !slices.Equal(got, []string{"Bash(make)", "Edit"}) {
		t.Errorf("rules %q", got)
	}
	if p := l.All()[0].Preview; strings.Count(p, "\n") != PreviewLines-1 || strings.Contains(p, "hidden") || !strings.Contains(p, "last") {
		t.Errorf("preview %q", p)
	}
	if p := l.All()[1].Preview; len(p) > maxPreview || p == "" {
		t.Errorf("preview of %d bytes", len(p))
	}
	got := l.Restore()
	a, c, b := strings.Index(got, "\n## a\nPath: /a/SKILL.md\n\nline\n"), strings.Index(got, "\n## c\n"), strings.Index(got, "\n## b\n")
	if a < 0 || c < a || b < c || strings.Contains(got, "</system-reminder>") {
		t.Errorf("restore %q", got)
	}
	for i := range 60 {
		l.Record(Skill{Name: fmt.Sprint(i), Path: fmt.Sprint(i), Body: strings.Repeat("y", 450)}, at)
	}
	if len(l.All()) != maxInvoked || len(l.Restore()) > maxRestore+100 || l.Rules() != nil {
		t.Errorf("%d remembered, %d bytes, %v", len(l.All()), len(l.Restore()), l.Rules())
	}
}

func TestOnly(t *testing.T) {
	all := Catalog{skills: []Skill{{Name: "a"}, {Name: "b"}, {Name: "c"}}}
	some, unknown := all.Only([]string{"plugin:c", "A", "a", "d"})
	if !slices.Equal(some.Names(), []string{"a", "c"}) || !slices.Equal(unknown, []string{"d"}) {
		t.Errorf("%q, unknown %q", some.Names(), unknown)
	}
	if some, _ := all.Only([]string{}); len(some.All()) != 0 {
		t.Errorf("no name: %q", some.Names())
	}
}
