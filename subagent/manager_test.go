package subagent_test

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

	"github.com/drover-dev/drover"
	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/subagent"
	"github.com/drover-dev/drover/task"
)

// AR-12: the shape that programs rely on.
var _ interface {
	Spawn(ctx context.Context, in subagent.AgentInput) (id string, err error)
	GetOutput(taskID string, block bool, timeout time.Duration) (string, error)
	Stop(taskID string) error
	List() []subagent.AgentStatus
	Done(taskID string) <-chan struct{}
} = (*subagent.Manager)(nil)

// rig is a runtime whose agents follow a script.
type rig struct {
	*drover.Runtime
	*subagent.Manager
	t   *testing.T
	ctx context.Context
}

// lived opens a runtime with a manager that knows the agent own. The script holds
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
	rt, err := drover.Open(ctx, drover.Config{Dir: dir, Home: dir, ModelName: "script:turns.yaml", Tools: tools, Allow: allowed(tools)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := rt.Close(); err != nil {
			t.Error(err)
		}
	})
	m, err := rt.Agents(hooks, subagent.Definition{Name: "own", Description: "of the test", Prompt: "Do as the test says."})
	if err != nil {
		t.Fatal(err)
	}
	return &rig{rt, m, t, ctx}
}

func allowed(tools []agent.Tool) (names []string) {
	for _, tool := range tools {
		names = append(names, tool.Spec().Name)
	}
	return names
}

// spawn starts an agent in the background.
func (r *rig) spawn(agentType string) string {
	r.t.Helper()
	id, err := r.Spawn(r.ctx, subagent.AgentInput{Type: agentType, Prompt: "work", RunInBackground: true})
	if err != nil {
		r.t.Fatal(err)
	}
	return id
}

// ends waits for the end of an agent.
func (r *rig) ends(id string) {
	r.t.Helper()
	select {
	case <-r.Done(id):
	case <-r.ctx.Done():
		r.t.Fatal(context.Cause(r.ctx))
	}
}

