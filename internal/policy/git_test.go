package policy

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func git(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=t", "GIT_AUTHOR_EMAIL=t@t",
		"GIT_COMMITTER_NAME=t", "GIT_COMMITTER_EMAIL=t@t")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

// What a repository says decides whether git may read unasked, and a change of it
// is seen at once.
func TestGitScan(t *testing.T) {
	ws := workspace(t, "")
	g := gate(t, Rules{Cwd: ws, ReadOnlyAuto: true})
	config, err := os.ReadFile(filepath.Join(ws, ".git/config"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, add string
		want      Outcome
	}{
		{"plain", "", Allow},
		{"remote", "[remote \"up\"]\n\turl = git@example.invalid:x\n\tfetch = +refs/heads/*:refs/remotes/up/*\n", Allow},
		{"looks", "[color]\n ui = auto\n[branch \"main\"]\n remote = up\n merge = refs/heads/main\n", Allow},
		{"alias", "[alias]\n st = !touch PWNED\n", Ask},
		{"alias-over", "[alias]\n Status = !touch PWNED\n", Ask},
		{"alias-section", "[alias \"status\"]\n command = !touch PWNED\n", Ask},
		{"include-prefix", "[include]\n path = \"%(prefix)/../work/more\"\n", Ask},
		{"signature-sign", "[format]\n pretty = %+G?\n", Ask},
		{"remerge", "[log]\n diffMerges = remerge\n", Ask},
		{"pager", "[core]\n pager = less\n[pager]\n log = x\n", Allow},
		{"comment", "# [core] fsmonitor = x\n", Allow},
		{"fsmonitor-off", "[core]\n fsmonitor = false\n", Allow},
		{"fsmonitor", "[core]\n fsmonitor = ./x\n", Ask},
		{"one-line", "[core] fsMonitor = ./x\n", Ask},
		{"quoted", "[core]\n\"fsmonitor\" = ./x\n", Ask},
		{"continued", "[user]\n name = a\\\nb\n[core]\nfsmonitor = x\n", Ask},
		{"subsection", "[filter \"a ] b\"]\n clean = ./x\n", Ask},
		{"driver", "[diff \"x\"]\n textconv = ./x\n", Ask},
		{"external", "[diff]\n external = ./x\n", Ask},
		{"merge", "[merge \"x\"]\n driver = ./x\n", Ask},
		{"ssh", "[core]\n sshCommand = ./x\n", Ask},
		{"hooks", "[core]\n hooksPath = x\n", Ask},
		{"gpg", "[gpg]\n program = ./x\n", Ask},
		{"helper", "[credential]\n helper = !x\n", Ask},
		{"signature", "[format]\n pretty = %G?\n", Ask},
		{"promisor", "[remote \"up\"]\n promisor = true\n", Ask},
		{"worktree", "[core]\n worktree = /\n", Ask},
		{"unknown", "[core]\n someday = x\n", Ask},
		{"broken", "[core\n", Ask},
		{"include", "[include]\n path = ../more\n", Ask},
		{"includeif", "[includeIf \"gitdir:/nowhere\"]\n path = ../more\n", Ask},
	} {
		t.Run(c.name, func(t *testing.T) {
			write(t, filepath.Join(ws, "more"), "[core]\n fsmonitor = ./x\n")
			write(t, filepath.Join(ws, ".git/config"), string(config)+c.add)
			if got := g.Decide(bash("git status")); got.Decision != c.want {
				t.Errorf("%q: %s (%s)", c.add, got.Decision, got.Reason)
			}
		})
	}
	write(t, filepath.Join(ws, ".git/config"), string(config))
	write(t, filepath.Join(ws, ".git/hooks/post-index-change"), "#!/bin/sh\n")
	if got := g.Decide(bash("git status")); got.Decision != Ask {
		t.Errorf("with a hook that runs when git reads: %v", got)
	}
}

// Work trees and repositories within others are looked at as git would.
func TestGitPlaces(t *testing.T) {
	ws := workspace(t, "")
	git(t, ws, "worktree", "add", "-q", "../linked")
	linked := filepath.Join(filepath.Dir(ws), "linked")
	at := gate(t, Rules{Cwd: linked, ReadOnlyAuto: true})
	if got := at.Decide(bash("git status")); got.Decision != Allow {
		t.Errorf("in a linked work tree: %v", got)
	}
	write(t, filepath.Join(ws, "inner/.git"), "gitdir: "+filepath.Join(ws, ".git/worktrees/linked")+"\n")
	foreign := gate(t, Rules{Cwd: filepath.Join(ws, "inner"), ReadOnlyAuto: true})
	if got := foreign.Decide(bash("git status")); got.Decision != Ask {
		t.Errorf("in a folder that only says it is a work tree: %v", got)
	}
	git(t, ws, "config", "core.fsmonitor", "./x")
	if got := at.Decide(bash("git log -1")); got.Decision != Ask {
		t.Errorf("in a work tree of a repository that names a program: %v", got)
	}
	git(t, ws, "config", "--unset", "core.fsmonitor")

	g := gate(t, Rules{Cwd: ws, ReadOnlyAuto: true})
	sub := filepath.Join(ws, "sub")
	git(t, ws, "init", "-q", "sub")
	git(t, sub, "commit", "-q", "--allow-empty", "-m", "x")
	git(t, ws, "add", "sub")
	if got := g.Decide(bash("git status")); got.Decision != Ask {
		t.Errorf("with a repository inside: %v", got)
	}
	git(t, sub, "config", "core.fsmonitor", "./x")
	for _, line := range []string{"git status", "git diff", "cd sub && git status", "git -C sub status"} {
		if got := g.Decide(bash(line)); got.Decision != Ask {
			t.Errorf("%s with a repository inside that names a program: %v", line, got)
		}
	}
}
