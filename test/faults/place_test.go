//go:build linux

// Package faults breaks what Drover stands on, by real means, and looks what it
// does.
//
// Each test is one row of the catalogue of faults, on the built program: calls of
// the system that fail, descriptors that run out, disks that are full or read-only,
// numbers of processes that are given away again, processes that cannot be ended,
// files that are torn, flipped or somebody else's. docs/reliability.md has the
// table, with the rows that other suites test. `make faults` runs the long forms
// too; `go test ./faults` is done within a minute. What cannot be injected on a
// machine is skipped, and says so.
package faults

import (
	"bytes"
	"context"
	"encoding/json"
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

	"github.com/drover-dev/drover/internal/platform/waittest"
	"github.com/drover-dev/drover/task"
)

// patience bounds every wait; on an idle machine none comes near it.
const patience = 60 * time.Second

// longVariable asks for the long forms.
const longVariable = "FAULTS"

// pick is the size of a test: the second in the long form.
func pick(short, long int) int {
	if os.Getenv(longVariable) == "all" {
		return long
	}
	return short
}

// mark is in the environment of everything that is started in a place.
const mark = "FAULTS_MARK"

// place is a folder with a state of its own, and everything that runs there.
type place struct {
	t    testing.TB
	bin  string
	work string
	dir  string // the project
	env  []string
}

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
		cmd := exec.Command("go", "build", "-o", filepath.Join(dir, "drover"), "../../cmd/drover")
		cmd.Env, cmd.Stderr = append(os.Environ(), "CGO_ENABLED=0"), os.Stderr
		err = cmd.Run()
	}
	if err == nil {
		err = os.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	}
	if err != nil {
		_ = os.RemoveAll(dir)
		fmt.Fprintln(os.Stderr, "build the program:", err)
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
	p := &place{t: t, bin: bin, work: t.TempDir()}
	p.dir = filepath.Join(p.work, "project")
	sockets, err := os.MkdirTemp("/tmp", "df") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{p.dir, filepath.Join(p.work, "user")} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	p.env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + filepath.Join(p.work, "user"), "DROVER_HOME=" + p.state(),
		"XDG_CONFIG_HOME=" + filepath.Join(p.work, "config"), "XDG_RUNTIME_DIR=" + sockets, "TMPDIR=" + p.work, mark + "=" + p.work}
	t.Cleanup(func() {
		p.end()
		_ = os.RemoveAll(sockets)
	})
	return p
}

// state is the folder in which Drover keeps everything.
func (p *place) state() string { return filepath.Join(p.work, "state") }

// end ends the hosts as a shutdown would. Whatever is left then is an error, and
// is ended too.
func (p *place) end() {
	for _, x := range p.procs("") {
		if x.role() != "keeper" && x.task == "" {
			_ = syscall.Kill(x.pid, syscall.SIGTERM) // it may end by itself at this moment
		}
	}
	if !waittest.Until(15*time.Second, func() bool { return len(p.procs("")) == 0 }) {
		for _, x := range p.procs("") {
			p.t.Errorf("left running: %d %s", x.pid, x.line)
			_ = syscall.Kill(x.pid, syscall.SIGKILL)
		}
	}
}

// proc is a process of a place.
type proc struct {
	pid  int
	line string
	task string // whose mark it carries
}

// role is host, keeper, or empty.
func (x proc) role() string {
	f := strings.Fields(x.line)
	if len(f) > 1 && filepath.Base(f[0]) == "drover" && (f[1] == "host" || f[1] == "keeper") {
		return f[1]
	}
	return ""
}

// procs are the live processes of the place with a text in their command line.
func (p *place) procs(text string) (out []proc) {
	names, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		panic(err) // the pattern is wrong
	}
	for _, name := range names {
		data, err := os.ReadFile(name)
		env := strings.Split(string(data), "\x00")
		pid, notNumber := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		if err != nil || notNumber != nil || !slices.Contains(env, mark+"="+p.work) {
			continue // it has ended, or is not ours
		}
		line, err := os.ReadFile(filepath.Join(filepath.Dir(name), "cmdline"))
		if err != nil || len(line) == 0 {
			continue
		}
		x := proc{pid: pid, line: strings.TrimSpace(strings.ReplaceAll(string(line), "\x00", " "))}
		for _, kv := range env {
			if id, ok := strings.CutPrefix(kv, "DROVER_TASK_ID="); ok {
				x.task = id
			}
		}
		if strings.Contains(x.line, text) {
			out = append(out, x)
		}
	}
	return out
}

