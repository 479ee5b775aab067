package workflow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/drover-dev/drover/internal/engine/lifecycle"
	flow "github.com/drover-dev/drover/internal/project/workflowfile"
	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/test/tasktest"
)

func TestConformance(t *testing.T) {
	at := func(text string) func(*testing.T) (task.Driver, json.RawMessage) {
		return func(t *testing.T) (task.Driver, json.RawMessage) {
			return wired{newWorld()}, input(t, plan(t, text), nil)
		}
	}
	tasktest.Run(t, tasktest.Config{
		Long:   at("steps:\n  - {id: one, shell: wait}\n  - {id: two, shell: wait}"),
		Short:  at("steps:\n  - {id: one, shell: say hello}\n  - {id: after, needs: one, shell: say hello}"),
		Prints: "after: completed",
		Asks: func(t *testing.T, n int) (task.Driver, json.RawMessage) {
			var b strings.Builder
			b.WriteString("steps:\n")
			for i := range n {
				fmt.Fprintf(&b, "  - {id: gate-%d, approval: go on, continue_on_error: true}\n", i)
				fmt.Fprintf(&b, "  - {id: go-%d-after, needs: gate-%d, if: \"steps.gate-%d.status == 'completed'\", shell: say x}\n", i, i, i)
			}
			return wired{newWorld()}, input(t, plan(t, b.String()), nil)
		},
		Checkpoint: func(*testing.T) (task.Driver, json.RawMessage) {
			return wired{newWorld()}, json.RawMessage(`{"resume":true}`)
		},
	})
}

