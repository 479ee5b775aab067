package overssh

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// there runs the script with a home of its own, in a shell of a user, behind what that prints.
type there struct {
	in   io.WriteCloser
	out  *bufio.Reader
	errs bytes.Buffer
	cmd  *exec.Cmd
}

func begin(t *testing.T, home, before string, shell ...string) *there {
	t.Helper()
	if _, err := exec.LookPath(shell[0]); err != nil {
		t.Skip(err)
	}
	args := arguments(Host{Name: "there"}, false)
	h := &there{cmd: exec.Command(shell[0], append(shell[1:], before+args[len(args)-1])...)}
	h.cmd.Env, h.cmd.Stderr = []string{"HOME=" + home, "PATH=" + os.Getenv("PATH")}, &h.errs
	var err error
	if h.in, err = h.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := h.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	h.out = bufio.NewReader(out)
	if err := h.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.in.Close(); _ = h.cmd.Wait() })
	return h
}

// program is a file that can be run, and says what it is called with.
func program(t *testing.T, h *there, text string) *Binary {
	t.Helper()
	words, err := hear(h.out)
	if err != nil || len(words) != 3 {
		t.Fatal(words, err, h.errs.String())
	}
	h.out = bufio.NewReader(io.MultiReader(strings.NewReader(mark+strings.Join(words, " ")+"\n"), h.out))
	path := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	sum := sha256.Sum256([]byte(text))
	return &Binary{Name: "this", Sum: hex.EncodeToString(sum[:]), Size: int64(len(text)),
		System: systemOf(words[1], words[2]), file: f}
}

const echoes = "#!/bin/sh\nread line; echo \"$@ $line\"\n"

// All shells pass the script on as it is, and what they print before does not matter.
func TestShells(t *testing.T) {
	for _, shell := range [][]string{{"sh", "-c"}, {"bash", "-c"}, {"dash", "-c"}, {"zsh", "-c"}, {"fish", "-c"}, {"tcsh", "-c"}, {"busybox", "sh", "-c"}} {
		t.Run(shell[0], func(t *testing.T) {
			home := t.TempDir()
			for _, says := range []string{"copying copied", ""} {
				h := begin(t, home, "echo welcome; echo "+strings.Repeat("x", 5000)+"; ", shell...)
				var said []string
				err := prepare(h.in, h.out, program(t, h, echoes), "there", "w1", func(line string) {
					said = append(said, strings.Fields(line)[0])
				})
				if err != nil || strings.Join(said, " ") != says {
					t.Fatalf("%v, it said %q, want %q; stderr %s", err, said, says, h.errs.String())
				}
				fmt.Fprintln(h.in, "first line")
				if line, err := h.out.ReadString('\n'); line != "worker --stdio --name w1 first line\n" {
					t.Errorf("the program was called with %q, %v", line, err)
				}
			}
		})
	}
}

// What did not come whole, cannot be written or cannot be run is not used, and nothing of it stays.
func TestCopyFails(t *testing.T) {
	for name, c := range map[string]struct{ text, before, says string }{
		"cut":     {text: echoes, says: "another checksum"},
		"no room": {text: strings.Repeat("x", 1<<20), before: "trap '' XFSZ; ulimit -f 100; ", says: "disk full"},
		"no run":  {text: "no program\n", says: "cannot be run"},
		"no tool": {text: echoes, before: "PATH=" + filepath.Join(t.TempDir(), "bin") + "; ", says: "coreutils"},
	} {
		t.Run(name, func(t *testing.T) {
			home := t.TempDir()
			if name == "no tool" {
				dir := strings.TrimSuffix(strings.TrimPrefix(c.before, "PATH="), "; ")
				for _, tool := range []string{"sh", "uname", "rm"} {
					path, err := exec.LookPath(tool)
					if err != nil {
						t.Fatal(err)
					}
					if err := os.MkdirAll(dir, 0o700); err != nil {
						t.Fatal(err)
					}
					if err := os.Symlink(path, filepath.Join(dir, tool)); err != nil {
						t.Fatal(err)
					}
				}
			}
			h := begin(t, home, c.before, "bash", "-c")
			b := program(t, h, c.text)
			in := io.Writer(h.in)
			if name == "cut" {
				in = cut{h.in}
			}
			err := prepare(in, h.out, b, "there", "w1", func(string) {})
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v; stderr %s", err, h.errs.String())
			}
			left, _ := filepath.Glob(filepath.Join(home, ".cache/drover/bin/*"))
			hidden, _ := filepath.Glob(filepath.Join(home, ".cache/drover/bin/.*"))
			if len(left)+len(hidden) > 0 {
				t.Errorf("left: %v %v", left, hidden)
			}
		})
	}
}

// cut is a connection that ends within a copy.
type cut struct{ io.WriteCloser }

func (c cut) Write(b []byte) (int, error) {
	if bytes.HasSuffix(b, []byte("w1\n")) { // the words before the copy
		return c.WriteCloser.Write(b)
	}
	_, _ = c.WriteCloser.Write(b[:len(b)/2])
	return 0, c.Close()
}

func TestNoise(t *testing.T) {
	endless := bufio.NewReader(io.LimitReader(zeros{}, 1<<30))
	if _, err := hear(endless); err == nil || !strings.Contains(err.Error(), "prints more than") {
		t.Error(err)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

// Old copies go, but for the newest, those in use and the one that asks.
func TestKeep(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "drover", "bin")
	name := func(i int) string { return strings.Repeat(string(rune('a'+i)), 64) }
	for i := range 6 {
		path := filepath.Join(dir, name(i), "drover")
		when := time.Now().Add(time.Duration(i-100) * time.Hour)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, when, when); err != nil {
			t.Fatal(err)
		}
	}
	for file, age := range map[string]time.Duration{".new": 0, ".old": 2 * time.Hour, "other": 2 * time.Hour} {
		path, when := filepath.Join(dir, file), time.Now().Add(-age)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, when, when); err != nil {
			t.Fatal(err)
		}
	}
	inUse, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer inUse.Close()
	other, err := hold(inUse, name(1), unix.LOCK_SH)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	release, err := Keep(filepath.Join(dir, name(0), "drover"))
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	all, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var kept []string
	for _, e := range all {
		kept = append(kept, e.Name()[:min(4, len(e.Name()))])
	}
	if got := strings.Join(kept, " "); got != ".new aaaa bbbb eeee ffff othe" {
		t.Errorf("kept: %s", got)
	}
}

func TestParseHost(t *testing.T) {
	for text, want := range map[string][2]string{
		"ssh://build@ci.example.com:22": {"build@ci.example.com:22", "ci"},
		"ssh://Pi":                      {"Pi", "pi"},
		"ssh://10.0.0.7/":               {"10.0.0.7", "10-0-0-7"},
		"ssh://[::1]:22":                {"[::1]:22", "1"},
		"ssh://my_box":                  {"my_box", "my-box"},
		"ssh://-oProxyCommand=x":        {},
		"ssh://-l@host":                 {},
		"ssh://a:secret@host":           {},
		"ssh://$(id)":                   {},
		"ssh://a;b@host":                {},
		"ssh://host/path":               {},
		"ssh://":                        {},
		"host":                          {},
		"http://host":                   {},
	} {
		h, err := ParseHost(text)
		if (err == nil) != (want[0] != "") {
			t.Errorf("%s: %v", text, err)
		}
		if err == nil && (h.String() != want[0] || h.WorkerName() != want[1]) {
			t.Errorf("%s is %s, and a worker %s", text, h, h.WorkerName())
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", text, err)
		}
	}
}
