//go:build linux

// Package faults breaks what Drover stands on, by real means, and looks what it
// does.
//
// Each test is one row of the catalogue of faults, on the built program: calls of
// the system that fail, descriptors that run out, disks that are full or read-only,
// numbers of processes that are given away again, processes that cannot be ended,
// files that are torn, flipped or somebody else's. docs/reliability.md has the
// table, with the rows that other suites test. `make faults` runs the long forms
// too; `go test ./test/faults` is done within a minute. What cannot be injected on a
// machine is skipped, and says so.
package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/test/harness"
)

// longVariable asks for the long forms.
const longVariable = "FAULTS"

// pick is the size of a test: the second in the long form.
func pick(short, long int) int {
	if os.Getenv(longVariable) == "all" {
		return long
	}
	return short
}

// place is a place of the tests of this package.
type place struct{ *harness.Place }

// TestMain builds the program once for all tests.
func TestMain(m *testing.M) {
	// What a test has looked at in the tree is part of the key under which its result
	// is cached, and a program that it builds is not.
	_ = filepath.WalkDir(filepath.Join("..", ".."), func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil: // it has gone meanwhile
		case d.IsDir() && d.Name() == ".git":
			return fs.SkipDir
		case filepath.Ext(path) == ".go":
			_, _ = os.Stat(path)
		}
		return nil
	})
	dir, err := os.MkdirTemp("", "faults")
	if err == nil {
		bin := filepath.Join(dir, "drover")
		err = errors.Join(harness.Build(bin, harness.Stamp("faults")), harness.BuildKeeper(bin, harness.Stamp("faults")))
	}
	if err == nil {
		err = os.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	}
	if err != nil {
		_ = os.RemoveAll(dir)
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// newPlace makes a place. All that was started in it must be gone at the end.
func newPlace(t testing.TB) *place {
	t.Helper()
	bin, err := exec.LookPath("drover")
	if err != nil {
		t.Fatal(err)
	}
	p := &place{harness.New(t, bin)}
	t.Cleanup(func() { p.End(15 * time.Second) })
	return p
}

// one is the only process of a role.
func (p *place) one(role string) int {
	p.Helper()
	for _, x := range p.Procs("") {
		if x.Role() == role {
			return x.PID
		}
	}
	p.Fatalf("there is no %s: %v", role, p.Procs(""))
	return 0
}

// killHost ends the host as kill -9 does, and waits until nothing of it is there.
func (p *place) killHost() {
	p.Helper()
	pid := p.one("host")
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		p.Fatal(err)
	}
	p.Until("the host has gone", func() bool { return !harness.Alive(pid) })
}

