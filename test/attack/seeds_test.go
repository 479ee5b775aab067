//go:build linux && (amd64 || arm64)

package attack

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/drover-dev/drover/internal/policy"
)

// ruleset is what a line is judged by.
type ruleset struct {
	Text  string   `json:"text"`
	RO    bool     `json:"ro,omitempty"`
	Mode  string   `json:"mode,omitempty"`
	Allow []string `json:"allow,omitempty"`
	Ask   []string `json:"ask,omitempty"`
	Deny  []string `json:"deny,omitempty"`
}

func (s ruleset) rules(w *world) policy.Rules {
	return policy.Rules{Mode: policy.Mode(s.Mode), Allow: s.Allow, Ask: s.Ask, Deny: s.Deny, ReadOnlyAuto: s.RO,
		Cwd: w.dir, Home: w.home, Path: binaries}
}

// seed is a line of a corpus.
type seed struct {
	Line    string `json:"line"`
	Set     int    `json:"set"`
	Fixture string `json:"fixture,omitempty"`
}

// readRules reads a set as the corpora write it.
func readRules(text, sep string) (s ruleset, fixture string) {
	s.Text = text
	for part := range strings.SplitSeq(text, sep) {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		list := strings.Split(strings.ReplaceAll(value, "),", ")\x00"), "\x00")
		switch name {
		case "ro":
			s.RO = value != "off"
		case "allow":
			s.Allow = list
		case "ask":
			s.Ask = list
		case "deny":
			s.Deny = list
		case "mode":
			if value != "headless" {
				s.Mode = value
			}
		case "fixture":
			fixture = value
		}
	}
	return s, fixture
}

// more are sets that every line is tried with, beside its own.
var more = []string{
	"ro=on",
	"ro=on; allow=Bash(ls:*),Bash(cat:*),Bash(echo:*),Bash(find:*),Bash(rg:*),Bash(sed -n:*),Bash(sort:*),Bash(awk:*),Bash(grep:*)," +
		"Bash(diff:*),Bash(git log:*),Bash(git diff:*),Bash(git show:*),Bash(git grep:*),Bash(git status),Bash(less:*)",
	"ro=on; deny=Read(./.env),Read(./secrets/**),Read(~/.ssh/**)",
	"ro=on; deny=Bash(touch:*),Bash(curl:*),Bash(rm:*),Read(./.env)",
	"ro=on; mode=acceptEdits; deny=Read(./secrets/**)",
	"ro=on; allow=Read; deny=Read(./secrets/**)",
}

// wide are sets that cover every command.
var wide = []string{
	"allow=Bash; deny=Bash(touch:*),Bash(tee:*),Bash(cat:*),Read(./.env),Read(./secrets/**)",
	"mode=bypassPermissions; deny=Bash(touch:*),Bash(tee:*),Bash(cat:*),Read(./.env),Read(./secrets/**)",
}

// optioned is a program with the options that are known of it.
type optioned struct {
	Head    string   `json:"head"`
	Options []string `json:"options"`
}

// corpus is all that lines are made of.
type corpus struct {
	Script string    `json:"script"` // builds a workspace
	Sets   []ruleset `json:"sets"`
	Seeds  []seed    `json:"seeds"`
	More   int       `json:"more"` // so many sets at the beginning are for all lines
	Heads  []string  `json:"programs"`
	// What testdata says of them, and of commands of git.
	Options []optioned `json:"options"`
}

