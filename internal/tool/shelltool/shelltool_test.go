package shelltool

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/tool/toolkit"
	"github.com/drover-dev/drover/task"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// real runs commands in the foreground, as children of the test.
type real struct{ last Command }

func (r *real) Run(ctx context.Context, c Command) (Outcome, error) {
	r.last = c
	cmd := exec.CommandContext(ctx, c.Args[0], c.Args[1:]...)
	cmd.Dir = c.Cwd
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return Outcome{}, err
	}
	code := cmd.ProcessState.ExitCode()
	rec := task.Record{ID: "b00000001", Status: task.Completed, ExitCode: &code, OutputFile: "/o/b00000001.output",
		OutputBytes: int64(len(out))}
	if code != 0 {
		rec.Status = task.Failed
		rec.Cause = &task.Cause{Actor: task.ByItself, Reason: task.ReasonExit}
		rec.Error = "exit code"
	}
	return Outcome{Task: rec, Output: string(out)}, nil
}

// fixed answers every command alike.
type fixed struct {
	last Command
	out  Outcome
	err  error
}

func (f *fixed) Run(_ context.Context, c Command) (Outcome, error) {
	f.last = c
	return f.out, f.err
}

func call(t *testing.T, tool agent.Tool, input string) agent.Output {
	t.Helper()
	ctx, done := context.WithTimeout(t.Context(), 20*time.Second)
	defer done()
	out, err := tool.Call(ctx, agent.Call{ID: "toolu_1", Name: "Bash", Input: json.RawMessage(input)})
	if err != nil {
		t.Fatalf("Call(%s): %v", input, err)
	}
	return out
}

func line(command string) string {
	in, _ := json.Marshal(map[string]string{"command": command})
	return string(in)
}

func TestDirectory(t *testing.T) {
	root, temp := t.TempDir(), t.TempDir()
	root, _ = filepath.EvalSymlinks(root)
	sub := filepath.Join(root, "it's a dir")
	if err := os.Mkdir(sub, 0o755); err != nil {
		t.Fatal(err)
	}
	tool := New(Config{Shells: &real{}, Root: root, TempDir: temp})
	pwd := func() string { return strings.TrimSpace(call(t, tool, line("pwd")).Text) }

	call(t, tool, line(`cd "it's a dir" && false`))
	if got := pwd(); got != sub {
		t.Fatalf("after cd in %q, want %q", got, sub)
	}
	call(t, tool, line("cd /; exit 3"))
	if got := pwd(); got != "/" {
		t.Fatalf("after exit in %q, want /", got)
	}
	call(t, tool, line("(cd /tmp)"))
	if got := pwd(); got != "/" {
		t.Fatalf("a subshell moved us to %q", got)
	}
	call(t, tool, line("cd '"+strings.ReplaceAll(sub, "'", `'\''`)+"'"))
	if err := os.Remove(sub); err != nil {
		t.Fatal(err)
	}
	out := call(t, tool, line("pwd"))
	if !strings.HasPrefix(out.Text, "Note: the working directory "+sub+" is gone") ||
		!strings.Contains(out.Text, "\n"+root) {
		t.Fatalf("gone directory: %q", out.Text)
	}
	if err := os.Remove(root); err != nil {
		t.Fatal(err)
	}
	out = call(t, tool, line("pwd"))
	if !strings.HasPrefix(out.Text, "Note: the working directory "+root+" is gone") ||
		!strings.Contains(out.Text, "\n"+filepath.Dir(root)) {
		t.Fatalf("gone project: %q", out.Text)
	}
	if left, _ := os.ReadDir(temp); len(left) != 0 {
		t.Errorf("%d files left in the temporary folder", len(left))
	}
}

func TestScript(t *testing.T) {
	shells := &real{}
	tool := New(Config{Shells: shells, Root: t.TempDir(), TempDir: t.TempDir()})
	for _, c := range []struct{ name, command, text string }{
		{"code", "echo hi; exit 7", "hi\n\nExit code 7"},
		{"both", "echo a; echo b >&2", "a\nb\n"},
		{"heredoc", "cat <<X\none\nX", "one\n"},
		{"quotes", `printf '%s\n' "it's"`, "it's\n"},
		{"silent", "true", "(no output)"},
		{"silentfail", "false", "(no output)\n\nExit code 1"},
		{"escapes", `printf '\033[31mred\033[0m\r\n'`, "red\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			out := call(t, tool, line(c.command))
			if out.Text != c.text {
				t.Errorf("text %q, want %q", out.Text, c.text)
			}
			if out.IsError != strings.Contains(c.text, "Exit code") {
				t.Errorf("IsError %v", out.IsError)
			}
			if shells.last.Line != c.command {
				t.Errorf("shown as %q", shells.last.Line)
			}
		})
	}
	out := call(t, tool, line("nosuchcommand_x"))
	if !strings.Contains(out.Text, "line 1:") || !strings.HasSuffix(out.Text, "Exit code 127") {
		t.Errorf("line numbers of messages: %q", out.Text)
	}
}

