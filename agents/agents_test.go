package agents_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/drover-dev/drover"
	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/agents"
	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
)

func TestMain(m *testing.M) {
	agents.RunKeeper()
	goleak.VerifyTestMain(m)
}

// rig is a runtime whose agents follow a script.
type rig struct {
	*agents.Runtime
	t   *testing.T
	ctx context.Context
}

// lived opens a runtime that knows the agent own. The script holds
// the turns of agents; settings are those of the user, as JSON.
func lived(t *testing.T, script, settings string, hooks subagent.Hooks, tools ...agent.Tool) *rig {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "dm") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.MkdirAll(filepath.Join(dir, ".config", "drover"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"turns.yaml": "version: 1\nagents:\n" + script, ".config/drover/settings.json": settings} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("HOME", dir)
	t.Setenv("XDG_CONFIG_HOME", "")
	t.Setenv("DROVER_HOME", dir)
	t.Setenv("XDG_RUNTIME_DIR", dir)
	ctx, cancel := context.WithTimeoutCause(context.Background(), 30*time.Second, errors.New("the test waits in vain"))
	t.Cleanup(cancel)
	rt, err := agents.Open(ctx, agents.Config{Config: drover.Config{Dir: dir, Home: dir}, ModelName: "script:turns.yaml", Tools: tools,
		Allow: allowed(tools), Hooks: hooks,
		Definitions: []subagent.Definition{{Name: "own", Description: "of the test", Prompt: "Do as the test says."}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := rt.Close(); err != nil {
			t.Error(err)
		}
	})
	return &rig{rt, t, ctx}
}

func allowed(tools []agent.Tool) (names []string) {
	for _, tool := range tools {
		names = append(names, tool.Spec().Name)
	}
	return names
}

// start starts an agent.
func (r *rig) start(a agents.Agent) task.Record {
	r.t.Helper()
	rec, err := r.Agent(r.ctx, a)
	if err != nil {
		r.t.Fatal(err)
	}
	return rec
}

// ends waits for the end of an agent.
func (r *rig) ends(id task.ID) task.Record {
	r.t.Helper()
	rec, err := r.Wait(r.ctx, id)
	if err != nil {
		r.t.Fatal(err)
	}
	return rec
}

// answer is the answer of an agent in the end.
func (r *rig) answer(id task.ID) string {
	r.t.Helper()
	r.ends(id)
	text, err := r.Result(r.ctx, id)
	if err != nil {
		r.t.Fatal(err)
	}
	return text
}

// tool is one that a program has written.
type tool struct {
	name string
	call func(ctx context.Context, c agent.Call) (agent.Output, error)
}

func (t tool) Spec() agent.ToolSpec {
	return agent.ToolSpec{Name: t.name, Description: "of the test", InputSchema: json.RawMessage(`{"type":"object"}`)}
}

func (t tool) Call(ctx context.Context, c agent.Call) (agent.Output, error) { return t.call(ctx, c) }

// hold is a tool whose calls wait until the test lets them go.
type hold struct {
	tool
	began chan struct{} // one for each call
	free  chan struct{} // closed to let them go
}

func newHold() *hold {
	h := &hold{began: make(chan struct{}, 100), free: make(chan struct{})}
	h.tool = tool{"Hold", func(ctx context.Context, _ agent.Call) (agent.Output, error) {
		h.began <- struct{}{}
		select {
		case <-h.free:
			return agent.Output{Text: "held"}, nil
		case <-ctx.Done():
			return agent.Output{}, context.Cause(ctx)
		}
	}}
	return h
}

const holding = `
  own:
    - {text: I begin., tools: [{name: Hold}]}
    - text: "the end"
    - text: "and on: {{last}}, after {{result 0}}"
`

// AR-14, AR-15, TO-12, TO-17, D-04: an agent from its start to its end.
func TestAgent(t *testing.T) {
	h := newHold()
	r := lived(t, holding, `{}`, nil, h)
	short, cancel := context.WithCancel(r.ctx)
	a, err := r.Agent(short, agents.Agent{Type: "Own", Prompt: "work", Name: "worker", Description: "some work"})
	if err != nil {
		t.Fatal(err)
	}
	cancel() // bounds the start only
	<-h.began

	now, err := r.Get(r.ctx, "worker")
	if err != nil || now.ID != a.ID || now.AgentType != "own" || now.Status != task.Running || now.StartTime == nil ||
		now.Description != "some work" || !now.Backgrounded {
		t.Errorf("while it works %+v, %v", now, err)
	}
	if text, err := os.ReadFile(now.OutputFile); err != nil || !strings.Contains(string(text), "I begin.") {
		t.Errorf("its output %q, %v", text, err)
	}
	if _, err := r.Result(r.ctx, a.ID); err == nil || !strings.Contains(err.Error(), "has not ended") {
		t.Errorf("its answer while it works: %v", err)
	}
	late := errors.New("too late")
	brief, end := context.WithCancelCause(r.ctx)
	end(late)
	if _, err := r.Wait(brief, a.ID); !errors.Is(err, late) {
		t.Errorf("a wait that is too short: %v", err)
	}

	close(h.free)
	for range 2 {
		if text := r.answer(a.ID); text != "the end" {
			t.Errorf("answer %q", text)
		}
	}
	if receipt, err := r.Stop(r.ctx, a.ID); err != nil || len(receipt.Stopped) != 1 || receipt.Stopped[0].Status != task.Completed {
		t.Errorf("stopped after its end: %+v, %v", receipt, err)
	}

	// D-07: a further run knows what was said.
	if again, err := r.Send(r.ctx, string(a.ID), "go on"); err != nil || again.ID != a.ID {
		t.Fatalf("resumed as %s: %v", again.ID, err)
	}
	if text := r.answer(a.ID); !strings.HasPrefix(text, "and on: ") || !strings.HasSuffix(text, "go on, after held") {
		t.Errorf("resumed: %q", text)
	}
}

// C-25, ER-01, ER-02: what is not there is said so.
func TestUnknown(t *testing.T) {
	r := lived(t, holding, `{}`, nil)
	_, err := r.Agent(r.ctx, agents.Agent{Type: "nobody", Prompt: "x"})
	var kind *subagent.UnknownTypeError
	if !errors.As(err, &kind) || !slices.Contains(kind.Known, "own") || !slices.Contains(kind.Known, "explore") || !strings.HasPrefix(err.Error(), "unknown subagent_type: nobody") {
		t.Errorf("unknown type: %v", err)
	}
	_, waited := r.Wait(r.ctx, "a0000000x")
	_, stopped := r.Stop(r.ctx, "a0000000x")
	_, sent := r.Send(r.ctx, "a0000000x", "x")
	for what, err := range map[string]error{"wait": waited, "stop": stopped, "send": sent} {
		if err == nil || !strings.HasPrefix(err.Error(), "unknown task: a0000000x") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := r.Agent(r.ctx, agents.Agent{Type: "own"}); err == nil || !strings.Contains(err.Error(), "prompt") {
		t.Errorf("without a prompt: %v", err)
	}
	if all, err := r.List(r.ctx); err != nil || len(all) != 0 {
		t.Errorf("%d agents were started, %v", len(all), err)
	}
	for _, bad := range []subagent.Definition{{Prompt: "x"}, {Name: "a"}, {Name: "own", Prompt: "x"}} {
		c := agents.Config{Config: drover.Config{Isolated: true}, Definitions: []subagent.Definition{bad, {Name: "Own", Prompt: "x"}}}
		if rt, err := agents.Open(r.ctx, c); err == nil {
			t.Errorf("accepted %+v", bad)
			_ = rt.Close()
		}
	}
}

// TS-01, D-06: a stop is one that stays, and says so to who reads the record.
func TestStop(t *testing.T) {
	h := newHold()
	r := lived(t, holding, `{}`, nil, h)
	a := r.start(agents.Agent{Type: "own", Prompt: "work"})
	<-h.began
	if _, err := r.Stop(r.ctx, a.ID); err != nil {
		t.Fatal(err)
	}
	if a = r.ends(a.ID); a.Status != task.Killed || a.Cause.Actor != task.ByClient {
		t.Errorf("stopped: %+v", a)
	}
	failing := r.start(agents.Agent{Type: "plan", Prompt: "work"}) // has no turns
	if failing = r.ends(failing.ID); failing.Status != task.Failed || failing.Error == "" {
		t.Errorf("failed: %+v", failing)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Agent(r.ctx, agents.Agent{Type: "own", Prompt: "x"}); !errors.Is(err, subagent.ErrClosed) {
		t.Errorf("started after the close: %v", err)
	}
}

// AR-13, D-05: many at once, and each of them to one end.
func TestSideBySide(t *testing.T) {
	r := lived(t, "  '*':\n    - {text: done, repeat: -1}\n", `{"limits":{"live":3}}`, nil)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			a, err := r.Agent(r.ctx, agents.Agent{Prompt: "x"})
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := r.Stop(r.ctx, a.ID); err != nil {
				t.Error(err)
			}
			if _, err := r.Wait(r.ctx, a.ID); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	list, err := r.List(r.ctx)
	for _, a := range list {
		if !a.Status.Terminal() {
			t.Errorf("agent %s is %s", a.ID, a.Status)
		}
	}
	if len(list) != 8 || err != nil {
		t.Errorf("%d agents, %v", len(list), err)
	}
}

// AT-07, D-05: an agent that a tool starts is below the one that called it, is waited for without
// a place, and is held to the depth. One in the foreground sends no notification.
func TestNested(t *testing.T) {
	var r *rig
	var mu sync.Mutex
	var failed error
	below := tool{"Below", func(ctx context.Context, c agent.Call) (agent.Output, error) {
		a, err := r.Agent(ctx, agents.Agent{Type: "own", Prompt: "deeper", Foreground: true})
		if err != nil {
			mu.Lock()
			defer mu.Unlock()
			failed = err
			return agent.Refuse(err.Error()), nil
		}
		if a.Backgrounded {
			t.Errorf("in the foreground %+v", a)
		}
		if _, err := r.Wait(ctx, a.ID); err != nil {
			return agent.Output{}, err
		}
		text, err := r.Result(ctx, a.ID)
		return agent.Output{Text: text}, err
	}}
	r = lived(t, "  own:\n    - tools: [{name: Below}]\n    - text: 'up: {{result 0}}'\n", `{"limits":{"live":1,"depth":2}}`, nil, below)
	top := r.start(agents.Agent{Type: "own", Prompt: "work"})
	if text := r.answer(top.ID); text != "up: up: recursion rejected: tasks may be nested 2 deep" {
		t.Errorf("%q", text)
	}
	var limit *subagent.LimitError
	if mu.Lock(); !errors.As(failed, &limit) || limit.Limit != "depth" || limit.N != 2 {
		t.Errorf("the limit is told as %v", failed)
	}
	mu.Unlock()
	list, err := r.List(r.ctx)
	if err != nil || len(list) != 2 || list[0].Parent != list[1].ID || list[1].ID != top.ID {
		t.Errorf("agents %+v, %v", list, err)
	}
}

// watcher notes what hooks are told.
type watcher struct {
	mu    sync.Mutex
	heard []string
	veto  func(end subagent.HookEnd) string
}

func (w *watcher) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.heard = append(w.heard, fmt.Sprintf(format, args...))
}

func (w *watcher) SubagentStart(_ context.Context, a subagent.HookAgent) string {
	w.note("start %s", a.Type)
	if a.Type == "plan" {
		panic("a bad hook")
	}
	return "the password is swordfish"
}

func (w *watcher) SubagentStop(_ context.Context, a subagent.HookAgent, end subagent.HookEnd) string {
	w.note("stop %s %q again=%v failed=%v", a.Type, end.Answer, end.Again, end.Err != "")
	return w.veto(end)
}

// AT-05: hooks of the program hear of each start, and of one end of it that was
// not vetoed, however it came.
func TestHooks(t *testing.T) {
	w := &watcher{veto: func(end subagent.HookEnd) string {
		if end.Again || end.Answer != "first" {
			return ""
		}
		return "look again"
	}}
	r := lived(t, `
  own:
    - {text: first, when: {last_contains: swordfish}}
    - {text: "second, after {{last}}"}
`, `{}`, w)
	a := r.start(agents.Agent{Type: "own", Prompt: "work"})
	if text := r.answer(a.ID); !strings.HasPrefix(text, "second, after ") || !strings.Contains(text, "look again") {
		t.Errorf("vetoed: %q", text)
	}
	r.ends(r.start(agents.Agent{Type: "plan", Prompt: "work"}).ID)
	w.mu.Lock()
	defer w.mu.Unlock()
	want := []string{"start own", `stop own "first" again=false failed=false`, `stop own "second… again=true failed=false`, "start plan", `stop plan "" again=false failed=true`}
	same := func(heard, want string) bool {
		head, tail, _ := strings.Cut(want, "…") // what is between is long
		return strings.HasPrefix(heard, head) && strings.HasSuffix(heard, tail)
	}
	if !slices.EqualFunc(w.heard, want, same) {
		t.Errorf("hooks heard %q", w.heard)
	}
}
