package policy

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const binaries = "/usr/local/bin:/usr/bin:/bin"

func call(tool, field, value string) agent.Call {
	input, _ := json.Marshal(map[string]string{field: value})
	return agent.Call{Name: tool, Input: input}
}

func bash(line string) agent.Call { return call("Bash", "command", line) }

func gate(t testing.TB, r Rules) *Gate {
	t.Helper()
	if r.Path == "" {
		r.Path = binaries
	}
	g, errs := New(r)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	return g
}

// workspace is a folder "proj" with some files, as the corpus expects it; a
// named fixture has planted state.
func workspace(t testing.TB, fixture string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("bash", "testdata/fixture.sh", dir, fixture)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the workspace %q: %v\n%s", fixture, err, out)
	}
	return filepath.Join(dir, "proj")
}

// splitRules parts a list at commas outside brackets.
func splitRules(s string) []string {
	return strings.Split(strings.ReplaceAll(s, "),", ")\x00"), "\x00")
}

type row struct {
	line                   int
	rules                  Rules
	fixture, command, want string
	why                    string
}

func corpus(t testing.TB) []row { return rowsOf(t, "bash.tsv") }

func rowsOf(t testing.TB, file string) []row {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	var rows []row
	for i, line := range strings.Split(strings.TrimSpace(string(data)), "\n")[1:] {
		f := strings.Split(line, "\t")
		command, err := strconv.Unquote(f[1])
		if err != nil || len(f) != 5 {
			t.Fatalf("line %d: %v", i+2, err)
		}
		r := row{line: i + 2, command: command, want: f[2], why: f[3]}
		for _, part := range strings.Split(f[0], "; ") {
			name, value, _ := strings.Cut(part, "=")
			switch name {
			case "ro":
				r.rules.ReadOnlyAuto = value == "on"
			case "allow":
				r.rules.Allow = splitRules(value)
			case "ask":
				r.rules.Ask = splitRules(value)
			case "deny":
				r.rules.Deny = splitRules(value)
			case "mode":
				if r.rules.Headless = value == "headless"; !r.rules.Headless {
					r.rules.Mode = Mode(value)
				}
			case "fixture":
				r.fixture = value
			default:
				t.Fatalf("line %d: rule set %q", i+2, f[0])
			}
		}
		rows = append(rows, r)
	}
	return rows
}

// No attack of the corpus is approved, and no ban is softened. How often
// harmless lines are asked about is printed.
func TestCorpus(t *testing.T) {
	places := map[string]string{}
	benign, asked := 0, 0
	for _, r := range corpus(t) {
		if _, ok := places[r.fixture]; !ok {
			places[r.fixture] = workspace(t, r.fixture)
		}
		r.rules.Cwd = places[r.fixture]
		r.rules.Home = filepath.Join(filepath.Dir(r.rules.Cwd), "home")
		got := gate(t, r.rules).Decide(bash(r.command))
		switch r.want {
		case "allow":
			benign++
			if got.Decision != Allow {
				asked++
				t.Logf("line %d: asked: %q: %s", r.line, r.command, got.Reason)
			}
			if got.Decision == Deny {
				t.Errorf("line %d: denied: %q: %s", r.line, r.command, got.Reason)
			}
		case "ask":
			if got.Decision == Allow {
				t.Errorf("line %d: ATTACK APPROVED: %q (%s): %s", r.line, r.command, r.why, got.Reason)
			}
		case "deny":
			if got.Decision != Deny {
				t.Errorf("line %d: BAN SOFTENED to %s: %q (%s): %s", r.line, got.Decision, r.command, r.why, got.Reason)
			}
		}
	}
	if benign == 0 {
		t.Fatal("the corpus is empty")
	}
	if asked*100 > benign*3 {
		t.Errorf("more than 3 %% of the harmless lines were asked about")
	}
	t.Logf("false questions: %d of %d harmless lines", asked, benign)
}

