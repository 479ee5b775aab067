package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// recipes are the blocks of commands of a page, by the heading above.
func recipes(t *testing.T, page string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, part := range strings.Split(string(text), "\n## ")[1:] {
		heading, rest, _ := strings.Cut(part, "\n")
		for _, block := range strings.Split(rest, "\n```sh\n")[1:] {
			commands, _, closed := strings.Cut(block, "\n```\n")
			if !closed {
				t.Fatalf("%s: %s: a block is not closed", page, heading)
			}
			out[heading] += commands + "\n"
		}
	}
	return out
}

// The recipes work as they are written, with a model that answers.
func TestCookbook(t *testing.T) {
	all := recipes(t, "../../docs/cookbook.md")
	if len(all) != 10 {
		t.Errorf("the cookbook has %d recipes", len(all))
	}
	bin := build(t)
	want := map[string]string{
		"Run a dev server and the tests beside each other":        "42 passed",
		"Wait until a server is ready":                            "listening on 8080",
		"Run many commands and fail if one fails":                 "a job failed with exit code 3",
		"Keep a long build running while the laptop sleeps":       "built",
		"Review a change with several agents at once":             "the answer",
		"Let an agent work in a checkout of its own":              "the answer",
		"Run steps in order and go on behind the one that failed": "\n1\n",
		"Hear of errors in a log while you work":                  "the sail is torn",
	}
	for heading, commands := range all {
		t.Run(heading, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, bin)
			if err := os.WriteFile(filepath.Join(p.dir, "README.md"), []byte("# Paper boats\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			p.model(map[string][]step{"main": {says("the answer")}, "explore": {says("the answer"), says("the answer")}})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", commands)
			cmd.Dir, cmd.Env, cmd.WaitDelay = p.dir, p.env, time.Second
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.Contains(string(out), want[heading]) {
				t.Errorf("%v, want %q in:\n%s", err, want[heading], out)
			}
			p.run("stop", "--all")
		})
	}
}

// The tutorial works without a key, up to the part that needs one.
func TestTutorial(t *testing.T) {
	all := recipes(t, "../../docs/tutorial.md")
	var script strings.Builder
	for _, heading := range []string{
		"1. Run something in the background", "2. Look", "3. Wait", "4. Stop", "5. An agent that costs nothing", "7. Clean up",
	} {
		if all[heading] == "" {
			t.Fatalf("the tutorial has no part %q", heading)
		}
		script.WriteString(all[heading])
	}
	p := newPlace(t, build(t))
	cmd := exec.CommandContext(t.Context(), "bash", "-uc", script.String())
	cmd.Dir, cmd.Env = p.dir, p.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Error(err)
	}
	for _, want := range []string{"FAIL 1: the sail", `"exit_code": 1`, "exit code 1", "stopped by the user", "Files here: 1"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
}
