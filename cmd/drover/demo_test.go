package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/test/harness"
)

// TestDemo gives the tour in folders of all sorts. Whatever the folder, it ends
// well and in time, what it quotes is there, and nothing is left of it.
func TestDemo(t *testing.T) {
	bin := build(t)
	for _, c := range []struct {
		name   string
		fill   func(*demoPlace)
		quotes int
		says   []string
	}{
		{"empty", func(*demoPlace) {}, 0, []string{"nothing: No files match.", "nothing: there is no text here", "nothing: No matches."}},
		{"repository", func(p *demoPlace) {
			p.file("README", "\n\n  Read <me> & \"smile\" first\n")
			p.file("lib/a.go", "package a\n\nfunc a() bool { return 1 < 2 && true }\n")
			p.file("lib/b.go", "package b\n// TODO: finish <b>\n")
			p.git("init", "-q")
		}, 2, []string{"README:3\n    Read <me> & \"smile\" first\n", "lib/b.go:2\n    // TODO: finish <b>\n"}},
		{"defined", func(p *demoPlace) { p.file("x.txt", "import this\n") }, 2, []string{"x.txt:1\n    import this\n"}},
		{"readonly", func(p *demoPlace) {
			p.file("notes.md", "# Notes\n")
			p.must(os.Chmod(p.dir, 0o555))
			p.t.Cleanup(func() { p.must(os.Chmod(p.dir, 0o700)) })
		}, 1, []string{"notes.md:1\n    # Notes\n"}},
		{"odd", func(p *demoPlace) {
			p.file("line\nbreak.txt", "never quoted\n")
			p.file("{{last}} \x1b[31m.md", "\x00\x01")
			p.file("-n.txt", strings.Repeat("a long line ", 1000))
		}, -1, nil},
		{"programs", func(p *demoPlace) { // of the PATH, in the folder itself
			for _, name := range []string{"sleep", "echo"} {
				path, err := exec.LookPath(name)
				p.must(err)
				p.must(os.MkdirAll(filepath.Join(p.dir, "bin"), 0o700))
				p.must(os.Symlink(path, filepath.Join(p.dir, "bin", name)))
			}
			p.path = filepath.Join(p.dir, "bin") + ":" + p.path
		}, 0, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := newDemoPlace(t, bin)
			c.fill(p)
			before := p.tree(p.dir)
			out, code := p.run()
			if code != 0 {
				t.Fatalf("exit code %d\n%s", code, out)
			}
			p.rows(out, map[string]int{
				`local_agent +completed +done `: 3, `local_bash +completed +done .*count to three`: 1,
				`local_bash +failed +exit 3 .*look for the sea`: 1, `local_bash +killed +stopped by model .*wait for ten minutes`: 1,
				`\ds  notified +Agent ".*" completed`: 3, `\ds  notified +Background command "look for the sea" failed with exit code 3`: 1,
				`\ds  notified +Background command "count to three" completed`: 1, `notified .*ten minutes`: 0, `output-tail: .*no sea within reach`: 1, "\x1b": 0,
				`^t\w+ +in_process_teammate +completed +done .*keeps the log`: 1, `message +of scribe@crew: .*The log is closed`: 1,
				`^w\w+ +local_workflow +completed +done .*workflow tour`: 1, `^  b\w+ +local_bash +completed +done .*step (measure|weigh|tell) of tour`: 3,
				`^m\w+ +monitor_mcp +completed +done .*watch the tide`: 1, `event +tide is rising`: 1, `result: \{ "sounding": "twelve fathoms and a stone" \}`: 1,
				`^c\w+ +mcp_task +completed +done .*fold`: 1, `result: a paper boat`: 1, `^r\w+ +remote_agent +completed +done .*weather`: 1,
				`result: Here we have rain\.`: 1, `^d\w+ +dream +completed +done `: 1,
			})
			if n := p.quotes(out); n != c.quotes && c.quotes >= 0 {
				t.Errorf("%d quotes, want %d\n%s", n, c.quotes, out)
			}
			for _, text := range c.says {
				if !strings.Contains(out, text) {
					t.Errorf("it does not say %q\n%s", text, out)
				}
			}
			if after := p.tree(p.dir); after != before {
				t.Errorf("the folder was changed:\n%s\nwas\n%s", after, before)
			}
		})
	}
	t.Run("slow", func(t *testing.T) {
		t.Parallel()
		p := newDemoPlace(t, bin)
		p.must(os.WriteFile(filepath.Join(p.tools, "git"), []byte("#!/bin/sh\nexec sleep 600\n"), 0o700))
		out, code := p.run()
		if code != 0 {
			t.Fatalf("exit code %d\n%s", code, out)
		}
		p.rows(out, map[string]int{`local_agent +killed +stopped by runtime`: 3, `^  \(no answer in time\)`: 3})
	})
	t.Run("interrupt", func(t *testing.T) {
		t.Parallel()
		p := newDemoPlace(t, bin)
		cmd := p.command()
		out, err := cmd.StdoutPipe()
		p.must(err)
		p.must(cmd.Start())
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if strings.Contains(lines.Text(), "look for the sea") {
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

func (p *demoPlace) file(name, text string) {
	p.t.Helper()
	path := filepath.Join(p.dir, name)
	p.must(os.MkdirAll(filepath.Dir(path), 0o700))
	p.must(os.WriteFile(path, []byte(text), 0o600))
}

func (p *demoPlace) git(args ...string) {
	p.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = p.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		p.t.Fatalf("git %q: %v\n%s", args, err, out)
	}
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
	if took := time.Since(begun); took > time.Minute {
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

// quotes counts what the answer quotes, all of which must stand where it says.
func (p *demoPlace) quotes(out string) int {
	p.t.Helper()
	all := regexp.MustCompile(`(?m)^  (\S.*):(\d+)\n    (.+)$`).FindAllStringSubmatch(out, -1)
	for _, m := range all {
		data, err := os.ReadFile(filepath.Join(p.dir, m[1]))
		p.must(err)
		lines := strings.Split(string(data), "\n")
		n, err := strconv.Atoi(m[2])
		p.must(err)
		if n < 1 || n > len(lines) || !strings.Contains(lines[n-1], m[3]) {
			p.t.Errorf("%s has no %q in line %d", m[1], m[3], n)
		}
	}
	return len(all)
}

// tree is all that can be seen of a folder.
func (p *demoPlace) tree(dir string) string {
	p.t.Helper()
	var b strings.Builder
	p.must(filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%q %v %d %v\n", path, info.Mode(), info.Size(), info.ModTime())
		return nil
	}))
	return b.String()
}
