package command

import (
	"slices"
	"strings"
	"testing"
)

// included answers each inclusion by its text in brackets.
func included(all []Inclusion) []Included {
	out := make([]Included, len(all))
	for i, one := range all {
		out[i].Text = "[" + one.Text + "]"
	}
	return out
}

func TestExpand(t *testing.T) {
	vars := map[string]string{"CLAUDE_PROJECT_DIR": "/work"}
	for _, c := range []struct {
		name, body, args string
		includes         []Inclusion
		want             string
	}{
		{name: "all", body: "Fix $ARGUMENTS now", args: " a  b ", want: "Fix a  b now"},
		{name: "behind", body: "Fix it", args: "a b", want: "Fix it\n\nArguments: a b"},
		{name: "none", body: "Fix it", want: "Fix it"},
		{name: "numbers", body: "$1, $2, $3.", args: `one "two words"`, want: "one, two words, ."},
		{name: "from-zero", body: "$ARGUMENTS[0] $ARGUMENTS[1]", args: "a b", want: "a b"},
		{name: "amounts", body: "$100 and $1.50 and $5 and $ARGUMENTS_X", args: "a", want: "$100 and $1.50 and  and $ARGUMENTS_X"},
		{name: "apostrophe", body: "$1|$2", args: `don't can't`, want: "don't|can't"},
		{name: "inputs", body: "${input:name} by ${input:who:somebody}", args: "a b c", want: "a by b c"},
		{name: "one-input", body: "about ${input:topic}", args: "a b", want: "about a b"},
		{name: "variable", body: "${CLAUDE_PROJECT_DIR} ${CLAUDE_SKILL_DIR} ${HOME}", want: "/work ${CLAUDE_SKILL_DIR} ${HOME}"},
		{name: "shell", body: "Status: !`git status`", includes: []Inclusion{{Shell, "git status"}}, want: "Status: [git status]"},
		{name: "shell-arguments", body: "- !`git log $1 -- '$2' | awk '{print $1}'`", args: "main x",
			includes: []Inclusion{{Shell, "git log main -- '$2' | awk '{print $1}'"}},
			want:     "- [git log main -- '$2' | awk '{print $1}']"},
		{name: "double-quotes", body: "!`echo \"it's $1\"`", args: "so", includes: []Inclusion{{Shell, `echo "it's so"`}},
			want: `[echo "it's so"]`},
		{name: "block", body: "Before\n```!\nmake\nmake test\n```\nAfter", includes: []Inclusion{{Shell, "make\nmake test"}},
			want: "Before\n[make\nmake test]\nAfter"},
		{name: "no-shell", body: "wow!`x` !` ` !`open\nend`", want: "wow!`x` !` ` !`open\nend`"},
		{name: "argument-is-no-shell", body: "Do $ARGUMENTS", args: "!`rm -rf /` @/etc/passwd $1",
			want: "Do !`rm -rf /` @/etc/passwd $1"},
		{name: "file", body: "See @docs/a.md, and @docs/a.md.", includes: []Inclusion{{File, "docs/a.md"}, {File, "docs/a.md"}},
			want: "See docs/a.md, and docs/a.md.\n\n<file path=\"docs/a.md\">\n[docs/a.md]\n</file>"},
		{name: "file-argument", body: "Review @$1", args: "x.go", includes: []Inclusion{{File, "x.go"}},
			want: "Review x.go\n\n<file path=\"x.go\">\n[x.go]\n</file>"},
		{name: "file-quoted", body: `@"a b.md"`, includes: []Inclusion{{File, "a b.md"}},
			want: "a b.md\n\n<file path=\"a b.md\">\n[a b.md]\n</file>"},
		{name: "address", body: "mail me@example.org (@)", want: "mail me@example.org (@)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := Values{Args: c.args, Variables: vars}
			p := Parse(c.body)
			got := p.Inclusions(v)
			if !slices.Equal(got, c.includes) {
				t.Errorf("inclusions %+v, want %+v", got, c.includes)
			}
			text, err := p.Expand(v, included(got))
			if err != nil || text != c.want {
				t.Errorf("expanded to %q, %v, want %q", text, err, c.want)
			}
		})
	}
}

// A reference to what is no file stays as it is, and a file cannot end its element.
func TestExpandFiles(t *testing.T) {
	text, err := Parse("ask @someone about @a.md").Expand(Values{}, []Included{{None: true}, {Text: "x</file>y\n"}})
	if want := "ask @someone about a.md\n\n<file path=\"a.md\">\nx&lt;/file>y\n</file>"; err != nil || text != want {
		t.Errorf("%q, %v", text, err)
	}
}

func TestExpandBounded(t *testing.T) {
	_, err := Parse(strings.Repeat("$ARGUMENTS ", 2000)).Expand(Values{Args: strings.Repeat("x", 100_000)}, nil)
	if err == nil || !strings.Contains(err.Error(), "longer than") {
		t.Errorf("expanded: %v", err)
	}
}

func TestSplit(t *testing.T) {
	for _, c := range []struct {
		prompt, name, args string
		ok                 bool
	}{
		{"/review", "review", "", true},
		{"  /review  the diff\nof today \n", "review", "the diff\nof today", true},
		{"/frontend:page_x-1.2 a", "frontend:page_x-1.2", "a", true},
		{"/überblick", "überblick", "", true},
		{prompt: "/etc/hosts has a fault"},
		{prompt: "/etc/"},
		{prompt: "// a comment"},
		{prompt: "//review"},
		{prompt: "/"},
		{prompt: "/ review"},
		{prompt: "/1 is what?"},
		{prompt: "/*.go"},
		{prompt: "review /it"},
		{prompt: ""},
	} {
		if name, args, ok := Split(c.prompt); name != c.name || args != c.args || ok != c.ok {
			t.Errorf("%q: %q %q %v", c.prompt, name, args, ok)
		}
	}
}

// Whatever a file and the arguments hold: an expansion without inclusions has no shell
// line of the arguments, ends, and is the same again.
func FuzzExpand(f *testing.F) {
	for _, seed := range []struct{ body, args string }{
		{"Fix $ARGUMENTS with $1 and !`git log $2` in @$1", "a 'b c' d"},
		{"```!\nmake $1\n```\n@\"x y\" ${input:a:b} ${CLAUDE_PROJECT_DIR}", `"`},
		{"$ARGUMENTS[0]$ARGUMENTS[", "!`x` @y"}, {"!`", "`"}, {"@", "@"}, {"${input:", "}"}, {"\xff!`\xfe`", "\xff"},
	} {
		f.Add(seed.body, seed.args)
	}
	f.Fuzz(func(t *testing.T, body, args string) {
		p := Parse(body)
		if got := source(p.parts); len(p.ShellLines())+len(p.Files()) == 0 && got != body {
			t.Fatalf("taken apart and put together: %q, want %q", got, body)
		}
		v := Values{Args: args}
		all := p.Inclusions(v)
		if bare := p.Inclusions(Values{}); len(all) != len(bare) {
			t.Fatalf("%d inclusions with arguments, %d without", len(all), len(bare))
		}
		for i, line := range p.ShellLines() {
			if !strings.Contains(body, line) {
				t.Fatalf("shell line %d %q does not stand in the body", i, line)
			}
		}
		one, err := p.Expand(v, included(all))
		two, again := p.Expand(v, included(all))
		if one != two || (err == nil) != (again == nil) || len(one) > MaxExpanded {
			t.Fatalf("%q and %q", one, two)
		}
		Split(body)
		_, _ = Read([]byte(body))
	})
}
