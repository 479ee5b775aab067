package shell_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/drover-dev/drover/internal/driver/shell"
	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/internal/engine/process"
	"github.com/drover-dev/drover/internal/engine/tty"
	"github.com/drover-dev/drover/task"
)

// The test binary plays the programs that tests need.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "role" {
		play(os.Args[2], os.Args[3:])
		return
	}
	goleak.VerifyTestMain(m)
}

func play(role string, args []string) {
	switch role {
	case "exit":
		n, _ := strconv.Atoi(args[0])
		os.Exit(n)
	case "ignore-term":
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
		fmt.Println("ready")
		time.Sleep(time.Hour) // not for ever: the runtime would see a deadlock
	case "tty":
		if err := tty.Run(args[0]); err != nil {
			os.Exit(1)
		}
	case "both":
		fmt.Println("to stdout")
		fmt.Fprintln(os.Stderr, "to stderr")
	}
}

func self(role ...string) shell.Command {
	return shell.Command{Args: append([]string{os.Args[0], "role"}, role...)}
}

// host is the least host that a command can run in.
type host struct {
	task.Host // what a command must not use panics

	t     *testing.T
	rec   task.Record
	input []byte
	path  string
	limit int64
	begun chan task.Process
	fail  error // of Begun
	mu    sync.Mutex
}

func newHost(t *testing.T, c shell.Command) *host {
	t.Helper()
	in, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	id := task.NewID(task.LocalBash)
	h := &host{t: t, input: in, path: filepath.Join(t.TempDir(), string(id)+".output"), begun: make(chan task.Process, 1)}
	h.rec = task.Record{ID: id, Session: "s00shell0", Status: task.Running}
	t.Cleanup(func() {
		process.EndAll(context.Background(), process.Choice{Root: func(p process.Proc) bool {
			return p.Carries(process.MarkTask, string(id))
		}}, process.Ending{})
	})
	return h
}

func (h *host) Record() task.Record    { return h.rec }
func (h *host) Input() json.RawMessage { return h.input }
func (h *host) Output() task.Output    { return h }
func (h *host) Path() string           { return h.path }
func (h *host) Limit() int64           { return h.limit }

func (h *host) Begun(p task.Process) error {
	if h.fail == nil {
		h.begun <- p
	}
	return h.fail
}

func (h *host) File() (*os.File, error) {
	return os.OpenFile(h.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
}

func (h *host) Write(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f, err := h.File()
	if err != nil {
		return 0, err
	}
	defer f.Close()
	return f.Write(b)
}

func (h *host) Size() int64 {
	fi, err := os.Stat(h.path)
	if err != nil {
		return 0
	}
	return fi.Size()
}

func (h *host) text() string {
	b, err := os.ReadFile(h.path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		h.t.Error(err)
	}
	return string(b)
}

// says waits until the output holds the text. There is no event for what a
// child writes by its own descriptor.
func (h *host) says(text string) {
	h.t.Helper()
	limit, done := context.WithTimeout(context.Background(), 20*time.Second)
	defer done()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !strings.Contains(h.text(), text) {
		select {
		case <-tick.C:
		case <-limit.Done():
			h.t.Fatalf("output is %q, want %q", h.text(), text)
		}
	}
}

type outcome struct {
	res task.Result
	err error
}

// launch runs a driver and returns the way to stop it and to have its outcome.
func launch(t *testing.T, d task.Driver, h *host) (context.CancelCauseFunc, func() (task.Result, error)) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(context.Background())
	out := make(chan outcome, 1)
	go func() {
		res, err := d.Run(ctx, h)
		out <- outcome{res, err}
	}()
	join := sync.OnceValue(func() outcome {
		select {
		case o := <-out:
			return o
		case <-time.After(30 * time.Second):
			panic("the run does not end")
		}
	})
	t.Cleanup(func() { cancel(&task.StopError{Grace: new(time.Duration)}); join() })
	return cancel, func() (task.Result, error) { o := join(); return o.res, o.err }
}

func client() shell.Client { return shell.Client{Env: os.Environ()} }

func driver() *shell.Driver { return shell.New(shell.Config{}).For(client()) }

func run(t *testing.T, h *host) (task.Result, error) {
	t.Helper()
	_, join := launch(t, driver(), h)
	return join()
}

func reason(err error) task.Reason {
	var fail *task.FailError
	if errors.As(err, &fail) {
		return fail.Reason
	}
	return ""
}

func TestCheck(t *testing.T) {
	d := shell.New(shell.Config{})
	for name, c := range map[string]struct {
		input string
		ok    bool
	}{
		"line":     {`{"line":"true"}`, true},
		"args":     {`{"args":["true"],"cwd":"/"}`, true},
		"empty":    {`{}`, false},
		"both":     {`{"line":"true","args":["true"]}`, false},
		"noname":   {`{"args":[""]}`, false},
		"relative": {`{"line":"true","cwd":"here"}`, false},
		"nul":      {`{"line":"echo \u0000"}`, false},
		"unknown":  {`{"line":"true","env":["A=b"]}`, false},
		"text":     {`true`, false},
		"none":     {``, false},
	} {
		t.Run(name, func(t *testing.T) {
			if err := d.Check(json.RawMessage(c.input)); (err == nil) != c.ok {
				t.Errorf("Check = %v", err)
			}
		})
	}
}

