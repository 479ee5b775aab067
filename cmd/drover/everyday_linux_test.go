package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// everydayPlace makes a folder in which what developers do every day works.
const everydayPlace = `set -e
git init -q -b main .; git config user.name t; git config user.email t@example.org
printf 'package main\n\nfunc main() {}\n' > main.go; printf 'package main\n' > old.go; printf 'module example.org/x\n\ngo 1.21\n' > go.mod
printf 'b,2\na,1\n' > data.csv; printf 'b\na\n' > a.txt; cp a.txt b.txt; cp a.txt names.txt; cp a.txt a; cp a.txt b
printf '{"name":"x","version":"1.0.0","scripts":{"test":"true","build":"true","lint":"true"}}' > package.json
printf 'all test check:\n\ttrue\n' > Makefile; printf 'name: x\n' > x.yaml; printf '# x\n' > README.md
mkdir -p src node_modules/.bin; echo x > src/x.txt; echo node_modules > .gitignore
for f in run.sh script.sh configure node_modules/.bin/tsc node_modules/.bin/jest; do printf '#!/bin/sh\ntrue\n' > $f; chmod +x $f; done
echo 'console.log(1)' > script.js; echo 'print(1)' > manage.py
git add -A; git commit -qm one; echo more >> a.txt; git commit -qam two
printf -- '--- a/b.txt\n+++ b/b.txt\n@@ -1,2 +1,2 @@\n-b\n+c\n a\n' > fix.patch
`

// TestEverydayInSandbox: of the commands with which developers look around, and build, test and edit, none is
// asked about and none meets a wall, in the sandbox of this machine. Those of programs that are not here are
// judged by TestSandboxed of package permission alone, and so are a few that last.
func TestEverydayInSandbox(t *testing.T) {
	if !wholeSandbox() {
		t.Skip("this machine has no namespaces or no Landlock of ABI 6")
	}
	p := newPlace(t, build(t))
	p.env = append(p.env, "DROVER_SANDBOX_AUTO_ALLOW=true")
	made := exec.Command("sh", "-c", everydayPlace)
	made.Dir, made.Env = p.dir, p.env
	if out, err := made.CombinedOutput(); err != nil {
		t.Fatalf("make the folder: %v\n%s", err, out)
	}
	var all []calling
	for _, line := range slices.Concat(everyday(t, "looks.txt"), everyday(t, "works.txt")) {
		if startsHere(line) {
			all = append(all, calling{"Bash", object{"command": line}})
		}
	}
	if len(all) < 60 {
		t.Errorf("%d commands are run, want 60", len(all))
	}
	cmd := p.command("-p", "--max-turns", "200", "--model", p.scripted(all), "--output-format", "stream-json", "--verbose", "go")
	var told, said strings.Builder
	cmd.Stdout, cmd.Stderr = &told, &said
	if err := cmd.Run(); err != nil || said.Len() > 0 { // it lasts as long as all the commands
		t.Fatalf("%v\nstderr: %s", err, &said)
	}
	out := told.String()
	if ran := strings.Count(out, `"type":"tool_result"`); ran != len(all) {
		t.Errorf("%d commands ran, want %d", ran, len(all))
	}
	for line := range strings.Lines(out) {
		if strings.Contains(line, "The sandbox") || strings.Contains(line, "Read-only file system") {
			t.Errorf("a wall: %s", line)
		}
	}
	for _, name := range []string{"notes.txt", "new.go", "link.go", "out.tgz", "build"} {
		if gone := !p.there(name); gone != (name == "build") {
			t.Errorf("%s: gone %v", name, gone)
		}
	}
}

