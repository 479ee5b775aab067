package lifecycle_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/task"
)

var update = flag.Bool("update", false, "write the generated pages anew")

const statesPage = "../../../docs/states.md"

// The page is made from Apply and Ending alone, so it cannot say what the code
// does not do.
func TestStatesPage(t *testing.T) {
	want := renderStates(t)
	if *update {
		if err := os.WriteFile(statesPage, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(statesPage)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is stale: run `make docs`", statesPage)
	}
}

func renderStates(t *testing.T) []byte {
	var b bytes.Buffer
	fmt.Fprint(&b, `# States

A run of a task has one status, and verbs change it: `+"`complete`"+`, for example, changes a run from `+"`running`"+` to
`+"`completed`"+`. The table has the resulting status for each verb and each current status. A dash means that the change
is refused and nothing happens. The last three statuses are final: an ended task continues only with a new run.

The column *facts* names the [facts](words.md) that the verb sets (+) or clears (−).

This page is generated from `+"`lifecycle.Apply` and `lifecycle.Ending`"+`. Do not edit it; run `+"`make docs`"+`.

`)
	fmt.Fprint(&b, "| verb |")
	for _, s := range task.Statuses() {
		fmt.Fprintf(&b, " %s |", s)
	}
	fmt.Fprint(&b, " facts |\n|---|")
	fmt.Fprint(&b, strings.Repeat("---|", len(task.Statuses())+1), "\n")
	for _, v := range task.Verbs() {
		fmt.Fprintf(&b, "| %s |", v)
		for _, s := range task.Statuses() {
			next, err := lifecycle.Apply(raised(record(t, s), v), full(v))
			switch {
			case err != nil:
				fmt.Fprint(&b, " – |")
			default:
				fmt.Fprintf(&b, " %s |", next.Status)
			}
		}
		fmt.Fprintf(&b, " %s |\n", factsOf(t, v))
	}
	fmt.Fprint(&b, `
## How a run ends

The cause with which the context of the run ended and the error that the driver returned determine the recorded status,
actor and reason.

| context ended by | driver returned | recorded | actor | reason |
|---|---|---|---|---|
`)
	for _, e := range endings {
		c, ok := lifecycle.Ending(e.cause, task.Result{}, e.err)
		if !ok {
			fmt.Fprintf(&b, "| %s | %s | nothing: the task stays running | | |\n", spoken(e.cause, "–"), spoken(e.err, "no error"))
			continue
		}
		next := apply(t, record(t, task.Running), c)
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", spoken(e.cause, "–"), spoken(e.err, "no error"),
			next.Status, next.Cause.Actor, next.Cause.Reason)
	}
	return b.Bytes()
}

// factsOf tells which facts a verb sets or clears on a run that can take it,
// by comparing before and after.
func factsOf(t *testing.T, v task.Verb) string {
	for _, s := range []task.Status{task.Running, task.Pending, task.Completed} {
		r := raised(record(t, s), v)
		next, err := lifecycle.Apply(r, full(v))
		if err != nil {
			continue
		}
		var out []string
		for _, f := range []struct {
			name          string
			before, after bool
		}{
			{"idle", r.Idle, next.Idle},
			{"awaiting_approval", r.AwaitingApproval, next.AwaitingApproval},
			{"paused", r.Paused, next.Paused},
			{"backgrounded", r.Backgrounded, next.Backgrounded},
			{"stopping", r.Stopping, next.Stopping},
			{"notified", r.Notified, next.Notified},
		} {
			if f.before != f.after {
				out = append(out, map[bool]string{true: "+", false: "−"}[f.after]+f.name)
			}
		}
		return strings.Join(out, " ")
	}
	t.Errorf("%s is possible in no status", v)
	return ""
}

func spoken(err error, none string) string {
	names := map[error]string{
		errPlain:              "an error",
		userStop:              "stop by user",
		limitStop:             "stop by runtime, parent ended",
		task.ErrStopRequested: "stop without an actor",
		task.ErrClosing:       "closing",
		task.ErrTimeout:       "deadline of the task",
		task.ErrDetached:      "ErrDetached",
		task.ErrLost:          "ErrLost",
		exitError:             "exit code other than 0",
		overLimit:             "output limit",
		overQuota:             "output quota",
		selfReader:            "command reads its own output",
		crowded:               "process limit",
		starved:               "ended by the kernel, out of memory",
		panicked:              "a panic",
	}
	if err == nil {
		return none
	}
	if name, ok := names[err]; ok {
		return name
	}
	if strings.Contains(err.Error(), task.ErrLost.Error()) {
		return "ErrLost with the cause from the keeper"
	}
	return err.Error()
}