func TestDecide(t *testing.T) {
	ws := workspace(t, "")
	home := filepath.Join(filepath.Dir(ws), "home")
	for _, c := range []struct {
		name  string
		rules Rules
		call  agent.Call
		want  Outcome
	}{
		{"read", Rules{}, call("Read", "file_path", "a.txt"), Allow},
		{"read-sibling", Rules{}, call("Read", "file_path", ws+"-evil/x"), Ask},
		{"read-link", Rules{}, call("Read", "file_path", "link-out"), Ask},
		{"read-added", Rules{Dirs: []string{ws + "-evil"}}, call("Read", "file_path", ws+"-evil/x"), Allow},
		{"read-proc", Rules{}, call("Read", "file_path", "/proc/self/cwd/a.txt"), Deny},
		{"read-nothing", Rules{}, call("Read", "file_path", ""), Deny},
		{"banned", Rules{Deny: []string{"Read(./.env)"}}, call("Read", "file_path", "src/../.env"), Deny},
		{"banned-link", Rules{Deny: []string{"Read(./.env)"}}, call("Read", "file_path", "link-env"), Deny},
		{"banned-deep", Rules{Deny: []string{"Read(.env)"}}, call("Read", "file_path", "sub/.env"), Deny},
		{"banned-other", Rules{Deny: []string{"Read(./.env)"}}, call("Read", "file_path", ".envrc"), Allow},
		{"banned-home", Rules{Deny: []string{"Read(~/.ssh/**)"}}, call("Read", "file_path", home+"/.ssh/"), Deny},
		{"banned-bypass", Rules{Mode: Bypass, Deny: []string{"Read(./.env)"}}, call("Read", "file_path", ".env"), Deny},
		{"banned-shell", Rules{Mode: Bypass, Deny: []string{"Read(./.env)"}}, bash("tac < ./.e'n'v"), Deny},
		{"banned-grep", Rules{Deny: []string{"Read(./.env)"}}, call("Grep", "pattern", "x"), Ask},
		{"grep", Rules{}, call("Grep", "pattern", "x"), Allow},
		{"glob-out", Rules{}, call("Glob", "pattern", "{../x,a}"), Ask},
		{"edit", Rules{}, call("Edit", "file_path", "a.txt"), Ask},
		{"edit-accept", Rules{Mode: AcceptEdits}, call("Edit", "file_path", "src/new.go"), Allow},
		{"edit-outside", Rules{Mode: AcceptEdits}, call("Write", "file_path", "../outside"), Ask},
		{"edit-dangling", Rules{Mode: AcceptEdits}, call("Write", "file_path", "link-out"), Ask},
		{"edit-hook", Rules{Mode: AcceptEdits, Allow: []string{"Edit(**)"}}, call("Write", "file_path", ".git/hooks/pre-commit"), Ask},
		{"edit-hook-named", Rules{Allow: []string{"Edit(.git/hooks/pre-commit)"}}, call("Write", "file_path", ".git/hooks/pre-commit"), Allow},
		{"edit-rule", Rules{Allow: []string{"Edit(src/**)"}}, call("Write", "file_path", "src/a.go"), Allow},
		{"edit-rule-itself", Rules{Allow: []string{"Edit(src/**)"}}, call("Write", "file_path", "src"), Ask},
		{"edit-rule-prefix", Rules{Allow: []string{"Edit(src/**)"}}, call("Write", "file_path", "src-evil/a.go"), Ask},
		{"plan-edit", Rules{Mode: Plan, Allow: []string{"Edit"}}, call("Edit", "file_path", "a.txt"), Deny},
		{"plan-read", Rules{Mode: Plan}, call("Read", "file_path", "a.txt"), Allow},
		{"plan-shell", Rules{Mode: Plan, Allow: []string{"Bash(*)"}}, bash("rm a.txt"), Deny},
		{"plan-reading", Rules{Mode: Plan, ReadOnlyAuto: true}, bash("cat a.txt"), Allow},
		{"plan-rule", Rules{Mode: Plan, Allow: []string{"Bash(make:*)"}}, bash("make"), Deny},
		{"plan-redirect", Rules{Mode: Plan, ReadOnlyAuto: true, Allow: []string{"Edit(out)"}}, bash("echo x > out"), Deny},
		{"dontask", Rules{Mode: DontAsk}, bash("make"), Deny},
		{"dontask-allowed", Rules{Mode: DontAsk, Allow: []string{"Bash(make:*)"}}, bash("make test"), Allow},
		{"bypass", Rules{Mode: Bypass}, bash("x=$(rm -rf y)"), Allow},
		{"bypass-ask", Rules{Mode: Bypass, Ask: []string{"Bash(git push:*)"}}, bash("true; git push"), Ask},
		{"ban-by-value", Rules{ReadOnlyAuto: true, Deny: []string{"Read(./.env)"}}, bash("f=.env; cat \"$f\""), Ask},
		{"ban-by-glob", Rules{Allow: []string{"Bash"}, Deny: []string{"Read(./.env)"}}, bash("foo .e*"), Ask},
		{"ban-elsewhere", Rules{ReadOnlyAuto: true, Deny: []string{"Read(./.env)"}}, bash("grep -r hello src; cat a.txt"), Allow},
		{"ban-revision", Rules{ReadOnlyAuto: true, Deny: []string{"Read(./.env)"}}, bash("git show HEAD:.env"), Deny},
		{"ban-history", Rules{ReadOnlyAuto: true, Deny: []string{"Read(./.env)"}}, bash("git log -p"), Ask},
		{"ban-history-names", Rules{ReadOnlyAuto: true, Deny: []string{"Read(./.env)"}},
			bash("git log --oneline; git diff --stat; git diff -- src"), Allow},
		{"prefix-outside", Rules{Allow: []string{"Bash(cat:*)"}}, bash("cat ../outside"), Ask},
		{"exact-outside", Rules{Allow: []string{"Bash(cat ../outside)"}}, bash("cat ../outside"), Allow},
		{"task", Rules{Allow: []string{"TaskOutput"}}, call("TaskOutput", "task_id", "b12345678"), Allow},
		{"task-path", Rules{Allow: []string{"TaskOutput"}}, call("TaskOutput", "task_id", "../x"), Deny},
		{"ask-before-allow", Rules{Allow: []string{"Bash(git push:*)"}, Ask: []string{"Bash(git push:*)"}}, bash("git push"), Ask},
		{"deny-before-ask", Rules{Ask: []string{"Bash"}, Deny: []string{"Bash(rm:*)"}}, bash("rm x"), Deny},
		{"star-rule", Rules{Allow: []string{"Bash(npm run test *)"}}, bash("npm run test unit"), Allow},
		{"star-rule-other", Rules{Allow: []string{"Bash(npm run test *)"}}, bash("npm run tests"), Ask},
		{"exact", Rules{Allow: []string{"Bash(make test)"}}, bash("make test clean"), Ask},
		{"write-rule", Rules{Allow: []string{"Bash(make:*)", "Edit(log)"}}, bash("make > log 2>&1"), Allow},
		{"deny-inner-star", Rules{Mode: Bypass, Deny: []string{"Bash(git push * --force:*)"}}, bash("git push origin main --force"), Deny},
		{"deny-mention", Rules{Mode: Bypass, Deny: []string{"Bash(curl:*)"}}, bash("echo curl; grep curl a.txt"), Allow},
		{"deny-joined", Rules{Mode: Bypass, Deny: []string{"Bash(curl:*)"}}, bash("echo ${x:-$\\\n(curl x)}"), Deny},
		{"deny-comment", Rules{Mode: Bypass, Deny: []string{"Bash(curl:*)"}}, bash("echo # \\\ncurl x"), Deny},
		{"deny-fed", Rules{Mode: Bypass, Deny: []string{"Bash(curl:*)"}}, bash("echo 'curl x' | sh"), Deny},
		{"deny-heredoc", Rules{Mode: Bypass, Deny: []string{"Bash(curl:*)"}}, bash("bash <<'E'\ncurl x\nE"), Deny},
		{"deny-path", Rules{Mode: Bypass, Deny: []string{"Bash(curl:*)"}}, bash("/usr/bin/curl x"), Deny},
		{"deny-long", Rules{Mode: Bypass, Deny: []string{"Bash(curl:*)"}}, bash(strings.Repeat("true; ", 5000) + "curl x"), Deny},
		{"deny-broken", Rules{Mode: Bypass, Deny: []string{"Bash(curl:*)"}}, bash("(curl x"), Deny},
		{"brace-bomb", Rules{Deny: []string{"Bash(curl:*)"}, Allow: []string{"Bash(*)"}}, bash("echo " + strings.Repeat("{a,b}",
			40) + " {1..999999999}"), Allow},
		{"brace-bomb-command", Rules{Deny: []string{"Bash(curl:*)"}, Allow: []string{"Bash(*)"}}, bash(strings.Repeat("{a,b}", 40) + " x"), Ask},
		{"two-commands", Rules{Allow: []string{"Bash(ls:*)"}}, agent.Call{Name: "Bash",
			Input: json.RawMessage(`{"command":"ls","Command":"rm x"}`)}, Deny},
		{"two-paths", Rules{Mode: AcceptEdits}, agent.Call{Name: "NotebookEdit",
			Input: json.RawMessage(`{"file_path":"a.txt","notebook_path":"/etc/x"}`)}, Deny},
		{"no-json", Rules{Allow: []string{"Bash"}}, agent.Call{Name: "Bash", Input: json.RawMessage(`ls`)}, Deny},
		{"web", Rules{Allow: []string{"WebFetch(domain:example.org)"}}, call("WebFetch", "url", "https://docs.Example.org/x"), Allow},
		{"web-suffix", Rules{Allow: []string{"WebFetch(domain:example.org)"}}, call("WebFetch", "url", "https://evilexample.org/"), Ask},
		{"web-user", Rules{Allow: []string{"WebFetch(domain:example.org)"}}, call("WebFetch", "url", "https://example.org@evil.invalid/"), Ask},
		{"agent", Rules{Allow: []string{"Agent(explore)"}}, call("Agent", "subagent_type", "explore"), Allow},
		{"agent-other", Rules{Allow: []string{"Agent(explore)"}}, call("Agent", "subagent_type", "general"), Ask},
		{"agent-alias-ban", Rules{Deny: []string{"Agent(explore)"}}, call("Task", "subagent_type", "explore"), Deny},
		{"mcp-server", Rules{Allow: []string{"mcp__git"}}, call("mcp__git__log", "x", ""), Allow},
		{"mcp-other", Rules{Allow: []string{"mcp__git"}}, call("mcp__github__log", "x", ""), Ask},
		{"unknown", Rules{}, call("Launch", "x", ""), Ask},
		{"bash-dir", Rules{ReadOnlyAuto: true, Bash: func() string { return "/" }}, bash("cat etc/passwd"), Ask},
		{"own-path", Rules{ReadOnlyAuto: true, Path: ws + ":" + binaries}, bash("cat a.txt"), Ask},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.rules.Cwd, c.rules.Home = ws, home
			if got := gate(t, c.rules).Decide(c.call); got.Decision != c.want {
				t.Errorf("%s: %s (%s); want %s", c.call.Input, got.Decision, got.Reason, c.want)
			}
		})
	}
}

