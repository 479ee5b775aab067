package command

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/drover-dev/drover/internal/project/definitions"
	"github.com/drover-dev/drover/internal/project/skill"
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

// world is a project and a user with commands of the same names.
func world(t *testing.T, trusted bool) (Catalog, string) {
	t.Helper()
	project := plant(t, map[string]string{
		".drover/commands/deploy.md":          "---\ndescription: by drover\n---\nDeploy.",
		".claude/commands/deploy.md":          "Deploy by hand: !`make deploy`",
		".claude/commands/review.md":          "---\nallowed-tools: Bash(git diff:*)\nmodel: small\n---\nOur review: !`git diff`",
		".claude/commands/web/new page.md":    "Make a page.",
		".claude/commands/api/page.md":        "Make a page of the API.",
		".claude/commands/README.md":          "# About these",
		".claude/commands/broken.md":          "---\ndescription: no end\n",
		".claude/commands/.hidden.md":         "x",
		".github/prompts/explain.prompt.md":   "---\nmode: agent\ntools: ['codebase']\ndescription: 'Explains'\n---\nExplain ${input:what}",
		".github/prompts/notes.md":            "no prompt",
		".claude/skills/commit/SKILL.md":      "---\nname: commit\ndescription: Commits\n---\nCommit $ARGUMENTS.",
		".claude/skills/background/SKILL.md":  "---\nname: background\ndescription: d\nuser-invocable: false\n---\nx",
		".claude/commands/hints.md":           "---\nargument-hint: [pr-number] [priority]\n---\nx",
		".claude/commands/single.md":          "---\nargument-hint: [file]\nagent: explore\n---\nx",
		".claude/commands/forked.md":          "---\ncontext: fork\ndisable-model-invocation: true\n---\nx",
		".claude/commands/description-is.md":  "---\ndescription: Fix: everything\n---\nx",
		".claude/commands/outside.md":         "See @/etc/hosts and @a.md",
		".claude/commands/subconscious.md":    "not this",
		".claude/commands/too/many/words.md":  strings.Repeat("!`x`\n", 21),
		".claude/commands/very-large-file.md": strings.Repeat("x", maxFile+1),
	})
	if err := os.Symlink("/etc/hosts", filepath.Join(project, ".claude/commands/link.md")); err != nil {
		t.Fatal(err)
	}
	home := plant(t, map[string]string{
		".claude/commands/deploy.md":            "The user's.",
		".config/drover/skills/commit/SKILL.md": "---\nname: commit\ndescription: The user's\n---\nx",
	})
	plugin := plant(t, map[string]string{"commands/tidy.md": "Tidy in ${CLAUDE_PLUGIN_ROOT}"})
	env := func(name string) string { return map[string]string{"HOME": home}[name] }
	skills := skill.Find(definitions.Usual(env, project, trusted, nil, "skills"))
	return Find(definitions.Usual(env, project, trusted, []string{plugin}, "commands"), skills), filepath.Base(plugin)
}

func find(t *testing.T, c Catalog, name string) Command {
	t.Helper()
	one, err := c.Find(name)
	if err != nil {
		t.Fatalf("find %s: %v", name, err)
	}
	return one
}

func TestFindTrusted(t *testing.T) {
	c, plugin := world(t, true)
	if one := find(t, c, "deploy"); one.Description != "by drover" || !one.Trusted {
		t.Errorf("deploy %+v", one)
	}
	if one := find(t, c, "review"); one.Level != definitions.Project || one.Model != "small" || !slices.Equal(one.Allow, []string{"Bash(git diff:*)"}) {
		t.Errorf("review %+v", one)
	}
	if one := find(t, c, "web:new-page"); one.Description != "Make a page." {
		t.Errorf("page %+v", one)
	}
	if one := find(t, c, "new-page"); one.Name != "web:new-page" {
		t.Errorf("page by its end %+v", one)
	}
	if one := find(t, c, "explain"); one.Agent != "" || one.Description != "Explains" || len(one.Warnings) != 1 {
		t.Errorf("prompt file %+v", one)
	}
	if one := find(t, c, "commit"); one.Sort != Skill || one.Level != definitions.Project || one.Dir == "" {
		t.Errorf("skill %+v", one)
	}
	if one := find(t, c, "tidy"); one.Name != NameOf(plugin)+":tidy" || one.Root == "" {
		t.Errorf("plugin %+v", one)
	}
	if one := find(t, c, "hints"); one.Hint != "[pr-number] [priority]" {
		t.Errorf("hint %q", one.Hint)
	}
	if one := find(t, c, "single"); one.Hint != "[file]" || one.Agent != "explore" {
		t.Errorf("single %+v", one)
	}
	if one := find(t, c, "forked"); one.Agent != "general-purpose" || !one.NoModel {
		t.Errorf("forked %+v", one)
	}
	if one := find(t, c, "description-is"); one.Description != "Fix: everything" {
		t.Errorf("description %q", one.Description)
	}
	if one := find(t, c, "subconscious"); one.Sort != Program {
		t.Errorf("a file has the name of a command of the program: %+v", one)
	}
	for _, name := range []string{"background", "README", "notes", "link", "broken", "very-large-file", ".hidden", "hidden"} {
		if one, err := c.Find(name); err == nil {
			t.Errorf("%s is called: %+v", name, one)
		}
	}
	told := ""
	for _, n := range c.Warnings() {
		told += n.String() + "\n"
	}
	for _, want := range []string{"broken.md: the command is not loaded", "link.md: the command is not loaded",
		"very-large-file.md: the command is not loaded", "words.md: it includes 21"} {
		if !strings.Contains(told, want) {
			t.Errorf("nobody is told %q: %s", want, told)
		}
	}
}

