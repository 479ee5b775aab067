package agent_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/test/agenttest"
)

// killVariable makes this program hold a conversation whose tool kills it. It
// holds the path of the transcript.
const killVariable = "AGENT_TEST_KILL"

// dying runs when the variable is set: the tool has an effect, and then its
// process is gone.
func dying(path string) {
	tr, h, err := agent.OpenTranscript(path, agent.Meta{})
	if err != nil {
		panic(err)
	}
	l, err := agent.NewLoop(agent.Config{
		Model:      agenttest.Steps(agenttest.Use(agenttest.ToolUse("a", "First", `{}`), agenttest.ToolUse("b", "Die", `{}`), agenttest.ToolUse("c", "First", `{}`))),
		Transcript: tr,
		Tools: []agent.Tool{tool{name: "First"}, tool{name: "Die", call: func(context.Context, agent.Call) (agent.Output, error) {
			if err := os.WriteFile(path+".effect", []byte("x"), 0o600); err != nil {
				panic(err)
			}
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}}},
	}, h.Messages)
	if err != nil {
		panic(err)
	}
	_, _ = l.Turn(context.Background(), agent.TextBlock("go"))
}

// A14: a crash between the run of a tool and its result on the disk. The call is
// not run again, and the model is told that it may have run.
func TestA14KilledWithinACall(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.jsonl")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), killVariable+"="+path)
	err := cmd.Run()
	if e := (*exec.ExitError)(nil); !errors.As(err, &e) || e.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("the program ended with %v", err)
	}
	if _, err := os.Stat(path + ".effect"); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the repair is made once
		tr, h := open(t, path)
		model := agenttest.Steps(agenttest.Say("I see"))
		run := func(context.Context, agent.Call) (agent.Output, error) {
			t.Error("a call ran again")
			return agent.Output{}, nil
		}
		l := newLoop(t, agent.Config{Model: model, Transcript: tr, Tools: []agent.Tool{tool{name: "First", call: run}, tool{name: "Die", call: run}}}, h.Messages...)
		if _, err := ask(l, "what happened?"); err != nil {
			t.Fatal(err)
		}
		got := contents(t, model.Requests()[0][2])
		want := "[the host ended before this call's result was recorded; it may or may not have run]"
		if len(got) < 3 || !slices.Equal(got[:3], []string{want, want, want}) {
			t.Errorf("told %q", got)
		}
		check(t, model.Requests()[0])
		_ = tr.Close()
	}
}

// A7: whatever IDs a model gives, a call runs once and has one result.
func TestA7CallIDs(t *testing.T) {
	use := agenttest.ToolUse
	for name, c := range map[string]struct {
		replies [][]agent.Block
		ran     int
	}{
		"duplicate": {[][]agent.Block{{use("x", "T", `{"n":1}`), use("x", "T", `{"n":1}`)}}, 1},
		"two":       {[][]agent.Block{{use("x", "T", `{"n":1}`), use("x", "T", `{"n":2}`)}}, 2},
		"reused":    {[][]agent.Block{{use("x", "T", `{"n":1}`)}, {use("x", "T", `{"n":1}`)}}, 2},
		"missing":   {[][]agent.Block{{use("", "T", `{"n":1}`), use("", "T", `{"n":1}`)}}, 2},
		"malformed": {[][]agent.Block{{use("a b\n", "T", `{}`), use(strings.Repeat("x", 200), "T", `{}`)}}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "t.jsonl")
			tr, _ := open(t, path)
			var steps []agenttest.Step
			for _, r := range c.replies {
				steps = append(steps, agenttest.Use(r...))
			}
			ran := 0
			l := newLoop(t, agent.Config{Model: agenttest.Steps(append(steps, agenttest.Say("end"))...), Transcript: tr, Tools: []agent.Tool{tool{name: "T",
				call: func(context.Context, agent.Call) (agent.Output, error) { ran++; return agent.Output{Text: "x"}, nil }}}})
			if _, err := ask(l, "go"); err != nil || ran != c.ran {
				t.Errorf("%v, ran %d times, want %d", err, ran, c.ran)
			}
			check(t, l.Messages())
			want := l.Messages()
			_ = tr.Close()
			_, h := open(t, path)
			same(t, h.Messages, want)
		})
	}
}

// A8 and A9 are TestBadCallsGetErrorResults; here is what it leaves out.
func TestA8NamesOfOtherLanguages(t *testing.T) {
	for _, name := range []string{"constructor", "__proto__", "toString", "hasOwnProperty", "READ ", "re ad", "Readé"} {
		l := newLoop(t, agent.Config{Model: agenttest.Steps(agenttest.Use(agenttest.ToolUse("a", name, `{}`)), agenttest.Say("end")), Tools: []agent.Tool{tool{name: "Read"}}})
		if _, err := ask(l, "go"); err != nil {
			t.Fatal(err)
		}
		if got, failed := results(t, l); !failed[0] || !strings.Contains(got[0], "there is no tool") {
			t.Errorf("%q: %q", name, got)
		}
		check(t, l.Messages())
	}
}