// one is the only process of a role.
func (p *place) one(role string) int {
	p.t.Helper()
	for _, x := range p.procs("") {
		if x.role() == role {
			return x.pid
		}
	}
	p.t.Fatalf("there is no %s: %v", role, p.procs(""))
	return 0
}

// killHost ends the host as kill -9 does, and waits until nothing of it is there.
func (p *place) killHost() {
	p.t.Helper()
	pid := p.one("host")
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		p.t.Fatal(err)
	}
	p.until("the host has gone", func() bool { return !alive(pid) })
}

// alive reports whether a process has not ended. While one of its threads is
// there, so are its sockets.
func alive(pid int) bool {
	threads, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	return !strings.Contains("XZ", stateOf(pid)) || len(threads) > 1
}

// stateOf is the letter that the kernel has for a process, X if there is none.
func stateOf(pid int) string {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(data), ") ")
	if err != nil || rest == "" {
		return "X"
	}
	return rest[:1]
}

// until waits for what must come.
func (p *place) until(what string, yes func() bool) {
	p.t.Helper()
	if !waittest.Until(patience, yes) {
		p.t.Fatalf("it does not come: %s", what)
	}
}

// said is what a call of drover said.
type said struct {
	args        []string
	code        int // 128 and the signal, if one ended it
	stdout, err string
}

func (s said) String() string {
	return fmt.Sprintf("drover %s: exit code %d\nstdout: %.600s\nstderr: %.2000s", strings.Join(s.args, " "), s.code, s.stdout, s.err)
}

