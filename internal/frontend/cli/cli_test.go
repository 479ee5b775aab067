package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/frontend/cli/console"
	"github.com/drover-dev/drover/internal/frontend/cli/run"
	"github.com/drover-dev/drover/task"
)

// sample is a project with a live session, what a dead one left, and another
// project.
func sample() *world {
	live := newSession("slive0000", true,
		task.Record{ID: "a11111111", Name: "review", Kind: task.LocalAgent, Status: task.Running, Idle: true, Backgrounded: true, Parent: "a22222222",
			Description: "look at\tthe\ndiff", CreateTime: at(30), StartTime: when(31), Progress: &task.Progress{TokenCount: 12_345}},
		task.Record{ID: "a22222222", Kind: task.LocalAgent, Status: task.Running, Stopping: true, AwaitingApproval: true, Backgrounded: true,
			Prompt: "do it", CreateTime: at(20), StartTime: when(20)},
		task.Record{ID: "b33333333", Name: "queued", Kind: task.LocalBash, Status: task.Pending, Backgrounded: true, Command: "make test",
			CreateTime: at(10), Progress: &task.Progress{Message: "place 3 of 7"}},
		task.Record{ID: "b44444444", Name: "bad", Kind: task.LocalBash, Status: task.Failed, Backgrounded: true, Command: "false", CreateTime: at(5), StartTime: when(5), EndTime: when(6),
			ExitCode: ptr(1), Cause: &task.Cause{Actor: task.ByItself, Reason: task.ReasonExit}},
	)
	dead := newSession("sdead0000", false,
		task.Record{ID: "b55555555", Name: "old", Kind: task.LocalBash, Status: task.Killed, Backgrounded: true, Command: "sleep 9", CreateTime: at(1), StartTime: when(1), EndTime: when(3),
			ExitCode: ptr(-1), Cause: &task.Cause{Actor: task.ByUser, Reason: task.ReasonStopped, Signal: "SIGTERM"}},
	)
	other := newSession("sother000", true,
		task.Record{ID: "b66666666", Name: "review", Kind: task.LocalBash, Status: task.Running, Command: "top", CreateTime: at(2), StartTime: when(2)},
		task.Record{ID: "b67777777", Name: "far", Kind: task.LocalBash, Status: task.Completed, Command: "true", CreateTime: at(1), StartTime: when(1), EndTime: when(2), ExitCode: ptr(0), Cause: &task.Cause{Actor: task.ByItself, Reason: task.ReasonDone}},
	)
	return &world{mine: []*session{live, dead}, others: []*session{other}, background: newSession("sback0000", true)}
}

func TestPs(t *testing.T) {
	for name, c := range map[string]struct{ args, want string }{
		"live": {"ps", `
ID         NAME    KIND     STATUS                                 AGE      TIME  TOKENS  EXIT  COMMAND
a11111111  review  agent    running (idle)                         30s ago  29s   12.3k   -     look at the diff
a22222222  -       agent    running (stopping, needs your answer)  40s ago  40s   -       -     do it
b33333333  queued  command  pending (place 3 of 7)                 50s ago  0.0s  -       -     make test
`},
		"all": {"ps -a", `
ID         NAME    KIND     STATUS                                 AGE      TIME  TOKENS  EXIT  REASON               COMMAND
a11111111  review  agent    running (idle)                         30s ago  29s   12.3k   -     -                    look at the diff
a22222222  -       agent    running (stopping, needs your answer)  40s ago  40s   -       -     -                    do it
b33333333  queued  command  pending (place 3 of 7)                 50s ago  0.0s  -       -     -                    make test
b44444444  bad     command  failed                                 55s ago  1.0s  -       1     -                    false
b55555555  old     command  killed                                 59s ago  2.0s  -       -     stopped by the user  sleep 9
`},
		"tree": {"ps --tree", `
ID           NAME    KIND     STATUS                                 AGE      TIME  TOKENS          COST        EXIT  COMMAND
a22222222    -       agent    running (stopping, needs your answer)  40s ago  40s   - (tree 12.3k)  - (tree -)  -     do it
  a11111111  review  agent    running (idle)                         30s ago  29s   12.3k           -           -     look at the diff
b33333333    queued  command  pending (place 3 of 7)                 50s ago  0.0s  -               -           -     make test
`},
		"quiet": {"ps -aq", `
a11111111
a22222222
b33333333
b44444444
b55555555
`},
		"everywhere": {"ps -q --all-sessions", `
a11111111
a22222222
b33333333
b66666666
`},
	} {
		t.Run(name, func(t *testing.T) {
			got := sample().do(t, cmdArgs(c.args)...)
			want := strings.TrimPrefix(c.want, "\n")
			if got.code != 0 || got.err != "" || squeeze(got.out) != squeeze(want) {
				t.Errorf("code %d, stderr %q\ngot:\n%swant:\n%s", got.code, got.err, got.out, want)
			}
		})
	}
}

// squeeze makes runs of blanks one, but keeps the indent.
func squeeze(s string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		indent := len(l) - len(strings.TrimLeft(l, " "))
		lines[i] = strings.Repeat(" ", indent) + strings.Join(strings.Fields(l), " ")
	}
	return strings.Join(lines, "\n")
}

