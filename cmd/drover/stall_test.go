package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/drover-dev/drover/internal/model/modeltest"
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
		"batch": func(t *testing.T, p *place) {
			for file, want := range map[string]string{"waiting.txt": "waiting", "progress.txt": "progress"} {
				cases, err := os.ReadFile(filepath.Join("..", "..", "internal", "stall", "testdata", file))
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