func TestExit(t *testing.T) {
	for _, code := range []int{0, 1, 2, 77, 127, 128, 143, 255} {
		t.Run(strconv.Itoa(code), func(t *testing.T) {
			res, err := run(t, newHost(t, self("exit", strconv.Itoa(code))))
			if res.ExitCode == nil || *res.ExitCode != code || res.Signal != "" {
				t.Errorf("result %+v", res)
			}
			if code == 0 && err != nil || code != 0 && (reason(err) != task.ReasonExit || err.Error() != "exit code "+strconv.Itoa(code)) {
				t.Errorf("err = %v", err)
			}
		})
	}
}

func TestSignal(t *testing.T) {
	for _, sig := range []int{1, 2, 6, 9, 11, 13, 15, 34, 64} {
		name := process.SignalName(syscall.Signal(sig))
		t.Run(name, func(t *testing.T) {
			res, err := run(t, newHost(t, shell.Command{Line: fmt.Sprintf("ulimit -c 0; kill -%d $$", sig)}))
			if res.ExitCode == nil || *res.ExitCode != -1 || res.Signal != name || reason(err) != task.ReasonSignal {
				t.Errorf("result %+v, %v", res, err)
			}
		})
	}
}

func TestOutput(t *testing.T) {
	h := newHost(t, self("both"))
	if _, err := run(t, h); err != nil {
		t.Fatal(err)
	}
	if got := h.text(); got != "to stdout\nto stderr\n" {
		t.Errorf("output %q", got)
	}
}

// Nobody is there to answer: a read ends at once.
func TestStdin(t *testing.T) {
	h := newHost(t, shell.Command{Line: `read x || echo nothing; pwd`, Cwd: "/usr"})
	if _, err := run(t, h); err != nil || h.text() != "nothing\n/usr\n" {
		t.Errorf("output %q, %v", h.text(), err)
	}
}

func TestRefused(t *testing.T) {
	for name, c := range map[string]shell.Command{
		"program": {Args: []string{"no-such-program-here"}},
		"folder":  {Line: "true", Cwd: "/no/such/folder"},
	} {
		t.Run(name, func(t *testing.T) {
			res, err := run(t, newHost(t, c))
			if reason(err) != task.ReasonStart || res.ExitCode != nil {
				t.Errorf("result %+v, %v", res, err)
			}
		})
	}
}

func TestEnvironment(t *testing.T) {
	env := []string{"PATH=" + os.Getenv("PATH"), "KEEP=me", "ANTHROPIC_API_KEY=secret", "OPENAI_API_KEY=secret",
		"CLAUDE_CODE_OAUTH_TOKEN=secret", "DROVER_TOKEN=secret", "DROVER_TASK_ID=outer", "MY_API_KEY=mine"}
	before := slices.Clone(env)
	h := newHost(t, shell.Command{Args: []string{"env"}})
	_, join := launch(t, shell.New(shell.Config{}).For(shell.Client{Env: env}), h)
	if _, err := join(); err != nil {
		t.Fatal(err)
	}
	got := h.text()
	for _, want := range []string{"KEEP=me\n", "MY_API_KEY=mine\n", "DROVER_TASK_ID=" + string(h.rec.ID) + "\n", "DROVER_SESSION=s00shell0\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in %q", want, got)
		}
	}
	if strings.Contains(got, "secret") || strings.Contains(got, "outer") || !slices.Equal(env, before) {
		t.Errorf("environment %q", got)
	}
}

