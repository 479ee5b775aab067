//go:build linux

package machines

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/drover-dev/drover/test/harness"
)

// The tutorial in docs/machines.md works as it is written, but for the address of the laptop: each block on the machine
// that it is for, which is a home of its own here.
func TestTutorial(t *testing.T) {
	laptop := harness.New(t, program)
	t.Cleanup(func() { laptop.End(harness.Patience) })
	laptop.File("Makefile", "test:\n\t@echo 42 passed\nserve:\n\t@echo listening; exec sleep 600\n", 0o600)
	repository(laptop)
	first, second := machine(laptop, "first"), machine(laptop, "second")
	blocks := tutorial(t, freePort(t))
	if len(blocks) != 6 {
		t.Fatalf("the tutorial has %d blocks", len(blocks))
	}

	hub := stays(laptop, blocks[0])
	laptop.Until("the hub", func() bool { return laptop.Run("hub", "status").Code() == 0 })
	line := does(laptop, blocks[1])
	var workers []*harness.Call
	for i, at := range []*harness.Place{first, second, laptop} {
		laptop.Must(os.WriteFile(filepath.Join(homeOf(at), "join"), []byte(line), 0o600))
		workers = append(workers, stays(at, blocks[2+i]))
	}
	laptop.Until("three workers", func() bool { return strings.Contains(laptop.Run("hub", "status").Stdout(), "3 workers") })

	for _, step := range []struct{ command, want string }{
		{"drover workers ", "build-1"},
		{"drover run --on gpu ", "42 passed"},
		{"drover run --on auto ", "b"},
		{"drover ps --all-machines ", "MACHINE"},
		{"drover logs -f ", "listening"},
		{"drover stop ", "killed"},
		{"drover hub status", "3 workers"},
		{"drover drain build-1 ", ""},
	} {
		i := slices.IndexFunc(strings.Split(blocks[5], "\n"), func(l string) bool { return strings.HasPrefix(l, step.command) })
		if i != 0 {
			t.Fatalf("the next command of the tutorial is not %q:\n%s", step.command, blocks[5])
		}
		command, rest, _ := strings.Cut(blocks[5], "\n")
		blocks[5] = rest
		if got := follows(laptop, command, step.want); !strings.Contains(got, step.want) {
			t.Errorf("%s\nno %q in:\n%s", command, step.want, got)
		}
	}
	if strings.TrimSpace(blocks[5]) != "" {
		t.Errorf("more commands than the test knows:\n%s", blocks[5])
	}
	laptop.Must(workers[0].Wait()) // it has drained
	for _, c := range append(workers[1:], hub) {
		laptop.Must(c.Cmd.Process.Signal(syscall.SIGINT))
		laptop.Must(c.Wait())
	}
}

// tutorial are the blocks of commands of the first part of docs/machines.md, with a port of this machine.
func tutorial(t *testing.T, port int) []string {
	t.Helper()
	page, err := os.ReadFile("../../docs/machines.md")
	if err != nil {
		t.Fatal(err)
	}
	_, part, found := strings.Cut(string(page), "\n## From one laptop to three machines\n")
	if !found {
		t.Fatal("the page has no tutorial")
	}
	part, _, _ = strings.Cut(part, "\n## ")
	part = strings.NewReplacer("0.0.0.0:7484", "127.0.0.1:7484", "laptop.example:7484", "127.0.0.1:7484").Replace(part)
	part = strings.ReplaceAll(part, "127.0.0.1:7484", fmt.Sprintf("127.0.0.1:%d", port))
	var out []string
	for _, block := range strings.Split(part, "\n```sh\n")[1:] {
		commands, _, closed := strings.Cut(block, "\n```\n")
		if !closed {
			t.Fatal("a block of the tutorial is not closed")
		}
		out = append(out, commands)
	}
	return out
}

// freePort is a port that nobody listens at.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// machine is another home, with a state of its own.
func machine(p *harness.Place, name string) *harness.Place {
	p.Helper()
	other := *p
	home := filepath.Join(p.Work, name)
	p.Must(os.MkdirAll(home, 0o700))
	other.Env = append(slices.Clone(p.Env), "HOME="+home, "DROVER_HOME="+filepath.Join(home, ".drover"),
		"XDG_CONFIG_HOME="+filepath.Join(home, ".config"))
	return &other
}

func homeOf(p *harness.Place) string {
	home := ""
	for _, kv := range p.Env {
		if v, ok := strings.CutPrefix(kv, "HOME="); ok {
			home = v
		}
	}
	return home
}

// stays starts commands of which the last one does not end.
func stays(p *harness.Place, commands string) *harness.Call {
	p.Helper()
	shell := *p
	shell.Bin = "bash"
	return shell.Start("-euc", "exec "+commands)
}

// does runs commands to their end.
func does(p *harness.Place, commands string) string {
	p.Helper()
	shell := *p
	shell.Bin = "bash"
	return shell.Good("-euc", commands) + "\n"
}

// follows runs a command until it ends, or has printed a text if it follows an output.
func follows(p *harness.Place, command, want string) string {
	p.Helper()
	if !strings.HasPrefix(command, "drover logs -f") {
		return does(p, command)
	}
	file := filepath.Join(p.Work, "followed")
	c := stays(p, strings.Replace(command, " #", " >"+file+" #", 1))
	printed := func() string {
		text, _ := os.ReadFile(file) // it is not there at first
		return string(text)
	}
	p.Until("what it follows", func() bool { return strings.Contains(printed(), want) })
	p.Must(c.Cmd.Process.Signal(syscall.SIGINT))
	p.Must(c.Wait())
	return printed()
}