// readCorpora reads every corpus there is; one outside of this repository may be
// missing.
func readCorpora(t testing.TB) corpus {
	t.Helper()
	script, err := os.ReadFile("../../internal/policy/testdata/fixture.sh")
	if err != nil {
		t.Fatal(err)
	}
	c := corpus{Script: string(script), Heads: []string{"git", "find", "xargs", "printenv", "pip", "pip3", "tar", "date", "test", "["}}
	c.tables(t)
	sets := map[string]int{}
	set := func(text, sep string) (int, string) {
		s, fixture := readRules(text, sep)
		n, ok := sets[text]
		if !ok {
			n = len(c.Sets)
			sets[text], c.Sets = n, append(c.Sets, s)
		}
		return n, fixture
	}
	for _, text := range slices.Concat(more, wide) {
		set(text, "; ")
	}
	c.More = len(c.Sets)
	seen := map[string]bool{}
	own := "../../internal/policy/testdata/"
	for _, file := range []string{own + "bash.tsv", own + "doubt.tsv", own + "everyday.tsv", own + "protected.tsv", own + "readonly.tsv", "../../../shared/corpus/permissions/bash.tsv"} {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Logf("NOT TRIED: the lines of %s: %v", file, err)
			continue
		}
		for i, text := range strings.Split(strings.TrimSpace(string(data)), "\n")[1:] {
			f := strings.Split(text, "\t")
			line, err := strconv.Unquote(f[1])
			if err != nil {
				t.Fatalf("%s:%d: %v", file, i+2, err)
			}
			if n, fixture := set(f[0], "; "); !seen[text] {
				seen[text] = true
				c.Seeds = append(c.Seeds, seed{line, n, fixture})
			}
		}
	}
	data, err := os.ReadFile(own + "ours.tsv")
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range strings.Split(strings.TrimSpace(string(data)), "\n") {
		f := strings.SplitN(text, "\t", 3)
		n, _ := set(f[1], ";")
		c.Seeds = append(c.Seeds, seed{strings.NewReplacer(`\\`, `\`, `\n`, "\n", `\t`, "\t").Replace(f[2]), n, ""})
	}
	return c
}

// tables reads what permit knows of programs. Those that need a rule are not of
// interest.
func (c *corpus) tables(t testing.TB) {
	for file, git := range map[string]string{"testdata/programs.txt": "", "testdata/git.txt": "git "} {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		groups := map[string][]string{}
		group := ""
		var now []int
		for line := range strings.SplitSeq(string(data), "\n") {
			head, rest, _ := strings.Cut(line, ":")
			f := strings.Fields(head)
			switch {
			case line == "" || line[0] == '#':
				continue
			case line[0] == ' ':
				rest = line
			case line[0] == '@':
				group, now = head, nil
			case len(f) < 2 || f[1] == "rule":
				now, group = nil, "none"
			default:
				group, now = "", nil
				name := f[0]
				if git != "" && len(f) > 2 && !slices.Contains([]string{"revs", "none", "list", "one", "never", "config"}, f[1]) {
					name += " " + f[1]
				}
				for n := range strings.SplitSeq(name, ",") {
					now = append(now, len(c.Options))
					c.Options = append(c.Options, optioned{Head: git + n})
					if git == "" {
						c.Heads = append(c.Heads, n)
					}
				}
			}
			for token := range strings.FieldsSeq(rest) {
				options := groups[token]
				if token[0] != '@' {
					options = named(token)
				}
				if group != "" {
					groups[group] = append(groups[group], options...)
				}
				for _, i := range now {
					c.Options[i].Options = append(c.Options[i].Options, options...)
				}
			}
		}
	}
	slices.SortFunc(c.Options, func(a, b optioned) int { return strings.Compare(a.Head, b.Head) })
}

// named are the options of one word of the tables. One with a value ends in = or
// in a blank.
func named(token string) []string {
	token = strings.TrimLeft(token, "!%")
	name := strings.TrimRight(token, ":=?^~*+rn")
	marks := token[len(name):]
	if strings.HasPrefix(token, "--") {
		for len(marks) > 0 && (marks[0] == 'r' || marks[0] == 'n') { // of the name
			name, marks = name+marks[:1], marks[1:]
		}
		if marks != "" && strings.ContainsAny(marks, ":=?") {
			name += "="
		}
		return []string{name}
	}
	if strings.ContainsAny(marks, ":?") {
		return []string{name + " "}
	}
	var out []string
	for _, letter := range strings.TrimPrefix(name+marks, "-") {
		out = append(out, "-"+string(letter))
	}
	return out
}

func (s seed) String() string { return fmt.Sprintf("%q", s.Line) }
