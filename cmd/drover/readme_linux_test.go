package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// The README works as it is written: its commands run, and what it links to exists.
func TestReadme(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	all := recipes(t, "../../README.md")
	if fences := strings.Count(string(text), "\n```") / 2; len(all) != 4 || fences != 4 {
		t.Errorf("%d blocks of commands under %d headings, want 4: each needs a test here", fences, len(all))
	}
	t.Run("links", func(t *testing.T) {
		for _, m := range regexp.MustCompile(`\]\(([^)#]+)`).FindAllStringSubmatch(string(text), -1) {
			if strings.HasPrefix(m[1], "https://") {
				continue
			}
			if _, err := os.Stat(filepath.Join("../..", m[1])); err != nil {
				t.Error(err)
			}
		}
	})
	t.Run("install", func(t *testing.T) { // what is built and tested runs elsewhere; its names are looked up here
		t.Parallel()
		for line := range strings.Lines(all["Install"]) {
			line, _, _ = strings.Cut(line, "#")
			words := strings.Fields(line)
			switch {
			case len(words) == 0:
			case words[0] == "make":
				if out, err := exec.Command("make", append([]string{"-n", "-C", "../.."}, words[1:]...)...).CombinedOutput(); err != nil {
					t.Errorf("%s: %v\n%s", line, err, out)
				}
			case words[0] == "go" && words[1] == "install":
				cmd := exec.Command("go", append([]string{"list"}, words[2:]...)...)
				cmd.Dir = "../.."
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Errorf("%s: %v\n%s", line, err, out)
				}
			default:
				t.Errorf("nothing tests %q", line)
			}
		}
	})
	bin := build(t)
	for heading, test := range map[string]struct {
		model map[string][]step
		want  []string
	}{
		"Run and wait": {nil, []string{"make serve", "all tests pass", "passed", "STOPPED"}},
		"Worktree, diff, merge": {map[string][]step{"general-purpose": {
			calls("Read", map[string]any{"file_path": "test.sh"}),
			calls("Edit", map[string]any{"file_path": "test.sh", "old_string": "exit 1", "new_string": "echo all tests pass"}),
			calls("Bash", bash("make test")), says("The test is fixed."),
		}}, []string{"The test is fixed.", "+echo all tests pass", "merged to main as"}},
	} {
		t.Run(strings.Fields(heading)[0], func(t *testing.T) {
			t.Parallel()
			p := readmePlace(t, bin, heading == "Run and wait")
			p.model(test.model)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", all[heading])
			cmd.Dir, cmd.Env, cmd.WaitDelay = p.dir, p.env, time.Second
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("%v in:\n%s", err, out)
			}
			for _, want := range test.want {
				if !strings.Contains(string(out), want) {
					t.Errorf("no %q in:\n%s", want, out)
				}
			}
		})
	}
	t.Run("conversation", func(t *testing.T) {
		t.Parallel()
		if _, err := exec.LookPath("tmux"); err != nil {
			t.Skip("SKIPPED: tmux is not on the PATH, so no conversation is opened")
		}
		p := readmePlace(t, bin, false)
		p.model(map[string][]step{"main": {says("The answer.")}})
		g := newGlass(t, p)
		g.open("100", "40", "sh")
		for line := range strings.Lines(all["Conversation, detach, attach"]) {
			if command, _, _ := strings.Cut(line, "#"); strings.TrimSpace(command) != "" {
				g.types("0", "clear; "+strings.TrimSpace(command)+"; echo exit code $?")
				switch strings.TrimSpace(command) {
				case "drover":
					g.shows("0", "────", "-exit code")
					g.types("0", "a question")
					g.shows("0", "The answer.", "-esc interrupts")
					g.leaves("0", "exit code 0")
				case "drover attach":
					g.shows("0", "────", "The answer.")
					g.leaves("0", "exit code 0")
				default:
					g.shows("0", "exit code 0")
				}
			}
		}
	})
}

// readmePlace is a repository whose tests pass or fail.
func readmePlace(t *testing.T, bin string, passes bool) *place {
	p := newPlace(t, bin)
	p.file("Makefile", "serve:\n\tsleep 600\ntest:\n\tsh test.sh\n")
	p.file("test.sh", map[bool]string{true: "echo all tests pass\n", false: "exit 1\n"}[passes])
	for _, args := range [][]string{{"init", "-q", "-b", "main", "."}, {"config", "user.name", "you"}, {"config", "user.email", "you@localhost"},
		{"add", "."}, {"commit", "-qm", "start"}} {
		cmd := exec.Command("git", args...)
		cmd.Dir, cmd.Env = p.dir, p.env
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %q: %v\n%s", args, err, out)
		}
	}
	return p
}
