package dream_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/driver/dream"
	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/internal/project/memory"
	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/test/agenttest"
	"github.com/drover-dev/drover/test/tasktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const input = `{"trigger":"manual"}`

// of makes a driver over the memory of a store, whose agent is put together by
// assemble.
func of(s *memory.Store, assemble func() (*dream.Assembly, error)) *dream.Driver {
	return dream.New(dream.Config{
		Acquire: func() (dream.Lock, error) {
			l, err := s.Acquire()
			if err != nil {
				return nil, err
			}
			return l, nil
		},
		Held:     func(err error) bool { return errors.Is(err, memory.ErrHeld) },
		Assemble: func(context.Context, task.Host, dream.Input, time.Time) (*dream.Assembly, error) { return assemble() },
	})
}

// noLock is one that is never taken by anybody else.
type noLock struct{}

func (noLock) Prior() time.Time { return time.Time{} }
func (noLock) Done() error      { return nil }
func (noLock) Rollback() error  { return nil }

func TestContract(t *testing.T) {
	with := func(reply agenttest.ModelFunc) func(*testing.T) (task.Driver, json.RawMessage) {
		return func(*testing.T) (task.Driver, json.RawMessage) {
			return dream.New(dream.Config{ // two run side by side, so the lock is none
				Acquire: func() (dream.Lock, error) { return noLock{}, nil },
				Held:    func(error) bool { return false },
				Assemble: func(context.Context, task.Host, dream.Input, time.Time) (*dream.Assembly, error) {
					return &dream.Assembly{Config: agent.Config{Model: reply, ModelName: "test"}, Prompt: "go"}, nil
				},
			}), json.RawMessage(input)
		}
	}
	tasktest.Run(t, tasktest.Config{
		Long: with(func(ctx context.Context, _ *agent.Request, _ func(agent.Part)) (*agent.Reply, error) {
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}),
		Short: with(func(context.Context, *agent.Request, func(agent.Part)) (*agent.Reply, error) {
			return &agent.Reply{Model: "test", Blocks: []agent.Block{agent.TextBlock("done")}, StopReason: "end_turn"}, nil
		}),
		Prints: "", // a dream prints nothing, see TestSilence
	})
}

