//go:build linux

package museum

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/model/modeltest"
	"github.com/drover-dev/drover/internal/platform/waittest"
	"github.com/drover-dev/drover/task"
)

// patience bounds every wait; on an idle machine none comes near it.
const patience = 60 * time.Second

// mark is in the environment of everything that is started in a room.
const mark = "MUSEUM_MARK"

// room is a folder with a state of its own, and everything that runs there.
type room struct {
	t    *testing.T
	bin  string
	work string
	dir  string // the project
	env  []string
}

func newRoom(t *testing.T, bin string) *room {
	t.Helper()
	r := &room{t: t, bin: bin, work: t.TempDir()}
	r.dir = filepath.Join(r.work, "project")
	sockets, err := os.MkdirTemp("/tmp", "dm") // the path of a socket must be short
	r.must(err)
	for _, dir := range []string{r.dir, filepath.Join(r.work, "user"), filepath.Join(r.work, "config", "drover")} {
		r.must(os.MkdirAll(dir, 0o700))
	}
	r.env = []string{"PATH=" + filepath.Dir(bin) + ":" + os.Getenv("PATH"), "HOME=" + filepath.Join(r.work, "user"),
		"DROVER_HOME=" + filepath.Join(r.work, "state"), "XDG_CONFIG_HOME=" + filepath.Join(r.work, "config"), "XDG_RUNTIME_DIR=" + sockets,
		"TMPDIR=" + r.work, mark + "=" + r.work}
	t.Cleanup(func() {
		r.close()
		r.must(os.RemoveAll(sockets))
	})
	return r
}

// close ends hosts and faces as a shutdown would. Whatever is left then is an
// error, and is ended too.
func (r *room) close() {
	for _, x := range r.procs("drover") {
		if x.role() != "keeper" {
			_ = syscall.Kill(x.pid, syscall.SIGTERM) // it may end by itself at this moment
		}
	}
	if !waittest.Until(patience, func() bool { return len(r.procs("")) == 0 }) {
		for _, x := range r.procs("") {
			r.t.Errorf("left running: %s", x.line)
			_ = syscall.Kill(x.pid, syscall.SIGKILL)
		}
	}
}

func (r *room) must(err error) {
	if err != nil {
		r.t.Helper()
		r.t.Fatal(err)
	}
}

// proc is a process of a room.
type proc struct {
	pid  int
	line string
}

// role is the first word behind drover, or empty.
func (x proc) role() string {
	if f := strings.Fields(x.line); len(f) > 1 && filepath.Base(f[0]) == "drover" {
		return f[1]
	}
	return ""
}

// procs are the live processes of the room with a text in their command line.
func (r *room) procs(text string) []proc {
	names, err := filepath.Glob("/proc/[0-9]*/environ")
	r.must(err)
	var out []proc
	for _, name := range names {
		env, err := os.ReadFile(name)
		if err != nil || !slices.Contains(strings.Split(string(env), "\x00"), mark+"="+r.work) {
			continue // it has ended, or is not ours
		}
		dir := filepath.Dir(name)
		line, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		pid, notNumber := strconv.Atoi(filepath.Base(dir))
		x := proc{pid, strings.TrimSpace(strings.ReplaceAll(string(line), "\x00", " "))}
		if err == nil && notNumber == nil && x.line != "" && strings.Contains(x.line, text) {
			out = append(out, x)
		}
	}
	return out
}

// of are those with a role.
func (r *room) of(role string) []proc {
	return slices.DeleteFunc(r.procs("drover"), func(x proc) bool { return x.role() != role })
}

// kill ends the one process of a role by KILL.
func (r *room) kill(role string) {
	r.t.Helper()
	var all []proc
	if !waittest.Until(patience, func() bool { all = r.of(role); return len(all) == 1 }) { // for a moment, what it starts looks like it
		r.t.Fatalf("of %s there are %v", role, all)
	}
	r.must(syscall.Kill(all[0].pid, syscall.SIGKILL))
	waittest.Until(patience, func() bool { return len(r.of(role)) == 0 })
}

// stateOf is the letter for what a process does.
func (r *room) stateOf(pid int) string {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	r.must(err)
	_, rest, _ := strings.Cut(string(data), ") ")
	return rest[:1]
}

// none waits until nothing with a text runs, and tells how long that took.
func (r *room) none(text string) time.Duration {
	r.t.Helper()
	begin := time.Now()
	if !waittest.Until(patience, func() bool { return len(r.procs(text)) == 0 }) {
		r.t.Errorf("left: %v", r.procs(text))
	}
	return time.Since(begin)
}

// some waits until so many run.
func (r *room) some(n int, text string) {
	r.t.Helper()
	if !waittest.Until(patience, func() bool { return len(r.procs(text)) >= n }) {
		r.t.Fatalf("of %q there are %v", text, r.procs(""))
	}
}

