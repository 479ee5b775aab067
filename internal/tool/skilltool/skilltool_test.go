package skilltool

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/project/definitions"
	"github.com/drover-dev/drover/internal/project/skill"
)

type bench struct {
	t    *testing.T
	dir  string
	used skill.Ledger
	tool agent.Tool
}

func open(t *testing.T, files map[string]string) *bench {
	b := &bench{t: t, dir: t.TempDir()}
	for name, text := range files {
		path := filepath.Join(b.dir, name, "SKILL.md")
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b.tool = New(func() skill.Catalog {
		return skill.Find([]definitions.Place{{Root: b.dir, Dir: ".",
			Trusted: true}})
	}, &b.used)
	return b
}

func (b *bench) call(input string) agent.Output {
	b.t.Helper()
	out, err := b.tool.Call(b.t.Context(), agent.Call{Input: json.RawMessage(input)})
	if err != nil {
		b.t.Fatal(err)
	}
	return out
}

func TestSkill(t *testing.T) {
	b := open(t, map[string]string{
		"commit": "---\nname: commit\ndescription: x\nallowed-tools: Bash(git commit:*)\n---\nCommit $ARGUMENTS now: " +
			"$ARGUMENTS\n",
		"plain": "---\nname: plain\ndescription: x\n---\nDo it.\u202e\n",
		"large": "---\nname: large\ndescription: x\n---\n" + strings.Repeat("ü", maxText+5),
	})
	for input, want := range map[string]string{
		`{"skill":"commit","args":"a < b"}`: "Skill commit. Its folder, in which relative paths begin: " + b.dir +
			"/commit\n\nCommit a < b now: a < b\n",
		`{"skill":"Commit"}`: "Skill commit. Its folder, in which relative paths begin: " + b.dir +
			"/commit\n\nCommit  now: \n",
		`{"skill":"plain","args":"seven"}`: "Skill plain. Its folder, in which relative paths begin: " + b.dir +
			"/plain\n\nDo it.<U+202E>\n\nArguments: seven\n",
	} {
		if out := b.call(input); out.IsError || out.Text != want {
			t.Errorf("%s: %q", input, out.Text)
		}
	}
	if out := b.call(`{"skill":"large"}`); !strings.Contains(out.Text,
		"\n(5 more characters: read the rest in "+b.dir+"/large/SKILL.md)") {
		t.Errorf("large: %q", out.Text[len(out.Text)-200:])
	}
	if got := b.call(`{"skill":"commit"}`).Structured; !reflect.DeepEqual(got,
		Result{Skill: "commit", Path: b.dir + "/commit/SKILL.md", Allow: []string{"Bash(git commit:*)"}}) {
		t.Errorf("%+v", got)
	}
	if used := b.used.All(); len(used) != 3 || used[0].Name != "commit" || used[0].LastInvoked.IsZero() {
		t.Errorf("used %+v", used)
	}
	if rules := b.used.Rules(); !reflect.DeepEqual(rules, []string{"Bash(git commit:*)"}) {
		t.Errorf("rules %q", rules)
	}
}

func TestRefused(t *testing.T) {
	b := open(t, map[string]string{"one": "---\nname: one\n---\n", "two": "x"})
	for input, want := range map[string]string{
		`{"skill":"three\u202e"}`: `Skill: there is no skill "three<U+202E>"; there are one, two`,
		`{"skill":"../one/x"}`:    `there are one, two`,
		`{"skill":" "}`:           `field "skill" is empty`,
		`{"name":"one"}`:          `unknown field "name"`,
		`{"skill":"one","args":"` + strings.Repeat("x", maxArgs+1) + `"}`: `field "args" has 10001 bytes`,
	} {
		if out := b.call(input); !out.IsError || !strings.Contains(out.Text, want) {
			t.Errorf("%.60s: %q", input, out.Text)
		}
	}
	if len(b.used.All()) != 0 {
		t.Errorf("a refused call was recorded: %v", b.used.All())
	}
	if out := open(t, nil).call(`{"skill":"x"}`); !strings.HasSuffix(out.Text, "there are none here") {
		t.Errorf("%q", out.Text)
	}
}

// The list of skills may change; what a model is told of the tool may not.
func TestSpec(t *testing.T) {
	b := open(t, nil)
	before := b.tool.Spec()
	if err := os.MkdirAll(filepath.Join(b.dir, "new"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(b.dir, "new", "SKILL.md"),
		[]byte("---\nname: new\ndescription: brand-new\n---\nx"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := b.call(`{"skill":"new"}`); out.IsError {
		t.Errorf("a new skill is not found: %q", out.Text)
	}
	after := b.tool.Spec()
	if !reflect.DeepEqual(before, after) || strings.Contains(after.Description, "brand-new") ||
		!strings.HasSuffix(string(after.InputSchema), `"additionalProperties":false}`) || !json.Valid(after.InputSchema) {
		t.Errorf("%+v", after)
	}
}
