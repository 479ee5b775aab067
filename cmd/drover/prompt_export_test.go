package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// promptExports are tests of conversations that leave Drover.
func promptExports() cases {
	return cases{
		"export": func(t *testing.T, p *place) {
			p.model(map[string][]step{"main": {calls("Bash", bash("echo from the tool")), says("the **answer**")}})
			p.good("-p", "the question", "--allowed-tools=Bash")
			var all []object
			if err := json.Unmarshal([]byte(p.good("sessions", "--json").stdout()), &all); err != nil || len(all) != 1 {
				t.Fatalf("%v: %v", err, all)
			}
			session := all[0]["session_id"].(string)
			page := p.good("sessions", "export", session).stdout()
			for _, want := range []string{"# Conversation of main", "the question", "**Call of Bash**", "from the tool", "the **answer**"} {
				if !strings.Contains(page, want) {
					t.Errorf("no %q in\n%s", want, page)
				}
			}
			raw, err := os.ReadFile(filepath.Join(all[0]["dir"].(string), "transcript.jsonl"))
			if err != nil {
				t.Fatal(err)
			}
			p.good("sessions", "export", "--format=jsonl", "-o", "t.jsonl", session)
			if got, err := os.ReadFile(filepath.Join(p.dir, "t.jsonl")); err != nil || string(got) != string(raw) {
				t.Errorf("%v: the lines are not those of the transcript:\n%s", err, got)
			}
			var entries []json.RawMessage
			if err := json.Unmarshal([]byte(p.good("sessions", "export", "--format=json", session).stdout()), &entries); err != nil ||
				len(entries) != strings.Count(string(raw), "\n") {
				t.Errorf("%d entries of %d, %v", len(entries), strings.Count(string(raw), "\n"), err)
			}
		},
		"exportnone": func(t *testing.T, p *place) {
			p.good("run", "--", "true")
			var all []object
			if err := json.Unmarshal([]byte(p.good("sessions", "--json").stdout()), &all); err != nil || len(all) != 1 {
				t.Fatalf("%v: %v", err, all)
			}
			p.run("sessions", "export", all[0]["session_id"].(string)).failed(t, 3, "has no conversation")
		},
	}
}
