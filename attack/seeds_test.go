//go:build linux && (amd64 || arm64)

package attack

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/drover-dev/drover/internal/permit"
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

func (s ruleset) rules(w *world) permit.Rules {
	return permit.Rules{Mode: permit.Mode(s.Mode), Allow: s.Allow, Ask: s.Ask, Deny: s.Deny, ReadOnlyAuto: s.RO,
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
	"ro=on; allow=Bash(ls:*),Bash(cat:*),Bash(echo:*),Bash(find:*),Bash(rg:*),Bash(sed -n:*),Bash(sort:*),Bash(awk:*),Bash(grep:*),Bash(tar:*)," +
		"Bash(diff:*),Bash(git log:*),Bash(git diff:*),Bash(git show:*),Bash(git grep:*),Bash(git status),Bash(less:*),Bash(man:*),Bash(nm:*)",
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

// corpus is all that lines are made of.
type corpus struct {
	Script string    `json:"script"` // builds a workspace
	Sets   []ruleset `json:"sets"`
	Seeds  []seed    `json:"seeds"`
	More   int       `json:"more"` // so many sets at the beginning are for all lines
	Heads  []string  `json:"programs"`
}

// readCorpora reads every corpus there is; one outside of this repository may be
// missing.
func readCorpora(t testing.TB) corpus {
	t.Helper()
	script, err := os.ReadFile("../internal/permit/testdata/fixture.sh")
	if err != nil {
		t.Fatal(err)
	}
	c := corpus{Script: string(script), Heads: programs(t)}
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
	for _, file := range []string{"../internal/permit/testdata/bash.tsv", "../../shared/corpus/permissions/bash.tsv"} {
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
	data, err := os.ReadFile("../internal/permit/testdata/ours.tsv")
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

// programs are the names in the table of permit that no rule is needed for.
func programs(t testing.TB) []string {
	data, err := os.ReadFile("../internal/permit/programs.txt")
	if err != nil {
		t.Fatal(err)
	}
	out := []string{"git", "find", "tar", "date", "test", "["}
	for line := range strings.SplitSeq(string(data), "\n") {
		head, _, ok := strings.Cut(line, ":")
		f := strings.Fields(head)
		if !ok || len(f) < 2 || strings.HasPrefix(line, " ") || strings.HasPrefix(line, "#") || f[1] == "rule" {
			continue
		}
		out = append(out, strings.Split(f[0], ",")...)
	}
	return out
}

func (s seed) String() string { return fmt.Sprintf("%q", s.Line) }
