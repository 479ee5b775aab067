package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/drover-dev/drover/internal/engine/sandbox"
	"github.com/drover-dev/drover/test/harness"
	"github.com/drover-dev/drover/test/waittest"
)

// TestScript runs the built program as users do. Every script has a state
// folder, a folder of sockets and a mark of its own; whatever carries the mark
// when its script is over is an error, and is ended.
//
// Beside the usual commands a script may use these:
//
//	drover ARG…            the program, which must exit with 0
//	code N ARG…            the program, which must exit with N and print one
//	                       line on stderr, or none
//	capture NAME           sets a variable to the last stdout
//	field PATH [VALUE]     compares a value in the JSON of the last stdout, such
//	                       as 0.cause.reason; without VALUE it must be there
//	fields PATH NAME…      all these names are in a JSON object
//	until D TEXT ARG…      runs the program again until stdout holds the text
//	killhost ROLE          ends the host of the live session of that role by KILL
//	killkeeper             ends the keeper of the detached host by KILL
//	killnamed NAME…        ends what pkill -x finds by these names in the script, all at once
//	hubprogram             puts the program of the hub on the PATH
//	nohost D               within D no host and no keeper is left
//	alive TEXT             a process of the script has the text in its command line
//	gone D TEXT            within D none has
//	stopped TEXT           sends STOP to such processes
//
// The condition mounts holds where a file system of one's own can be mounted, and sandbox where
// commands can be bounded in every way.
func TestScript(t *testing.T) {
	bin := build(t)
	testscript.Run(t, testscript.Params{
		Dir:                filepath.Join("testdata", "script"),
		RequireUniqueNames: true,
		Setup:              func(env *testscript.Env) error { return setUpScript(env, bin) },
		Condition:          condition,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"drover": runDrover, "code": runCode, "capture": capture, "field": field, "fields": fields, "until": until,
			"killhost": killHost, "killkeeper": killKeeper, "killnamed": killNamed, "acpagent": acpAgent, "hubprogram": hubOnPath, "nohost": noHost, "alive": alive, "gone": gone, "stopped": stopped,
		},
	})
}

// condition knows mounts: whether an own file system can be made here.
func condition(name string) (bool, error) {
	if name == "sandbox" {
		return wholeSandbox(), nil
	}
	if name != "mounts" {
		return false, fmt.Errorf("unknown condition %q", name)
	}
	return exec.Command("unshare", "-rm", "mount", "-t", "tmpfs", "tmpfs", "/mnt").Run() == nil, nil
}

// wholeSandbox reports whether commands can be bounded in every way here.
func wholeSandbox() bool {
	mounts, err := condition("mounts")
	return err == nil && mounts && sandbox.Probe().Landlock >= 6
}

// built is the program, linked once for all tests: that takes seconds.
var built struct {
	once sync.Once
	dir  string
	err  error

	acp    sync.Once
	acpErr error
	hub    sync.Once
	hubErr error
}

// TestMain removes the program. It is not built here, since the test binary plays
// other programs too.
func TestMain(m *testing.M) {
	code := m.Run()
	if built.dir != "" {
		_ = os.RemoveAll(built.dir)
	}
	os.Exit(code)
}

// build returns a folder with the program, in which nothing may be changed.
func build(t *testing.T) string {
	t.Helper()
	built.once.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "drover-test"); built.err != nil {
			return
		}
		bin := filepath.Join(built.dir, "drover")
		built.err = errors.Join(harness.Build(bin, harness.Stamp("tests")), harness.BuildKeeper(bin, harness.Stamp("tests")))
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return built.dir
}

// acpAgent puts a program that speaks the Agent Client Protocol on the PATH, beside drover, and
// its path into $ACPAGENT.
func acpAgent(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, !neg && len(args) == 0, "acpagent")
	at := filepath.Join(built.dir, "acp-agent")
	built.acp.Do(func() {
		cmd := exec.Command("go", "build", "-o", at, "../../test/harness/testdata/acpagent")
		if out, err := cmd.CombinedOutput(); err != nil {
			built.acpErr = fmt.Errorf("build the agent: %w\n%s", err, out)
		}
	})
	ts.Check(built.acpErr)
	ts.Setenv("ACPAGENT", at)
}

// hubOnPath builds the program of the hub into a folder of its own, and puts that on the PATH.
func hubOnPath(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, !neg && len(args) == 0, "hubprogram")
	dir := filepath.Join(built.dir, "hub")
	built.hub.Do(func() { built.hubErr = harness.BuildHub(filepath.Join(dir, "drover"), harness.Stamp("tests")) })
	ts.Check(built.hubErr)
	ts.Setenv("PATH", dir+string(os.PathListSeparator)+ts.Getenv("PATH"))
}