// TestOneQuestion: in the sandbox, what needs the network, another folder or a protected file is one question,
// which says so.
func TestOneQuestion(t *testing.T) {
	if !wholeSandbox() {
		t.Skip("this machine has no namespaces or no Landlock of ABI 6")
	}
	p := newPlace(t, build(t))
	p.env = append(p.env, "DROVER_SANDBOX_AUTO_ALLOW=true")
	made := exec.Command("sh", "-c", "git init -q -b main . && echo b > a.txt")
	made.Dir, made.Env = p.dir, p.env
	if out, err := made.CombinedOutput(); err != nil {
		t.Fatalf("make the folder: %v\n%s", err, out)
	}
	shell := func(line string) calling { return calling{"Bash", object{"command": line}} }
	network, protected := "in the sandbox wants to connect to ", "it writes the protected file "
	var all []calling
	var want []string
	for _, c := range []struct {
		needs string // a program that may not be here
		call  calling
		asks  string
	}{
		{"curl", shell("curl -sS https://one.invalid/"), network + "one.invalid"},
		{"curl", shell("curl -sS http://two.invalid/a; curl -sS http://two.invalid/b"), network + "two.invalid"},
		{"curl", shell("for i in 1 2 3; do curl -sS https://three.invalid:8443/; done"), network + "three.invalid"},
		{"git", shell("git ls-remote https://four.invalid/x.git"), network + "four.invalid"},
		{"git", shell("git clone -q https://five.invalid/x.git"), network + "five.invalid"},
		{"python3", shell("python3 -c 'import urllib.request as u; u.urlopen(\"https://six.invalid/\")'"), network + "six.invalid"},
		{"npm", shell("npm view x --registry https://seven.invalid --fetch-retries=0"), network + "seven.invalid"},
		{"git", calling{"Bash", object{"command": "cp a.txt /var/lib/x", "outside": true, "why": "to install it"}},
			"it runs outside of the sandbox"},
		{"git", calling{"Write", object{"file_path": "/var/lib/x", "content": "x"}}, `"tool":"Write".*outside the working directories`},
		{"git", calling{"Read", object{"file_path": "/etc/passwd"}}, `"tool":"Read".*outside the working directories`},
		{"git", calling{"Glob", object{"path": "/etc", "pattern": "*"}}, `"tool":"Glob".*outside the working directories`},
		{"git", calling{"WebFetch", object{"url": "https://eight.invalid/", "prompt": "x"}}, "WebFetch(domain:eight.invalid)"},
		{"git", shell("git config user.name x"), protected + ".git/config"},
		{"git", shell("echo x > .git/hooks/pre-commit"), protected + ".git/hooks/pre-commit"},
		{"git", shell("echo 'export X=1' >> .envrc"), protected + ".envrc"},
		{"git", shell("mkdir -p .github/workflows && cp a.txt .github/workflows/ci.yml"), protected + ".github/workflows/ci.yml"},
		{"git", shell("sed -i s/a/b/ .npmrc"), protected + ".npmrc"},
		{"git", shell("tee AGENTS.md < a.txt"), protected + "AGENTS.md"},
		{"git", calling{"Write", object{"file_path": ".mcp.json", "content": "{}"}}, protected + ".mcp.json"},
		{"git", calling{"Write", object{"file_path": ".vscode/tasks.json", "content": "{}"}}, protected + ".vscode/tasks.json"},
	} {
		if _, err := exec.LookPath(c.needs); err == nil {
			all, want = append(all, c.call), append(want, c.asks)
		}
	}
	watch := p.start("approvals", "--watch", "--json", "--all-sessions")
	session := p.detached("--ask-timeout", "10m", "--model", p.scripted(all))
	for _, asks := range want {
		var q struct{ ID string }
		if err := json.Unmarshal([]byte(watch.until(strings.Split(asks, ".*")...)), &q); err != nil {
			t.Fatal(err)
		}
		p.good("approvals", "deny", q.ID)
	}
	p.ended(session)
	_ = watch.cmd.Process.Signal(syscall.SIGINT)
	if asked := watch.wait().lines; len(asked) != len(want) {
		t.Errorf("%d questions, want %d:\n%s", len(asked), len(want), strings.Join(asked, "\n"))
	}
}

// calling is a call of a scripted model.
type calling struct {
	Name  string `json:"name"`
	Input object `json:"input"`
}

// scripted is a model that makes these calls, one after the other.
func (p *place) scripted(all []calling) string {
	p.t.Helper()
	turns := []object{}
	for _, c := range all {
		turns = append(turns, object{"tools": []calling{c}})
	}
	script, err := json.Marshal(object{"version": 1, "agents": object{"main": append(turns, object{"text": "done"})}})
	if err != nil {
		p.t.Fatal(err)
	}
	at := filepath.Join(p.work, "calls.json")
	if err := os.WriteFile(at, script, 0o600); err != nil {
		p.t.Fatal(err)
	}
	return "script:" + at
}

// everyday are the commands of a list.
func everyday(t *testing.T, list string) []string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "internal", "policy", "testdata", list))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(data)), "\n")
}

// startsHere reports commands whose programs are here, that end by themselves, and soon: neither servers nor
// compilers of a large library.
func startsHere(line string) bool {
	name, _, _ := strings.Cut(line, " ")
	for _, lasts := range []string{"tail -f", "nohup", "go build", "go test", "go vet", "cargo", "rustc", "mvn", "terraform",
		"python3 -m venv", "gcc", "cmake", "swift", "dotnet", "stack", "zig", "./gradlew"} {
		if strings.HasPrefix(line, lasts) {
			return false
		}
	}
	_, err := exec.LookPath(name)
	return err == nil || strings.HasPrefix(name, "./") || strings.Contains(name, "=")
}
