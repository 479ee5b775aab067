package main

import (
	"strings"
	"testing"
)

// TestForeignFlags gives flags of programs that use the Agent SDK: a system prompt from a file
// counts, and a part of a sandbox that would allow more is named and stops nothing.
func TestForeignFlags(t *testing.T) {
	p := newPlace(t, build(t))
	m := p.model(map[string][]step{"main": {says("a"), says("b"), says("c")}})
	file := p.file("system.txt", "You were written in a file.")
	for _, flag := range []string{"--system-prompt-file", "--append-system-prompt-file"} {
		p.good("-p", "go", flag, file)
		params, err := m.Requests()[m.Count()-1].Params()
		if err != nil || !strings.Contains(string(params.System), "You were written in a file.") {
			t.Errorf("%s: %s, %v", flag, params.System, err)
		}
	}
	for _, args := range [][]string{{"--system-prompt-file", file, "--system-prompt", "x"}, {"--system-prompt-file", p.file("empty.txt", " ")},
		{"--append-system-prompt-file", "nosuch.txt"}} {
		if r := p.run(append([]string{"-p", "go"}, args...)...); r.code != 2 || !strings.Contains(r.stderr, "-prompt-file") {
			t.Errorf("%q: %d, %s", args, r.code, r.stderr)
		}
	}
	r := p.run("-p", "go", "--settings", `{"sandbox":{"enabled":true,"failIfUnavailable":false,"network":{"allowLocalBinding":true}}}`)
	if r.code != 0 || !strings.Contains(r.stderr, "sandbox.network.allowLocalBinding has no effect") {
		t.Errorf("told %s", r.stderr)
	}
}