func setUpScript(env *testscript.Env, bin string) error {
	sockets, err := os.MkdirTemp("/tmp", "dr") // the path of a socket must be short
	if err != nil {
		return err
	}
	for _, dir := range []string{"project", "config", "user"} {
		if err := os.MkdirAll(filepath.Join(env.WorkDir, dir), 0o700); err != nil {
			return err
		}
	}
	at := func(name string) string { return filepath.Join(env.WorkDir, name) }
	env.Cd = at("project")
	for _, kv := range [][2]string{
		{"PATH", bin + string(os.PathListSeparator) + os.Getenv("PATH")}, {"HOME", at("user")}, {"DROVER_HOME", at("state")},
		{"XDG_CONFIG_HOME", at("config")}, {"XDG_RUNTIME_DIR", sockets}, {harness.Mark, env.WorkDir},
		{"DROVER_SANDBOX_AUTO_ALLOW", "false"}, // commands are bounded, and asked about all the same
	} {
		env.Setenv(kv[0], kv[1])
	}
	t, work := env.T(), env.WorkDir
	env.Defer(func() {
		left := finish(work)
		if err := os.RemoveAll(sockets); err != nil {
			t.Log(err)
		}
		if len(left) > 0 {
			t.Fatal(fmt.Sprintf("left running: %q", left))
		}
	})
	return nil
}

// finish ends the hosts of a script as a shutdown would, and returns what is
// left after that, which it ends too.
func finish(work string) []string {
	for _, p := range marked(work) {
		if strings.HasSuffix(p.line, "drover host") {
			_ = syscall.Kill(p.pid, syscall.SIGTERM) // it may end by itself at this moment
		}
	}
	var left []string
	if !within(30*time.Second, func() bool { return len(marked(work)) == 0 }) {
		for _, p := range marked(work) {
			left = append(left, p.line)
			_ = syscall.Kill(p.pid, syscall.SIGKILL)
		}
	}
	return left
}

// marked lists the processes of a script.
func marked(work string) (out []proc) {
	for _, x := range harness.Marked(work) {
		out = append(out, proc{x.PID, x.Line})
	}
	return out
}

type proc struct {
	pid  int
	line string
}

// ofScript lists the processes of a script with a text in their command line,
// but not the program itself, whose arguments hold it too.
func ofScript(ts *testscript.TestScript, text string) []proc {
	return slices.DeleteFunc(marked(ts.Getenv("WORK")), func(p proc) bool {
		first, _, _ := strings.Cut(p.line, " ")
		return !strings.Contains(p.line, text) || strings.HasPrefix(filepath.Base(first), "drover")
	})
}

// within asks until the answer is yes or the time is up.
func within(d time.Duration, yes func() bool) bool { return waittest.Until(d, yes) }

func runDrover(ts *testscript.TestScript, neg bool, args []string) {
	err := ts.Exec("drover", args...)
	if (err != nil) != neg {
		ts.Fatalf("drover %q: %v", args, err)
	}
}

func runCode(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, !neg && len(args) > 1, "code N ARG…")
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	if got := exitCode(ts.Exec("drover", args[1:]...)); got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
	if said := ts.ReadFile("stderr"); strings.Count(said, "\n") > 1 {
		ts.Fatalf("more than a line on stderr")
	}
}

func exitCode(err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	}
	return -1
}

func need(ts *testscript.TestScript, ok bool, usage string) {
	if !ok {
		ts.Fatalf("usage: %s", usage)
	}
}

func capture(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, !neg && len(args) == 1, "capture NAME")
	ts.Setenv(args[0], strings.TrimSpace(ts.ReadFile("stdout")))
}

// value finds a place in the JSON of the last stdout.
func value(ts *testscript.TestScript, path string) any {
	var v any
	dec := json.NewDecoder(bytes.NewReader([]byte(ts.ReadFile("stdout"))))
	dec.UseNumber()
	ts.Check(dec.Decode(&v))
	for _, key := range strings.Split(path, ".") {
		switch at := v.(type) {
		case map[string]any:
			next, ok := at[key]
			if !ok {
				ts.Fatalf("no %q of %s in %v", key, path, at)
			}
			v = next
		case []any:
			i, err := strconv.Atoi(key)
			if err != nil || i >= len(at) {
				ts.Fatalf("no %q of %s in %v", key, path, at)
			}
			v = at[i]
		default:
			ts.Fatalf("nothing in %v for %q of %s", v, key, path)
		}
	}
	return v
}