// A10: an answer that is stopped for length within a call is told to the model
// once; a second one in a row ends the turn. What was answered in between counts
// anew.
func TestA10StoppedForLength(t *testing.T) {
	long := func(id string) agenttest.Step {
		return agenttest.Blocks("max_tokens", agent.TextBlock("so far"), agenttest.ToolUse(id, "T", `{"a":"half`))
	}
	whole := agenttest.Use(agenttest.ToolUse("", "T", `{}`))
	for name, c := range map[string]struct {
		steps []agenttest.Step
		limit bool
		turns int
	}{
		"once":     {[]agenttest.Step{long("a"), agenttest.Say("shorter")}, false, 2},
		"twice":    {[]agenttest.Step{long("a"), long("b"), agenttest.Say("never")}, true, 2},
		"in-turns": {[]agenttest.Step{long("a"), whole, long("b"), agenttest.Say("end")}, false, 4},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLoop(t, agent.Config{Model: agenttest.Steps(c.steps...), Tools: []agent.Tool{tool{name: "T"}}})
			res, err := ask(l, "go")
			limit := (*agent.LimitError)(nil)
			if errors.As(err, &limit) != c.limit || c.limit && limit.Limit != "max_tokens" || res.Turns != c.turns {
				t.Errorf("%+v, %v", res, err)
			}
			if got := contents(t, l.Messages()[2])[0]; !strings.Contains(got, "not run") {
				t.Errorf("told %q", got)
			}
			check(t, l.Messages())
		})
	}
}

// A15: a model is told once of calls that go round in a circle of up to four, and calls
// that let time pass between them, as those that poll do, neither end the turn nor are told of.
func TestA15Told(t *testing.T) {
	for name, c := range map[string]struct {
		period, turns int
		took          func(n int) time.Duration
		told          int // how many calls the model had made; 0: never
	}{
		"same":   {1, 8, nil, 5},
		"pair":   {2, 16, nil, 10},
		"four":   {4, 30, nil, 20},
		"waited": {1, 200, func(int) time.Duration { return time.Second }, 0},
		"sleep then look": {2, 200, func(n int) time.Duration {
			if n%2 == 0 {
				return time.Minute
			}
			return 0
		}, 0},
		"quick": {1, 8, func(int) time.Duration { return 900 * time.Millisecond }, 5},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := -1
				model := agenttest.ModelFunc(func(context.Context, *agent.Request, func(agent.Part)) (*agent.Reply, error) {
					n++
					return &agent.Reply{Blocks: []agent.Block{agenttest.ToolUse("", "T", fmt.Sprintf(`{"a":%d}`, n%c.period))}, StopReason: "tool_use"}, nil
				})
				l := newLoop(t, agent.Config{Model: model, MaxTurns: c.turns, Tools: []agent.Tool{tool{name: "T",
					call: func(context.Context, agent.Call) (agent.Output, error) {
						if c.took != nil {
							time.Sleep(c.took(n)) // of the bubble's clock
						}
						return agent.Output{Text: "x"}, nil
					}}}})
				_, err := ask(l, "go")
				limit := (*agent.LimitError)(nil)
				if !errors.As(err, &limit) || limit.Limit != "max_turns" {
					t.Errorf("ended by %v", err)
				}
				var told []int
				for i, m := range l.Messages() {
					for _, text := range contents(t, m) {
						if strings.Contains(text, "times in a row") {
							told = append(told, i/2)
						}
					}
				}
				if want := []int{c.told}; c.told > 0 && !slices.Equal(told, want) || c.told == 0 && len(told) > 0 {
					t.Errorf("told after %v calls, want %d", told, c.told)
				}
			})
		})
	}
}

// A15: calls that go round in a circle of up to four end the turn; work that
// only looks alike does not.
func TestA15Circles(t *testing.T) {
	for name, c := range map[string]struct {
		call  func(n int) string // input of the n-th call
		out   func(n int) string
		turns int // 0: the limit of turns, not the circle, ends it
	}{
		"same":       {func(int) string { return "a" }, func(int) string { return "x" }, 50},
		"pair":       {func(n int) string { return fmt.Sprint(n % 2) }, func(int) string { return "x" }, 100},
		"three":      {func(n int) string { return fmt.Sprint(n % 3) }, func(int) string { return "x" }, 150},
		"four":       {func(n int) string { return fmt.Sprint(n % 4) }, func(int) string { return "x" }, 200},
		"new-input":  {func(n int) string { return fmt.Sprint(n) }, func(int) string { return "x" }, 0},
		"new-result": {func(int) string { return "a" }, func(n int) string { return fmt.Sprint(n) }, 0},
		"interrupted": {func(n int) string { return fmt.Sprint(n % 2) }, func(n int) string {
			if n%15 == 0 {
				return "y"
			}
			return "x"
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			n := -1
			model := agenttest.ModelFunc(func(context.Context, *agent.Request, func(agent.Part)) (*agent.Reply, error) {
				n++
				return &agent.Reply{Blocks: []agent.Block{agenttest.ToolUse("", "T", fmt.Sprintf(`{"a":%q}`, c.call(n)))}, StopReason: "tool_use"}, nil
			})
			l := newLoop(t, agent.Config{Model: model, MaxTurns: 250, Tools: []agent.Tool{tool{name: "T",
				call: func(context.Context, agent.Call) (agent.Output, error) { return agent.Output{Text: c.out(n)}, nil }}}})
			res, err := ask(l, "go")
			limit := (*agent.LimitError)(nil)
			if !errors.As(err, &limit) {
				t.Fatalf("%+v, %v", res, err)
			}
			if want := map[bool]string{true: "max_turns", false: "same_call"}[c.turns == 0]; limit.Limit != want || c.turns > 0 && res.Turns != c.turns {
				t.Errorf("%s after %d turns", limit.Limit, res.Turns)
			}
			check(t, l.Messages())
		})
	}
}
