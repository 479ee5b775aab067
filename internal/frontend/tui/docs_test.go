package tui

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// docs/terminal.md has every key and every command, in the words of the UI.
func TestDocs(t *testing.T) {
	const page = "../../../docs/terminal.md"
	var b strings.Builder
	where := ""
	for _, k := range Bindings() {
		if k.Where != where {
			where = k.Where
			fmt.Fprintf(&b, "\n### %s\n\n| keys | what they do |\n|---|---|\n", where)
		}
		keys := make([]string, len(k.Keys))
		for i, key := range k.Keys {
			keys[i] = "`" + key + "`"
		}
		fmt.Fprintf(&b, "| %s | %s |\n", strings.Join(keys, " "), k.Does)
	}
	b.WriteString("\nThe setting `terminal.keys` gives other keys to what is done in the conversation, by these names: ")
	var names []string
	for _, k := range Bindings() {
		if k.do != nil {
			names = append(names, "`"+k.name+"`")
		}
	}
	b.WriteString(strings.Join(names, ", ") + ".\n")
	b.WriteString("\n### Commands\n\n| command | what it does |\n|---|---|\n")
	for _, c := range commands() {
		fmt.Fprintf(&b, "| `/%s` | %s |\n", c.name, c.does)
	}
	want := b.String()
	raw, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	const mark = "<!-- keys: written by `go test ./internal/frontend/tui -run TestDocs -update` -->\n"
	head, have, ok := strings.Cut(string(raw), mark)
	if !ok {
		t.Fatalf("%s has no mark %q", page, mark)
	}
	if *update && have != want {
		if err := os.WriteFile(page, []byte(head+mark+want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if have != want {
		t.Errorf("%s does not have the keys of the UI: run the test with -update", page)
	}
}