// What agents are about stands beside their work, in a width that a terminal has.
func TestPsAgents(t *testing.T) {
	agent := func(id task.ID, s int, change func(*task.Record)) task.Record {
		r := task.Record{ID: id, Kind: task.LocalAgent, Status: task.Running, Backgrounded: true, Description: "look at the diff", CreateTime: at(s), StartTime: when(s)}
		change(&r)
		return r
	}
	long := strings.Repeat("very long ", 20)
	w := &world{mine: []*session{newSession("slive0000", true,
		agent("a11111111", 50, func(r *task.Record) {
			r.Model, r.Progress = "claude-sonnet-4-5", &task.Progress{TokenCount: 1200, Message: "Reading\nthe tests"}
		}),
		agent("a22222222", 40, func(r *task.Record) {
			r.Model, r.Progress = "openai/"+strings.ReplaceAll(long, " ", "-"), &task.Progress{Message: "Reading", Summary: long}
			r.Description = long
		}),
		agent("a33333333", 30, func(r *task.Record) { r.Idle, r.Progress = true, &task.Progress{Message: "Reading"} }),
		agent("a44444444", 20, func(r *task.Record) {
			r.Status, r.StartTime, r.Progress = task.Pending, nil, &task.Progress{Message: "queued, place 2"}
		}),
		agent("a55555555", 10, func(r *task.Record) {
			r.Status, r.EndTime, r.Progress, r.Usage = task.Completed, when(12), &task.Progress{Message: "Reading"}, &task.Usage{TotalTokens: 30}
			r.ExitCode, r.Cause = ptr(0), &task.Cause{Actor: task.ByItself, Reason: task.ReasonDone}
		}),
		task.Record{ID: "b66666666", Kind: task.LocalBash, Status: task.Running, Backgrounded: true, Command: "make", CreateTime: at(5), StartTime: when(5), Progress: &task.Progress{Message: "x"}},
	)}}
	want := strings.TrimPrefix(`
ID         NAME  KIND     STATUS                     AGE      TIME  MODEL                       TOKENS  EXIT  COMMAND
a11111111  -     agent    running                    10s ago  10s   Sonnet 4.5                  1.2k    -     look at the diff: Reading the tests
a22222222  -     agent    running                    20s ago  20s   openai/very-long-very-lon…  -       -     very long very long very long…: very long very long very long very long very long…
a33333333  -     agent    running (idle)             30s ago  30s   -                           -       -     look at the diff
a44444444  -     agent    pending (queued, place 2)  40s ago  0.0s  -                           -       -     look at the diff
a55555555  -     agent    completed                  50s ago  2.0s  -                           30      0     look at the diff
b66666666  -     command  running                    55s ago  55s   -                           -       -     make
`, "\n")
	got := w.do(t, "ps", "-a")
	if got.out != want {
		t.Errorf("got\n%swant\n%s", got.out, want)
	}
	if all := w.do(t, "ps", "-a", "--all-sessions"); !strings.HasPrefix(squeeze(all.out), "ID SESSION NAME KIND STATUS AGE TIME MODEL") {
		t.Errorf("got\n%s", all.out)
	}
}

func TestPsColumns(t *testing.T) {
	got := sample().do(t, "ps").out
	lines := strings.Split(strings.TrimSpace(got), "\n")
	for _, l := range lines {
		if strings.Contains(l, "local_") && strings.Index(l, "local_") != strings.Index(lines[0], "KIND") {
			t.Errorf("columns are not aligned:\n%s", got)
		}
	}
}

func TestPsJSON(t *testing.T) {
	w := sample()
	got := w.do(t, "ps", "-a", "--json")
	var records []task.Record
	if err := json.Unmarshal([]byte(got.out), &records); err != nil || got.code != 0 {
		t.Fatalf("%v: %s", err, got.out)
	}
	if len(records) != 5 || !reflect.DeepEqual(records[0], w.mine[0].tasks[0]) {
		t.Errorf("got %+v", records)
	}
	if got := (&world{}).do(t, "ps", "--json"); got.out != "[]\n" {
		t.Errorf("nothing is %q", got.out)
	}
}

func TestPsLimit(t *testing.T) {
	s := newSession("slive0000", true)
	for i := range 300 {
		s.tasks = append(s.tasks, task.Record{ID: task.ID(fmt.Sprintf("b%08d", i)), Status: task.Running, CreateTime: at(-i)})
	}
	w := &world{mine: []*session{s}}
	for args, want := range map[string]struct {
		lines int
		note  bool
	}{
		"ps": {201, true}, "ps --limit 0": {301, false}, "ps --limit 5": {6, true}, "ps --limit 300": {301, false},
		"ps -q": {300, false}, "ps -q --limit 7": {7, false}, "ps --json": {302, false},
	} {
		got := w.do(t, cmdArgs(args)...)
		if n := strings.Count(got.out, "\n"); n != want.lines || (got.err != "") != want.note {
			t.Errorf("%s: %d lines, stderr %q", args, n, got.err)
		}
	}
}

// TestPsDamage: a session that does not answer hides no other.
func TestPsDamage(t *testing.T) {
	w := sample()
	broken := newSession("sbroken00", true)
	broken.openErr = errors.New("connection \x1b[31mrefused")
	w.mine = append(w.mine, broken)
	got := w.do(t, "ps", "-q")
	if got.code != 0 || strings.Count(got.out, "\n") != 3 || got.err != "drover: open session sbroken00: connection refused\n" {
		t.Errorf("got %+v", got)
	}
}

