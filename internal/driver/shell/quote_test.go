package shell

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// A shell splits a quoted line into the same arguments.
func TestQuote(t *testing.T) {
	args := []string{"", "plain", "--flag=value", "two words", "it's", `a"b`, `back\slash`, "$HOME", "`id`", "$(id)", "a;b|c&d", "*.go", "~", "~/x",
		"#no", "!e", "{a,b}", "[x]", "tab\there", "line\nend\n", "\x1b[31m", "über", "\xff\xfe", "-", "^a", "<in", ">out", "'", "''"}
	out, err := exec.Command("bash", "-c", `printf '%s\0' `+Quote(args...)).Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00"); !slices.Equal(got, args) {
		t.Errorf("split into %q, want %q", got, args)
	}
	if line := Quote("go", "test", "./...", "-run=TestX", "über", "two words", "it's"); line != `go test ./... -run=TestX über 'two words' "it's"` {
		t.Errorf("shown as %s", line)
	}
}