func TestBackground(t *testing.T) {
	shells := &fixed{out: Outcome{Backgrounded: true, Task: task.Record{ID: "b12345678", Status: task.Running,
		OutputFile: "/o/b12345678.output", TimeoutMS: 5000}}}
	tool := New(Config{Shells: shells, Root: t.TempDir(), TempDir: t.TempDir()})
	out := call(t, tool, `{"command":"make","run_in_background":true,"timeout":5000,"description":"Build"}`)
	want := "Background task started.\nTask ID: b12345678\nOutput file: /o/b12345678.output\nIt will be stopped after 5 " +
		"s in all.\n" +
		"You will be told when it ends."
	if out.Text != want || out.IsError {
		t.Errorf("text %q", out.Text)
	}
	got, _ := json.Marshal(out.Structured)
	if want := `{"stdout":"","stderr":"","interrupted":false,"isImage":false,"code":0,"taskId":"b12345678",` +
		`"backgroundTaskId":"b12345678","outputFile":"/o/b12345678.output"}`; string(got) != want {
		t.Errorf("structured %s", got)
	}
	if c := shells.last; !c.Background || c.Timeout != 5*time.Second || c.Description != "Build" ||
		c.ToolUseID != "toolu_1" || strings.Join(c.Args, " ") != "bash -c make" {
		t.Errorf("command %+v", c)
	}
}

func TestPromoted(t *testing.T) {
	rec := task.Record{ID: "b12345678", Status: task.Running, OutputFile: "/o", OutputBytes: 4}
	for _, c := range []struct {
		name  string
		out   Outcome
		first string
		json  string
	}{
		{"user", Outcome{Task: rec, Output: "abc\n", Backgrounded: true, ByUser: true},
			"The user moved the command to the background", `"backgroundTaskId":"b12345678","backgroundedByUser":true`},
		{"timeout", Outcome{Task: rec, Output: "abc\n", Backgrounded: true, TimedOut: true},
			"The command did not end within 120 s and was moved", `"timedOutAfterMs":120000`},
	} {
		t.Run(c.name, func(t *testing.T) {
			temp := t.TempDir()
			out := call(t, New(Config{Shells: &fixed{out: c.out}, Root: t.TempDir(), TempDir: temp}), line("make"))
			if !strings.HasPrefix(out.Text, c.first) || !strings.HasSuffix(out.Text, "Output so far:\nabc\n") || out.IsError {
				t.Errorf("text %q", out.Text)
			}
			if got, _ := json.Marshal(out.Structured); !strings.Contains(string(got), c.json) ||
				!strings.Contains(string(got), `"code":0,`) {
				t.Errorf("structured %s", got)
			}
			if left, _ := os.ReadDir(temp); len(left) != 0 {
				t.Errorf("a file is left for a command that goes on")
			}
		})
	}
}

func TestEnding(t *testing.T) {
	none, three := -1, 3
	for _, c := range []struct {
		name string
		out  Outcome
		want string
	}{
		{"signal", Outcome{Task: task.Record{Status: task.Failed, ExitCode: &none,
			Cause: &task.Cause{Actor: task.ByItself, Reason: task.ReasonSignal, Signal: "SIGSEGV"}, Error: "signal"}},
			"Ended by signal SIGSEGV"},
		{"memory", Outcome{Task: task.Record{Status: task.Failed, ExitCode: &none,
			Cause: &task.Cause{Actor: task.ByItself, Reason: task.ReasonOutOfMemory, Signal: "SIGKILL",
				Detail: "for want of memory"}, Error: "x"}}, "Ended by signal SIGKILL\nReason: for want of memory"},
		{"stopped", Outcome{Task: task.Record{Status: task.Killed, Cause: &task.Cause{Actor: task.ByUser,
			Reason: task.ReasonStopped}}}, "Stopped by user (stopped)"},
		{"timeout", Outcome{TimedOut: true, Task: task.Record{Status: task.Failed, ExitCode: &none,
			Cause: &task.Cause{Actor: task.ByRuntime, Reason: task.ReasonTimeout}}}, "Stopped: it did not end within 120 s."},
		{"start", Outcome{Task: task.Record{Status: task.Failed, Error: "start bash: no\nsuch file",
			Cause: &task.Cause{Reason: task.ReasonStart}}}, "Error: start bash: no such file"},
		{"cap", Outcome{Task: task.Record{Status: task.Failed, ExitCode: &three, Error: "output limit",
			Cause: &task.Cause{Reason: task.ReasonOutputLimit}}}, "Exit code 3\nError: output limit"},
	} {
		t.Run(c.name, func(t *testing.T) {
			out := call(t, New(Config{Shells: &fixed{out: c.out}, Root: t.TempDir()}), line("x"))
			if want := "(no output)\n\n" + c.want; out.Text != want || !out.IsError {
				t.Errorf("text %q, want %q (error %v)", out.Text, want, out.IsError)
			}
			if res := out.Structured.(Result); res.Interrupted != (c.name == "stopped") {
				t.Errorf("interrupted %v", res.Interrupted)
			}
		})
	}
}