func TestRunArguments(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want control.StartRequest
	}{
		"dashes":   {[]string{"run", "-d", "--", "--settings", "x"}, control.StartRequest{Shell: &control.ShellRequest{Args: []string{"--settings", "x"}}}},
		"flags":    {[]string{"run", "-d", "make", "-j4", "--name", "x"}, control.StartRequest{Shell: &control.ShellRequest{Args: []string{"make", "-j4", "--name", "x"}}}},
		"inner":    {[]string{"run", "-d", "--", "a", "--", "-d"}, control.StartRequest{Shell: &control.ShellRequest{Args: []string{"a", "--", "-d"}}}},
		"command":  {[]string{"run", "-d", "--", "ps", "-a"}, control.StartRequest{Shell: &control.ShellRequest{Args: []string{"ps", "-a"}}}},
		"self":     {[]string{"run", "-d", "run", "run"}, control.StartRequest{Shell: &control.ShellRequest{Args: []string{"run", "run"}}}},
		"help":     {[]string{"run", "-d", "ls", "--help"}, control.StartRequest{Shell: &control.ShellRequest{Args: []string{"ls", "--help"}}}},
		"empty":    {[]string{"run", "-d", "echo", ""}, control.StartRequest{Shell: &control.ShellRequest{Args: []string{"echo", ""}}}},
		"line":     {[]string{"run", "-d", "echo hi | wc"}, control.StartRequest{Shell: &control.ShellRequest{Line: "echo hi | wc"}}},
		"all":      {[]string{"run", "-d", "--name", "n", "--timeout", "1m", "--keep", "x"}, control.StartRequest{Name: "n", Timeout: time.Minute, Keep: true, Shell: &control.ShellRequest{Args: []string{"x"}}}},
		"keep":     {[]string{"run", "--keep", "x"}, control.StartRequest{Keep: true, Shell: &control.ShellRequest{Args: []string{"x"}}}},
		"value":    {[]string{"run", "-d", "--name=--settings", "x"}, control.StartRequest{Name: "--settings", Shell: &control.ShellRequest{Args: []string{"x"}}}},
		"detached": {[]string{"run", "--detach", "x"}, control.StartRequest{Shell: &control.ShellRequest{Args: []string{"x"}}}},
	} {
		t.Run(name, func(t *testing.T) {
			w := sample()
			got := w.do(t, c.args...)
			if got.code != 0 || got.err != "" || got.out != "b00000001\n" {
				t.Fatalf("got %+v", got)
			}
			c.want.Cwd, c.want.Env = "/work", []string{"A=b"}
			if !reflect.DeepEqual(w.background.started[0], c.want) {
				t.Errorf("got %+v, want %+v", w.background.started[0], c.want)
			}
		})
	}
}

func TestUsage(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"command":      {[]string{"frobnicate"}, `unknown command "frobnicate"`},
		"word":         {[]string{"blorp"}, "a prompt of one word is `drover -- WORD`"},
		"words":        {[]string{"fix", "it"}, "a prompt needs quotes"},
		"prompt":       {[]string{"fix it"}, "a conversation needs a terminal on stdin and stdout (use `drover -p"},
		"prompt-word":  {[]string{"--", "ps"}, "a conversation needs a terminal"},
		"similar":      {[]string{"sessoins"}, "did you mean `drover sessions`?"},
		"flag":         {[]string{"ps", "--nope"}, "--nope"},
		"extra":        {[]string{"ps", "x"}, "usage: drover ps"},
		"run-nothing":  {[]string{"run"}, "CMD is required"},
		"run-dashes":   {[]string{"run", "--"}, "CMD is required"},
		"run-empty":    {[]string{"run", "-d", ""}, "CMD is required"},
		"timeout-0":    {[]string{"run", "--timeout", "0", "x"}, "out of range"},
		"timeout-neg":  {[]string{"run", "--timeout=-5s", "x"}, "out of range"},
		"timeout-1e9":  {[]string{"run", "--timeout", "1000000000", "x"}, "out of range"},
		"timeout-exp":  {[]string{"run", "--timeout", "1e9", "x"}, "not a duration"},
		"timeout-huge": {[]string{"run", "--timeout", "99999999999999999999h", "x"}, "not a duration"},
		"timeout-abc":  {[]string{"run", "--timeout", "abc", "x"}, "not a duration"},
		"timeout-none": {[]string{"run", "--timeout", "", "x"}, "not a duration"},
		"timeout-tiny": {[]string{"wait", "--timeout", "1us", "review"}, "out of range"},
		"grace-neg":    {[]string{"stop", "--grace=-1s", "review"}, "out of range"},
		"help":         {[]string{"help", "frobnicate"}, `unknown command "frobnicate"`},
		"help-below":   {[]string{"help", "run", "frobnicate"}, `drover run has no command "frobnicate"`},
		"tail-word":    {[]string{"logs", "-n", "1x", "review"}, `--tail "1x": not a whole number (see ` + "`drover logs --help`)"},
		"tail":         {[]string{"logs", "--tail", "0", "review"}, "--tail 0"},
		"since":        {[]string{"logs", "--since=-1", "review"}, "--since -1"},
		"both":         {[]string{"logs", "--since=1", "--tail=1", "review"}, "mutually exclusive"},
		"limit":        {[]string{"ps", "--limit=-7"}, "out of range"},
		"wait":         {[]string{"wait"}, "usage: drover wait"},
		"batch-words":  {[]string{"run", "--batch", "-", "x"}, "mutually exclusive"},
		"batch-name":   {[]string{"run", "--batch", "-", "--name", "x"}, "--name"},
		"batch-file":   {[]string{"run", "--batch", "/nonexistent/file"}, "no such file"},
		"ambiguous":    {[]string{"inspect", "a"}, "could be any of a11111111, a22222222 (give more of the ID)"},
	} {
		t.Run(name, func(t *testing.T) {
			w := sample()
			got := w.do(t, c.args...)
			if got.code != 2 || got.out != "" || !strings.HasPrefix(got.err, "drover: ") || strings.Count(got.err, "\n") != 1 || !strings.Contains(got.err, c.want) {
				t.Errorf("got %+v", got)
			}
			if len(w.background.started) > 0 {
				t.Error("something was started")
			}
		})
	}
}

func TestDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{"90s": 90 * time.Second, "1h30m": 90 * time.Minute, "5": 5 * time.Second, "0.5": 500 * time.Millisecond, "500ms": 500 * time.Millisecond} {
		if got, err := console.Duration("--timeout", text, 1e6); err != nil || got != want {
			t.Errorf("%s: %s, %v", text, got, err)
		}
	}
}