// command prepares a call behind a prefix, such as a tracer.
func (p *place) command(prefix []string, args ...string) *exec.Cmd {
	all := slices.Concat(prefix, []string{p.bin}, args)
	ctx, done := context.WithTimeout(context.Background(), 2*patience)
	p.t.Cleanup(done)
	cmd := exec.CommandContext(ctx, all[0], all[1:]...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = p.dir, p.env, patience
	return cmd
}

// run calls drover and waits for its end.
func (p *place) run(args ...string) said {
	p.t.Helper()
	return p.behind(nil, args...)
}

// behind is run with a prefix.
func (p *place) behind(prefix []string, args ...string) said {
	p.t.Helper()
	cmd := p.command(prefix, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); cmd.ProcessState == nil {
		p.t.Fatal(err)
	}
	return said{args, exitCode(cmd.ProcessState), out.String(), errs.String()}
}

func exitCode(s *os.ProcessState) int {
	if st := s.Sys().(syscall.WaitStatus); st.Signaled() {
		return 128 + int(st.Signal())
	}
	return s.ExitCode()
}

// good calls what must succeed, and returns stdout without its last newline.
func (p *place) good(args ...string) string {
	p.t.Helper()
	s := p.run(args...)
	if s.code != 0 {
		p.t.Fatal(s)
	}
	return strings.TrimSuffix(s.stdout, "\n")
}

// refused calls what must fail as an error of Drover, told in one line that has
// one of the words.
func (p *place) refused(s said, words ...string) {
	p.t.Helper()
	p.told(s)
	if s.code == 0 || s.code > 125 {
		p.t.Errorf("it is not refused: %s", s)
	}
	if !slices.ContainsFunc(words, func(w string) bool { return strings.Contains(s.err, w) }) {
		p.t.Errorf("stderr has none of %q: %s", words, s)
	}
}

// told looks at the form of what went to stderr: one line, and no crash.
func (p *place) told(s said) {
	p.t.Helper()
	if strings.Contains(s.err, "goroutine ") || strings.Contains(s.err, "panic:") || s.code >= 128+int(syscall.SIGABRT) && s.code <= 128+int(syscall.SIGSEGV) && s.code != 128+9 {
		p.t.Errorf("it crashes: %s", s)
	}
	if s.code != 0 && s.err != "" && (!strings.HasPrefix(s.err, "drover: ") || strings.Count(s.err, "\n") != 1) {
		p.t.Errorf("it is not told in one line: %s", s)
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
	p.t.Helper()
	if err := json.Unmarshal([]byte(p.good("inspect", ref)), &s); err != nil {
		p.t.Fatal(err)
	}
	return s
}

// tasks are all that ps shows, by their IDs.
func (p *place) tasks() map[string]shown {
	p.t.Helper()
	var list []shown
	if err := json.Unmarshal([]byte(p.good("ps", "-a", "--json")), &list); err != nil {
		p.t.Fatal(err)
	}
	out := map[string]shown{}
	for _, s := range list {
		if _, twice := out[s.ID]; twice {
			p.t.Errorf("ps shows task %s twice", s.ID)
		}
		out[s.ID] = s
	}
	return out
}

// is compares how a task stands.
func (p *place) is(ref string, want ...string) {
	p.t.Helper()
	if got := p.task(ref).String(); !slices.Contains(want, got) {
		p.t.Errorf("%s is %s, want %s", ref, got, strings.Join(want, " or "))
	}
}

// glob is the only file of a pattern below the folder of the state.
func (p *place) glob(pattern string) string {
	p.t.Helper()
	found, err := filepath.Glob(filepath.Join(p.state(), pattern))
	if err != nil || len(found) != 1 {
		p.t.Fatalf("files %s: %v, %v", pattern, found, err)
	}
	return found[0]
}

// db is the log of the session.
func (p *place) db() string { p.t.Helper(); return p.glob("projects/*/*/session.db") }

// fifo makes a pipe on which commands wait.
func (p *place) fifo(name string) {
	p.t.Helper()
	if err := syscall.Mkfifo(filepath.Join(p.dir, name), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// free lets a command go on that reads from a pipe.
func (p *place) free(name string) {
	p.t.Helper()
	p.until("somebody reads "+name, func() bool {
		f, err := os.OpenFile(filepath.Join(p.dir, name), os.O_WRONLY|syscall.O_NONBLOCK, 0)
		if err != nil {
			return false
		}
		_, err = f.WriteString("go\n")
		return err == nil && f.Close() == nil
	})
}

// file writes a file of the project.
func (p *place) file(name, text string, mode os.FileMode) string {
	p.t.Helper()
	path := filepath.Join(p.dir, name)
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		p.t.Fatal(err)
	}
	return path
}

// read is a file of the project.
func (p *place) read(name string) string {
	data, err := os.ReadFile(filepath.Join(p.dir, name))
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
	p.t.Helper()
	args := []string{"-f", "-q", "-o", "/dev/null", "-p", strconv.Itoa(pid), "-e", "trace=" + what[:strings.Index(what, ":")], "-e", "inject=" + what}
	if path != "" {
		args = append(args, "-P", path)
	}
	cmd := exec.Command("strace", args...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.until("the tracer holds every thread", func() bool { return traced(pid, cmd.Process.Pid) })
	ended := false
	stop = func() {
		if ended {
			return
		}
		ended = true
		_ = cmd.Process.Signal(syscall.SIGINT) // it lets go of the process
		_ = cmd.Wait()
	}
	p.t.Cleanup(stop)
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

// settings writes those of the user.
func (p *place) settings(text string) {
	p.t.Helper()
	dir := filepath.Join(p.work, "config", "drover")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "settings.json"), []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// nofile sets how many descriptors a process may have.
func (p *place) nofile(pid, n int) {
	p.t.Helper()
	if out, err := exec.Command("prlimit", "--pid", strconv.Itoa(pid), fmt.Sprintf("--nofile=%d:4096", n)).CombinedOutput(); err != nil {
		p.t.Fatalf("%v: %s", err, out)
	}
}
