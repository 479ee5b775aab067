//go:build linux

// Package mutants puts known faults into Drover and looks whether the tests
// see them.
//
// Each mutant is one deliberate fault, written as exact replacements in our own
// files, and names the tests that must fail of it. It is built by itself, with an
// overlay of the compiler: the tree is never touched. A replacement that does not
// fit the tree is an error, and so is a test that passes. docs/reliability.md has
// the table; `make mutants` runs them all; `go test ./test/mutants` two of them, and
// looks whether all fit.
package mutants

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// What a run is asked for. MUTANTS=all: every mutant; MUTANT: those whose names
// the pattern fits.
const (
	allVariable  = "MUTANTS"
	someVariable = "MUTANT"
)

// chosen are those of the short form: one of the engine and one of the files.
const chosen = `^(thaw-first|torn-line)$`

// patience bounds one run of one test, with the building before it.
const patience = 5 * time.Minute

// mutant is one fault.
type mutant struct {
	name  string // one or two words
	says  string // what the program does wrong
	edits []edit
	tests []string // folder:TestName, or the path of a script: all of them must fail
}

// edit replaces a text that must be in the file exactly once.
type edit struct{ file, old, new string }

// mutate gives the content of a file with the edit made.
func (e edit) mutate(content string) (string, error) {
	switch n := strings.Count(content, e.old); {
	case n != 1:
		return "", fmt.Errorf("%s has %d times, and not once:\n%s", e.file, n, e.old)
	case e.old == e.new:
		return "", fmt.Errorf("%s: nothing is replaced", e.file)
	}
	return strings.Replace(content, e.old, e.new, 1), nil
}

// apply gives the mutated files, by their paths below the root.
func (m mutant) apply(root string) (map[string]string, error) {
	files := map[string]string{}
	for _, e := range m.edits {
		content, seen := files[e.file]
		if !seen {
			data, err := os.ReadFile(filepath.Join(root, e.file))
			if err != nil {
				return nil, err
			}
			content = string(data)
		}
		content, err := e.mutate(content)
		if err != nil {
			return nil, err
		}
		if _, err := parser.ParseFile(token.NewFileSet(), e.file, content, parser.SkipObjectResolution); err != nil {
			return nil, err
		}
		files[e.file] = content
	}
	if len(files) == 0 {
		return nil, errors.New("it changes nothing")
	}
	return files, nil
}

// overlay writes the mutated files where the compiler is told to look for them.
func overlay(dir, root string, files map[string]string) (string, error) {
	replace := map[string]string{}
	for file, content := range files {
		to := filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
		if err := os.WriteFile(to, []byte(content), 0o600); err != nil {
			return "", err
		}
		replace[filepath.Join(root, file)] = to
	}
	data, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	to := filepath.Join(dir, "overlay.json")
	return to, os.WriteFile(to, data, 0o600)
}

// verdict is what a run of one test says.
type verdict int

const (
	passes verdict = iota
	fails
	void // it was not built, or there is no such test
)

// try runs one test, with an overlay or without.
func try(ctx context.Context, root, over, ref string) (verdict, string) {
	ctx, done := context.WithTimeout(ctx, patience)
	defer done()
	folder, pattern := selection(ref)
	// Not from the cache: it knows nothing of programs that a test builds.
	args := []string{"go", "test", "-run", pattern, "-vet", "off", "-count", "1", "-timeout", "120s", "./" + folder}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	if contained(ctx) {
		cmd = exec.CommandContext(ctx, "unshare", append([]string{"-pf", "--mount-proc", "--kill-child", "sh", "-c", `"$@"; exit $?`, "sh"}, args...)...)
	}
	cmd.Dir, cmd.Env, cmd.WaitDelay = root, os.Environ(), 10*time.Second
	if over != "" { // of the tests too, which build the program themselves
		cmd.Env = append(cmd.Env, "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -overlay="+over))
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return judge(err, out.String()), out.String()
}

func judge(err error, out string) verdict {
	if regexp.MustCompile(`\[(build|setup) failed\]|\[no tests to run\]|\[no test files\]|build the program:`).MatchString(out) {
		return void
	}
	var exit *exec.ExitError
	switch {
	case err == nil:
		return passes
	case errors.As(err, &exit) && exit.ExitCode() == 1 && strings.Contains(out, "FAIL"):
		return fails
	}
	return void
}

