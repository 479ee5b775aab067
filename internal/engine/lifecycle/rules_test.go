package lifecycle_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/drover-dev/drover/internal/engine/lifecycle"
	"github.com/drover-dev/drover/task"
)

// A question is bound to the whole request, also where it does not show all of
// it, and can always be written to the log.
func TestShown(t *testing.T) {
	long := `{"command":"` + strings.Repeat("é", task.MaxQuestionBytes) + `"}`
	for name, tt := range map[string]struct {
		input  string
		hidden bool
		want   string // empty: not compared
	}{
		"none":    {"", false, ""},
		"small":   {`{"command":"ls"}`, false, `{"command":"ls"}`},
		"no-json": {`rm -rf`, false, `"rm -rf"`},
		"large":   {long, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			q := lifecycle.Shown(task.Question{
				Tool: "Bash", Input: json.RawMessage(tt.input), Reason: strings.Repeat("x", 1<<20),
			})
			data, err := json.Marshal(q)
			if err != nil || len(data) > 2*task.MaxQuestionBytes {
				t.Fatalf("%d bytes, %v", len(data), err)
			}
			if q.Kind != task.Permission || len(q.Digest) != 64 || tt.want != "" && string(q.Input) != tt.want {
				t.Errorf("shown as %+v", q)
			}
			if (q.Hidden > 0) != tt.hidden {
				t.Errorf("%d bytes are hidden", q.Hidden)
			}
			if tt.hidden && (!strings.Contains(string(q.Input), "bytes more]") || q.Hidden < len(tt.input)-task.MaxQuestionBytes) {
				t.Errorf("%d of %d bytes are hidden: …%s", q.Hidden, len(tt.input), q.Input[len(q.Input)-60:])
			}
		})
	}
	digest := func(q task.Question) string { return lifecycle.Shown(q).Digest }
	base := task.Question{Tool: "Bash", Input: json.RawMessage(long)}
	tail := base
	tail.Input = json.RawMessage(strings.Replace(long, `"}`, `x"}`, 1))
	choice := base
	choice.Kind = task.Choice
	other := base
	other.Tool = "Write"
	for _, q := range []task.Question{tail, choice, other} {
		if digest(q) == digest(base) {
			t.Errorf("another request has the same digest: %s %s", q.Kind, q.Tool)
		}
	}
}

// A record stays short whatever a task was started with, and whatever it reports.
func TestRecordStaysShort(t *testing.T) {
	const most = 64 << 10
	huge := strings.Repeat("é", 1<<20)
	r := task.Record{ID: "b00000001", Status: task.Pending, Command: huge, Prompt: huge, Description: huge}
	r = lifecycle.Short(r)
	if r.CommandBytes != len(huge) || !strings.HasPrefix(huge, r.Command[:100]) || !strings.Contains(r.Command, "bytes more]") {
		t.Errorf("command: %d bytes of %d", len(r.Command), r.CommandBytes)
	}
	if again := lifecycle.Short(r); again.Command != r.Command || again.CommandBytes != r.CommandBytes {
		t.Error("what is short was shortened again")
	}
	state := &task.MCPState{Message: huge}
	for _, c := range []lifecycle.Change{
		{Verb: task.Begin},
		{Verb: task.Report, Progress: &task.Progress{Message: huge, Phase: huge, MCPTask: state}, Summary: huge},
		{Verb: task.Fail, Error: huge, Cause: &task.Cause{Detail: huge}},
	} {
		var err error
		if r, err = lifecycle.Apply(r, c); err != nil {
			t.Fatal(err)
		}
		if n := lifecycle.Weight(&r); n > most || len(r.Error) > lifecycle.MaxRecordError {
			t.Errorf("after %s the record weighs %d", c.Verb, n)
		}
	}
	if state.Message != huge {
		t.Error("what was reported was changed")
	}
	if m := r.Progress.MCPTask.Message; len(m) > lifecycle.MaxRecordText {
		t.Errorf("a message of an MCP server has %d bytes", len(m))
	}
}

func TestCheckOwn(t *testing.T) {
	for _, k := range []task.Kind{"local_cook", "nightly_report"} {
		if err := lifecycle.CheckOwn(k, task.Traits{Noun: "report", Work: task.ByEvents, Wait: task.WaitNever}); err != nil {
			t.Errorf("kind %s is refused: %v", k, err)
		}
	}
	for _, k := range []task.Kind{"", "x", "LOCAL_BASH", "9lives", "a b", "a<b", task.Kind(strings.Repeat("x", 41))} {
		if err := lifecycle.CheckOwn(k, task.Traits{}); !errors.Is(err, lifecycle.ErrBadKind) {
			t.Errorf("kind %q: %v", k, err)
		}
	}
	for name, traits := range map[string]task.Traits{
		"agent": {Work: task.ByAgent}, "steps": {Work: task.BySteps}, "resumable": {Resumable: true}, "away": {Elsewhere: task.IfKept},
		"waits": {Wait: task.WaitAlways}, "long": {Noun: strings.Repeat("x", 201)},
	} {
		if err := lifecycle.CheckOwn("own_kind", traits); err == nil {
			t.Errorf("traits %s are taken", name)
		}
	}
}