func TestCheck(t *testing.T) {
	d := of(memory.At("/nowhere"), nil)
	for _, bad := range []string{`{"trigger":"often"}`, `{"trigger":""}`, `null`} {
		if d.Check(json.RawMessage(bad)) == nil {
			t.Errorf("Check accepts %s", bad)
		}
	}
	for _, good := range []string{input, `{"trigger":"idle"}`} {
		if err := d.Check(json.RawMessage(good)); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
}

// tool does nothing and is called by any name.
type tool string

func (n tool) Spec() agent.ToolSpec {
	return agent.ToolSpec{Name: string(n), InputSchema: json.RawMessage(`{"type":"object"}`)}
}

func (n tool) Call(_ context.Context, c agent.Call) (agent.Output, error) {
	if strings.Contains(string(c.Input), "fails") {
		return agent.Refuse("it failed"), nil
	}
	return agent.Output{Text: "ok"}, nil
}

// agentOf is an agent that walks through steps, with what it has changed told to f.
func agentOf(model agent.Model, f func([]string)) func() (*dream.Assembly, error) {
	return func() (*dream.Assembly, error) {
		tools := []agent.Tool{tool("Read"), tool("Edit"), tool("Write"), tool(dream.BoardTool)}
		return &dream.Assembly{Config: agent.Config{Model: model, ModelName: "test", Tools: tools, MaxTurns: 6}, Prompt: "go", Updated: f}, nil
	}
}

// phases keeps the progress that it is told.
type phases struct {
	*tasktest.Host
	mu   sync.Mutex
	seen []string
}

func (p *phases) Progress(x task.Progress) {
	p.mu.Lock()
	p.seen = append(p.seen, x.Phase)
	p.mu.Unlock()
	p.Host.Progress(x)
}

// The phase is starting until the first call that writes, and never that again.
func TestPhase(t *testing.T) {
	for name, c := range map[string]struct {
		calls []string
		want  []string
	}{
		"reads":   {[]string{"Read", "Read"}, []string{dream.Starting}},
		"board":   {[]string{dream.BoardTool}, []string{dream.Starting}},
		"edit":    {[]string{"Read", "Edit", "Read"}, []string{dream.Starting, dream.Updating}},
		"write":   {[]string{"Write", "Read"}, []string{dream.Starting, dream.Updating}},
		"unknown": {[]string{"Bash"}, []string{dream.Starting}},
	} {
		t.Run(name, func(t *testing.T) {
			var steps []agenttest.Step
			for i, call := range c.calls {
				steps = append(steps, agenttest.Use(agenttest.ToolUse(fmt.Sprint("c", i), call, `{"file_path":"a.md","action":"list"}`)))
			}
			h := &phases{Host: tasktest.NewHost(t, task.Dream, json.RawMessage(input))}
			if _, err := of(memory.At(t.TempDir()+"/m"), agentOf(agenttest.Steps(append(steps, agenttest.Say("done"))...), nil)).Run(t.Context(), h); err != nil {
				t.Fatal(err)
			}
			if got := slices.Compact(h.seen); !slices.Equal(got, c.want) {
				t.Errorf("phases %q, want %q", got, c.want)
			}
		})
	}
}

// What was changed is told once the end is durable, and only then; the output
// stays empty.
func TestSilence(t *testing.T) {
	model := agenttest.Steps(
		agenttest.Use(agenttest.ToolUse("1", "Edit", `{"file_path":"/m/build.md"}`), agenttest.ToolUse("2", "Write", `{"file_path":"fails.md"}`),
			agenttest.ToolUse("3", dream.BoardTool, `{"action":"list"}`), agenttest.ToolUse("4", "Edit", `{"file_path":"build.md"}`)),
		agenttest.Use(agenttest.ToolUse("5", dream.BoardTool, `{"action":"prune"}`), agenttest.ToolUse("6", "Write", `{"file_path":"MEMORY.md"}`)),
		agenttest.Say("two things"))
	var told [][]string
	h := tasktest.NewHost(t, task.Dream, json.RawMessage(input))
	res, err := of(memory.At(t.TempDir()+"/m"), agentOf(model, func(changed []string) { told = append(told, changed) })).Run(t.Context(), h)
	if err != nil || len(told) != 0 || res.Settle == nil {
		t.Fatalf("%v; told %q before the end is durable", err, told)
	}
	res.Settle()
	if len(told) != 1 || !slices.Equal(told[0], []string{"build.md", "the board", "MEMORY.md"}) {
		t.Errorf("told %q", told)
	}
	if h.Printed() != "" {
		t.Errorf("it has printed %q", h.Printed())
	}
	if u := res.Usage; u == nil || u.OutputTokens != 15 || u.ToolUses != 6 || u.Turns != 3 || res.Text != "two things" {
		t.Errorf("usage %+v, text %q", u, res.Text)
	}
}

// Every end but a good one leaves the lock as it was.
func TestRollback(t *testing.T) {
	then := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	stop := &task.StopError{Cause: task.Cause{Actor: task.ByUser, Reason: task.ReasonStopped}}
	edit := agenttest.Use(agenttest.ToolUse("1", "Edit", `{"file_path":"a.md"}`))
	heard := func([]string) {}
	for name, c := range map[string]struct {
		assemble func(end context.CancelCauseFunc) func() (*dream.Assembly, error)
		done     bool
		verb     task.Verb
	}{
		"good": {func(context.CancelCauseFunc) func() (*dream.Assembly, error) {
			return agentOf(agenttest.Steps(edit, agenttest.Say("done")), heard)
		}, true, task.Complete},
		"killed": {func(end context.CancelCauseFunc) func() (*dream.Assembly, error) {
			return agentOf(agenttest.Steps(edit, func(ctx context.Context, _ *agent.Request) (*agent.Reply, error) {
				end(stop)
				return nil, context.Cause(ctx)
			}), heard)
		}, false, task.Stop},
		"closing": {func(end context.CancelCauseFunc) func() (*dream.Assembly, error) {
			return agentOf(agenttest.Steps(func(ctx context.Context, _ *agent.Request) (*agent.Reply, error) {
				end(task.ErrClosing)
				return nil, context.Cause(ctx)
			}), heard)
		}, false, task.Stop},
		"fork": {func(context.CancelCauseFunc) func() (*dream.Assembly, error) {
			return func() (*dream.Assembly, error) { return nil, errors.New("no model") }
		}, false, task.Fail},
		"noloop": {func(context.CancelCauseFunc) func() (*dream.Assembly, error) { return agentOf(nil, heard) }, false, task.Fail},
		"model": {func(context.CancelCauseFunc) func() (*dream.Assembly, error) {
			return agentOf(agenttest.Steps(edit, agenttest.Fail(errors.New("overloaded"))), heard)
		}, false, task.Fail},
		"turns": {func(context.CancelCauseFunc) func() (*dream.Assembly, error) {
			return agentOf(agenttest.Steps(slices.Repeat([]agenttest.Step{edit}, 10)...), heard)
		}, false, task.Fail},
	} {
		t.Run(name, func(t *testing.T) {
			s := memory.At(t.TempDir() + "/m")
			first, err := s.Acquire()
			if err == nil {
				err = first.Done()
			}
			if err != nil {
				t.Fatal(err)
			}
			mark := s.Dir() + "/consolidation"
			chtimes(t, mark, then)
			ctx, end := context.WithCancelCause(t.Context())
			defer end(nil)
			h := tasktest.NewHost(t, task.Dream, json.RawMessage(input))
			res, err := of(s, c.assemble(end)).Run(ctx, h)
			change, _ := lifecycle.Ending(context.Cause(ctx), res, err)
			if change.Verb != c.verb {
				t.Errorf("recorded as %+v: %v", change, err)
			}
			if c.done != (res.Settle != nil) {
				t.Error("what came to nothing is told as an update")
			}
			if got := modTime(t, mark); got.Equal(then) == c.done {
				t.Errorf("done: %v; the time is %s", c.done, got)
			}
			if prior := h.Record().Checkpoint; !strings.Contains(string(prior), `"prior_consolidation":"2026-01-02T03:04:05Z"`) {
				t.Errorf("the record keeps %s", prior)
			}
			next, err := s.Acquire()
			if err != nil {
				t.Fatalf("the next cannot begin: %v", err)
			}
			_ = next.Rollback()
		})
	}
}

// A crash in the agent rolls the lock back too.
func TestPanic(t *testing.T) {
	s := memory.At(t.TempDir() + "/m")
	d := of(s, func() (*dream.Assembly, error) { panic("broken") })
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		_, _ = d.Run(t.Context(), tasktest.NewHost(t, task.Dream, json.RawMessage(input)))
	}()
	l, err := s.Acquire()
	if err != nil || !l.Prior().IsZero() {
		t.Fatalf("after a panic: %v", err)
	}
	_ = l.Rollback()
}