// A ban that is wrong bans more, never less, and an allow rule that is wrong
// allows nothing.
func TestWrongRules(t *testing.T) {
	for _, text := range []string{"", "(x)", "Bash(", "Bash()", "Read({a,{b,{c,{d,e}}}})", "Read([)", "WebFetch(example.org)", "Read(~/x)"} {
		ban, errs := New(Rules{Cwd: t.TempDir(), Path: binaries, Mode: Bypass, Deny: []string{text}})
		if len(errs) != 1 {
			t.Errorf("deny %q: %v", text, errs)
		}
		tool, _, _ := strings.Cut(text, "(")
		if tool == "" {
			tool = "Anything"
		}
		if got := ban.Decide(agent.Call{Name: tool, Input: json.RawMessage(`{"command":"ls","file_path":"x"}`)}); got.Decision != Deny {
			t.Errorf("deny %q: %v", text, got)
		}
		grant, errs := New(Rules{Cwd: t.TempDir(), Path: binaries, Allow: []string{text}})
		if len(errs) != 1 {
			t.Errorf("allow %q: %v", text, errs)
		}
		if got := grant.Decide(bash("make")); got.Decision == Allow {
			t.Errorf("allow %q: %v", text, got)
		}
	}
	if _, errs := New(Rules{Cwd: "/", Mode: "everything"}); len(errs) != 1 {
		t.Errorf("an unknown mode: %v", errs)
	}
}