// face is a drover that somebody has called.
type face struct {
	r           *room
	cmd         *exec.Cmd
	stdout, err bytes.Buffer
	done        chan struct{} // closed when it has ended
}

func (r *room) start(args ...string) *face {
	r.t.Helper()
	f := &face{r: r, cmd: exec.CommandContext(context.Background(), r.bin, args...), done: make(chan struct{})}
	f.cmd.Dir, f.cmd.Env, f.cmd.Stdout, f.cmd.Stderr, f.cmd.WaitDelay = r.dir, r.env, &f.stdout, &f.err, patience
	r.must(f.cmd.Start())
	go func() { // ends with the process, for which whoever started it waits
		defer close(f.done)
		_ = f.cmd.Wait() // its state says it all
	}()
	return f
}

// code waits for the end and is the exit code, or 128 and the signal.
func (f *face) code() int {
	f.r.t.Helper()
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-f.done:
	case <-late.C:
		_ = f.cmd.Process.Signal(syscall.SIGQUIT)
		<-f.done
		f.r.t.Fatalf("%q does not end\n%s", f.cmd.Args[1:], f.err.String())
	}
	st := f.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if st.Signaled() {
		return 128 + int(st.Signal())
	}
	return st.ExitStatus()
}

func (f *face) text() string { return strings.TrimSpace(f.stdout.String()) }

func (f *face) String() string {
	return fmt.Sprintf("drover %q: exit code %d\nstdout: %s\nstderr: %s", f.cmd.Args[1:], f.code(), f.text(), f.err.String())
}

// good calls what must succeed.
func (r *room) good(args ...string) string {
	r.t.Helper()
	f := r.start(args...)
	if f.code() != 0 {
		r.t.Fatal(f)
	}
	return f.text()
}

// ends calls what must end with a code.
func (r *room) ends(code int, args ...string) *face {
	r.t.Helper()
	f := r.start(args...)
	if f.code() != code {
		r.t.Fatalf("want exit code %d: %s", code, f)
	}
	return f
}

// tasks are those of all sessions.
func (r *room) tasks() (all []task.Record) {
	r.t.Helper()
	r.must(json.Unmarshal([]byte(r.good("ps", "-a", "--all-sessions", "--json")), &all))
	return all
}

// task finds one that fits.
func (r *room) task(what string, fits func(task.Record) bool) task.Record {
	r.t.Helper()
	all := r.tasks()
	if i := slices.IndexFunc(all, fits); i >= 0 {
		return all[i]
	}
	r.t.Fatalf("no task is %s: %+v", what, all)
	return task.Record{}
}

func (r *room) named(name string) task.Record {
	r.t.Helper()
	return r.task(name, func(x task.Record) bool { return x.Name == name })
}

// how is an end in a few words.
func how(x task.Record) string {
	out := string(x.Status)
	if x.Cause != nil {
		out += fmt.Sprintf(", %s by %s", x.Cause.Reason, x.Cause.Actor)
		if x.Cause.Signal != "" {
			out += ", " + x.Cause.Signal
		}
	}
	if x.ExitCode != nil && *x.ExitCode > 0 {
		out += fmt.Sprintf(", exit code %d", *x.ExitCode)
	}
	return out
}

