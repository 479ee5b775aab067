package policy

import (
	"strings"
	"testing"
	"time"
)

// A repository that nobody trusts may deny what it likes: its rules cost no more
// time than the product of their length and that of the line.
func TestHostileRules(t *testing.T) {
	words := "x " + strings.Repeat("a ", 9_999) + "b"
	deep := "/" + strings.Repeat("a/", 1_000) + "b"
	for _, c := range []struct {
		name, rule string
		line       string
	}{
		{"stars", "Bash(* * * * * * * * c)", words},
		{"stars-prefix", "Bash(* * * * * * * * c:*)", words},
		{"stars-inside", "Bash(x a*a*a*a*a*a*a*c)", "x " + strings.Repeat("a", 9_000)},
		{"stars-open", "Bash(x *a*b*c*d*e*f*g)", `x "$y"` + strings.Repeat("a", 900) + `"$z"`},
		{"long-open", "Bash(x " + strings.Repeat("a", 4_000) + ")", "x " + strings.Repeat(`"$y"a`, 2_000)},
		{"folders", "Read(**/**/**/**/**/**/**/**/**/c)", "cat " + deep},
		{"folders-names", "Read(a*/**/a*/**/a*/**/a*/**/a*/**/c)", "cat " + deep},
		{"names", "Read(/" + strings.Repeat("*a", 40) + "c)", "cat /" + strings.Repeat("a", 3_000)},
		{"alternatives", "Read({a,b,c,d}*{a,b,c,d}**/**/x)", "cat " + deep},
		{"folders-open", "Read(" + strings.Repeat("**/a/", 200) + "c)", `cat "$x"` + deep},
		{"many-words", "Read(**/c)", "cat " + strings.Repeat("a/b ", 500)},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, _ := New(Rules{Cwd: t.TempDir(), Path: binaries, Mode: Bypass, Deny: []string{c.rule}}) // a rule that is too long is an error
			decided := make(chan struct{})
			go func() { defer close(decided); g.Decide(bash(c.line)) }()
			select {
			case <-decided:
			case <-time.After(time.Minute): // a search that is exponential takes far longer, also on an idle machine
				t.Fatal("no decision")
			}
		})
	}
}

// More rules than anybody writes are an error, and what they ban beyond the limit
// bans everything.
func TestTooManyRules(t *testing.T) {
	rules := make([]string, maxRules+1)
	for i := range rules {
		rules[i] = "Bash(x" + strings.Repeat("y", i%7) + ":*)"
	}
	g, errs := New(Rules{Cwd: t.TempDir(), Path: binaries, Deny: rules, Allow: []string{"Bash"}})
	if len(errs) != 1 || g.Decide(bash("ls")).Decision != Deny {
		t.Errorf("%v, %v", errs, g.Decide(bash("ls")))
	}
	g, _ = New(Rules{Cwd: t.TempDir(), Path: binaries, Deny: rules[1:], Allow: []string{"Bash"}})
	if v := g.Decide(bash(strings.Repeat("echo a | tee b; ", 100) + "ls")); v.Decision != Allow {
		t.Errorf("%v", v)
	}
}