func TestCheck(t *testing.T) {
	ws := t.TempDir()
	var asked task.Question
	answer := func(reply task.Reply, err error) func(context.Context, task.Question) (task.Reply, error) {
		return func(_ context.Context, q task.Question) (task.Reply, error) { asked = q; return reply, err }
	}
	broken := errors.New("broken")
	for _, c := range []struct {
		name  string
		rules Rules
		allow bool
		text  string
		err   error
	}{
		{"yes", Rules{Answer: answer(task.Reply{Allow: true}, nil)}, true, "", nil},
		{"no", Rules{Answer: answer(task.Reply{Reason: "not today"}, nil)}, false, "not today", nil},
		{"late", Rules{Answer: answer(task.Reply{Reason: "nobody answered within 10m0s"}, nil)}, false,
			"nobody answered within 10m0s: no rule allows make (allow with Bash(make))", nil},
		{"no-word", Rules{Answer: answer(task.Reply{}, nil)}, false, "denied", nil},
		{"error", Rules{Answer: answer(task.Reply{}, broken)}, false, "", broken},
		{"headless", Rules{Headless: true, Answer: answer(task.Reply{Allow: true}, nil)}, false, "nobody is there", nil},
		{"nobody", Rules{}, false, "nobody is there", nil},
		{"banned", Rules{Deny: []string{"Bash(make:*)"}, Answer: answer(task.Reply{Allow: true}, nil)}, false, "Bash(make:*)", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.rules.Cwd = ws
			got, err := gate(t, c.rules).Check(t.Context(), bash("make"))
			if got.Allow != c.allow || !strings.Contains(got.Reason, c.text) || !errors.Is(err, c.err) {
				t.Errorf("Check = %+v, %v", got, err)
			}
		})
	}
	if asked.Tool != "Bash" || len(asked.Digest) != 64 || !strings.Contains(string(asked.Input), "make") {
		t.Errorf("the question was %+v", asked)
	}
}