// want compares.
func (r *room) want(what string, got, want any) {
	r.t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		r.t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// says checks that a text holds others.
func (r *room) says(what, text string, pieces ...string) {
	r.t.Helper()
	for _, piece := range pieces {
		if !strings.Contains(text, piece) {
			r.t.Errorf("%s does not say %q: %.4000s", what, piece, text)
		}
	}
}

// file writes a file of the project.
func (r *room) file(name, text string) string {
	r.t.Helper()
	path := filepath.Join(r.dir, name)
	r.must(os.MkdirAll(filepath.Dir(path), 0o700))
	r.must(os.WriteFile(path, []byte(text), 0o700))
	return path
}

// settings are those of the user.
func (r *room) settings(all object) {
	r.t.Helper()
	raw, err := json.Marshal(all)
	r.must(err)
	r.must(os.WriteFile(filepath.Join(r.work, "config", "drover", "settings.json"), raw, 0o600))
}

// fifo makes a pipe on which commands wait.
func (r *room) fifo(name string) string {
	r.t.Helper()
	r.must(syscall.Mkfifo(filepath.Join(r.dir, name), 0o600))
	return name
}

// free lets the command go on that waits at a pipe.
func (r *room) free(name string) {
	r.t.Helper()
	if !waittest.Until(patience, func() bool {
		f, err := os.OpenFile(filepath.Join(r.dir, name), os.O_WRONLY|syscall.O_NONBLOCK, 0)
		if err != nil {
			return false
		}
		_, err = f.WriteString("go\n")
		return err == nil && f.Close() == nil
	}) {
		r.t.Fatalf("nobody waits at %s", name)
	}
}

type object = map[string]any

// serve gives the room a model.
func (r *room) serve(answer modeltest.Handler) *modeltest.Server {
	r.t.Helper()
	s, err := modeltest.New(answer)
	r.must(err)
	r.t.Cleanup(s.Close)
	r.env = append(r.env, "ANTHROPIC_BASE_URL="+s.URL, "ANTHROPIC_API_KEY=sk-test")
	return s
}

// step answers one request of an agent.
type step func(ctx context.Context, q *modeltest.Request) modeltest.Answer

// script has each agent walk through the list of its type, whose last step stays.
func (r *room) script(lists map[string][]step) *modeltest.Server {
	var mu sync.Mutex
	next := map[string]int{}
	return r.serve(func(ctx context.Context, q *modeltest.Request) modeltest.Answer {
		list := lists[q.Agent()]
		if len(list) == 0 {
			return modeltest.Error(400, "invalid_request_error", "no part for "+q.Agent())
		}
		mu.Lock()
		who := q.Agent() + q.AgentID()
		n := min(next[who], len(list)-1)
		next[who]++
		mu.Unlock()
		return list[n](ctx, q)
	})
}

func says(text string) step {
	return func(context.Context, *modeltest.Request) modeltest.Answer { return modeltest.Text(text) }
}

func calls(tool string, input object) step {
	return func(context.Context, *modeltest.Request) modeltest.Answer { return modeltest.Call(tool, input) }
}

// many calls a tool n times in one reply.
func many(n int, tool string, input func(i int) object) step {
	return func(context.Context, *modeltest.Request) modeltest.Answer {
		var a modeltest.Answer
		for i := range n {
			a.Blocks = append(a.Blocks, modeltest.ToolUse("", tool, input(i)))
		}
		return a
	}
}

// held answers once something is closed.
func held(until <-chan struct{}, s step) step {
	return func(ctx context.Context, q *modeltest.Request) modeltest.Answer {
		a := s(ctx, q)
		a.Wait = until
		return a
	}
}

// never answers.
func never(ctx context.Context, _ *modeltest.Request) modeltest.Answer {
	<-ctx.Done()
	return modeltest.Text("never")
}

// refused is a provider that does not answer.
func refused(context.Context, *modeltest.Request) modeltest.Answer {
	return modeltest.Error(400, "invalid_request_error", "out of order")
}

func using(tokens int64, s step) step {
	return func(ctx context.Context, q *modeltest.Request) modeltest.Answer {
		a := s(ctx, q)
		a.Usage.InputTokens = tokens
		return a
	}
}

func bash(line string) object { return object{"command": line} }

func later(line string) object { return object{"command": line, "run_in_background": true} }

// agent is the input of a call that starts one; more are further fields by turns.
func agent(kind, prompt string, more ...any) object {
	in := object{"description": prompt, "prompt": prompt, "subagent_type": kind}
	for i := 0; i < len(more); i += 2 {
		in[more[i].(string)] = more[i+1]
	}
	return in
}

// heard is all that was said to an agent by its last request.
func (r *room) heard(m *modeltest.Server, label string) string {
	r.t.Helper()
	for _, q := range slices.Backward(m.Requests()) {
		if q.Agent() == label {
			return r.conversation(q)
		}
	}
	r.t.Fatalf("%s has asked for nothing", label)
	return ""
}

// conversation is the text of all messages of a request, results included.
func (r *room) conversation(q *modeltest.Request) string {
	r.t.Helper()
	p, err := q.Params()
	r.must(err)
	var out strings.Builder
	for _, m := range p.Messages {
		blocks, err := m.Blocks()
		r.must(err)
		for _, b := range blocks {
			var s string
			if b.Type == "tool_result" && json.Unmarshal(b.Content, &s) != nil {
				s = string(b.Content)
			}
			out.WriteString(b.Text + s + "\n")
		}
	}
	return out.String()
}

// requests counts those of an agent.
func requests(m *modeltest.Server, label string) (n int) {
	for _, q := range m.Requests() {
		if q.Agent() == label {
			n++
		}
	}
	return n
}

// notices counts how often a text has the notice of a task.
func notices(text string, id task.ID) int {
	return strings.Count(text, "<task-id>"+string(id)+"</task-id>")
}

// matched is the first group of a pattern in a text.
func matched(pattern, text string) string {
	if m := regexp.MustCompile(pattern).FindStringSubmatch(text); m != nil {
		return m[1]
	}
	return "nothing matches " + pattern
}

// anything may be done by the agents of a prompt.
const anything = "--permission-mode=bypassPermissions"
