package modelwire

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// The table in the manual is the one that is followed. UPDATE=1 writes it anew.
func TestRules(t *testing.T) {
	const page, begin, end = "../../../docs/reliability.md", "<!-- model-failures -->\n", "<!-- end of model-failures -->"
	raw, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, found := strings.Cut(string(raw), begin)
	old, tail, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("%s has no place for the table", page)
	}
	want := rulesTable()
	if old == want {
		return
	}
	if os.Getenv("UPDATE") == "" {
		t.Fatalf("%s is stale (run: UPDATE=1 go test ./internal/model/modelwire -run TestRules)", page)
	}
	if err := os.WriteFile(page, []byte(head+begin+want+end+tail), 0o644); err != nil {
		t.Fatal(err)
	}
}

func rulesTable() string {
	var b strings.Builder
	b.WriteString("| kind | when | calls at most |\n|---|---|---|\n")
	for _, r := range rules() {
		fmt.Fprintf(&b, "| `%s` | %s | %d |\n", r.kind, r.when, r.tries)
	}
	return b.String()
}

// A failure of a kind that is not in the table is not tried again.
func TestRuleOf(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range rules() {
		if seen[r.kind] || r.tries < 1 || r.when == "" {
			t.Errorf("rule %+v", r)
		}
		seen[r.kind] = true
	}
	if ruleOf("overloaded").tries != maxTries || ruleOf("unreachable").tries != maxDials || ruleOf("auth").tries != 1 ||
		ruleOf("later").tries != 1 {
		t.Error("the rules are not found by their kinds")
	}
}