// A hook lifts what is asked for want of a rule, and nothing else.
func TestGrant(t *testing.T) {
	ws := workspace(t, "")
	for _, c := range []struct {
		name  string
		rules Rules
		call  agent.Call
		want  Outcome
	}{
		{"unknown", Rules{}, bash("make test"), Allow},
		{"edit", Rules{}, call("Edit", "file_path", "a.txt"), Allow},
		{"dontask", Rules{Mode: DontAsk}, bash("make test"), Allow},
		{"ban", Rules{Deny: []string{"Bash(make:*)"}}, bash("make test"), Deny},
		{"question", Rules{Ask: []string{"Bash(make:*)"}}, bash("make test"), Ask},
		{"plan", Rules{Mode: Plan}, bash("make test"), Deny},
		{"shape", Rules{}, bash("$(echo make) test"), Ask},
		{"hidden", Rules{}, bash("make\u200b test"), Ask},
		{"surface", Rules{Mode: AcceptEdits}, call("Write", "file_path", ".git/hooks/pre-commit"), Ask},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.rules.Cwd = ws
			if got := gate(t, c.rules).Grant(c.call); got.Decision != c.want {
				t.Errorf("%+v; want %s", got, c.want)
			}
		})
	}
}

// An answer may bring another input, which the model is told; what is banned stays banned.
func TestChangedInput(t *testing.T) {
	for _, c := range []struct {
		input string
		allow bool
	}{
		{`{"command":"make safe"}`, true},
		{`{"command":"rm x"}`, false},
		{`{"command":"$(echo make) x"}`, true}, // the user has seen what he wrote
		{`{}`, false},
		{`{"command":"make <x> && make y"}`, true},
	} {
		answer := func(context.Context, task.Question) (task.Reply, error) {
			return task.Reply{Allow: true, Input: json.RawMessage(c.input)}, nil
		}
		got, err := gate(t, Rules{Cwd: t.TempDir(), Deny: []string{"Bash(rm:*)"}, Answer: answer}).Check(t.Context(), bash("make"))
		if err != nil || got.Allow != c.allow || c.allow && string(got.Input) != c.input || !c.allow && !strings.Contains(got.Reason,
			"not allowed") {
			t.Errorf("%s: %+v, %v", c.input, got, err)
		}
		if told := strings.Contains(got.Context, "changed your call of Bash") && strings.Contains(got.Context, c.input); told != c.allow {
			t.Errorf("%s: the model is told %q", c.input, got.Context)
		}
	}
}