// What waits for trust takes no name from anything else, and is text only.
func TestFindUntrusted(t *testing.T) {
	c, _ := world(t, false)
	if one := find(t, c, "deploy"); one.Level != definitions.User {
		t.Errorf("deploy %+v", one)
	}
	if one := find(t, c, "review"); one.Level != definitions.BuiltIn {
		t.Errorf("review %+v", one)
	}
	if one := find(t, c, "commit"); one.Level != definitions.User {
		t.Errorf("commit %+v", one)
	}
	if one := find(t, c, "web:new-page"); one.Trusted || one.Waits != nil {
		t.Errorf("page %+v", one)
	}
	if one := find(t, c, "outside"); !slices.Equal(one.Waits, []string{"includes when it is called: /etc/hosts"}) {
		t.Errorf("outside waits: %q", one.Waits)
	}
	for _, one := range c.All() {
		if one.Name == "review" && one.Level == definitions.Project && (one.Shadowed == "" || len(one.Waits) != 3 || one.Allow != nil || one.Model != "") {
			t.Errorf("the project's review %+v", one)
		}
	}
}

func TestFindUnknown(t *testing.T) {
	c, _ := world(t, true)
	for name, near := range map[string]string{"revieww": "review", "rev": "review", "reserch": "research", "new-pag": "web:new-page"} {
		_, err := c.Find(name)
		var unknown *UnknownError
		if !errors.As(err, &unknown) || !slices.Contains(unknown.Near, near) || !strings.Contains(err.Error(), "did you mean /") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := c.Find("zzzzzzzz"); err == nil || !strings.Contains(err.Error(), "see `drover commands`") {
		t.Errorf("nothing is near: %v", err)
	}
	page := Catalog{commands: []Command{{Skill: skill.Skill{Name: "a:page"}}, {Skill: skill.Skill{Name: "b:page"}}}}
	if _, err := page.Find("page"); err == nil || !strings.Contains(err.Error(), "/a:page, /b:page") {
		t.Errorf("two ends: %v", err)
	}
}

// The prompts of the program are short and plain, and say what the specification wants
// of them.
func TestBuiltIn(t *testing.T) {
	for name, pieces := range map[string][]string{
		"review":   {"code-review", "Agent tool once"},
		"research": {"subagent_type `research`", "mode `sync`", "three to five", "Six to ten", "${DROVER_REPORT}"},
		"fleet":    {"TaskCreate", "blocked", "run_in_background", "verification"},
		"init":     {"AGENTS.md"},
	} {
		one := find(t, Find(nil, skill.Catalog{}), name)
		text, err := one.Template.Expand(Values{Args: "the thing"}, nil)
		if err != nil || len(one.Template.Inclusions(Values{})) != 0 || !strings.Contains(text, "the thing") ||
			strings.Contains(text, "$ARGUMENTS") {
			t.Errorf("%s: %v: %s", name, err, text)
		}
		for _, piece := range pieces {
			if !strings.Contains(text, piece) {
				t.Errorf("/%s does not say %q", name, piece)
			}
		}
	}
}

// The prompts of agents in the corpus of real files are read without loss: as commands
// they are text of which nothing runs unless it says so.
func TestEffects(t *testing.T) {
	c, err := Read([]byte("---\nallowed-tools: [Bash(ls:*), Read]\nmodel: big\n---\n!`ls $1` and @../up.md and @in.md"))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"runs when it is called: ls $1", "includes when it is called: ../up.md",
		"allows Bash(ls:*) without a question, while its prompt is worked on",
		"allows Read without a question, while its prompt is worked on", "wants the model big"}
	if got := Effects(c); !slices.Equal(got, want) {
		t.Errorf("effects %q", got)
	}
}

// A folder that loses its trust while its commands are read is not trusted.
func TestCurrent(t *testing.T) {
	project := plant(t, map[string]string{".claude/commands/ship.md": "Ship: !`make`"})
	now := func(trusted bool) []definitions.Place {
		return definitions.Usual(func(string) string { return "" }, project, trusted, nil, "commands")
	}
	asked := 0
	swapped := func() bool { asked++; return asked == 1 }
	if one := find(t, Current(now, skill.Catalog{}, swapped), "ship"); one.Trusted || len(one.Waits) != 1 {
		t.Errorf("ship %+v", one)
	}
	if one := find(t, Current(now, skill.Catalog{}, func() bool { return true }), "ship"); !one.Trusted {
		t.Errorf("ship %+v", one)
	}
}
