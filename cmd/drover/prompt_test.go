package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/test/harness"
	"github.com/drover-dev/drover/test/modeltest"
)

// patience bounds every wait of these tests; none comes near it.
const patience = 30 * time.Second

// TestPrompt asks the built program, as a user or a program does, with a model
// provider on the true wire or a script in its place.
func TestPrompt(t *testing.T) {
	bin := build(t)
	for _, group := range []cases{promptOutputs(), promptOptions(), promptTasks(), promptEnds(), promptFailures(), promptAutopilot(), promptExports()} {
		for name, test := range group {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t, newPlace(t, bin))
			})
		}
	}
}

// cases are tests by their names.
type cases map[string]func(*testing.T, *place)

// place is a folder with a state of its own, from which the program is started.
type place struct {
	t    *testing.T
	work string // the mark of all that is started here
	dir  string // the project
	env  []string
}

// newPlace makes a place. All that was started in it must be gone at the end.
func newPlace(t *testing.T, bin string) *place {
	t.Helper()
	h := harness.New(t, filepath.Join(bin, "drover"))
	p := &place{t: t, work: h.Work, dir: h.Dir, env: h.Env}
	t.Cleanup(func() {
		if left := finish(p.work); len(left) > 0 {
			t.Errorf("left running: %q", left)
		}
		if err := os.RemoveAll(h.Sockets); err != nil {
			t.Error(err)
		}
	})
	return p
}

// model starts a provider for the place. Each agent walks through its list.
func (p *place) model(lists map[string][]step) *modeltest.Server {
	p.t.Helper()
	return p.answers(walk(lists))
}

// answers serves a model.
func (p *place) answers(h modeltest.Handler) *modeltest.Server {
	p.t.Helper()
	s, err := modeltest.New(h)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(s.Close)
	p.env = append(p.env, "ANTHROPIC_BASE_URL="+s.URL, "ANTHROPIC_API_KEY=sk-test")
	return s
}

// step answers one request of an agent.
type step func(*modeltest.Request) modeltest.Answer

func walk(lists map[string][]step) modeltest.Handler {
	var mu sync.Mutex
	next := map[string]int{}
	return func(_ context.Context, r *modeltest.Request) modeltest.Answer {
		mu.Lock()
		who := r.Agent() + r.AgentID()
		n := next[who]
		next[who]++
		mu.Unlock()
		if list := lists[r.Agent()]; n < len(list) {
			return list[n](r)
		}
		return modeltest.Error(400, "invalid_request_error", fmt.Sprintf("no step %d for %s", n+1, r.Agent()))
	}
}

func says(text string) step {
	return func(*modeltest.Request) modeltest.Answer { return modeltest.Text(text) }
}

func calls(tool string, input any) step {
	return func(*modeltest.Request) modeltest.Answer { return modeltest.Call(tool, input) }
}

// several calls tools in one reply, given as name and input by turns.
func several(pairs ...any) step {
	var a modeltest.Answer
	for i := 0; i < len(pairs); i += 2 {
		a.Blocks = append(a.Blocks, modeltest.ToolUse("", pairs[i].(string), pairs[i+1]))
	}
	return func(*modeltest.Request) modeltest.Answer { return a }
}

// held answers once c is closed.
func held(c <-chan struct{}, s step) step {
	return func(r *modeltest.Request) modeltest.Answer {
		a := s(r)
		a.Wait = c
		return a
	}
}

// bash is the input of a command.
func bash(line string) map[string]any { return map[string]any{"command": line} }

func later(line string) map[string]any {
	return map[string]any{"command": line, "run_in_background": true}
}

// found returns what the first group of a pattern matched in all that was said.
func found(r *modeltest.Request, pattern string) string {
	p, err := r.Params()
	if err != nil {
		return err.Error()
	}
	for _, m := range slices.Backward(p.Messages) {
		blocks, _ := m.Blocks()
		for _, b := range blocks {
			if got := regexp.MustCompile(pattern).FindStringSubmatch(b.Text + "\n" + string(b.Content)); got != nil {
				return got[1]
			}
		}
	}
	return "nothing matches " + pattern
}

// file writes a file of the project.
func (p *place) file(name, text string) string {
	p.t.Helper()
	path := filepath.Join(p.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
	return path
}

// fifo makes a named pipe on which commands of a test can wait.
func (p *place) fifo(name string) string {
	p.t.Helper()
	path := filepath.Join(p.dir, name)
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		p.t.Fatal(err)
	}
	return path
}