// A file that a rule denies is told by what it is, not by its name.
func TestMayOpen(t *testing.T) {
	ws := workspace(t, "")
	if err := os.Link(filepath.Join(ws, ".env"), filepath.Join(ws, "other")); err != nil {
		t.Fatal(err)
	}
	g := gate(t, Rules{Cwd: ws, Deny: []string{"Read(./.env)", "Edit(src/**)"}})
	for _, c := range []struct {
		name       string
		read, edit bool
	}{{"a.txt", true, true}, {".env", false, true}, {"other", false, true}, {"link-env", false, true}, {"src/a.go", true, false}} {
		f, err := os.Open(filepath.Join(ws, c.name))
		if err != nil {
			t.Fatal(err)
		}
		if read, edit := g.MayOpen(f, false), g.MayOpen(f, true); read != c.read || edit != c.edit {
			t.Errorf("%s: read %t, edit %t", c.name, read, edit)
		}
		_ = f.Close()
	}
	if g.MayRead(filepath.Join(ws, ".env")) || g.MayRead("link-env") || !g.MayRead("a.txt") {
		t.Error("MayRead does not keep to the rules")
	}
}

// A banned program stays banned however it is quoted, and nothing panics.
func FuzzQuoted(f *testing.F) {
	for i, r := range ourRows(f) {
		f.Add(r.line, uint64(i)*0x9e3779b97f4a7c15)
	}
	for _, r := range corpus(f) {
		f.Add(r.command, uint64(r.line)*0x9e3779b97f4a7c15)
	}
	g := gate(f, Rules{Cwd: f.TempDir(), ReadOnlyAuto: true, Allow: []string{"Bash(*)"}, Deny: []string{"Bash(curl:*)"}})
	f.Fuzz(func(t *testing.T, line string, how uint64) {
		if first := g.Decide(bash(line)); first != g.Decide(bash(line)) {
			t.Fatalf("%q: two decisions", line)
		}
		var b strings.Builder
		for _, c := range "curl" {
			switch how % 5 {
			case 0:
				b.WriteString("'" + string(c) + "'")
			case 1:
				b.WriteString("\\" + string(c))
			case 2:
				b.WriteString("\"" + string(c) + "\"")
			case 3:
				b.WriteString("$'\\x" + strconv.FormatInt(int64(c), 16) + "'")
			default:
				b.WriteString("\\\n" + string(c))
			}
			how /= 5
		}
		b.WriteString(" x")
		for _, around := range []string{"%", "true; %", "true | %", "(%)", "if %; then :; fi", "x=$(%)", "echo `true` $(%)", "! %", "nohup %",
			"timeout -k 1 5 %", "for i in a; do %; done"} {
			if got := g.Decide(bash(strings.Replace(around, "%", b.String(), 1))); got.Decision != Deny {
				t.Fatalf("%q in %q: %v", b.String(), around, got)
			}
		}
	})
}

func (r Rules) text() string { return strings.Join(slices.Concat(r.Allow, r.Ask, r.Deny), " ") }

// A program of /bin is not trusted where commands may write it.
func TestProgramOfTheSystem(t *testing.T) {
	for dir, want := range map[string]Outcome{workspace(t, ""): Allow, "/": Ask, "/usr": Ask} {
		g := gate(t, Rules{Cwd: dir, Home: "/home/user", Path: "/opt/none", ReadOnlyAuto: true})
		if v := g.Decide(bash("/bin/ls")); v.Decision != want {
			t.Errorf("/bin/ls in %s: %s (%s), want %s", dir, v.Decision, v.Reason, want)
		}
	}
}