func TestTruncated(t *testing.T) {
	zero := 0
	long := strings.Repeat("ü", 500)
	for _, c := range []struct {
		name   string
		output string
		bytes  int64
		end    string
	}{
		{"long", long, int64(len(long)), "ü"},
		{"alreadycut", "\xbctail", 5000, "]\n\ntail"},
	} {
		t.Run(c.name, func(t *testing.T) {
			rec := task.Record{Status: task.Completed, ExitCode: &zero, OutputFile: "/o/b1.output", OutputBytes: c.bytes}
			out := call(t, New(Config{Shells: &fixed{out: Outcome{Task: rec, Output: c.output}}, Root: t.TempDir(),
				OutputLimit: 100}), line("x"))
			if !strings.HasPrefix(out.Text, "[Truncated. Full output: /o/b1.output]\n\n") ||
				!strings.HasSuffix(out.Text, c.end) || len([]rune(out.Text)) > 100 {
				t.Errorf("text %q", out.Text)
			}
			if res := out.Structured.(Result); res.PersistedOutputPath != "/o/b1.output" || res.PersistedOutputSize != c.bytes {
				t.Errorf("structured %+v", res)
			}
		})
	}
}

func TestInput(t *testing.T) {
	shells := &fixed{}
	tool := New(Config{Shells: shells, Root: t.TempDir()})
	for _, c := range []struct{ name, in, want string }{
		{"none", `{}`, `Bash: field "command" is missing`},
		{"blank", `{"command":" "}`, `Bash: field "command" is empty`},
		{"nul", `{"command":"a\u0000b"}`, `Bash: field "command" contains a NUL character`},
		{"below", `{"command":"x","timeout":-1}`, `Bash: field "timeout" must be from 0 to 7200000, not -1`},
		{"above", `{"command":"x","timeout":600001}`,
			`Bash: field "timeout" must be from 0 to 600000, not 600001 in the foreground; use run_in_background for more`},
		{"bgabove", `{"command":"x","timeout":7200001,"run_in_background":true}`,
			`Bash: field "timeout" must be from 0 to 7200000, not 7200001`},
		{"unknown", `{"command":"x","cwd":"/"}`,
			`Bash: unknown field "cwd"; the fields are command, description, run_in_background, timeout, tty`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if out := call(t, tool, c.in); !out.IsError || out.Text != c.want {
				t.Errorf("text %q, want %q", out.Text, c.want)
			}
		})
	}
	if shells.last.Line != "" {
		t.Error("a refused command was run")
	}
	call(t, tool, `{"command":"x","timeout":600000}`)
	if shells.last.Timeout != 10*time.Minute {
		t.Errorf("timeout %v", shells.last.Timeout)
	}
	call(t, tool, `{"command":"x","run_in_background":true}`)
	if shells.last.Timeout != 0 {
		t.Errorf("background timeout %v", shells.last.Timeout)
	}
}

func TestErrors(t *testing.T) {
	refused := call(t, New(Config{Shells: &fixed{err: &toolkit.Refusal{Text: "no place"}}, Root: t.TempDir()}), line("x"))
	if !refused.IsError || refused.Text != "Bash: no place" {
		t.Errorf("refusal: %+v", refused)
	}
	_, err := New(Config{Shells: &fixed{err: context.Canceled}, Root: t.TempDir()}).Call(t.Context(),
		agent.Call{Input: json.RawMessage(line("x"))})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func TestSpec(t *testing.T) {
	a, b := New(Config{}).Spec(), New(Config{}).Spec()
	if string(a.InputSchema) != string(b.InputSchema) || a.Description != b.Description {
		t.Error("two tools of different bytes")
	}
	var s struct {
		Additional *bool                      `json:"additionalProperties"`
		Properties map[string]json.RawMessage `json:"properties"`
	}
	if err := json.Unmarshal(a.InputSchema, &s); err != nil || s.Additional == nil || *s.Additional ||
		len(s.Properties) != 5 {
		t.Errorf("schema %s: %v", a.InputSchema, err)
	}
	for _, n := range []string{"120000", "600000", "7200000"} {
		if !strings.Contains(a.Description, n) {
			t.Errorf("%s is not told", n)
		}
	}
	if strings.Contains(a.Description, "%!") {
		t.Errorf("description %s", a.Description)
	}
}
