package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// git runs the user's git in the project.
func (p *place) git(args ...string) string {
	p.t.Helper()
	cmd := exec.Command("git", append([]string{"-c", "user.name=u", "-c", "user.email=u@localhost"}, args...)...)
	cmd.Dir, cmd.Env = p.dir, p.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		p.t.Fatalf("git %q: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// repository makes one of the project.
func (p *place) repository() {
	p.t.Helper()
	p.git("init", "-q", "-b", "main")
	p.file("a.txt", "one\n")
	p.git("add", ".")
	p.git("commit", "-qm", "first")
}

// worktrees are the checkouts and branches that are left.
func (p *place) worktrees() string {
	p.t.Helper()
	return p.git("worktree", "list", "--porcelain") + "\n" + p.git("for-each-ref", "--format=%(refname)", "refs/heads/drover", "refs/drover")
}

// Isolated agents, from outside.
func TestWorktrees(t *testing.T) {
	bin := build(t)
	edit := func(from, to string) map[string]any {
		return map[string]any{"file_path": "a.txt", "old_string": from, "new_string": to}
	}
	read := map[string]any{"file_path": "a.txt"}
	for name, test := range map[string]func(*testing.T, *place){
		"clean": func(t *testing.T, p *place) {
			p.repository()
			p.model(map[string][]step{"general-purpose": {calls("Read", read), says("nothing to do")}})
			if got := p.good("agent", "run", "general-purpose", "work", "--isolation", "worktree").stdout(); got != "nothing to do" {
				t.Errorf("stdout %q", got)
			}
			if got := p.worktrees(); strings.Count(got, "worktree ") != 1 || strings.Contains(got, "drover") {
				t.Errorf("left: %s", got)
			}
		},
		"dirty": func(t *testing.T, p *place) {
			p.repository()
			m := p.model(map[string][]step{"general-purpose": {calls("Bash", bash("echo two > a.txt; echo new > b.txt")), says("done")}})
			p.file("a.txt", "not committed\n")
			r := p.run("agent", "run", "general-purpose", "work", "--isolation=worktree", "--allowed-tools=Bash")
			if r.code != 0 || r.stdout() != "done" || !strings.Contains(r.stderr, "was kept") || !strings.Contains(r.stderr, "refs/drover/rescue/") {
				t.Fatalf("exit code %d, stdout %q, stderr %q", r.code, r.stdout(), r.stderr)
			}
			first := strings.Join(texts(t, m.Requests()[0]), "\n")
			if !strings.Contains(first, "You work in a git worktree of your own: "+filepath.Join(p.work, "state", "worktrees")) || !strings.Contains(first, "1 uncommitted change of "+p.dir) {
				t.Errorf("it was told %q", first)
			}
			if text, _ := os.ReadFile(filepath.Join(p.dir, "a.txt")); string(text) != "not committed\n" {
				t.Errorf("the user's file holds %q", text)
			}
			ref := p.git("for-each-ref", "--format=%(refname)", "refs/drover/rescue")
			if p.git("show", ref+":a.txt") != "two" || p.git("show", ref+":b.txt") != "new" {
				t.Errorf("%s is not what the agent has left", ref)
			}
		},
		"refused": func(t *testing.T, p *place) {
			p.model(map[string][]step{"general-purpose": {says("done")}})
			p.fails(1, []string{"agent", "run", "general-purpose", "work", "--isolation=worktree"}, "not in a git repository")
			p.fails(2, []string{"agent", "run", "general-purpose", "work", "--isolation=moon"}, "moon", "worktree")
		},
		"two": func(t *testing.T, p *place) {
			p.repository()
			both, edited := make(chan struct{}), make(chan struct{})
			agent := func(sort string) map[string]any {
				return map[string]any{"description": "edit", "prompt": "edit it", "subagent_type": sort, "isolation": "worktree", "run_in_background": true, "name": sort}
			}
			m := p.model(map[string][]step{
				"main": {several("Agent", agent("ada"), "Agent", agent("bob")), says("started"), says("one"), says("two")},
				"ada":  {calls("Read", read), calls("Edit", edit("one", "ada")), held(both, calls("Read", read)), says("ada is done")},
				"bob":  {held(edited, calls("Read", read)), calls("Edit", edit("one", "bob")), says("bob is done")},
			})
			r := p.start("-p", "go", "--permission-mode=acceptEdits", "--output-format=stream-json",
				`--agents={"ada":{"description":"x","prompt":"You are ada."},"bob":{"description":"x","prompt":"You are bob."}}`)
			r.until("Edited ", "ada")
			close(edited)
			r.until("Edited ", "bob")
			close(both)
			res := r.wait()
			if res.code != 0 {
				t.Fatalf("exit code %d: %s", res.code, res.stderr)
			}
			for who, other := range map[string]string{"ada": "bob", "bob": "ada"} {
				all := of(m, who)
				said := texts(t, all[len(all)-1])
				if got := count(said, `Agent "`+other+`" (`); got != 1 || count(said, "is editing the same file in another worktree: "+filepath.Join(p.work, "state", "worktrees")) != 1 {
					t.Errorf("%s is told of %s %d times: %q", who, other, got, said)
				}
			}
			mains := of(m, "main")
			said := strings.Join(texts(t, mains[len(mains)-1]), "\n")
			if strings.Count(said, "<worktree><path>"+filepath.Join(p.work, "state", "worktrees")) != 2 || strings.Count(said, "</rescue></worktree>") != 2 {
				t.Errorf("the notifications say %q", said)
			}
			if text, _ := os.ReadFile(filepath.Join(p.dir, "a.txt")); string(text) != "one\n" {
				t.Errorf("the user's file holds %q", text)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newPlace(t, bin))
		})
	}
}