// command prepares a call behind a prefix, such as a tracer.
func (p *place) command(prefix []string, args ...string) *exec.Cmd {
	all := slices.Concat(prefix, []string{p.Bin}, args)
	ctx, done := context.WithTimeout(context.Background(), 2*harness.Patience)
	p.Cleanup(done)
	cmd := exec.CommandContext(ctx, all[0], all[1:]...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = p.Dir, p.Env, harness.Patience
	return cmd
}

// behind runs the program behind a prefix.
func (p *place) behind(prefix []string, args ...string) *harness.Call {
	p.Helper()
	c := p.Behind(prefix, args...)
	p.Must(c.Wait())
	return c
}

// refused calls what must fail as an error of Drover, told in one line that has
// one of the words.
func (p *place) refused(s *harness.Call, words ...string) {
	p.Helper()
	p.told(s)
	if s.Code() == 0 || s.Code() > 125 {
		p.Errorf("it is not refused: %s", s)
	}
	if !slices.ContainsFunc(words, func(w string) bool { return strings.Contains(s.Stderr(), w) }) {
		p.Errorf("stderr has none of %q: %s", words, s)
	}
}

// told looks at the form of what went to stderr: one line, and no crash.
func (p *place) told(s *harness.Call) {
	p.Helper()
	if strings.Contains(s.Stderr(), "goroutine ") || strings.Contains(s.Stderr(), "panic:") || s.Code() >= 128+int(syscall.SIGABRT) && s.Code() <= 128+int(syscall.SIGSEGV) && s.Code() != 128+9 {
		p.Errorf("it crashes: %s", s)
	}
	if s.Code() != 0 && s.Stderr() != "" && (!strings.HasPrefix(s.Stderr(), "drover: ") || strings.Count(s.Stderr(), "\n") != 1) {
		p.Errorf("it is not told in one line: %s", s)
	}
}

// shown is a task as a face shows it.
type shown struct {
	Survivors  []task.Survivor `json:"survivors"`
	ID         string          `json:"task_id"`
	Session    string          `json:"session_id"`
	Name       string          `json:"name"`
	Status     string          `json:"status"`
	ExitCode   *int            `json:"exit_code"`
	OutputFile string          `json:"output_file"`
	Error      string          `json:"error"`
	Cause      *struct {
		Actor  string `json:"actor"`
		Reason string `json:"reason"`
		Signal string `json:"signal"`
		Detail string `json:"detail"`
	} `json:"cause"`
}

func (s shown) ended() bool { return s.Status != "pending" && s.Status != "running" }

// String is the status, and of an end the reason and the exit code.
func (s shown) String() string {
	out := s.Status
	if s.Cause != nil {
		out += ":" + s.Cause.Reason
	}
	if s.ExitCode != nil && *s.ExitCode > 0 {
		out += ":" + strconv.Itoa(*s.ExitCode)
	}
	return out
}

// task is one task, as inspect has it.
func (p *place) task(ref string) (s shown) {
	p.Helper()
	if err := json.Unmarshal([]byte(p.Good("inspect", ref)), &s); err != nil {
		p.Fatal(err)
	}
	return s
}

// tasks are all that ps shows, by their IDs.
func (p *place) tasks() map[string]shown {
	p.Helper()
	var list []shown
	if err := json.Unmarshal([]byte(p.Good("ps", "-a", "--json")), &list); err != nil {
		p.Fatal(err)
	}
	out := map[string]shown{}
	for _, s := range list {
		if _, twice := out[s.ID]; twice {
			p.Errorf("ps shows task %s twice", s.ID)
		}
		out[s.ID] = s
	}
	return out
}

// is compares how a task stands.
func (p *place) is(ref string, want ...string) {
	p.Helper()
	if got := p.task(ref).String(); !slices.Contains(want, got) {
		p.Errorf("%s is %s, want %s", ref, got, strings.Join(want, " or "))
	}
}

// glob is the only file of a pattern below the folder of the state.
func (p *place) glob(pattern string) string {
	p.Helper()
	found, err := filepath.Glob(filepath.Join(p.State(), pattern))
	if err != nil || len(found) != 1 {
		p.Fatalf("files %s: %v, %v", pattern, found, err)
	}
	return found[0]
}

// db is the log of the session.
func (p *place) db() string { p.Helper(); return p.glob("projects/*/*/session.db") }

// read is a file of the project.
func (p *place) read(name string) string {
	data, err := os.ReadFile(filepath.Join(p.Dir, name))
	if err != nil {
		return ""
	}
	return string(data)
}

// needs skips a test where a means of injection is missing.
func needs(t testing.TB, words ...string) {
	t.Helper()
	if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
		t.Skipf("NOT TRIED: %s: %v %s", strings.Join(words, " "), err, out)
	}
}

// inject makes calls of a process fail from now on, by a tracer, until the returned
// function is called. what is as strace has it; path limits it to one file.
func (p *place) inject(pid int, path, what string) (stop func()) {
	p.Helper()
	args := []string{"-f", "-q", "-o", "/dev/null", "-p", strconv.Itoa(pid), "-e", "trace=" + what[:strings.Index(what, ":")], "-e", "inject=" + what}
	if path != "" {
		args = append(args, "-P", path)
	}
	cmd := exec.Command("strace", args...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		p.Fatal(err)
	}
	p.Until("the tracer holds every thread", func() bool { return traced(pid, cmd.Process.Pid) })
	ended := false
	stop = func() {
		if ended {
			return
		}
		ended = true
		_ = cmd.Process.Signal(syscall.SIGINT) // it lets go of the process
		_ = cmd.Wait()
	}
	p.Cleanup(stop)
	return stop
}

// traced reports whether all threads of a process have a tracer.
func traced(pid, tracer int) bool {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	for _, name := range files {
		if data, err := os.ReadFile(name); err == nil && !strings.Contains(string(data), fmt.Sprintf("TracerPid:\t%d\n", tracer)) {
			return false
		}
	}
	return len(files) > 0
}

// nofile sets how many descriptors a process may have.
func (p *place) nofile(pid, n int) {
	p.Helper()
	if out, err := exec.Command("prlimit", "--pid", strconv.Itoa(pid), fmt.Sprintf("--nofile=%d:4096", n)).CombinedOutput(); err != nil {
		p.Fatalf("%v: %s", err, out)
	}
}
