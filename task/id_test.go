package task_test

import (
	"errors"
	"go/parser"
	"go/token"
	"regexp"
	"strings"
	"testing"

	"github.com/drover-dev/drover/task"
)

var idForm = regexp.MustCompile(`^[abrtwmdsc][0-9a-z]{8}$`)

var letters = map[task.Kind]byte{
	task.LocalBash: 'b', task.LocalAgent: 'a', task.RemoteAgent: 'r', task.InProcessTeammate: 't',
	task.LocalWorkflow: 'w', task.MonitorMCP: 'm', task.MCPTask: 'c', task.Dream: 'd',
}

func TestIDLetters(t *testing.T) {
	if len(task.Kinds()) != len(letters) {
		t.Errorf("there are %d kinds, want %d", len(task.Kinds()), len(letters))
	}
	seen := map[byte]task.Kind{task.MainSessionLetter: task.LocalAgent}
	for _, k := range task.Kinds() {
		id := task.NewID(k)
		if id[0] != letters[k] || k.Letter() != letters[k] {
			t.Errorf("%s: ID %s, want the letter %c", k, id, letters[k])
		}
		if other, twice := seen[id[0]]; twice {
			t.Errorf("%s and %s share a letter", k, other)
		}
		seen[id[0]] = k
	}
	if id := task.NewSessionID(); id[0] != 's' {
		t.Errorf("session ID %s, want the letter s", id)
	}
}

func TestIDForm(t *testing.T) {
	// Two of so many are equal once in 560 runs by chance alone; a second one is
	// no chance.
	const n, chance = 100_000, 1
	twice := 0
	seen := make(map[task.ID]bool, n)
	var count [128]int
	for range n {
		id := task.NewID(task.LocalBash)
		if !idForm.MatchString(string(id)) {
			t.Fatalf("ID %q has another form", id)
		}
		if seen[id] {
			if twice++; twice > chance {
				t.Fatalf("%d IDs came twice, %s among them", twice, id)
			}
		}
		seen[id] = true
		for i := 1; i < len(id); i++ {
			count[id[i]]++
		}
	}
	// 8n draws over 36 characters: 22,222 each, with a deviation of about 147.
	// Taking bytes modulo 36 would favour four of them by an eighth.
	for _, c := range "0123456789abcdefghijklmnopqrstuvwxyz" {
		if got := count[c]; got < 21_200 || got > 23_200 {
			t.Errorf("%c was drawn %d times, want about 22222", c, got)
		}
	}
}

// IDs are paths of output files: nobody may guess the next one and put a link
// there first.
func TestIDSource(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "id.go", nil, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, imp := range f.Imports {
		paths = append(paths, strings.Trim(imp.Path.Value, `"`))
	}
	all := " " + strings.Join(paths, " ") + " "
	if !strings.Contains(all, " crypto/rand ") || strings.Contains(all, " math/rand") {
		t.Errorf("id.go imports%s, want crypto/rand and no other randomness", all)
	}
}

func TestIDKind(t *testing.T) {
	for _, k := range task.Kinds() {
		if got, ok := task.NewID(k).Kind(); !ok || got != k {
			t.Errorf("kind of an ID of %s is %s", k, got)
		}
	}
	if got, ok := task.NewSessionID().Kind(); !ok || got != task.LocalAgent {
		t.Errorf("kind of a session is %s", got)
	}
	if got, _ := task.ID("t3a9bx2f").Kind(); got != task.InProcessTeammate {
		t.Errorf("kind of t3a9bx2f is %s", got)
	}
	for _, id := range []task.ID{"", "x00000001", "z00000001", "-"} {
		if k, ok := id.Kind(); ok {
			t.Errorf("%q has the kind %s", id, k)
		}
	}
}

func TestParseID(t *testing.T) {
	for _, k := range task.Kinds() {
		id := task.NewID(k)
		if got, err := task.ParseID(string(id)); err != nil || got != id {
			t.Errorf("ParseID(%q) = %q, %v", id, got, err)
		}
	}
	if _, err := task.ParseID(string(task.NewSessionID())); err != nil {
		t.Errorf("a session ID is refused: %v", err)
	}
	for _, s := range []string{"", "b", "b1234567", "b123456789", "z12345678", "bABCDEFGH", "b../../..", "b1234/678",
		"b1234567\x00", "b1234567\n", " b1234567", "b12345678 ", "bééééa", strings.Repeat("b", 1<<20)} {
		got, err := task.ParseID(s)
		if !errors.Is(err, task.ErrBadID) || got != "" {
			t.Errorf("ParseID(%.20q) = %q, %v", s, got, err)
		} else if len(err.Error()) > 400 {
			t.Errorf("the error repeats %d bytes of its input", len(err.Error()))
		}
	}
}

func FuzzParseID(f *testing.F) {
	for _, s := range []string{"b12345678", "s00000000", "../../etc", "b1234567\u0661", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		id, err := task.ParseID(s)
		if (err == nil) != idForm.MatchString(s) {
			t.Fatalf("ParseID(%q) = %q, %v", s, id, err)
		}
		if err == nil && string(id) != s {
			t.Fatalf("ParseID(%q) changed it to %q", s, id)
		}
	})
}

func TestRunID(t *testing.T) {
	form := regexp.MustCompile(`^run_[0-9a-z]{16}$`)
	a, b := task.NewRunID(), task.NewRunID()
	if !form.MatchString(string(a)) || a == b {
		t.Errorf("run IDs %q and %q", a, b)
	}
}

func TestOwnKind(t *testing.T) {
	for _, k := range []task.Kind{"local_cook", "nightly_report"} {
		id := task.NewID(k)
		if k.BuiltIn() || id[0] != task.OwnLetter {
			t.Errorf("%q is taken for a built-in kind: its ID is %s", k, id)
		}
		if got, err := task.ParseID(string(id)); err != nil || got != id {
			t.Errorf("ParseID(%q) = %q, %v", id, got, err)
		}
	}
}
