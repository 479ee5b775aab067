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

// The README works as it is written.
func TestReadme(t *testing.T) {
	all := recipes(t, "../../README.md")
	if fences := strings.Count(document(t, "../../README.md"), "\n```") / 2; len(all) != 4 || fences != 4 {
		t.Errorf("%d blocks of commands under %d headings, want 4: each needs a test here", fences, len(all))
	}
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

// TestLinks follows the links of the README and of docs to files and headings.
func TestLinks(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(pages) < 30 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	for _, page := range append(pages, "../../README.md", "../../CONTRIBUTING.md") {
		if filepath.Base(page) == "rows.md" {
			continue // it quotes what is searched for
		}
		for _, m := range regexp.MustCompile(`\]\(([^)\s#]*)(?:#([^)\s]+))?\)`).FindAllStringSubmatch(document(t, page), -1) {
			target := page
			if strings.HasPrefix(m[1], "https:") || strings.HasPrefix(m[1], "http:") {
				continue
			} else if m[1] != "" {
				target = filepath.Join(filepath.Dir(page), m[1])
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: %v", page, err)
			} else if m[2] != "" && !headings(document(t, target))[m[2]] {
				t.Errorf("%s: %s has no heading #%s", page, m[1], m[2])
			}
		}
	}
}

func document(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// headings are the anchors of a page.
func headings(page string) map[string]bool {
	out, code := map[string]bool{}, false
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "```") {
			code = !code
		}
		if !code && strings.HasPrefix(line, "#") {
			line = strings.ToLower(strings.TrimSpace(strings.TrimLeft(line, "#")))
			out[strings.ReplaceAll(regexp.MustCompile(`[^\w\- ]`).ReplaceAllString(line, ""), " ", "-")] = true
		}
	}
	return out
}