func TestCheck(t *testing.T) {
	p := plan(t, "params: {x: {required: true}}\nsteps:\n  - {id: a, shell: x}")
	circle := *p
	circle.Steps = []flow.Step{{ID: "a", Shell: "x", Needs: []string{"a"}}}
	for name, c := range map[string]struct {
		in   Input
		want string
	}{
		"good":     {Input{Plan: p, Params: map[string]string{"x": "1"}, Cwd: "/w"}, ""},
		"resume":   {Input{Resume: true}, ""},
		"both":     {Input{Resume: true, Plan: p}, "give a plan"},
		"param":    {Input{Plan: p, Cwd: "/w"}, "parameter x is missing"},
		"relative": {Input{Plan: p, Params: map[string]string{"x": "1"}, Cwd: "w"}, "not absolute"},
		"circle":   {Input{Plan: &circle, Cwd: "/w"}, "in a circle"},
		"empty":    {Input{Plan: &flow.Plan{Parallel: 1}, Cwd: "/w"}, "0 steps"},
	} {
		raw, err := json.Marshal(c.in)
		if err != nil {
			t.Fatal(err)
		}
		err = New(nil).Check(raw)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// How workflows end, by what their steps do.
func TestRun(t *testing.T) {
	for name, c := range map[string]struct {
		text     string
		statuses string
		failure  string // of the run, in part; empty: none
		text2    string // in the final text
	}{
		"three": {"steps:\n  - {id: a, shell: say one}\n  - {id: b, needs: a, shell: say two}\n  - {id: c, needs: [a, b], shell: say three}",
			"a:completed b:completed c:completed", "", "a: completed\nb: completed\nc: completed\n"},
		"outputs": {"params: {p: {default: x}}\nsteps:\n  - {id: a, shell: say <one>}\noutputs: {got: \"${{ steps.a.output }} ${{ params.p }}\", code: \"${{ steps.a.exit_code }}\"}",
			"a:completed", "", "{\n  \"code\": \"0\",\n  \"got\": \"<one> x\"\n}\n"},
		"failure": {"steps:\n  - {id: a, shell: fail}\n  - {id: b, needs: a, shell: say x}\n  - {id: c, shell: wait}",
			"a:failed b:skipped c:killed", "step a: failed: exit code 2", "a: failed: exit code 2\nb: skipped\nc: killed: another step has failed\n"},
		"continue": {"steps:\n  - {id: a, shell: fail, continue_on_error: true}\n  - {id: b, needs: a, shell: say x}",
			"a:failed b:completed", "", "a: failed"},
		"handlers": {"steps:\n  - {id: a, shell: fail}\n  - {id: b, needs: a, shell: say x}\n  - {id: tell, if: failure(), shell: say x}\n  - {id: clean, if: always(), shell: say x}\n  - {id: well, if: success(), needs: [clean], shell: say x}",
			"a:failed b:skipped tell:completed clean:completed well:skipped", "step a", ""},
		"no failure": {"steps:\n  - {id: a, shell: say x}\n  - {id: tell, if: failure(), shell: say x}\n  - {id: clean, if: always(), shell: say x}",
			"a:completed tell:skipped clean:completed", "", ""},
		"skipped is no failure": {"steps:\n  - {id: a, if: \"false\", shell: fail}\n  - {id: b, needs: a, shell: say x}",
			"a:skipped b:completed", "", ""},
		"first of two": {"parallel: 1\nsteps:\n  - {id: a, shell: fail}\n  - {id: b, shell: fail}", "a:failed b:skipped", "step a", ""},
		"retry":        {"steps:\n  - {id: a, shell: fail 2, retries: 2}\n  - {id: b, needs: a, if: \"steps.a.output == 'well'\", shell: say x}", "a:completed b:completed", "", ""},
		"too few":      {"steps:\n  - {id: a, shell: fail 3, retries: {max: 2, delay: 1ms}}", "a:failed", "step a", ""},
		"time":         {"steps:\n  - {id: a, shell: wait, timeout: 10ms}", "a:failed", "time limit", ""},
		"unmakable":    {"steps:\n  - {id: a, shell: unmakable}\n  - {id: b, shell: wait}", "a:failed b:killed", "step a: failed: it cannot be made", ""},
		"panic":        {"steps:\n  - {id: a, shell: panic}", "a:failed", "panic: in the hands", ""},
		"odd vars":     {"params: {p: {default: '1 2'}}\nsteps:\n  - {id: a, shell: vars, cwd: sub, env: {E: \"<${{ params.p }}>\"}}\noutputs: {o: \"${{ steps.a.output }}\"}", "a:completed", "", "DROVER_PARAM_P=1 2 E=<1 2> in /w/sub"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newWorld().run(t, input(t, plan(t, c.text), nil))
			if got := g.statuses(); got != c.statuses {
				t.Errorf("the steps stand at %s, want %s", got, c.statuses)
			}
			change, _ := lifecycle.Ending(nil, g.res, g.err)
			switch {
			case c.failure == "" && change.Verb != task.Complete:
				t.Errorf("it ended with %v", g.err)
			case c.failure != "" && (change.Verb != task.Fail || change.Cause.Reason != ReasonStep || !strings.Contains(change.Error, c.failure)):
				t.Errorf("it is recorded as %+v, want a failure with %q", change, c.failure)
			}
			if !strings.Contains(g.res.Text, c.text2) {
				t.Errorf("the text is %q, want %q", g.res.Text, c.text2)
			}
			for _, r := range g.h.Children() {
				if !r.Status.Terminal() {
					t.Errorf("child %s is %s", r.Key, r.Status)
				}
			}
		})
	}
}

// A small file makes no text without bounds of what steps and parameters say.
func TestLargeTexts(t *testing.T) {
	head := "params: {p: {default: '" + strings.Repeat("x", flow.MaxValue) + "'}}\nsteps:\n"
	many := strings.Repeat("${{ params.p }}", flow.MaxText/flow.MaxValue+1)
	var outputs strings.Builder
	for i := range flow.MaxText/flow.MaxValue + 1 {
		fmt.Fprintf(&outputs, "  o%d: ${{ params.p }}\n", i)
	}
	for name, text := range map[string]string{
		"prompt":  head + "  - {id: a, agent: {type: x, prompt: \"" + many + "\"}}",
		"outputs": head + "  - {id: a, shell: say x}\noutputs:\n" + outputs.String(),
	} {
		if g := newWorld().run(t, input(t, plan(t, text), nil)); g.err == nil || !strings.Contains(g.err.Error(), "more than 524288 bytes") || len(g.res.Text) > flow.MaxText {
			t.Errorf("%s: %v, and a text of %d bytes", name, g.err, len(g.res.Text))
		}
	}
}

// What is shown of a run: each try is a child with a key, and the file tells the steps.
func TestShown(t *testing.T) {
	g := newWorld().run(t, input(t, plan(t, "steps:\n  - {id: a, shell: fail 1, retries: 1}\n  - {id: b, needs: a, shell: say x}"), nil))
	var keys []string
	for _, r := range g.h.Children() {
		keys = append(keys, r.Key+":"+string(r.Status))
	}
	if !slices.Equal(keys, []string{"a/1:failed", "a/2:completed", "b/1:completed"}) {
		t.Errorf("children %v", keys)
	}
	steps := g.h.Record().Progress.Steps
	if a := steps[0]; a.Attempt != 2 || a.Task != g.h.Children()[1].ID || a.Start.IsZero() || a.End.Before(a.Start) {
		t.Errorf("step a is shown as %+v", a)
	}
	var words []string
	for line := range strings.Lines(g.h.Printed()) {
		text, _, _ := strings.Cut(line, " as ")
		text, _, _ = strings.Cut(text, " in ")
		words = append(words, strings.TrimSpace(text))
	}
	want := []string{"a: running", "a: attempt 1 failed (exit code 2), the next", "a: running", "a: completed", "b: running", "b: completed"}
	if !slices.Equal(words, want) {
		t.Errorf("the file says %q, want %q", words, want)
	}
	if u := g.res.Usage; u == nil || u.TotalTokens != 1 || u.CostUSD == nil || *u.CostUSD != 0.5 {
		t.Errorf("usage %+v", u)
	}
}

// What a step has cost is counted too if another's failure stops it.
func TestCostOfStopped(t *testing.T) {
	w := newWorld()
	h := tasktest.NewHost(t, task.LocalWorkflow, input(t, plan(t, "steps:\n  - {id: a, shell: wait}\n  - {id: b, shell: wait}"), nil))
	ended := make(chan went, 1)
	go func() { ended <- w.on(t.Context(), h) }() // joined below
	h.UntilPrinted(": running", 2)
	h.StopChild(h.Children()[0].ID, task.Cause{Actor: task.ByUser, Reason: task.ReasonStopped})
	if g := <-ended; g.res.Usage == nil || g.res.Usage.TotalTokens != 2 {
		t.Errorf("%s: usage %+v", g.statuses(), g.res.Usage)
	}
}

// No more steps than the plan has places run side by side.
func TestParallel(t *testing.T) {
	w := newWorld()
	var b strings.Builder
	b.WriteString("parallel: 3\nsteps:\n")
	for i := range 8 {
		fmt.Fprintf(&b, "  - {id: s%d, shell: hold}\n", i)
	}
	h := tasktest.NewHost(t, task.LocalWorkflow, input(t, plan(t, b.String()), nil))
	ended := make(chan went, 1)
	go func() { ended <- w.on(t.Context(), h) }() // joined below
	<-w.full
	if n := len(h.Children()); n != 3 {
		t.Errorf("%d steps were begun, and none has ended", n)
	}
	close(w.free)
	if g := <-ended; g.err != nil || len(g.h.Children()) != 8 {
		t.Errorf("%d steps were done; %v", len(g.h.Children()), g.err)
	}
}

func TestStopTree(t *testing.T) {
	w := newWorld()
	ctx, end := context.WithCancelCause(t.Context())
	h := tasktest.NewHost(t, task.LocalWorkflow, input(t, plan(t, "steps:\n  - {id: a, shell: say x}\n  - {id: b, needs: a, shell: wait}\n  - {id: c, needs: b, shell: say x}\n  - {id: d, if: always(), shell: say x}"), nil))
	ended := make(chan went, 1)
	go func() { ended <- w.on(ctx, h) }() // joined below
	h.UntilPrinted("b: running", 1)
	stop := &task.StopError{Cause: task.Cause{Actor: task.ByUser, Reason: task.ReasonStopped}}
	end(stop)
	g := <-ended
	if change, _ := lifecycle.Ending(stop, g.res, g.err); change.Verb != task.Stop {
		t.Errorf("recorded as %+v", change)
	}
	if got := g.statuses(); got != "a:completed b:killed c:pending d:pending" {
		t.Errorf("the steps stand at %s", got)
	}
}

// A step that somebody stops has failed, and takes the workflow along.
func TestStopStep(t *testing.T) {
	w := newWorld()
	h := tasktest.NewHost(t, task.LocalWorkflow, input(t, plan(t, "steps:\n  - {id: a, shell: wait, retries: 3}\n  - {id: b, needs: a, shell: say x}"), nil))
	ended := make(chan went, 1)
	go func() { ended <- w.on(t.Context(), h) }() // joined below
	h.UntilPrinted("a: running", 1)
	h.StopChild(h.Children()[0].ID, task.Cause{Actor: task.ByUser, Reason: task.ReasonStopped})
	g := <-ended
	if got := g.statuses(); got != "a:killed b:skipped" || g.err == nil || !strings.Contains(g.err.Error(), "step a: killed: it was stopped (by user: stopped)") {
		t.Errorf("%s: %v", got, g.err)
	}
}

func TestNobodyApproves(t *testing.T) {
	w := newWorld()
	w.patience = 0
	g := w.run(t, input(t, plan(t, "steps:\n  - {id: gate, approval: now}\n  - {id: b, needs: gate, shell: say x}"), nil))
	if got := g.statuses(); got != "gate:failed b:skipped" || !strings.Contains(g.err.Error(), "nobody is there to approve it") {
		t.Errorf("%s: %v", got, g.err)
	}
}

// A further run goes on behind what has ended well, with its output, and does what
// has failed anew.
func TestResume(t *testing.T) {
	w := newWorld()
	p := plan(t, "steps:\n  - {id: a, shell: say from a}\n  - {id: b, needs: a, shell: fail 1}\n  - {id: c, needs: b, shell: say x}\noutputs: {o: \"${{ steps.a.output }}\"}")
	first := w.run(t, input(t, p, nil))
	if got := first.statuses(); got != "a:completed b:failed c:skipped" {
		t.Fatalf("%s: %v", got, first.err)
	}
	g := w.on(t.Context(), first.h.Again(json.RawMessage(`{"resume":true}`)))
	if got := g.statuses(); g.err != nil || got != "a:completed b:completed c:completed" || !strings.Contains(g.res.Text, "from a") {
		t.Errorf("%s: %v %q", got, g.err, g.res.Text)
	}
	if n := strings.Count(strings.Join(w.log, " "), "+a"); n != 1 {
		t.Errorf("step a was done %d times", n)
	}
	none := w.on(t.Context(), tasktest.NewHost(t, task.LocalWorkflow, json.RawMessage(`{"resume":true}`)))
	if !errors.Is(none.err, task.ErrLost) {
		t.Errorf("without a checkpoint: %v", none.err)
	}
}

// A workflow within another is gone on with too: nothing in it is done twice.
func TestResumeNested(t *testing.T) {
	w := newWorld()
	p := plan(t, "steps:\n  - {id: sub, workflow: sub.yaml, with: {v: hi}}\noutputs: {o: \"${{ steps.sub.output }}\"}",
		"params: {v: }\nsteps:\n  - {id: in, shell: say inner}\n  - {id: bad, needs: in, shell: fail 1}\noutputs: {got: \"${{ steps.in.output }} ${{ params.v }}\"}")
	first := w.run(t, input(t, p, nil))
	if first.err == nil || !strings.Contains(first.err.Error(), "step sub: failed: step bad: failed: exit code 2") {
		t.Fatal(first.err)
	}
	g := w.on(t.Context(), first.h.Again(json.RawMessage(`{"resume":true}`)))
	if g.err != nil || !strings.Contains(g.res.Text, "inner hi") {
		t.Errorf("%v %q", g.err, g.res.Text)
	}
	if got := strings.Join(w.log, " "); got != "+in +bad +bad" {
		t.Errorf("done: %s", got)
	}
	if n := len(g.h.Children()); n != 1 {
		t.Errorf("%d children, want the one workflow", n)
	}
}

// A try that was lost with its host is no failure.
func TestLost(t *testing.T) {
	w := newWorld()
	p := plan(t, "steps:\n  - {id: a, shell: hold}")
	ctx, end := context.WithCancelCause(t.Context())
	h := tasktest.NewHost(t, task.LocalWorkflow, input(t, p, nil))
	h.LoseAfter(3, func() { end(task.ErrClosing) }) // the checkpoint, the start, the wait
	first := w.on(ctx, h)
	if r := first.h.Children()[0]; r.Cause == nil || r.Cause.Reason != task.ReasonHostLost {
		t.Fatalf("the child is %+v", r)
	}
	close(w.free)
	g := w.on(t.Context(), h.Again(json.RawMessage(`{"resume":true}`)))
	if s := g.h.Record().Progress.Steps[0]; g.err != nil || s.Status != task.StepCompleted || s.Attempt != 2 {
		t.Errorf("%+v: %v", s, g.err)
	}
}

// The plan stands in every event of its workflow: it is kept small.
func TestPacked(t *testing.T) {
	var text strings.Builder
	text.WriteString("name: long\nsteps:\n")
	for i := range 200 {
		fmt.Fprintf(&text, "  - id: step-%d\n    shell: echo %d %s\n", i, i, strings.Repeat("the same words again and again ", 15))
	}
	p := plan(t, text.String())
	packed, err := pack(p)
	if err != nil || len(packed) > text.Len()/10 {
		t.Errorf("%d bytes of %d, %v", len(packed), text.Len(), err)
	}
	got, err := unpack(packed)
	if err != nil || !reflect.DeepEqual(got, p) {
		t.Errorf("unpacked %+v, %v", got, err)
	}
	if _, err := unpack(packed[:len(packed)/2]); err == nil {
		t.Error("half of a plan was taken for a whole one")
	}
}
