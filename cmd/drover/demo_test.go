package main

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/test/harness"
)

// TestDemo gives the tour. It ends well and in time, whatever the folder, and nothing is left of it.
func TestDemo(t *testing.T) {
	bin := build(t)
	for name, prepare := range map[string]func(*demoPlace){
		"plain": func(*demoPlace) {},
		"readonly": func(p *demoPlace) {
			p.must(os.Chmod(p.dir, 0o555))
			p.t.Cleanup(func() { p.must(os.Chmod(p.dir, 0o700)) })
		},
		"bare": func(p *demoPlace) { // no other program, not even Go
			p.only("sh", "bash", "git", "sleep")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newDemoPlace(t, bin)
			prepare(p)
			out, code := p.run()
			if code != 0 {
				t.Fatalf("exit code %d\n%s", code, out)
			}
			p.rows(out, map[string]int{
				`notified +Background command "Run the tests" failed with exit code 1$`: 1, `output-tail: .*FAIL no newline at the end: got 6, want 8`: 1,
				`^\$ drover approvals allow q`: 1, `^allowed q`: 1, `fixer +Edit total\.sh`: 1, `notified +Agent "Fix total\.sh" completed$`: 1,
				`notified +Agent "Review the fix" completed$`: 1, `result: The change is right and small: while .* \[ -n "\$name" \]; do$`: 1,
				`^\$ drover stop b`: 1, `^b\w+ +killed +stopped by the user`: 1, `^\+while .* \[ -n "\$name" \]; do$`: 1,
				`^a\w+: merged to main as \w+$`: 1, `^ok    no newline at the end$`: 1, `^FAIL `: 0, `^a\w+ +(fixer|reviewer) .* completed `: 2, "\x1b": 0,
			})
		})
	}
	t.Run("gitless", func(t *testing.T) {
		t.Parallel()
		p := newDemoPlace(t, bin)
		p.only("sh", "bash", "sleep")
		if out, code := p.run(); code != 1 || out != "drover: prepare the tour: git is not on the PATH (install git)\n" {
			t.Errorf("exit code %d: %s", code, out)
		}
	})
	t.Run("interrupt", func(t *testing.T) {
		t.Parallel()
		p := newDemoPlace(t, bin)
		cmd := p.command()
		out, err := cmd.StdoutPipe()
		p.must(err)
		p.must(cmd.Start())
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if strings.Contains(lines.Text(), "started: sh serve.sh") {
				p.must(cmd.Process.Signal(os.Interrupt))
			}
		}
		if code := exitCode(cmd.Wait()); code != 130 {
			t.Errorf("exit code %d, want 130", code)
		}
		p.clean()
	})
	t.Run("unread", func(t *testing.T) {
		t.Parallel()
		p := newDemoPlace(t, bin)
		cmd := p.command()
		out, err := cmd.StdoutPipe()
		p.must(err)
		p.must(cmd.Start())
		p.must(out.Close())
		if code := exitCode(cmd.Wait()); code != 0 {
			t.Errorf("exit code %d, want 0", code)
		}
		p.clean()
	})
	t.Run("nowhere", func(t *testing.T) {
		t.Parallel()
		p := newDemoPlace(t, bin)
		p.temp = filepath.Join(p.temp, "missing")
		cmd := p.command()
		var said bytes.Buffer
		cmd.Stderr = &said
		if code := exitCode(cmd.Run()); code != 1 || !strings.Contains(said.String(), "set TMPDIR") || strings.Count(said.String(), "\n") != 1 {
			t.Errorf("exit code %d: %s", code, &said)
		}
	})
}

// demoPlace is a folder for a tour, and all else that a tour could write to.
type demoPlace struct {
	t           *testing.T
	program     string
	work        string // the mark of all that is started here
	dir, temp   string
	tools, path string // a folder of the PATH, and the PATH
}

func newDemoPlace(t *testing.T, bin string) *demoPlace {
	t.Helper()
	work, err := os.MkdirTemp("/tmp", "dr") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	p := &demoPlace{t: t, program: filepath.Join(bin, "drover"), work: work, dir: filepath.Join(work, "a folder"), temp: filepath.Join(work, "temp"), tools: filepath.Join(work, "tools")}
	p.path = p.tools + ":" + os.Getenv("PATH")
	for _, dir := range []string{p.dir, p.temp, p.tools} {
		p.must(os.Mkdir(dir, 0o700))
	}
	t.Cleanup(func() {
		if left := finish(work); len(left) > 0 {
			t.Errorf("left running: %q", left)
		}
		p.must(os.RemoveAll(work))
	})
	return p
}

func (p *demoPlace) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

// only leaves these programs on the PATH.
func (p *demoPlace) only(names ...string) {
	p.t.Helper()
	for _, name := range names {
		path, err := exec.LookPath(name)
		p.must(err)
		p.must(os.Symlink(path, filepath.Join(p.tools, name)))
	}
	p.path = p.tools
}

func (p *demoPlace) command() *exec.Cmd {
	cmd := exec.Command(p.program, "demo")
	cmd.Dir = p.dir
	cmd.Env = []string{"PATH=" + p.path, "HOME=" + p.work, "TMPDIR=" + p.temp, "XDG_RUNTIME_DIR=" + p.temp, harness.Mark + "=" + p.work}
	return cmd
}

// run gives a whole tour and looks at what it has left.
func (p *demoPlace) run() (out string, code int) {
	p.t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := p.command()
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	begun := time.Now()
	code = exitCode(cmd.Run())
	if took := time.Since(begun); took > 2*time.Minute {
		p.t.Errorf("it took %s", took)
	}
	if code == 0 && stderr.Len() > 0 {
		p.t.Errorf("on stderr: %s", &stderr)
	}
	p.clean()
	return stdout.String() + stderr.String(), code
}

// clean reports what is left of a tour: processes, and files outside its folder.
func (p *demoPlace) clean() {
	p.t.Helper()
	if !within(2*time.Second, func() bool { return len(marked(p.work)) == 0 }) {
		p.t.Errorf("left running: %v", marked(p.work))
	}
	entries, err := os.ReadDir(p.work)
	p.must(err)
	for _, e := range entries {
		if name := filepath.Join(p.work, e.Name()); name != p.dir && name != p.temp && name != p.tools {
			p.t.Errorf("left behind: %s", name)
		}
	}
	if left, err := os.ReadDir(p.temp); err != nil || len(left) > 0 {
		p.t.Errorf("left behind: %v, %v", left, err)
	}
}

// rows counts the lines that match patterns.
func (p *demoPlace) rows(out string, want map[string]int) {
	p.t.Helper()
	for pattern, n := range want {
		if got := len(regexp.MustCompile(`(?m)`+pattern).FindAllString(out, -1)); got != n {
			p.t.Errorf("%d lines match %s, want %d\n%s", got, pattern, n, out)
		}
	}
}
