package workflow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	flow "github.com/drover-dev/drover/internal/project/workflowfile"
	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/test/tasktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// puppet does a shell step by the words of its line:
//
//	say X      prints X
//	fail       fails
//	fail N     fails N times over all tries, then prints "well"
//	wait       waits for its end
//	vars       prints its variables
//	hold       waits until the test lets it go
type puppet struct {
	w *world
	a Attempt
}

func (puppet) Kind() task.Kind { return task.LocalBash }

func (puppet) Check(json.RawMessage) error { return nil }

func (p puppet) Run(ctx context.Context, h task.Host) (task.Result, error) {
	p.w.note("+" + p.a.Step.ID)
	word, rest, _ := strings.Cut(p.a.Step.Shell, " ")
	zero := 0
	switch word {
	case "say":
		_, err := fmt.Fprintln(h.Output(), rest)
		return task.Result{ExitCode: &zero, Usage: &task.Usage{TotalTokens: 1, CostUSD: new(0.5)}}, err
	case "fail":
		if n := p.w.failure(p.a.Step.ID); rest == "" || fmt.Sprint(n) <= rest {
			two := 2
			return task.Result{ExitCode: &two}, &task.FailError{Reason: task.ReasonExit, Err: errors.New("exit code 2")}
		}
		_, err := fmt.Fprintln(h.Output(), "well")
		return task.Result{}, err
	case "vars":
		_, err := fmt.Fprintln(h.Output(), strings.Join(p.a.Vars, " ")+" in "+p.a.Cwd)
		return task.Result{}, err
	case "hold":
		p.w.enter()
		select {
		case <-p.w.free:
			return task.Result{}, nil
		case <-ctx.Done():
		}
	case "wait":
		<-ctx.Done()
	}
	return task.Result{Usage: &task.Usage{TotalTokens: 1}}, context.Cause(ctx)
}

// world is what the steps of a test have around them, over all runs of a workflow.
type world struct {
	free chan struct{} // closed by the test
	full chan struct{} // closed when three steps hold

	patience time.Duration
	mu       sync.Mutex
	held     int
	fails    map[string]int
	log      []string
}

func (w *world) enter() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.held++; w.held == 3 {
		close(w.full)
	}
}

func newWorld() *world {
	return &world{free: make(chan struct{}), full: make(chan struct{}), fails: map[string]int{}, patience: time.Minute}
}

func (w *world) note(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log = append(w.log, text)
}

// failure counts the failures of a step, this one included.
func (w *world) failure(id string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fails[id]++
	return w.fails[id]
}

func (w *world) Patience() time.Duration { return w.patience }

// hands are the world of one run.
type hands struct {
	*world
	h *tasktest.Host
}

func (s hands) Start(ctx context.Context, h task.Host, a Attempt) (task.Record, error) {
	spec := task.Spec{Key: a.Key, Description: a.Step.ID, Command: a.Step.Shell, Cwd: a.Cwd, Timeout: a.Step.Timeout, Input: json.RawMessage("{}")}
	switch {
	case strings.HasPrefix(a.Step.Shell, "panic"):
		panic("in the hands of a step")
	case strings.HasPrefix(a.Step.Shell, "unmakable"):
		return task.Record{}, errors.New("it cannot be made")
	case a.Step.Workflow != nil:
		var err error
		if spec.Input, err = json.Marshal(a.Input()); err != nil {
			return task.Record{}, err
		}
		return h.Spawn(ctx, wired{s.world}, spec)
	}
	return h.Spawn(ctx, puppet{s.world, a}, spec)
}

func (s hands) Again(ctx context.Context, _ task.Host, id task.ID, _ Attempt) (task.Record, error) {
	return s.h.ResumeChild(ctx, id, wired{s.world}, task.Spec{Input: json.RawMessage(`{"resume":true}`)})
}

func (s hands) Stop(_ context.Context, id task.ID, why string) error {
	s.h.StopChild(id, task.Cause{Actor: task.ByParent, Reason: task.ReasonStopped, Detail: why})
	return nil
}

func (s hands) Text(_ context.Context, id task.ID) (string, error) {
	c := s.h.Child(id)
	if c == nil {
		return "", fmt.Errorf("no child %s", id)
	}
	if text := c.Text(); text != "" {
		return text, nil
	}
	return c.Printed(), nil
}

func (hands) Barred(err error) bool { return errors.Is(err, tasktest.ErrOver) }

// wired is the driver with the hands of whichever run it is given.
type wired struct{ w *world }

func (wired) Kind() task.Kind                   { return task.LocalWorkflow }
func (d wired) Check(raw json.RawMessage) error { return New(nil).Check(raw) }
func (d wired) Run(ctx context.Context, h task.Host) (task.Result, error) {
	return New(hands{d.w, h.(*tasktest.Host)}).Run(ctx, h)
}

// plan compiles the text of a workflow; sub is a file beside it.
func plan(t testing.TB, text string, sub ...string) *flow.Plan {
	t.Helper()
	p, faults := flow.Compile("/w/a.yaml", func(path string) ([]byte, error) {
		if path == "/w/sub.yaml" && len(sub) > 0 {
			return []byte(sub[0]), nil
		}
		return []byte(text), nil
	})
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	return p
}

func input(t testing.TB, p *flow.Plan, params map[string]string) json.RawMessage {
	t.Helper()
	all, err := p.Values(params)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(Input{Plan: p, Params: all, Cwd: "/w"})
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// went is a run that has ended.
type went struct {
	h   *tasktest.Host
	res task.Result
	err error
}

// run runs a workflow to its end.
func (w *world) run(t testing.TB, raw json.RawMessage) went {
	t.Helper()
	return w.on(t.Context(), tasktest.NewHost(t, task.LocalWorkflow, raw))
}

func (w *world) on(ctx context.Context, h *tasktest.Host) went {
	res, err := wired{w}.Run(ctx, h)
	h.End()
	return went{h, res, err}
}

// statuses are how the steps stand, such as a:completed.
func (g went) statuses() string {
	p := g.h.Record().Progress
	if p == nil {
		return ""
	}
	var out []string
	for _, s := range p.Steps {
		out = append(out, s.ID+":"+string(s.Status))
	}
	return strings.Join(out, " ")
}
