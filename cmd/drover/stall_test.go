package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/drover-dev/drover/test/modeltest"
)

// Commands that wait for an answer which nobody gives.
func TestStall(t *testing.T) {
	bin := build(t)
	for name, test := range map[string]func(*testing.T, *place){
		// The agent is told once, without a status, while the command runs; then it
		// stops it.
		"told": func(t *testing.T, p *place) {
			m := p.model(map[string][]step{"main": {
				calls("Bash", object{"command": "mkfifo f; printf 'Continue? [y/N] '; cat f", "run_in_background": true, "description": "asks"}),
				says("started"),
				func(r *modeltest.Request) modeltest.Answer {
					return modeltest.Call("TaskStop", object{"task_id": found(r, `ID: (b[0-9a-z]{8})\b`)})
				},
				says("stopped"),
			}})
			r := p.run("-p", "go", "--allowed-tools=Bash", set(t, object{"tasks": object{"stallAfter": "300ms"}}))
			if r.code != 0 || r.stdout() != "stopped" {
				t.Fatalf("exit code %d, stdout %q, stderr %q", r.code, r.stdout(), r.stderr)
			}
			told := strings.Join(texts(t, of(m, "main")[2]), "\n")
			i := strings.Index(told, "seems to wait for an answer")
			if i < 0 || !strings.Contains(told, "Continue? [y/N]") || strings.Contains(told, "<status>") {
				t.Errorf("it was told %q", told)
			}
			if n := len(p.tasks("-a")); n != 0 {
				t.Logf("%d tasks of other sessions", n)
			}
		},
		// An agent whose provider is silent is told of once, in the same way, and its record
		// says since when.
		"agent": func(t *testing.T, p *place) {
			held, listing := make(chan struct{}), result{}
			t.Cleanup(func() { close(held) })
			m := p.model(map[string][]step{"main": {
				calls("Agent", object{"subagent_type": "explore", "prompt": "look", "description": "looks", "run_in_background": true}),
				says("started"),
				func(r *modeltest.Request) modeltest.Answer {
					listing = p.run("ps", "--json")
					return modeltest.Call("TaskStop", object{"task_id": found(r, `<task-id>(a[0-9a-z]{8})<`)})
				},
				says("stopped"),
			}, "explore": {
				func(*modeltest.Request) modeltest.Answer { return modeltest.Answer{Wait: held} },
			}})
			r := p.run("-p", "go", "--model=sonnet", set(t, object{"agents": object{"stallAfter": "300ms"}}))
			if r.code != 0 || r.stdout() != "stopped" {
				t.Fatalf("exit code %d, stdout %q, stderr %q", r.code, r.stdout(), r.stderr)
			}
			all := of(m, "main")
			if told := strings.Join(texts(t, all[2]), "\n"); !strings.Contains(told, "is silent: nothing has been heard of it for 300ms. It waits for model") || strings.Contains(told, "<status>") {
				t.Errorf("it was told %q", told)
			}
			if n := strings.Count(string(all[len(all)-1].Body), "is silent"); n != 1 {
				t.Errorf("it was told %d times", n)
			}
			if !strings.Contains(listing.stdout(), `"last_heard":"2`) || !strings.Contains(listing.stdout(), `"summary":"Silent for 300ms: it waits for model`) {
				t.Errorf("ps: %s", listing.stdout())
			}
		},
		"batch": func(t *testing.T, p *place) {
			for file, want := range map[string]string{"waiting.txt": "waiting", "progress.txt": "progress"} {
				cases, err := os.ReadFile(filepath.Join("..", "..", "internal", "engine", "stall", "testdata", file))
				if err != nil {
					t.Fatal(err)
				}
				cmd := p.command("doctor", "stall", "--batch")
				cmd.Stdin = strings.NewReader(string(cases))
				out, err := cmd.Output()
				if err != nil {
					t.Fatal(err)
				}
				all, right := strings.Count(string(cases), "\n"), strings.Count(string(out), want+"\n")
				if strings.Count(string(out), "\n") != all || (all-right)*50 > all {
					t.Errorf("%s: %d of %d are %s", file, right, all, want)
				}
			}
			cmd := p.command("doctor", "stall", "--batch")
			cmd.Stdin = strings.NewReader("a\\qb\n")
			if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "line 1") {
				t.Errorf("a wrong escape: %v, %s", err, out)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newPlace(t, bin))
		})
	}
}