// status is that of one agent in the listing.
func (r *rig) status(id string) subagent.AgentStatus {
	r.t.Helper()
	all := r.Manager.List()
	i := slices.IndexFunc(all, func(s subagent.AgentStatus) bool { return s.ID == id })
	if i < 0 {
		r.t.Fatalf("agent %s is not in the listing", id)
	}
	return all[i]
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
func TestManager(t *testing.T) {
	h := newHold()
	r := lived(t, holding, `{}`, nil, h)
	short, cancel := context.WithCancel(r.ctx)
	id, err := r.Spawn(short, subagent.AgentInput{Type: "Own", Prompt: "work", Name: "worker", Description: "some work", RunInBackground: true})
	if err != nil {
		t.Fatal(err)
	}
	cancel() // bounds the start only
	<-h.began

	s := r.status(id)
	if s.Type != "own" || s.Name != "worker" || s.Definition.Prompt != "Do as the test says." || s.State != task.Running || s.StartedAt.IsZero() ||
		s.Record.Description != "some work" || !s.Record.Backgrounded {
		t.Errorf("while it works %+v", s)
	}
	select {
	case <-s.Done:
		t.Error("it is done while it works")
	default:
	}
	if text, err := r.GetOutput(id, false, 0); err != nil || !strings.Contains(text, "I begin.") {
		t.Errorf("without waiting %q, %v", text, err)
	}
	text, err := r.GetOutput(id, true, time.Millisecond)
	if !errors.Is(err, subagent.ErrTimeout) || err.Error() != "timeout waiting for task "+id || !strings.Contains(text, "I begin.") {
		t.Errorf("a wait that is too short: %q, %v", text, err)
	}
	if _, err := r.Spawn(r.ctx, subagent.AgentInput{Resume: id, Prompt: "go on"}); !errors.As(err, new(*task.MoveError)) {
		t.Errorf("resumed while it works: %v", err)
	}

	close(h.free)
	for range 2 {
		if text, err := r.GetOutput(id, true, 0); err != nil || text != "the end" {
			t.Errorf("answer %q, %v", text, err)
		}
	}
	select {
	case <-s.Done: // that of before
	default:
		t.Error("it has ended and is not done")
	}
	if s := r.status(id); s.State != task.Completed {
		t.Errorf("in the end %+v", s)
	}
	if err := r.Manager.Stop(id); err != nil || r.status(id).State != task.Completed {
		t.Errorf("stopped after its end: %v, %+v", err, r.status(id))
	}

	// D-07: a further run knows what was said.
	again, err := r.Spawn(r.ctx, subagent.AgentInput{Resume: id, Prompt: "go on"})
	if err != nil || again != id {
		t.Fatalf("resumed as %s: %v", again, err)
	}
	if text, err := r.GetOutput(id, false, 0); err != nil || !strings.HasPrefix(text, "and on: ") || !strings.HasSuffix(text, "go on, after held") {
		t.Errorf("resumed: %q, %v", text, err)
	}
}

// AT-07: in the foreground the ID comes with the end; who does not wait so long
// has the ID of an agent that goes on.
func TestManagerForeground(t *testing.T) {
	h := newHold()
	r := lived(t, holding, `{}`, nil, h)
	short, cancel := context.WithCancelCause(r.ctx)
	gone := errors.New("gone")
	go func() { // ends with the call below
		<-h.began
		cancel(gone)
	}()
	id, err := r.Spawn(short, subagent.AgentInput{Type: "own", Prompt: "work"})
	if !errors.Is(err, gone) || r.status(id).State != task.Running || r.status(id).Record.Backgrounded {
		t.Fatalf("%s, %v", id, err)
	}
	close(h.free)
	if text, err := r.GetOutput(id, true, 0); err != nil || text != "the end" {
		t.Errorf("%q, %v", text, err)
	}
	id, err = r.Spawn(r.ctx, subagent.AgentInput{Type: "own", Prompt: "work"})
	if err != nil || r.status(id).State != task.Completed {
		t.Errorf("in the foreground: %v, %+v", err, r.status(id))
	}
}

// C-25, ER-01, ER-02: what is not there is said so.
func TestManagerUnknown(t *testing.T) {
	r := lived(t, holding, `{}`, nil)
	_, err := r.Spawn(r.ctx, subagent.AgentInput{Type: "nobody", Prompt: "x"})
	var kind *subagent.UnknownTypeError
	if !errors.As(err, &kind) || !slices.Contains(kind.Known, "own") || !slices.Contains(kind.Known, "explore") || !strings.HasPrefix(err.Error(), "unknown subagent_type: nobody") {
		t.Errorf("unknown type: %v", err)
	}
	command, err := r.Shell(r.ctx, drover.Shell{Line: "true"})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"a0000000x", "", string(command.ID)} {
		_, got := r.GetOutput(id, true, time.Hour)
		asked := map[string]error{"output": got, "stop": r.Manager.Stop(id)}
		if id != "" { // which resumes nothing
			_, asked["resume"] = r.Spawn(r.ctx, subagent.AgentInput{Resume: id, Prompt: "x"})
		}
		for what, err := range asked {
			if !errors.Is(err, subagent.ErrNotFound) || err.Error() != "unknown task_id: "+id {
				t.Errorf("%s of %q: %v", what, id, err)
			}
		}
		<-r.Done(id)
	}
	if _, err := r.Spawn(r.ctx, subagent.AgentInput{Type: "own"}); err == nil || !strings.Contains(err.Error(), "prompt") {
		t.Errorf("without a prompt: %v", err)
	}
	if n := len(r.Manager.List()); n != 0 {
		t.Errorf("%d agents were started", n)
	}
	for _, bad := range []subagent.Definition{{Prompt: "x"}, {Name: "a"}, {Name: "own", Prompt: "x"}} {
		if _, err := r.Agents(nil, bad, subagent.Definition{Name: "Own", Prompt: "x"}); err == nil {
			t.Errorf("accepted %+v", bad)
		}
	}
}

