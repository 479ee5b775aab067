package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/commands anew")

const dir = "../../../../docs/commands"

// The reference is what the program says.
func TestPages(t *testing.T) {
	if *update {
		if err := run([]string{"pages", dir}); err != nil {
			t.Fatal(err)
		}
	}
	want, err := pages()
	if err != nil {
		t.Fatal(err)
	}
	for name, page := range want {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !bytes.Equal(got, page) {
			t.Errorf("docs/commands/%s is not what the program says (run `make docs`): %v", name, err)
		}
	}
	there, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range there {
		if want[e.Name()] == nil {
			t.Errorf("docs/commands/%s is of no command", e.Name())
		}
	}
}

// Packages have a page for each command and a script for each shell.
func TestPackages(t *testing.T) {
	files, err := packages()
	if err != nil {
		t.Fatal(err)
	}
	for name, has := range map[string]string{"man/drover.1": ".TH", "man/drover-ps.1": "drover ps", "man/drover-sessions-rm.1": "drover sessions rm",
		"completions/drover.bash": "drover", "completions/_drover": "#compdef drover", "completions/drover.fish": "complete -c drover"} {
		if !strings.Contains(string(files[name]), has) {
			t.Errorf("%s has no %q", name, has)
		}
	}
}