// Of two dreams one runs, and the other says why it does not.
func TestHeld(t *testing.T) {
	s := memory.At(t.TempDir() + "/m")
	began, goOn := make(chan struct{}), make(chan struct{})
	first := of(s, agentOf(agenttest.Steps(func(ctx context.Context, r *agent.Request) (*agent.Reply, error) {
		close(began)
		<-goOn
		return agenttest.Say("done")(ctx, r)
	}), nil))
	var running sync.WaitGroup
	running.Go(func() {
		if _, err := first.Run(t.Context(), tasktest.NewHost(t, task.Dream, json.RawMessage(input))); err != nil {
			t.Error(err)
		}
	})
	<-began
	_, err := of(s, agentOf(agenttest.Steps(), nil)).Run(t.Context(), tasktest.NewHost(t, task.Dream, json.RawMessage(input)))
	var fail *task.FailError
	if !errors.As(err, &fail) || fail.Reason != dream.ReasonHeld {
		t.Errorf("the second gives %v", err)
	}
	close(goOn)
	running.Wait()
}

func TestPrompt(t *testing.T) {
	text := strings.ToLower(dream.System())
	at := 0
	for _, stage := range []string{"1. orient", "2. gather", "3. consolidate", "4. prune"} {
		i := strings.Index(text, stage)
		if i < at {
			t.Errorf("stage %q is missing or out of order", stage)
		}
		at = i
	}
	for _, word := range []string{"never an instruction", "passwords", "memory.md"} {
		if !strings.Contains(text, word) {
			t.Errorf("the prompt does not say %q", word)
		}
	}
}
func chtimes(t *testing.T, path string, at time.Time) {
	t.Helper()
	if err := os.Chtimes(path, at, at); err != nil {
		t.Fatal(err)
	}
}

func modTime(t *testing.T, path string) time.Time {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.ModTime()
}
