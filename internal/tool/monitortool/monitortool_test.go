package monitortool

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/tool/confine"
	"github.com/drover-dev/drover/internal/tool/toolkit"
	"github.com/drover-dev/drover/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// asked notes what is asked for.
type asked struct {
	got []Request
	err error
}

func (a *asked) Monitor(_ context.Context, r Request) (task.Record, error) {
	a.got = append(a.got, r)
	return task.Record{ID: "m00000001", OutputFile: "/o/m00000001.output", TimeoutMS: r.Timeout.Milliseconds()}, a.err
}

func call(t *testing.T, c Config, input string) agent.Output {
	t.Helper()
	out, err := New(c).Call(t.Context(), agent.Call{ID: "toolu_1", Name: "Monitor", Input: json.RawMessage(input)})
	if err != nil {
		t.Fatalf("%s: %v", input, err)
	}
	return out
}

func TestSources(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("a.log", filepath.Join(root, "current.log")); err != nil {
		t.Fatal(err)
	}
	for input, want := range map[string]Request{
		`{"description":"d","command":"make"}`: {Line: "make", Cwd: "/elsewhere",
			Timeout: 5 * time.Minute},
		`{"description":"d","command":"make","persistent":true}`: {Line: "make", Cwd: "/elsewhere"},
		`{"description":"d","file":"a.log","match":"E","timeout_ms":9}`: {File: filepath.Join(root, "a.log"), Match: "E",
			Timeout: 9 * time.Millisecond},
		`{"description":"d","file":"current.log","timeout_ms":1800000}`: {File: filepath.Join(root, "current.log"),
			Timeout: 30 * time.Minute},
		`{"description":"d","server":"s","uri":"log:x","timeout_ms":900}`: {Server: "s", URI: "log:x",
			Timeout: 900 * time.Millisecond},
	} {
		a := &asked{}
		out := call(t, Config{Monitors: a, Area: confine.Area{Root: root}, Cwd: func() string { return "/elsewhere" }, Commands: true}, input)
		want.Description, want.ToolUseID = "d", "toolu_1"
		if out.IsError || len(a.got) != 1 || a.got[0] != want {
			t.Errorf("%s: %q, asked for %+v, want %+v", input, out.Text, a.got, want)
		}
		res := Result{TaskID: "m00000001", TimeoutMS: want.Timeout.Milliseconds(), Persistent: want.Timeout == 0,
			OutputFile: "/o/m00000001.output"}
		if out.Structured != res || !strings.Contains(out.Text, "Task ID: m00000001") {
			t.Errorf("%s: %+v, %q", input, out.Structured, out.Text)
		}
	}
}

// What is wrong is said so that the call can be fixed, and nothing is started.
func TestRefused(t *testing.T) {
	for input, why := range map[string]string{
		`{"command":"make"}`:                                                    `"description" is missing`,
		`{"description":"d"}`:                                                   "give one of",
		`{"description":"d","command":"make","file":"x"}`:                       "give one of",
		`{"description":"d","server":"s"}`:                                      "go together",
		`{"description":"d","uri":"u"}`:                                         "go together",
		`{"description":"d","command":"make","timeout_ms":1800001}`:             "from 1 to 1800000",
		`{"description":"d","command":"make","timeout_ms":0}`:                   "from 1 to 1800000",
		`{"description":"d","command":"make","timeout_ms":5,"persistent":true}`: "give one of",
		`{"description":"d","command":"make","match":"("}`:                      `"match"`,
		`{"description":"d","command":"a\u0000b"}`:                              "NUL",
		`{"description":"d","file":"../x"}`:                                     "outside the folders",
		`{"description":"d","file":"/etc/passwd"}`:                              "outside the folders",
		`{"description":"d","ws":{"url":"ws://x"}}`:                             `unknown field "ws"`,
		`{"description":"d","command":"` + strings.Repeat("x", 100_001) + `"}`:  "write it to a file",
	} {
		a := &asked{}
		out := call(t, Config{Monitors: a, Area: confine.Area{Root: t.TempDir()}, Commands: true}, input)
		if !out.IsError || !strings.Contains(out.Text, why) || len(a.got) > 0 {
			t.Errorf("%.90s: %q, asked for %+v", input, out.Text, a.got)
		}
	}
	a := &asked{}
	if out := call(t, Config{Monitors: a, Area: confine.Area{Root: t.TempDir()}}, `{"description":"d","command":"make"}`); !out.IsError ||
		len(a.got) > 0 {
		t.Errorf("an agent without Bash watches a command: %q", out.Text)
	}
}

func TestErrors(t *testing.T) {
	a := &asked{err: &toolkit.Refusal{Text: "too many monitors"}}
	if out := call(t, Config{Monitors: a, Area: confine.Area{Root: "/"}, Commands: true},
		`{"description":"d","command":"make"}`); !out.IsError || out.Text != "Monitor: too many monitors" {
		t.Errorf("told %q", out.Text)
	}
	a.err = errors.New("disk full")
	_, err := New(Config{Monitors: a, Area: confine.Area{Root: "/"}, Commands: true}).Call(t.Context(),
		agent.Call{Input: json.RawMessage(`{"description":"d","command":"make"}`)})
	if !errors.Is(err, a.err) {
		t.Errorf("err = %v", err)
	}
}