// contained reports whether what a failing test leaves behind can be ended with
// the process namespace that it lived in.
func contained(ctx context.Context) bool {
	return exec.CommandContext(ctx, "unshare", "-pf", "--mount-proc", "--kill-child", "true").Run() == nil
}

// selection is the folder and the pattern of a reference as docs/rows.md has them.
func selection(ref string) (folder, pattern string) {
	if path.Ext(ref) == ".txtar" {
		return strings.TrimSuffix(path.Dir(ref), "/testdata/script"), "^TestScript$/^" + strings.TrimSuffix(path.Base(ref), ".txtar") + "$"
	}
	folder, name, _ := strings.Cut(ref, ":")
	return folder, "^" + strings.ReplaceAll(name, "/", "$/^") + "$"
}

func theRoot(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// asked are the mutants of this run.
func asked(t *testing.T) *regexp.Regexp {
	t.Helper()
	pattern := chosen
	switch {
	case os.Getenv(someVariable) != "":
		pattern = "^(" + os.Getenv(someVariable) + ")$"
	case os.Getenv(allVariable) == "all":
		pattern = ""
	}
	pick, err := regexp.Compile(pattern)
	if err != nil {
		t.Fatalf("%s: %v", someVariable, err)
	}
	return pick
}

// A mutant that does not fit the tree any more tests nothing.
func TestFit(t *testing.T) {
	root, names := theRoot(t), map[string]bool{}
	for _, m := range mutants() {
		t.Run(m.name, func(t *testing.T) {
			if _, err := m.apply(root); err != nil {
				t.Error(err)
			}
			if names[m.name] || m.says == "" || len(m.tests) == 0 {
				t.Error("its name is taken, it says nothing, or no test is to see it")
			}
			names[m.name] = true
		})
	}
}

// TestMutants builds each mutant that is asked for, and runs the tests that must
// see it: without the fault first, since what fails anyway sees nothing.
func TestMutants(t *testing.T) {
	pick, root := asked(t), theRoot(t)
	table := &table{loud: os.Getenv(allVariable) != "" || os.Getenv(someVariable) != ""}
	t.Run("one", func(t *testing.T) {
		for _, m := range mutants() {
			if pick.MatchString(m.name) {
				t.Run(m.name, func(t *testing.T) {
					t.Parallel()
					table.add(m, m.run(t, root))
				})
			}
		}
	})
	table.summary()
	if table.ran == 0 {
		t.Error("there is no mutant of that name")
	}
}

// run returns what each test said.
func (m mutant) run(t *testing.T, root string) []string {
	files, err := m.apply(root)
	if err != nil {
		t.Error(err)
		return []string{"does not fit"}
	}
	over, err := overlay(t.TempDir(), root, files)
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	for _, ref := range m.tests {
		what := "caught by " + ref
		if v, out := try(t.Context(), root, "", ref); v != passes {
			what = "NOT TRIED: fails without it: " + ref
			t.Errorf("without the fault: %s\n%s", ref, out)
		} else if v, out := try(t.Context(), root, over, ref); v == passes {
			what = "SURVIVES " + ref
			t.Errorf("%s passes, and yet: %s", ref, m.says)
		} else if v == void {
			what = "NOT TRIED: is not built: " + ref
			t.Errorf("with the fault: %s\n%s", ref, out)
		}
		said = append(said, what)
	}
	return said
}

// table prints what became of the mutants.
type table struct {
	loud bool

	mu  sync.Mutex
	ran int // guarded by mu, like the next
	bad int
}

func (tb *table) add(m mutant, said []string) {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	tb.ran++
	bad := 0
	for i, s := range said {
		if !strings.HasPrefix(s, "caught") {
			bad = 1
		}
		name, says := m.name, m.says
		if i > 0 {
			name, says = "", ""
		}
		if tb.loud {
			fmt.Printf("%-16s | %-86s | %s\n", name, says, s)
		}
	}
	tb.bad += bad
}

func (tb *table) summary() {
	if tb.loud {
		fmt.Printf("\n%d mutants, %d not caught\n", tb.ran, tb.bad)
	}
}
