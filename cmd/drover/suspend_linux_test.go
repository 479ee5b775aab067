package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const ctrlZ = "\x1a"

// TestSuspend: Ctrl-Z in a shell holds a foreground run with its command; others are
// answered from its log meanwhile, and it goes on where it was.
func TestSuspend(t *testing.T) {
	p := newPlace(t, build(t))
	shell := p.command()
	shell.Path, shell.Args = "/bin/bash", []string{"bash", "--norc", "--noprofile", "-i"}
	if _, err := exec.LookPath(shell.Path); err != nil {
		t.Fatal(err)
	}
	s := p.sitsWith(shell)
	began := func(name, line string) {
		t.Helper()
		s.types(fmt.Sprintf("drover run --name %s -- sh -c '%s'\n", name, line))
		s.until("ready")
		for deadline := time.Now().Add(10 * time.Second); p.inspected(name).Process == nil; { // until the log has its start
			if time.Now().After(deadline) {
				t.Fatalf("the start of %s is not recorded", name)
			}
		}
	}
	began("web", `printf "rea%s\\n" dy; until [ -e go ]; do :; done; printf "do%s\\n" ne; exit 7`)
	s.types(ctrlZ)
	s.until("Stopped")
	asked := time.Now()
	listed, summary := p.run("ps", "--json"), p.run()
	if took := time.Since(asked); took > 5*time.Second {
		t.Errorf("listings take %s while a host stands still", took)
	}
	var tasks []struct {
		Name        string
		Status      string
		HostStopped bool `json:"host_stopped"`
		Process     struct{ PID int }
	}
	if err := json.Unmarshal([]byte(listed.stdout()), &tasks); err != nil || len(tasks) != 1 || !tasks[0].HostStopped || tasks[0].Status != "running" {
		t.Fatalf("listed %+v, %v", listed, err)
	}
	if !strings.Contains(summary.stdout(), "web") {
		t.Errorf("the summary: %+v", summary)
	}
	for deadline := time.Now().Add(5 * time.Second); stateOf(t, tasks[0].Process.PID) != "T"; { // it stops when it is scheduled
		if time.Now().After(deadline) {
			t.Fatalf("the command is %s and not held", stateOf(t, tasks[0].Process.PID))
		}
	}
	if err := os.WriteFile(filepath.Join(p.dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s.types("fg\n")
	s.until("done")
	s.types("echo code $?.\n")
	s.until("code 7.")

	// A stop wakes the host.
	began("other", `printf "rea%s\\n" dy; exec sleep 4881`)
	s.types(ctrlZ)
	s.until("Stopped")
	if out := p.good("stop", "other").stdout(); !strings.Contains(out, "stopped by the user") {
		t.Errorf("the receipt: %s", out)
	}
	s.types("wait; exit 0\n")
	s.leaves(0)
	if r := p.inspected("other"); r.Cause == nil || r.Cause.Actor != "user" {
		t.Errorf("%s %+v", r.Status, r.Cause)
	}
}

func stateOf(t *testing.T, pid int) string {
	t.Helper()
	stat, err := os.ReadFile(filepath.Join("/proc", fmt.Sprint(pid), "stat"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return rest[:1]
}
