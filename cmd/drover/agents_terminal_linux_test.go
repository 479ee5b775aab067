package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"
)

// TestTerminalGone: the terminal that a detached prompt was started from goes
// while its question waits. The question goes on waiting, and nothing is allowed.
func TestTerminalGone(t *testing.T) {
	p := newPlace(t, build(t))
	p.model(map[string][]step{"main": {calls("Bash", bash("touch it")), echo}})
	person, program := terminal(t)
	cmd := p.command("-p", "-d", "go")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = program, program, program
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(person).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	id := strings.TrimSpace(line)
	q := p.asked(`"tool":"Bash"`)
	if q["session_id"] != id {
		t.Fatalf("session %q, question %v", id, q)
	}
	_ = program.Close()
	if err := person.Close(); err != nil { // whoever has this terminal gets a HUP
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	var open []object
	if err := json.Unmarshal([]byte(p.good("approvals", "--json").stdout()), &open); err != nil || len(open) != 1 || open[0]["id"] != q["id"] || p.there("it") {
		t.Errorf("open %v, %v; the file is there: %v", open, err, p.there("it"))
	}
	p.good("approvals", "deny", fmt.Sprint(q["id"]))
	holds(t, "what the model is told", p.ended(id), "permission was denied")
}
