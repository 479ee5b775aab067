package main

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
)

// TestCheckIsRun: what `permissions check` says of a call is what a run of the program does with it, in the sandbox
// of this machine and without one.
func TestCheckIsRun(t *testing.T) {
	lines := []string{
		"echo ok", "make foo", "env | sort | head -1", "for f in a; do wc -l $f; done", "python3 -c 'print(1)'", "git status",
		"git config user.name x", "echo x > .git/hooks/pre-commit", "x=rm; $x a.txt", "rm -rf build", "sudo rm a.txt", "cat /etc/shadow",
		"cat vault/key", "grep -r x .", "git log -p", "tar c . | wc -c",
	}
	for _, mode := range []string{"best", "off"} {
		t.Run(mode, func(t *testing.T) {
			if mode == "best" && !wholeSandbox() {
				t.Skip("this machine has no namespaces or no Landlock of ABI 6")
			}
			p := newPlace(t, build(t))
			p.env = append(p.env, "DROVER_SANDBOX="+mode, "DROVER_SANDBOX_AUTO_ALLOW=true")
			made := exec.Command("sh", "-c", "git init -q -b main . && echo b > a.txt && mkdir .drover && "+
				`echo '{"permissions":{"deny":["Bash(rm:*)","Read(vault/**)"]}}' > .drover/settings.json`)
			made.Dir, made.Env = p.dir, p.env
			if out, err := made.CombinedOutput(); err != nil {
				t.Fatalf("make the folder: %v\n%s", err, out)
			}
			var all []calling
			for _, line := range lines {
				all = append(all, calling{"Bash", object{"command": line}})
			}
			var result struct {
				Denied []struct {
					Input struct{ Command string } `json:"tool_input"`
				} `json:"permission_denials"`
			}
			out := p.run("-p", "--max-turns", "100", "--model", p.scripted(all), "--output-format", "json", "go")
			if err := json.Unmarshal([]byte(out.stdout()), &result); err != nil {
				t.Fatalf("%v: %s", err, out.stdout())
			}
			denied := map[string]bool{}
			for _, d := range result.Denied {
				denied[d.Input.Command] = true
			}
			allowed := 0
			for _, line := range lines {
				said := p.good("permissions", "check", "Bash", line).stdout()
				if ran := !denied[line]; ran != strings.HasPrefix(said, "allow: ") {
					t.Errorf("%s: ran %v, the check says %s", line, ran, said)
				} else if ran {
					allowed++
				}
			}
			if allowed == 0 || allowed == len(lines) {
				t.Errorf("%d of %d commands ran: nothing is compared", allowed, len(lines))
			}
		})
	}
}
