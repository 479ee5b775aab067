package policy

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// What a bare Bash rule and the mode bypassPermissions allow, and what stands
// above them: protected files, and what a ban may speak of. Here an allow that is
// missing is an error too.
func TestAbove(t *testing.T) {
	ws := workspace(t, "")
	for _, file := range []string{"everyday.tsv", "protected.tsv", "doubt.tsv"} {
		t.Run(file, func(t *testing.T) {
			gates := map[string]*Gate{}
			for _, r := range rowsOf(t, file) {
				key := string(r.rules.Mode) + r.rules.text()
				if gates[key] == nil {
					r.rules.Cwd, r.rules.Home = ws, filepath.Join(filepath.Dir(ws), "home")
					gates[key] = gate(t, r.rules)
				}
				got := gates[key].Decide(bash(r.command))
				switch {
				case r.want == "allow" && got.Decision != Allow:
					t.Errorf("line %d: %s under %s: %q: %s", r.line, got.Decision, key, r.command, got.Reason)
				case r.want == "ask" && got.Decision == Allow:
					t.Errorf("line %d: APPROVED under %s: %q: %s", r.line, key, r.command, got.Reason)
				case got.Decision == Ask && !got.UserOnly:
					t.Errorf("line %d: a hook could allow %q under %s: %s", r.line, r.command, key, got.Reason)
				}
			}
		})
	}
}

// What only reads needs no rule, and what may use a network or run a program of
// the project needs one.
func TestReadOnly(t *testing.T) {
	ws := workspace(t, "")
	g := gate(t, Rules{Cwd: ws, Home: filepath.Join(filepath.Dir(ws), "home"), ReadOnlyAuto: true})
	for _, r := range rowsOf(t, "readonly.tsv") {
		if got := g.Decide(bash(r.command)); string(got.Decision) != r.want {
			t.Errorf("line %d: %q: %s, want %s: %s", r.line, r.command, got.Decision, r.want, got.Reason)
		}
	}
}

// A further rule that denies makes no line more allowed, and what a rule denies is
// allowed by no mode, however it is quoted.
func FuzzDeny(f *testing.F) {
	for _, file := range []string{"bash.tsv", "doubt.tsv", "protected.tsv", "everyday.tsv"} {
		for _, r := range rowsOf(f, file) {
			f.Add(r.command, uint8(r.line))
		}
	}
	dir := workspace(f, "")
	deny := []string{"Bash(curl:*)", "Bash(git push:*)", "Bash(* --force:*)", "Read(./secrets/**)", "Read(.env)", "Edit(src/**)", "Bash(rm -rf *)", "Bash(npm publish)"}
	modes := []Rules{{Mode: Bypass}, {Allow: []string{"Bash"}}, {ReadOnlyAuto: true}, {ReadOnlyAuto: true, Allow: []string{"Bash(git:*)", "Bash(make:*)", "Bash(tar:*)"}}}
	memory := NewMemory()
	var wide, narrow []*Gate
	for _, r := range modes {
		r.Cwd, r.Home, r.Memory = dir, filepath.Join(filepath.Dir(dir), "home"), memory
		wide = append(wide, gate(f, r))
		for _, one := range deny {
			r.Deny = []string{one}
			narrow = append(narrow, gate(f, r))
		}
	}
	banned := gate(f, Rules{Mode: Bypass, Cwd: dir, Memory: memory, Deny: []string{"Bash(curl:*)"}})
	rank := map[Outcome]int{Allow: 0, Ask: 1, Deny: 2}
	f.Fuzz(func(t *testing.T, line string, how uint8) {
		if len(line) > 2000 {
			return
		}
		for i, g := range narrow {
			if i%len(deny) != int(how)%len(deny) {
				continue
			}
			before, after := wide[i/len(deny)].Decide(bash(line)), g.Decide(bash(line))
			if rank[after.Decision] < rank[before.Decision] {
				t.Fatalf("%q: %v, and with %s %v", line, before, deny[i%len(deny)], after)
			}
		}
		quoted := quote("curl", uint64(how)*0x9e3779b97f4a7c15) + " x"
		for _, around := range []string{"%", "true; %", "(%)", "x=$(%)", "sh -c '%'", "env A=1 %", "xargs %", "find . -exec % \\;", "sudo -u a %", "f() { %; }; f"} {
			if around == "sh -c '%'" && strings.ContainsAny(quoted, "'") {
				continue
			}
			if v := banned.Decide(bash(strings.Replace(around, "%", quoted, 1))); v.Decision == Allow {
				t.Fatalf("%q in %q is allowed: %v", quoted, around, v)
			}
		}
	})
}

// quote writes each letter of a word in one of the ways of the shell.
func quote(word string, how uint64) string {
	var b strings.Builder
	for i, c := range word {
		text := string(c)
		switch how % 7 {
		case 0:
			b.WriteString("'" + text + "'")
		case 1:
			b.WriteString("\\" + text)
		case 2:
			b.WriteString("\"" + text + "\"")
		case 3:
			b.WriteString("$'\\x" + strconv.FormatInt(int64(c), 16) + "'")
		case 4:
			b.WriteString("${x" + strconv.Itoa(i) + ":-" + text + "}")
		case 5:
			b.WriteString("$(printf %s " + text + ")")
		default:
			b.WriteString(text)
		}
		how /= 7
	}
	return b.String()
}
