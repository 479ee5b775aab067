//go:build linux

package crash

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
)

// patience bounds every wait; on an idle machine none comes near it.
const patience = 60 * time.Second

// mark is in the environment of everything that is started in a place.
const mark = "CRASH_MARK"

// place is a folder with a state of its own, and everything that runs there.
type place struct {
	t       testing.TB
	bin     string
	work    string
	dir     string // the project
	sockets string
	env     []string
	faults  *faults
	witness *exec.Cmd // is nobody's business, and must live to the end
}

// newPlace makes a place in which the program stops at the named fail points.
func newPlace(t testing.TB, bin string, seed int64, points ...string) *place {
	t.Helper()
	p := &place{t: t, bin: bin, work: t.TempDir()}
	p.dir = filepath.Join(p.work, "project")
	var err error
	if p.sockets, err = os.MkdirTemp("/tmp", "dc"); err != nil { // the path of a socket must be short
		t.Fatal(err)
	}
	for _, dir := range []string{p.dir, filepath.Join(p.work, "user")} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	socket := filepath.Join(p.sockets, "faults")
	if p.faults, err = listen(socket, seed); err != nil {
		t.Fatal(err)
	}
	if seed != 0 {
		points = []string{"*"}
	}
	p.env = []string{"PATH=" + filepath.Dir(bin) + ":" + os.Getenv("PATH"), "HOME=" + filepath.Join(p.work, "user"),
		"DROVER_HOME=" + filepath.Join(p.work, "state"), "XDG_CONFIG_HOME=" + filepath.Join(p.work, "config"), "XDG_RUNTIME_DIR=" + p.sockets,
		"TMPDIR=" + p.work, mark + "=" + p.work, "DROVER_FAULT=" + strings.Join(points, ","), "DROVER_FAULT_SOCKET=" + socket}
	p.witness = exec.Command("sleep", "100000")
	p.witness.Env, p.witness.Dir = p.env, p.dir
	p.witness.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.witness.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.end)
	return p
}

// end ends hosts and faces as a shutdown would. Whatever is left then is an error, and
// is ended too.
func (p *place) end() {
	p.faults.letGo()
	p.quit()
	if !waittest.Until(patience, func() bool { return len(p.procs("")) == 0 }) {
		for _, x := range p.procs("") {
			p.t.Errorf("left running: %s", x.line)
			_ = syscall.Kill(x.pid, syscall.SIGKILL)
		}
	}
	p.faults.close()
	_ = p.witness.Process.Kill()
	if p.witness.Wait() != nil && p.witness.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		p.t.Errorf("a process that was nobody's business: %s", p.witness.ProcessState)
	}
	if err := os.RemoveAll(p.sockets); err != nil {
		p.t.Error(err)
	}
}

// quit asks hosts and faces to end.
func (p *place) quit() {
	for _, x := range p.procs("") {
		if x.role() != "keeper" && x.task == "" {
			_ = syscall.Kill(x.pid, syscall.SIGTERM) // it may end by itself at this moment
		}
	}
}

// proc is a process of a place.
type proc struct {
	pid, parent int
	line        string
	task        string // whose mark it carries
}

// role is host, keeper, or empty.
func (x proc) role() string {
	f := strings.Fields(x.line)
	if len(f) > 1 && filepath.Base(f[0]) == "drover" && (f[1] == "host" || f[1] == "keeper") {
		return f[1]
	}
	return ""
}

// procs are the live processes of the place with a text in their command line;
// not the witness, and no zombies.
func (p *place) procs(text string) []proc {
	names, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		panic(err) // the pattern is wrong
	}
	var out []proc
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended, or is not ours
		}
		env := strings.Split(string(data), "\x00")
		dir := filepath.Dir(name)
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil || !slices.Contains(env, mark+"="+p.work) || pid == p.witness.Process.Pid {
			continue
		}
		line, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil || len(line) == 0 {
			continue
		}
		x := proc{pid: pid, parent: parentOf(dir), line: strings.TrimSpace(strings.ReplaceAll(string(line), "\x00", " "))}
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

func parentOf(dir string) int {
	data, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(data), ") ")
	f := strings.Fields(rest)
	if len(f) < 2 {
		return 0
	}
	n, _ := strconv.Atoi(f[1])
	return n
}

// ofTasks are the processes of tasks.
func (p *place) ofTasks() []proc {
	return slices.DeleteFunc(p.procs(""), func(x proc) bool { return x.task == "" || x.role() != "" })
}

// alive reports whether a process has not ended. While one of its threads is
// there, so are its sockets.
func alive(pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(data), ") ")
	threads, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	return rest != "" && rest[0] != 'X' && (rest[0] != 'Z' || len(threads) > 1)
}

// face is a drover that somebody has called.
type face struct {
	args        []string
	cmd         *exec.Cmd
	stdout, err bytes.Buffer
	done        chan struct{} // closed when it has ended
}

func (p *place) start(args ...string) *face {
	p.t.Helper()
	f := &face{args: args, cmd: exec.CommandContext(context.Background(), p.bin, args...), done: make(chan struct{})}
	f.cmd.Dir, f.cmd.Env, f.cmd.Stdout, f.cmd.Stderr = p.dir, p.env, &f.stdout, &f.err
	f.cmd.WaitDelay = patience
	if err := f.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	go func() { // ends with the process, for which whoever started it waits
		defer close(f.done)
		_ = f.cmd.Wait() // its state says it all
	}()
	return f
}

// code is the exit code of a face that has ended, or 128 and the signal.
func (f *face) code() int {
	st := f.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if st.Signaled() {
		return 128 + int(st.Signal())
	}
	return st.ExitStatus()
}

func (f *face) text() string { return strings.TrimSpace(f.stdout.String()) }

func (f *face) String() string {
	return fmt.Sprintf("drover %s: exit code %d\nstdout: %s\nstderr: %s", strings.Join(f.args, " "), f.code(), f.text(), f.err.String())
}

// errHangs says that a face does not end.
var errHangs = errors.New("does not end")

// ended waits for the end.
func (f *face) ended() error {
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-f.done:
		return nil
	case <-late.C:
		_ = f.cmd.Process.Signal(syscall.SIGQUIT)
		<-f.done
		return fmt.Errorf("drover %s %w\n%s", strings.Join(f.args, " "), errHangs, f.err.String())
	}
}

// run calls drover and waits for its end.
func (p *place) run(args ...string) *face {
	p.t.Helper()
	f := p.start(args...)
	if err := f.ended(); err != nil {
		p.t.Fatal(err)
	}
	return f
}

// good calls what must succeed.
func (p *place) good(args ...string) string {
	p.t.Helper()
	f := p.run(args...)
	if f.code() != 0 {
		p.t.Fatal(f)
	}
	return f.text()
}

// shown is a task as a face shows it.
type shown struct {
	ID       string `json:"task_id"`
	Name     string `json:"name"`
	Status   string `json:"status"`
	Stopping bool   `json:"stopping"`
	ExitCode *int   `json:"exit_code"`
	Cause    *struct {
		Actor  string `json:"actor"`
		Reason string `json:"reason"`
	} `json:"cause"`
}

func (s shown) ended() bool { return s.Status != "pending" && s.Status != "running" }

// String is the status, and of an end the reason and the exit code.
func (s shown) String() string {
	out := s.Status
	if s.Cause != nil {
		out += ":" + s.Cause.Reason
	}
	if s.ExitCode != nil && *s.ExitCode >= 0 && s.Status != "killed" {
		out += fmt.Sprintf(":%d", *s.ExitCode)
	}
	return out
}

// tasks are those that ps shows, by their IDs.
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