// A bash that moves while the host lives is found where it is now.
func TestBashMoves(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	real, err := exec.LookPath("bash")
	if err == nil {
		err = os.Symlink(real, filepath.Join(first, "bash"))
	}
	if err != nil {
		t.Fatal(err)
	}
	d := shell.New(shell.Config{}).For(shell.Client{Env: []string{"PATH=" + first + ":" + second}})
	for range 2 {
		h := newHost(t, shell.Command{Line: "echo $0"})
		_, join := launch(t, d, h)
		if _, err := join(); err != nil || h.text() != "bash\n" {
			t.Fatalf("printed %q, %v", h.text(), err)
		}
		if _, err := os.Lstat(filepath.Join(first, "bash")); err == nil {
			if err := os.Rename(filepath.Join(first, "bash"), filepath.Join(second, "bash")); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func stopBy(grace time.Duration) error {
	return &task.StopError{Cause: task.Cause{Actor: task.ByUser, Reason: task.ReasonStopped}, Grace: &grace}
}

func TestStop(t *testing.T) {
	for name, c := range map[string]struct {
		cmd    shell.Command
		says   string
		grace  time.Duration
		signal string
		code   int
	}{
		"polite":   {shell.Command{Line: "trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.01; done"}, "ready", 10 * time.Second, "", 0},
		"plain":    {shell.Command{Line: "echo ready; exec sleep 1000"}, "ready", 10 * time.Second, "SIGTERM", -1},
		"stubborn": {self("ignore-term"), "ready", 50 * time.Millisecond, "SIGKILL", -1},
		"atonce":   {shell.Command{Line: "echo ready; exec sleep 1000"}, "ready", 0, "SIGKILL", -1},
		"stopped":  {shell.Command{Line: "echo ready; kill -STOP $$; exec sleep 1000"}, "ready", 10 * time.Second, "SIGTERM", -1},
		"escaped":  {shell.Command{Line: "setsid sh -c 'echo ready; exec sleep 1000' & exec sleep 1000"}, "ready", 10 * time.Second, "SIGTERM", -1},
		"daemon":   {shell.Command{Line: "(setsid sh -c '(echo ready; exec sleep 1000) &' &); exec sleep 1000"}, "ready", 10 * time.Second, "SIGTERM", -1},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, c.cmd)
			stop, join := launch(t, driver(), h)
			h.says(c.says)
			cause := stopBy(c.grace)
			stop(cause)
			res, err := join()
			if err != cause {
				t.Errorf("err = %v, want the cause", err)
			}
			if res.ExitCode == nil || *res.ExitCode != c.code || res.Signal != c.signal || len(res.Left) > 0 {
				t.Errorf("result %+v", res)
			}
			var sent []string
			for _, s := range res.Signals {
				sent = append(sent, s.Signal)
			}
			if killed := slices.Contains(sent, "SIGKILL"); killed != (c.signal == "SIGKILL") || len(sent) == 0 {
				t.Errorf("sent %v", res.Signals)
			}
			alone(t, h)
		})
	}
}

// alone checks that nothing of the task is left.
func alone(t *testing.T, h *host) {
	t.Helper()
	var table process.Table
	if left := table.Marked(process.MarkTask, string(h.rec.ID)); len(left) > 0 {
		t.Errorf("left: %+v", left)
	}
}

// A command that goes and leaves a child behind has ended; the child goes too.
func TestLeftover(t *testing.T) {
	h := newHost(t, shell.Command{Line: "sleep 1000 & echo done"})
	res, err := run(t, h)
	if err != nil || res.ExitCode == nil || *res.ExitCode != 0 || len(res.Signals) == 0 {
		t.Errorf("result %+v, %v", res, err)
	}
	alone(t, h)
}

func TestLimit(t *testing.T) {
	h := newHost(t, shell.Command{Args: []string{"yes"}})
	h.limit = 100 << 10
	res, err := run(t, h)
	if reason(err) != task.ReasonOutputLimit || len(res.Signals) == 0 {
		t.Errorf("result %+v, %v", res, err)
	}
	if c, ok := lifecycle.Ending(nil, res, err); !ok || c.Verb != task.Fail || c.Cause.Reason != task.ReasonOutputLimit {
		t.Errorf("recorded as %+v", c)
	}
	alone(t, h)
}

// A start that cannot be recorded leaves no process.
func TestUnrecorded(t *testing.T) {
	h := newHost(t, shell.Command{Line: "sleep 1000"})
	h.fail = errors.New("disk full")
	if _, err := run(t, h); !errors.Is(err, h.fail) {
		t.Errorf("err = %v", err)
	}
	alone(t, h)
}

func TestTee(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.WriteString("question\n"); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	defer r.Close()
	var out, errs bytes.Buffer
	c := client()
	c.Stdin, c.Tee = r, &shell.Tee{Stdout: &out, Stderr: &errs}
	h := newHost(t, shell.Command{Line: "cat; head -c 300000 /dev/zero; echo oops >&2; exit 3"})
	_, join := launch(t, shell.New(shell.Config{}).For(c), h)
	res, err := join()
	if reason(err) != task.ReasonExit || res.ExitCode == nil || *res.ExitCode != 3 {
		t.Errorf("result %+v, %v", res, err)
	}
	if out.Len() != len("question\n")+300000 || !strings.HasPrefix(out.String(), "question\n") || errs.String() != "oops\n" {
		t.Errorf("%d bytes on stdout, %q on stderr", out.Len(), errs.String())
	}
	if n := int(h.Size()); n != out.Len()+errs.Len() {
		t.Errorf("%d bytes in the file", n)
	}
}

// Somebody who left the group holds the pipe: the reader must not hang.
func TestTeeHeld(t *testing.T) {
	var out, errs bytes.Buffer
	c := client()
	c.Tee = &shell.Tee{Stdout: &out, Stderr: &errs}
	h := newHost(t, shell.Command{Line: "setsid -f sleep 1000; echo done"})
	_, join := launch(t, shell.New(shell.Config{}).For(c), h)
	if _, err := join(); err != nil || out.String() != "done\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
	alone(t, h)
}
