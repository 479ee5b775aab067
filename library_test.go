package drover_test

import (
	"bufio"
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/drover-dev/drover"
	"github.com/drover-dev/drover/internal/engine/process"
)

// dyingVariable makes this program the one that [TestKeeper] kills.
const dyingVariable = "DROVER_TEST_DIES"

func TestMain(m *testing.M) {
	drover.RunKeeper()
	if dir := os.Getenv(dyingVariable); dir != "" {
		if err := die(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		select {}
	}
	goleak.VerifyTestMain(m)
}

// die starts a command with a keeper, and says its process.
func die(dir string) error {
	keeper, err := drover.Keeper()
	if err != nil {
		return err
	}
	rt, err := drover.Open(context.Background(), drover.Config{Dir: dir, Home: filepath.Join(dir, "state"), Isolated: true, Keeper: keeper})
	if err != nil {
		return err
	}
	t, err := rt.Shell(context.Background(), drover.Shell{Line: "sleep 4711"})
	if err != nil {
		return err
	}
	for e, err := range rt.Events(context.Background(), 0) {
		if err != nil {
			return err
		}
		if e.Task.ID == t.ID && e.Task.Process != nil {
			fmt.Println(e.Task.Process.PID)
			return nil
		}
	}
	return nil
}

// A program that is killed leaves no command behind where it is its own keeper.
func TestKeeper(t *testing.T) {
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), dyingVariable+"="+t.TempDir())
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	id, err := process.Identify(pid)
	if err != nil {
		t.Fatal(err)
	}
	command, err := process.Adopt(id)
	if err != nil {
		t.Fatal(err)
	}
	defer command.Close()
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := command.Wait(ctx); err != nil && process.Alive(id) {
		t.Errorf("the command outlived the program: %v", err)
	}
}

// An isolated runtime reads nothing of the user, opens no socket and leaves nothing.
func TestIsolated(t *testing.T) {
	user, project := t.TempDir(), t.TempDir()
	for _, name := range []string{"HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR", "DROVER_HOME", "TMPDIR"} {
		t.Setenv(name, user)
	}
	for file, text := range map[string]string{filepath.Join(user, "drover", "settings.json"): "{broken", filepath.Join(project, ".drover", "settings.json"): "{broken"} {
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := drover.Open(t.Context(), drover.Config{Dir: project}); err == nil {
		t.Fatal("settings that cannot be read are taken")
	}
	rt, err := drover.Open(t.Context(), drover.Config{Dir: project, Isolated: true})
	if err != nil {
		t.Fatal(err)
	}
	r, err := rt.Shell(t.Context(), drover.Shell{Line: "true"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := rt.Wait(t.Context(), r.ID); err != nil {
		t.Fatal(err)
	}
	files := func() (all []string) {
		_ = filepath.WalkDir(user, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Type()&fs.ModeSocket != 0 {
				t.Errorf("there is a socket %s", path)
			}
			if !d.IsDir() {
				all = append(all, path)
			}
			return err
		})
		return all
	}
	files()
	if err := rt.Close(); err != nil {
		t.Fatal(err)
	}
	if left := files(); len(left) != 1 {
		t.Errorf("left behind: %q", left)
	}
}

// Each exported function and method of the packages that programs open has an example that runs.
func TestExamples(t *testing.T) {
	found, wanted := map[string]bool{}, map[string]bool{}
	paths, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	more, err := filepath.Glob("agents/*.go")
	if err != nil || len(more) == 0 {
		t.Fatal(more, err)
	}
	paths = append(paths, more...)
	for _, path := range paths {
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			switch {
			case !ok:
			case strings.HasSuffix(path, "_test.go"):
				if strings.HasPrefix(fn.Name.Name, "Example") && fn.Recv == nil {
					ast.Inspect(fn.Body, func(n ast.Node) bool {
						if sel, ok := n.(*ast.SelectorExpr); ok {
							found[sel.Sel.Name] = true
						}
						return true
					})
				}
			case fn.Name.IsExported():
				wanted[fn.Name.Name] = true
			}
		}
	}
	for name := range wanted {
		if !found[name] {
			t.Errorf("no example uses %s", name)
		}
	}
}