// free lets the command go on that reads from a fifo.
func (p *place) free(fifo string) {
	p.t.Helper()
	if !within(patience, func() bool {
		f, err := os.OpenFile(fifo, os.O_WRONLY|syscall.O_NONBLOCK, 0)
		if err != nil {
			return false
		}
		_, err = f.WriteString("go\n")
		return err == nil && f.Close() == nil
	}) {
		p.t.Errorf("nobody reads %s", fifo)
	}
}

// running is the program at work.
type running struct {
	p      *place
	cmd    *exec.Cmd
	stderr printed

	mu    sync.Mutex
	lines []string      // of stdout
	grown chan struct{} // closed and replaced with every line
	done  chan struct{} // closed at the end of stdout
}

func (p *place) command(args ...string) *exec.Cmd {
	path := ""
	for _, kv := range p.env {
		if v, ok := strings.CutPrefix(kv, "PATH="); ok {
			path, _, _ = strings.Cut(v, string(os.PathListSeparator))
		}
	}
	cmd := exec.CommandContext(p.t.Context(), filepath.Join(path, "drover"), args...)
	cmd.Dir, cmd.Env = p.dir, p.env
	return cmd
}

// start starts the program. Its stdout is read as it comes.
func (p *place) start(args ...string) *running {
	p.t.Helper()
	return p.startWith(nil, args...)
}

// startWith is start with something to read on stdin.
func (p *place) startWith(in *os.File, args ...string) *running {
	p.t.Helper()
	r := &running{p: p, cmd: p.command(args...), grown: make(chan struct{}), done: make(chan struct{})}
	if in != nil {
		r.cmd.Stdin = in
	}
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	r.cmd.Stderr = &r.stderr
	if err := r.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	go func() { // ends with stdout; wait waits for it
		defer close(r.done)
		s := bufio.NewScanner(out)
		s.Buffer(nil, 64<<20)
		for s.Scan() {
			r.mu.Lock()
			r.lines = append(r.lines, s.Text())
			close(r.grown)
			r.grown = make(chan struct{})
			r.mu.Unlock()
		}
	}()
	return r
}

// until waits for a line of stdout that holds all texts.
func (r *running) until(texts ...string) string {
	r.p.t.Helper()
	late := time.After(patience)
	for n := 0; ; {
		r.mu.Lock()
		lines, grown := r.lines, r.grown
		r.mu.Unlock()
		for ; n < len(lines); n++ {
			if !slices.ContainsFunc(texts, func(t string) bool { return !strings.Contains(lines[n], t) }) {
				return lines[n]
			}
		}
		select {
		case <-grown:
		case <-r.done:
			r.mu.Lock()
			more := len(r.lines) > n
			r.mu.Unlock()
			if !more {
				r.p.t.Fatalf("stdout ended without %q:\n%s", texts, strings.Join(lines, "\n"))
			}
		case <-late:
			r.p.t.Fatalf("no %q on stdout:\n%s", texts, strings.Join(lines, "\n"))
		}
	}
}

// wait returns how the program ended.
func (r *running) wait() result {
	r.p.t.Helper()
	select {
	case <-r.done:
	case <-time.After(patience):
		_ = r.cmd.Process.Signal(syscall.SIGQUIT)
		<-r.done
		_ = r.cmd.Wait()
		r.p.t.Fatalf("%q does not end\n%s", r.cmd.Args, r.stderr.String())
	}
	err := r.cmd.Wait()
	res := result{code: exitCode(err), stderr: r.stderr.String(), lines: r.lines}
	if res.code < 0 {
		res.code = 128 + int(r.cmd.ProcessState.Sys().(syscall.WaitStatus).Signal())
	}
	return res
}

// says waits for a text on stderr.
func (r *running) says(text string) {
	r.p.t.Helper()
	if !within(patience, func() bool { return strings.Contains(r.stderr.String(), text) }) {
		r.p.t.Fatalf("no %q on stderr:\n%s", text, r.stderr.String())
	}
}

// printed is what a program has printed so far.
type printed struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

func (p *printed) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(b)
}

func (p *printed) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// result is a run of the program that has ended.
type result struct {
	code   int
	stderr string
	lines  []string
}

// stdout is what was printed, without the last newline.
func (r result) stdout() string { return strings.Join(r.lines, "\n") }

// run runs the program to its end, with an empty stdin.
func (p *place) run(args ...string) result {
	p.t.Helper()
	return p.start(args...).wait()
}