func TestCodes(t *testing.T) {
	itself := func(r task.Reason) *task.Cause { return &task.Cause{Actor: task.ByItself, Reason: r} }
	for name, c := range map[string]struct {
		r    task.Record
		want int
	}{
		"done":     {task.Record{Status: task.Completed, ExitCode: ptr(0), Cause: itself(task.ReasonDone)}, 0},
		"agent":    {task.Record{Status: task.Completed, Cause: itself(task.ReasonDone)}, 0},
		"exit-7":   {task.Record{Status: task.Failed, ExitCode: ptr(7), Cause: itself(task.ReasonExit)}, 7},
		"exit-255": {task.Record{Status: task.Failed, ExitCode: ptr(255), Cause: itself(task.ReasonExit)}, 255},
		"signal":   {task.Record{Status: task.Failed, ExitCode: ptr(-1), Cause: &task.Cause{Actor: task.ByItself, Reason: task.ReasonSignal, Signal: "SIGSEGV"}}, 139},
		"realtime": {task.Record{Status: task.Failed, ExitCode: ptr(-1), Cause: &task.Cause{Actor: task.ByItself, Reason: task.ReasonSignal, Signal: "SIGRTMIN+2"}}, 164},
		"stopped":  {task.Record{Status: task.Killed, ExitCode: ptr(-1), Cause: &task.Cause{Actor: task.ByUser, Reason: task.ReasonStopped, Signal: "SIGKILL"}}, 137},
		"trapped":  {task.Record{Status: task.Killed, ExitCode: ptr(0), Cause: &task.Cause{Actor: task.ByUser, Reason: task.ReasonStopped}}, 4},
		"agent-4":  {task.Record{Status: task.Killed, Cause: &task.Cause{Actor: task.ByUser, Reason: task.ReasonStopped}}, 4},
		"timeout":  {task.Record{Status: task.Failed, ExitCode: ptr(-1), Cause: &task.Cause{Actor: task.ByRuntime, Reason: task.ReasonTimeout, Signal: "SIGTERM"}}, 124},
		"start":    {task.Record{Status: task.Failed, Cause: itself(task.ReasonStart)}, 127},
		"failed":   {task.Record{Status: task.Failed, Cause: itself(task.ReasonMaxTurns)}, 1},
		"nocause":  {task.Record{Status: task.Failed}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := sample()
			w.foreground = func(run.Foreground) (task.Record, error) { return c.r, nil }
			if got := w.do(t, "run", "x"); got.code != c.want {
				t.Errorf("run: %+v, want %d", got, c.want)
			}
			c.r.ID = "b99999999"
			w.mine[0].tasks = append(w.mine[0].tasks, c.r)
			if got := w.do(t, "wait", "b9"); got.code != c.want {
				t.Errorf("wait: %+v, want %d", got, c.want)
			}
		})
	}
}

func TestForeground(t *testing.T) {
	w := sample()
	w.stdin = strings.NewReader("input")
	w.foreground = func(f run.Foreground) (task.Record, error) {
		in, _ := io.ReadAll(f.Stdin)
		fmt.Fprintf(f.Stdout, "out %s %v", in, f.Request.Shell.Args)
		fmt.Fprint(f.Stderr, "err")
		return task.Record{ID: "b1", Status: task.Completed}, nil
	}
	if got := w.do(t, "run", "cat", "-n"); got != (outcome{0, "out input [cat -n]", "err"}) {
		t.Errorf("got %+v", got)
	}
	got := w.do(t, "run", "--json", "cat") // stdout carries JSON only
	var r task.Record
	if err := json.Unmarshal([]byte(got.out), &r); err != nil || r.ID != "b1" || !strings.Contains(got.err, "out ") {
		t.Errorf("%v %+v", err, got)
	}
	w.foreground = func(run.Foreground) (task.Record, error) { return task.Record{}, errors.New("disk full") }
	if got := w.do(t, "run", "x"); got != (outcome{125, "", "drover: run command: disk full\n"}) {
		t.Errorf("got %+v", got)
	}
	w.background = nil
	if got := w.do(t, "run", "-d", "x"); got.code != 125 {
		t.Errorf("got %+v", got)
	}
	w = sample()
	if got := w.do(t, "run", "-d", "--name", "taken", "x"); got.code != 125 || got.out != "" {
		t.Errorf("got %+v", got)
	}
	if got := w.do(t, "run", "-d", "--json", "x"); !strings.Contains(got.out, `"task_id": "b00000001"`) {
		t.Errorf("got %+v", got)
	}
}