// TS-01, D-06: a stop is one that stays, and says so to who reads the output.
func TestManagerStop(t *testing.T) {
	h := newHold()
	r := lived(t, holding, `{}`, nil, h)
	id := r.spawn("own")
	<-h.began
	if err := r.Manager.Stop(id); err != nil {
		t.Fatal(err)
	}
	r.ends(id)
	text, err := r.GetOutput(id, true, 0)
	var end *subagent.EndError
	if !errors.As(err, &end) || end.Status != task.Killed || end.Cause.Actor != task.ByClient || !strings.Contains(text, "I begin.") {
		t.Errorf("stopped: %q, %v", text, err)
	}
	failing := r.spawn("plan") // has no turns
	_, err = r.GetOutput(failing, true, 0)
	if !errors.As(err, &end) || end.Status != task.Failed || end.Detail == "" {
		t.Errorf("failed: %v", err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Spawn(r.ctx, subagent.AgentInput{Type: "own", Prompt: "x"}); !errors.Is(err, subagent.ErrClosed) {
		t.Errorf("spawned after the close: %v", err)
	}
	if n := len(r.Manager.List()); n != 2 {
		t.Errorf("%d agents after the close", n)
	}
}

// AR-13, D-05: many at once, and each of them to one end.
func TestManagerSideBySide(t *testing.T) {
	r := lived(t, "  '*':\n    - {text: done, repeat: -1}\n", `{"limits":{"live":3}}`, nil)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			id, err := r.Spawn(r.ctx, subagent.AgentInput{Prompt: "x", RunInBackground: true})
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = r.GetOutput(id, false, 0)
			r.Manager.List()
			if err := r.Manager.Stop(id); err != nil {
				t.Error(err)
			}
			<-r.Done(id)
		})
	}
	all.Wait()
	list := r.Manager.List()
	for _, s := range list {
		if !s.State.Terminal() {
			t.Errorf("agent %s is %s", s.ID, s.State)
		}
	}
	if len(list) != 8 {
		t.Errorf("%d agents", len(list))
	}
}

// D-05: an agent that a tool starts is below the one that called it, waits without
// a place, and is held to the depth.
func TestManagerNested(t *testing.T) {
	var r *rig
	var mu sync.Mutex
	var failed error
	spawn := tool{"Below", func(ctx context.Context, c agent.Call) (agent.Output, error) {
		id, err := r.Spawn(ctx, subagent.AgentInput{Type: "own", Prompt: "deeper"})
		if err != nil {
			mu.Lock()
			defer mu.Unlock()
			failed = err
			return agent.Refuse(err.Error()), nil
		}
		text, err := r.GetOutput(id, true, 0)
		return agent.Output{Text: text}, err
	}}
	r = lived(t, "  own:\n    - tools: [{name: Below}]\n    - text: 'up: {{result 0}}'\n", `{"limits":{"live":1,"depth":2}}`, nil, spawn)
	top := r.spawn("own")
	r.ends(top)
	text, err := r.GetOutput(top, false, 0)
	if err != nil || text != "up: up: recursion rejected: tasks may be nested 2 deep" {
		t.Errorf("%q, %v", text, err)
	}
	var limit *subagent.LimitError
	if mu.Lock(); !errors.As(failed, &limit) || limit.Limit != "depth" || limit.N != 2 {
		t.Errorf("the limit is told as %v", failed)
	}
	mu.Unlock()
	if list := r.Manager.List(); len(list) != 2 || list[0].Record.Parent != list[1].Record.ID || list[1].ID != top {
		t.Errorf("agents %+v", list)
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
func TestManagerHooks(t *testing.T) {
	w := &watcher{veto: func(end subagent.HookEnd) string {
		if end.Again || end.Answer != "first" {
			return ""
		}
		return "look again"
	}}
	h := newHold()
	r := lived(t, `
  own:
    - {text: first, when: {last_contains: swordfish}}
    - {text: "second, after {{last}}"}
  explore:
    - {tools: [{name: Hold}]}
`, `{}`, w, h)
	id, err := r.Spawn(r.ctx, subagent.AgentInput{Type: "own", Prompt: "work"})
	if err != nil {
		t.Fatal(err)
	}
	if text, err := r.GetOutput(id, false, 0); err != nil || !strings.HasPrefix(text, "second, after ") || !strings.Contains(text, "look again") {
		t.Errorf("vetoed: %q, %v", text, err)
	}
	_, err = r.Spawn(r.ctx, subagent.AgentInput{Type: "plan", Prompt: "work"})
	if err != nil {
		t.Fatal(err)
	}
	// Another manager's hooks are not told, and an agent without a manager has none.
	other, err := r.Agents(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Spawn(r.ctx, subagent.AgentInput{Type: "own", Prompt: "swordfish"}); !errors.As(err, new(*subagent.UnknownTypeError)) {
		t.Errorf("a type of one manager is known to another: %v", err)
	}
	if _, err := other.Spawn(r.ctx, subagent.AgentInput{Type: "plan", Prompt: "x"}); err != nil {
		t.Error(err)
	}
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