// good is run for a call that must succeed and print nothing on stderr, apart from the note
// that MCP servers are slow to start, which depends on the machine.
func (p *place) good(args ...string) result {
	p.t.Helper()
	r := p.run(args...)
	var notes []string
	for line := range strings.Lines(r.stderr) {
		if !strings.Contains(line, "waiting for MCP servers: ") {
			notes = append(notes, line)
		}
	}
	r.stderr = strings.Join(notes, "")
	if r.code != 0 || r.stderr != "" {
		p.t.Fatalf("drover %q: exit code %d\nstdout: %s\nstderr: %s", args, r.code, r.stdout(), r.stderr)
	}
	return r
}

// denied is run for what must succeed and say on stderr exactly what was refused,
// a line for each.
func (p *place) denied(args []string, lines ...string) result {
	p.t.Helper()
	r := p.run(args...)
	want := ""
	for _, line := range lines {
		want += "drover: " + line + "\n"
	}
	if r.code != 0 || r.stderr != want {
		p.t.Fatalf("drover %q: exit code %d\nstdout: %s\nstderr: %s\nwant: %s", args, r.code, r.stdout(), r.stderr, want)
	}
	return r
}

// touchDenied is what is said of a touch that no rule allows.
const touchDenied = "Bash call denied: no rule allows touch (allow it with --allowed-tools 'Bash(touch it)')"

// fails runs what must fail with a code and one line that holds all texts.
func (p *place) fails(code int, args []string, texts ...string) {
	p.t.Helper()
	r := p.run(args...)
	r.failed(p.t, code, texts...)
}

func (r result) failed(t *testing.T, code int, texts ...string) {
	t.Helper()
	if r.code != code || strings.Count(r.stderr, "\n") != 1 || !strings.HasPrefix(r.stderr, "drover: ") {
		t.Errorf("exit code %d, want %d and one line\nstdout: %s\nstderr: %s", r.code, code, r.stdout(), r.stderr)
	}
	for _, text := range texts {
		if !strings.Contains(r.stderr, text) {
			t.Errorf("stderr does not say %q: %s", text, r.stderr)
		}
	}
}

// object is a line of JSON.
type object map[string]any

// objects decodes all of stdout, which must hold JSON only.
func (r result) objects(t *testing.T) []object {
	t.Helper()
	out := make([]object, len(r.lines))
	for i, line := range r.lines {
		if err := json.Unmarshal([]byte(line), &out[i]); err != nil {
			t.Fatalf("line %d is no JSON: %v\n%s", i+1, err, line)
		}
		if out[i]["session_id"] == "" || out[i]["uuid"] == "" {
			t.Errorf("line %d lacks session_id or uuid: %s", i+1, line)
		}
	}
	return out
}

// kind is the type and subtype of a line.
func (o object) kind() string {
	if sub, ok := o["subtype"].(string); ok && o["type"] == "system" {
		return sub
	}
	return fmt.Sprint(o["type"])
}

// only returns the lines of some kinds, in order.
func only(all []object, kinds ...string) []object {
	return slices.DeleteFunc(slices.Clone(all), func(o object) bool { return !slices.Contains(kinds, o.kind()) })
}

func kindsOf(all []object) []string {
	out := make([]string, len(all))
	for i, o := range all {
		out[i] = o.kind()
	}
	return out
}

// texts are the texts of all messages of a request, tool results included.
func texts(t *testing.T, r *modeltest.Request) []string {
	t.Helper()
	p, err := r.Params()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, m := range p.Messages {
		blocks, err := m.Blocks()
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range blocks {
			out = append(out, text(b))
		}
	}
	return out
}

func text(b agent.Block) string {
	if b.Type != "tool_result" {
		return b.Text
	}
	var s string
	if json.Unmarshal(b.Content, &s) != nil {
		return string(b.Content)
	}
	return s
}

// of returns the requests of one sort of agent.
func of(s *modeltest.Server, label string) []*modeltest.Request {
	return slices.DeleteFunc(s.Requests(), func(r *modeltest.Request) bool { return r.Agent() != label })
}

// count counts texts that hold a piece.
func count(all []string, piece string) (n int) {
	for _, s := range all {
		n += strings.Count(s, piece)
	}
	return n
}

// user writes the settings of the user.
func (p *place) user(text string) {
	p.t.Helper()
	dir := filepath.Join(p.work, "config", "drover")
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "settings.json"), []byte(text), 0o600)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}