func TestBatch(t *testing.T) {
	w := sample()
	w.stdin = strings.NewReader(`
# a comment
make test
{ echo group; }
{"name":"n","args":["a","b"],"cwd":"sub","timeout":"5s","keep":true}
{"command":"x | y","cwd":"/abs","description":"d"}
{"command":"far","on":"gpu","env_names":["A"],"untracked":["*.bin"]}
{"command":"bare","on":"w1","no_folder":true}
{"command":"plain","on":"w1","sync":true}
last`)
	got := w.do(t, "run", "--batch", "-", "--timeout", "1m", "--on", "auto")
	ids := "b00000001\nb00000002\nb00000003\nb00000004\nb00000005\nb00000006\nb00000007\nb00000008\n"
	if got != (outcome{0, ids, ""}) {
		t.Fatalf("got %+v", got)
	}
	env := []string{"A=b"}
	want := []control.StartRequest{
		{Shell: &control.ShellRequest{Line: "make test"}, Cwd: "/work", Env: env, On: "auto", Timeout: time.Minute},
		{Shell: &control.ShellRequest{Line: "{ echo group; }"}, Cwd: "/work", Env: env, On: "auto", Timeout: time.Minute},
		{Shell: &control.ShellRequest{Args: []string{"a", "b"}}, Name: "n", Cwd: "/work/sub", Env: env, On: "auto", Timeout: 5 * time.Second, Keep: true},
		{Shell: &control.ShellRequest{Line: "x | y"}, Description: "d", Cwd: "/abs", Env: env, On: "auto", Timeout: time.Minute},
		{Shell: &control.ShellRequest{Line: "far"}, Cwd: "/work", Env: env, On: "gpu", EnvNames: []string{"A"},
			Untracked: []string{"*.bin"}, Timeout: time.Minute},
		{Shell: &control.ShellRequest{Line: "bare"}, Cwd: "/work", Env: env, On: "w1", NoFolder: true, Timeout: time.Minute},
		{Shell: &control.ShellRequest{Line: "plain"}, Cwd: "/work", Env: env, On: "w1", Sync: true, Timeout: time.Minute},
		{Shell: &control.ShellRequest{Line: "last"}, Cwd: "/work", Env: env, On: "auto", Timeout: time.Minute},
	}
	if !reflect.DeepEqual(w.background.started, want) {
		t.Errorf("got %+v", w.background.started)
	}
	if w.background.calls != 1 {
		t.Errorf("%d requests for one piece of input", w.background.calls)
	}

	for name, c := range map[string]struct {
		in   string
		code int
		want string
	}{
		"json":    {`{"command":`, 2, "batch line 2: not a task"},
		"unknown": {`{"comand":"x"}`, 2, "batch line 2"},
		"neither": {`{"name":"x"}`, 2, "neither or both"},
		"both":    {`{"command":"x","args":["y"]}`, 2, "neither or both"},
		"second":  {`{"command":"x"} {"command":"y"}`, 2, "one task a line"},
		"timeout": {`{"command":"x","timeout":"-1s"}`, 2, "out of range"},
		"refused": {`{"command":"x","name":"taken"}`, 125, "the name is taken"},
	} {
		t.Run(name, func(t *testing.T) {
			w := sample()
			w.stdin = strings.NewReader("one\n" + c.in + "\nthree\n")
			got := w.do(t, "run", "-d", "--batch", "-")
			if got.code != c.code || got.out != "b00000001\nb00000002\n" || !strings.Contains(got.err, c.want) {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// TestBatchLong: a line that is too long is told, and hinders no other.
func TestBatchLong(t *testing.T) {
	for name, long := range map[string]string{"just": strings.Repeat("x", 1<<20), "by far": strings.Repeat("x", 5<<20)} {
		t.Run(name, func(t *testing.T) {
			w := sample()
			w.stdin = strings.NewReader("one\n" + long + "\nthree\n" + long)
			got := w.do(t, "run", "--batch", "-")
			if got.code != 2 || got.out != "b00000001\nb00000002\n" || !strings.Contains(got.err, "batch line 2: ") || !strings.Contains(got.err, "batch line 4: ") {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// TestBatchLive: a line that has come is started before the next one comes.
func TestBatchLive(t *testing.T) {
	w := sample()
	in, feed := io.Pipe()
	out, sink := io.Pipe()
	w.stdin, w.stdout = in, sink
	ended := make(chan outcome, 1)
	ctx, cancel := context.WithTimeout(t.Context(), testPatience)
	defer cancel()
	go func() { ended <- w.doIn(ctx, "run", "--batch", "-"); _ = sink.Close() }()
	buf := make([]byte, 100)
	for i := range 3 {
		if _, err := io.WriteString(feed, "true\n"); err != nil {
			t.Fatal(err)
		}
		if n, err := out.Read(buf); err != nil || string(buf[:n]) != fmt.Sprintf("b%08d\n", i+1) {
			t.Fatalf("%q %v", buf[:n], err)
		}
	}
	_ = feed.Close()
	if got := recv(t, ended, "end"); got.code != 0 {
		t.Errorf("got %+v", got)
	}
}

func TestResolve(t *testing.T) {
	for name, c := range map[string]struct {
		args string
		code int
		want string // in stdout, or in stderr of an error
	}{
		"name":       {"inspect review", 0, "a11111111"},
		"id":         {"inspect b33333333", 0, "queued"},
		"prefix":     {"inspect b3", 0, "queued"},
		"archive":    {"inspect old", 0, "b55555555"},
		"elsewhere":  {"inspect far", 3, "drover: no task \"far\": unknown ID or name (see `drover ps -a`)"},
		"everywhere": {"inspect --all-sessions far", 0, "b67777777"},
		"livefirst":  {"inspect --all-sessions review", 0, "a11111111"},
		"unknown":    {"logs nobody", 3, "no task"},
		"wait":       {"wait nobody", 3, "no task"},
		"stop":       {"stop nobody", 3, "no task"},
	} {
		t.Run(name, func(t *testing.T) {
			got := sample().do(t, cmdArgs(c.args)...)
			if got.code != c.code || !strings.Contains(got.out+got.err, c.want) || (c.code == 0) != (got.err == "") {
				t.Errorf("got %+v", got)
			}
		})
	}
	w := sample()
	twin := newSession("stwin0000", true, task.Record{ID: "b88888888", Name: "review", Status: task.Running})
	w.mine = append(w.mine, twin)
	got := w.do(t, "inspect", "review")
	if got.code != 2 || !strings.Contains(got.err, "a11111111 (review, session slive0000), b88888888 (review, session stwin0000)") {
		t.Errorf("got %+v", got)
	}
}

func TestLogs(t *testing.T) {
	w := sample()
	w.mine[0].output["b44444444"] = []byte("one\ntwo\nthree and more\n")
	for args, want := range map[string]string{
		"logs bad": "one\ntwo\nthree and more\n", "logs --tail 2 bad": "two\nthree and more\n", "logs --since 8 bad": "three and more\n",
		"logs --since 999 bad": "", "logs -f bad": "one\ntwo\nthree and more\n", "logs -f old": "", "logs queued": "",
	} {
		if got := w.do(t, cmdArgs(args)...); got != (outcome{0, want, ""}) {
			t.Errorf("%s: %+v", args, got)
		}
	}
}

// TestFollow prints what comes until the end, also when the host goes.
func TestFollow(t *testing.T) {
	for _, how := range []string{"ends", "hostlost"} {
		t.Run(how, func(t *testing.T) {
			w := sample()
			s := w.mine[0]
			s.output["b33333333"] = []byte("one\n")
			ctx, cancel := context.WithTimeout(t.Context(), testPatience)
			defer cancel()
			ended := make(chan outcome, 1)
			go func() { ended <- w.doIn(ctx, "logs", "-f", "queued") }()
			recv(t, s.waiting, "wait for more")
			if how == "ends" {
				s.change(func() { s.output["b33333333"] = []byte("one\ntwo\n") })
				recv(t, s.waiting, "wait for more")
				s.finish("b33333333", task.Fail, 1)
			} else {
				left := newSession("slive0000", false, slices.Clone(s.tasks)...)
				left.output["b33333333"] = []byte("one\ntwo\n")
				s.change(func() { w.mine, s.gone = []*session{left}, true })
			}
			if got := recv(t, ended, "end"); got != (outcome{0, "one\ntwo\n", ""}) {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// TestInterrupt ends logs -f and wait and leaves the task alone.
func TestInterrupt(t *testing.T) {
	for _, args := range []string{"logs -f queued", "wait queued review"} {
		for cause, code := range map[error]int{nil: 130, &console.ExitError{Code: 143}: 143} {
			w := sample()
			ctx, cancel := context.WithCancelCause(t.Context())
			ended := make(chan outcome, 1)
			go func() { ended <- w.doIn(ctx, cmdArgs(args)...) }()
			recv(t, w.mine[0].waiting, "wait")
			cancel(cause)
			if got := recv(t, ended, "end"); got != (outcome{code, "", ""}) || len(w.mine[0].stops) > 0 {
				t.Errorf("%s: %+v", args, got)
			}
		}
	}
}

func TestWait(t *testing.T) {
	w := sample()
	s, other := w.mine[0], newSession("sother111", true, task.Record{ID: "b99999999", Status: task.Running})
	w.mine = append(w.mine, other)
	start := func(args string) chan outcome {
		ended := make(chan outcome, 1)
		ctx, cancel := context.WithTimeout(t.Context(), testPatience)
		t.Cleanup(cancel)
		go func() { ended <- w.doIn(ctx, cmdArgs(args)...) }()
		return ended
	}

	if got := recv(t, start("wait --timeout 1ms review"), "time-out"); got.code != 124 || !strings.Contains(got.err, "still running after 1ms: 1 of 1 tasks") {
		t.Errorf("got %+v", got)
	}
	<-s.waiting
	if got := recv(t, start("wait --any b9 old"), "one that has ended"); got.code != 143 || squeeze(got.out) != "b55555555 old killed stopped by the user\n" {
		t.Errorf("got %+v", got)
	}
	first := start("wait --any review b9")
	recv(t, s.waiting, "wait")
	recv(t, other.waiting, "wait")
	other.finish("b99999999", task.Fail, 9)
	if got := recv(t, first, "first end"); got.code != 9 || squeeze(got.out) != "b99999999 - failed 9\n" {
		t.Errorf("got %+v", got)
	}
	every := start("wait --json queued b9 bad")
	recv(t, s.waiting, "wait")
	s.change(func() {
		r := &s.tasks[2]
		r.Status, r.ExitCode, r.EndTime = task.Completed, ptr(0), when(50)
	})
	got := recv(t, every, "all ends")
	var reply control.WaitReply
	if err := json.Unmarshal([]byte(got.out), &reply); err != nil || len(reply.Tasks) != 3 || reply.Tasks[2].Name != "bad" || got.code != 9 {
		t.Errorf("the first code that is not 0, in the order asked: %v %+v", err, got)
	}

	lost := start("wait review")
	recv(t, s.waiting, "wait")
	left := newSession("slive0000", false, slices.Clone(s.tasks)...)
	left.tasks[0].Status, left.tasks[0].Cause = task.Killed, &task.Cause{Actor: task.ByKeeper, Reason: task.ReasonHostLost}
	s.change(func() { w.mine, s.gone = []*session{left}, true })
	if got := recv(t, lost, "end by the loss of the host"); got.code != 4 || !strings.Contains(got.out, "its host died") {
		t.Errorf("got %+v", got)
	}
}

func TestStop(t *testing.T) {
	w := sample()
	got := w.do(t, "stop", "--grace", "0", "review", "queued", "old")
	want := `STOPPED STATUS REASON SIGNALS AFTER
a11111111 killed stopped by the user SIGTERM@0.0s SIGKILL@2.0s 2.0s
b33333333 killed stopped by the user SIGTERM@0.0s SIGKILL@2.0s 2.0s
b55555555 killed stopped by the user - 0.0s
`
	if got.code != 0 || squeeze(got.out) != want {
		t.Errorf("got %+v", got)
	}
	stops := w.mine[0].stops
	if len(stops) != 1 || *stops[0].Grace != 0 || stops[0].Actor != task.ByUser || !slices.Equal(stops[0].Refs, []string{"a11111111", "b33333333"}) || len(w.mine[1].stops) > 0 {
		t.Errorf("asked %+v", stops)
	}
	w.mine[0].receipt = &task.Receipt{Survivors: []task.Survivor{{PID: 42, Command: "dd", Why: "unkillable"}}}
	got = w.do(t, "stop", "--json", "review")
	var r task.Receipt
	if err := json.Unmarshal([]byte(got.out), &r); err != nil || got.code != 1 || r.Survivors[0].PID != 42 || !strings.Contains(got.out, `"stopped": []`) {
		t.Errorf("%v %+v", err, got)
	}
	if got := w.do(t, "stop", "review"); got.code != 1 || !strings.Contains(squeeze(got.out), "pid 42 - unkillable dd") {
		t.Errorf("got %+v", got)
	}
}

func TestShow(t *testing.T) {
	w := sample()
	w.mine[0].text = "the answer"
	w.findings = []console.Finding{{Check: "state", Level: console.Good, Detail: "/x", Fix: ""}, {Check: "disk", Level: console.Bad, Detail: "full", Fix: "make room"}}
	for args, want := range map[string]outcome{
		"result bad":         {1, "the answer\n", "drover: task b44444444 failed: exit code 1\n"},
		"result old":         {143, "", "drover: task b55555555 killed: stopped by the user\n"},
		"result queued":      {1, "", "drover: result of b33333333: task b33333333 has not ended\n"},
		"promote review":     {0, "a11111111\n", ""},
		"promote bad":        {1, "", "drover: promote b44444444: it has ended\n"},
		"sessions rm sd":     {0, "sdead0000\n", ""},
		"sessions rm sl":     {1, "", "drover: remove session slive0000: it is live (stop its tasks first, see `drover ps`)\n"},
		"sessions rm sx":     {3, "", "drover: no session \"sx\" (see `drover sessions --all-sessions`)\n"},
		"sessions rm s":      {2, "", "drover: \"s\" is ambiguous: it could be any of slive0000, sdead0000 (give more of the ID)\n"},
		"doctor":             {1, "CHECK  STATE  DETAIL  FIX\nstate  ok     /x      -\ndisk   error  full    make room\n", "drover: 1 of 2 checks found an error\n"},
		"sessions":           {0, "SESSION    ROLE        STATE  LIVE  TASKS  SIZE  AGE     TITLE\nslive0000  background  live   0     4      0 B   1m ago  -\nsdead0000  background  ended  0     1      0 B   1m ago  -\n", ""},
		"inspect --json old": w.do(t, "inspect", "old"),
	} {
		if got := w.do(t, cmdArgs(args)...); got != want {
			t.Errorf("%s:\ngot  %+v\nwant %+v", args, got, want)
		}
	}
	if !slices.Equal(w.removed, []task.ID{"sdead0000"}) {
		t.Errorf("removed %v", w.removed)
	}
	if got := w.do(t, "result", "--json", "bad"); got.code != 1 || !json.Valid([]byte(got.out)) {
		t.Errorf("result --json of a failed task: %+v", got)
	}
	for _, args := range []string{"version --json", "promote --json review", "sessions --json", "doctor --json"} {
		if got := w.do(t, cmdArgs(args)...); !json.Valid([]byte(got.out)) {
			t.Errorf("%s: %+v", args, got)
		}
	}
	if got := w.do(t, "version"); !strings.HasPrefix(got.out, "drover 1.2.3 (go") {
		t.Errorf("got %+v", got)
	}
}

func TestCompletion(t *testing.T) {
	w := sample()
	got := w.do(t, "__complete", "wait", "q")
	if !strings.HasPrefix(got.out, "queued\tmake test\n:4") {
		t.Errorf("got %+v", got)
	}
	if got := w.do(t, "__complete", "logs", "b"); !strings.Contains(got.out, "b44444444\tfalse\nbad\tfalse\n") {
		t.Errorf("got %+v", got)
	}
	if got := w.do(t, "completion", "bash"); got.code != 0 || !strings.Contains(got.out, "drover") {
		t.Errorf("code %d", got.code)
	}
}

// broken is a stdout whose reader went away.
type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, &net{syscall.EPIPE} }

type net struct{ err error }

func (n *net) Error() string { return "write: " + n.err.Error() }

func (n *net) Unwrap() error { return n.err }

func TestPipe(t *testing.T) {
	for _, args := range []string{"ps", "ps --json", "logs -f bad", "sessions", "stop review", "wait bad", "run -d x", "inspect bad"} {
		w := sample()
		w.mine[0].output["b44444444"] = []byte("text\n")
		w.stdout = broken{}
		if got := w.do(t, cmdArgs(args)...); got.code != 0 || got.err != "" {
			t.Errorf("%s: %+v", args, got)
		}
	}
}

// A command ends with the exit code of its error, and prints nothing if that is all.
func TestExitError(t *testing.T) {
	w := sample()
	w.demo = &console.ExitError{Code: 42}
	if got := w.do(t, "demo"); got != (outcome{42, "", ""}) {
		t.Errorf("got %+v", got)
	}
}

// TestEscapes sends escape sequences through every text that a task, a session
// or an error can carry to a terminal: no byte of them arrives alive.
func TestEscapes(t *testing.T) {
	evil := []string{
		"\x1b[2J", "\x1b[H", "\x1b[31m", "\x1b[6n", "\x1b[c", "\x1b[>c", "\x1b[?1049h", "\x1b[201~", "\x1b[?2004l", "\x1b[5i", "\x1b[1;1H", "\x1b[3J", "\x1b[s", "\x1b[u", "\x1b[21t",
		"\x1b]0;title\x07", "\x1b]2;title\x1b\\", "\x1b]52;c;ZXZpbA==\x07", "\x1b]8;;http://x\x07text\x1b]8;;\x07", "\x1b]1337;File=:AA\x07", "\x1b]4;0;?\x07", "\x1b]10;?\x07", "\x1b]777;notify;a;b\x07",
		"\x1bP$q\"p\x1b\\", "\x1bP+q544e\x1b\\", "\x1bX sos\x1b\\", "\x1b^pm\x1b\\", "\x1b_apc\x1b\\", "\x1bc", "\x1b7", "\x1b8", "\x1bE", "\x1bM", "\x1b(0", "\x1b#8", "\x1b=", "\x1b>", "\x1bZ",
		"\u009b2J", "\u009d0;t\u009c", "\u0090q\u009c", "\u0084", "\u0085", "\u008d", "\x9b2J", "\x9d0;t\x07", "\x90q\x9c",
		"\x00", "\x05", "\x07", "\x08", "\x0b", "\x0c", "\x0e", "\x0f", "\x7f", "\x1b", "\x1b[", "\x1b]",
		"\u202e", "\u2066x\u2069", "\u200b", "\u200f", "\ufeff", "\u061c", "\U000e0041",
	}
	if len(evil) < 60 {
		t.Fatalf("only %d sequences", len(evil))
	}
	for _, e := range evil {
		bad := "A" + e + "Z"
		r := task.Record{ID: "b00000000", Name: bad, Kind: task.Kind(bad), Status: task.Failed, Description: bad, Command: bad, Prompt: bad, Cwd: bad, Error: bad,
			Cause: &task.Cause{Actor: task.Actor(bad), Reason: task.Reason(bad), Signal: bad, Detail: bad}, Progress: &task.Progress{Message: bad, Summary: bad}, CreateTime: at(1)}
		q := r
		q.ID, q.Status, q.Name, q.Cause = "b11111111", task.Pending, "q"+bad, nil
		w := &world{terminal: true, plain: true, background: newSession("sb", true), findings: []console.Finding{{Check: bad, Level: console.Level("ok"), Detail: bad, Fix: bad}}}
		s := newSession("slive0000", true, r, q)
		s.info.Title, s.info.Project, s.info.Role, s.text = bad, bad, bad, bad+"\n"+bad
		s.output["b00000000"] = []byte("line " + bad + "\n" + bad)
		s.receipt = &task.Receipt{Stopped: []task.Stopped{{ID: task.ID(bad), Status: task.Status("s"), Cause: r.Cause, Signals: []task.SignalSent{{Signal: bad}}}}, Survivors: []task.Survivor{{Command: bad, Why: bad, Task: task.ID(bad)}}}
		broken := newSession("sbroken00", true)
		broken.openErr = &control.Error{Code: control.Internal, Message: bad, Fix: bad}
		w.mine = []*session{s, broken}
		w.foreground = func(run.Foreground) (task.Record, error) { return r, nil }
		for _, words := range [][]string{
			{"ps", "-a", "--all-sessions"}, {"ps", "-a", "--tree"}, {"ps", "-aq"}, {"ps", "-a", "--json"}, {"logs", "b0"}, {"logs", "-f", "b0"}, {"result", "b0"}, {"result", "--json", "b0"}, {"inspect", "b0"},
			{"wait", "b0"}, {"wait", "--json", "b0"}, {"stop", "b0"}, {"stop", "--json", "b0"}, {"sessions", "--all-sessions"}, {"sessions", "--json"}, {"doctor"}, {"doctor", "--json"}, {"promote", "b1"},
			{"logs", bad + "?"}, {"sessions", "rm", bad}, {bad}, {"ps", "--" + bad}, {"run", bad}, {"run", "--timeout", bad, "x"}, {"__complete", "wait", ""},
		} {
			got := w.do(t, words...)
			for _, text := range []string{got.out, got.err} {
				if i := alive(text); i >= 0 {
					t.Errorf("%q through %q: alive at %d in %q", e, words, i, text)
				}
			}
		}
	}
}

// alive is where text has a byte that a terminal would act on, or -1.
func alive(text string) int {
	if !utf8.ValidString(text) {
		return 0
	}
	for i, r := range text {
		if r < ' ' && r != '\n' && r != '\t' || r >= 0x7f && (r <= 0x9f || unicode.Is(unicode.Cf, r)) {
			return i
		}
	}
	return -1
}

// TestRaw leaves bytes as they are where they were asked for, and in a pipe.
func TestRaw(t *testing.T) {
	w := sample()
	w.mine[0].output["b44444444"] = []byte("\x1b[31mred\x00\xff\r\n")
	piped := w.do(t, "logs", "bad")
	w.terminal = true
	raw := w.do(t, "logs", "--raw", "bad")
	plain := w.do(t, "logs", "bad")
	if piped.out != "\x1b[31mred\x00\xff\r\n" || raw.out != piped.out || plain.out == raw.out || !strings.Contains(plain.out, "red") {
		t.Errorf("piped %q, raw %q, plain %q", piped.out, raw.out, plain.out)
	}
}

// TestPieces joins characters and lines that came in several pieces.
func TestPieces(t *testing.T) {
	w := sample()
	w.terminal = true
	text := strings.Repeat("✓é", 50) + "\n50%\r100%\nprompt> "
	w.mine[0].output["b44444444"] = []byte(text)
	if got := w.do(t, "logs", "bad"); got.out != strings.Replace(text, "50%\r", "", 1) {
		t.Errorf("got %q", got.out)
	}
	// A line without an end is shown while its task still runs.
	s := w.mine[0]
	s.output["b33333333"] = []byte("password: ")
	out, sink := io.Pipe()
	w.stdout = sink
	ended := make(chan outcome, 1)
	ctx, cancel := context.WithTimeout(t.Context(), testPatience)
	defer cancel()
	go func() { ended <- w.doIn(ctx, "logs", "-f", "queued") }()
	buf := make([]byte, 100)
	if n, err := out.Read(buf); err != nil || string(buf[:n]) != "password: " {
		t.Errorf("%q %v", buf[:n], err)
	}
	s.finish("b33333333", task.Fail, 1)
	recv(t, ended, "end")
}

// An empty list says so on stdout, with the command that fills it; JSON stays an empty array.
func TestEmpty(t *testing.T) {
	w := &world{}
	for args, want := range map[string]string{
		"ps":         "No tasks. Start one with `drover run -d -- make test`.\n",
		"ps -a":      "No tasks. Start one with `drover run -d -- make test`.\n",
		"ps --json":  "[]\n",
		"sessions":   "No sessions. Start one with `drover`.\n",
		"approvals":  "No questions need your answer.\n",
		"attention":  "Nothing needs you.\n",
		"stop --all": "No tasks are running.\n",
		"logs --all": "No tasks are running.\n",
	} {
		if got := w.do(t, cmdArgs(args)...); got != (outcome{0, want, ""}) {
			t.Errorf("%s: %+v", args, got)
		}
	}
}