func field(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, !neg && len(args) > 0 && len(args) < 3, "field PATH [VALUE]")
	v := value(ts, args[0])
	switch {
	case len(args) == 2 && fmt.Sprint(v) != args[1]:
		ts.Fatalf("%s is %v, want %s", args[0], v, args[1])
	case len(args) == 1 && v == nil:
		ts.Fatalf("%s is null", args[0])
	}
}

func fields(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, !neg && len(args) > 1, "fields PATH NAME…")
	object, ok := value(ts, args[0]).(map[string]any)
	if !ok {
		ts.Fatalf("%s is no object", args[0])
	}
	for _, name := range args[1:] {
		if _, ok := object[name]; !ok {
			ts.Fatalf("no field %s in %v", name, object)
		}
	}
}

func until(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, !neg && len(args) > 2, "until D TEXT ARG…")
	d, err := time.ParseDuration(args[0])
	ts.Check(err)
	if !within(d, func() bool {
		return ts.Exec("drover", args[2:]...) == nil && strings.Contains(ts.ReadFile("stdout"), args[1])
	}) {
		ts.Fatalf("%q not printed within %s", args[1], d)
	}
}

func killHost(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, !neg && len(args) == 1, "killhost ROLE")
	var live struct {
		PID  int
		Role string
		Live bool
	}
	// A session shows as live once it answers.
	if !within(10*time.Second, func() bool {
		ts.Check(ts.Exec("drover", "sessions", "--json"))
		var all []json.RawMessage
		ts.Check(json.Unmarshal([]byte(ts.ReadFile("stdout")), &all))
		for _, one := range all {
			ts.Check(json.Unmarshal(one, &live))
			if live.Role == args[0] && live.Live {
				return true
			}
		}
		return false
	}) {
		ts.Fatalf("no live session of role %s", args[0])
	}
	ts.Check(syscall.Kill(live.PID, syscall.SIGKILL))
}

func killKeeper(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, !neg && len(args) == 0, "killkeeper")
	for _, p := range marked(ts.Getenv("WORK")) {
		if words := strings.Fields(p.line); len(words) > 1 && words[1] == "keeper" && !strings.Contains(p.line, " --") {
			ts.Check(syscall.Kill(p.pid, syscall.SIGKILL))
			return
		}
	}
	ts.Fatalf("no keeper")
}

func killNamed(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, !neg && len(args) > 0, "killnamed NAME…")
	var named []int
	for _, p := range marked(ts.Getenv("WORK")) {
		name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", p.pid))
		if err == nil && slices.Contains(args, strings.TrimSpace(string(name))) {
			named = append(named, p.pid)
		}
	}
	if len(named) < len(args) {
		ts.Fatalf("%d processes are called %q", len(named), args)
	}
	for _, sig := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGKILL} { // none sees another die
		for _, pid := range named {
			ts.Check(syscall.Kill(pid, sig))
		}
	}
}

func noHost(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, !neg && len(args) == 1, "nohost D")
	d, err := time.ParseDuration(args[0])
	ts.Check(err)
	if !within(d, func() bool { return len(marked(ts.Getenv("WORK"))) == 0 }) {
		ts.Fatalf("still there after %s: %v", d, marked(ts.Getenv("WORK")))
	}
}

func alive(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, !neg && len(args) == 1, "alive TEXT")
	if !within(patience, func() bool { // a shell that has yet to start the command has its words too
		return slices.ContainsFunc(marked(ts.Getenv("WORK")), func(p proc) bool { return strings.HasPrefix(p.line, args[0]) })
	}) {
		ts.Fatalf("no process %q", args[0])
	}
}

func gone(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, !neg && len(args) == 2, "gone D TEXT")
	d, err := time.ParseDuration(args[0])
	ts.Check(err)
	if !within(d, func() bool { return len(ofScript(ts, args[1])) == 0 }) {
		ts.Fatalf("still there after %s: %v", d, ofScript(ts, args[1]))
	}
}

func stopped(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, !neg && len(args) == 1, "stopped TEXT")
	procs := ofScript(ts, args[0])
	if len(procs) == 0 {
		ts.Fatalf("no process %q", args[0])
	}
	for _, p := range procs {
		ts.Check(syscall.Kill(p.pid, syscall.SIGSTOP))
	}
}
