package workflowtool

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/tool/toolkit"
	"github.com/drover-dev/drover/task"
)

// known answers as it was told to.
type known struct {
	got Request
	out Outcome
	err error
}

func (k *known) Start(_ context.Context, r Request) (Outcome, error) {
	k.got = r
	return k.out, k.err
}

func TestSpec(t *testing.T) {
	s := New(nil, "", 0).Spec()
	var schema struct {
		Properties map[string]struct{ Type string }
		Additional bool `json:"additionalProperties"`
	}
	if err := json.Unmarshal(s.InputSchema, &schema); err != nil || s.Name != "Workflow" || len(schema.Properties) != 3 ||
		schema.Additional {
		t.Errorf("%v: %s %s", err, s.Name, s.InputSchema)
	}
	for _, word := range []string{"background", "resume", "Permission rules are checked", "workflow check"} {
		if !strings.Contains(s.Description, word) {
			t.Errorf("the model is not told of %q", word)
		}
	}
}

func TestCall(t *testing.T) {
	rec := task.Record{ID: "w00000001", Run: "run_1", Command: "/p/a.yaml", OutputFile: "/o/w.output"}
	ended := func(s task.Status, why string) task.Record {
		r := rec
		r.Status, r.Error = s, why
		return r
	}
	for name, c := range map[string]struct {
		input string
		out   Outcome
		err   error
		want  string // in the text
		bad   bool
		file  string // that was asked for
	}{
		"file": {`{"file":"sub/a.yaml","params":{"x":"1"}}`, Outcome{Task: rec, Backgrounded: true}, nil,
			"Task ID: w00000001", false, "/root/sub/a.yaml"},
		"absolute": {`{"file":"/p/a.yaml"}`, Outcome{Task: rec, Backgrounded: true}, nil, "You will be told", false,
			"/p/a.yaml"},
		"resume": {`{"resume":"w1"}`, Outcome{Task: rec, Backgrounded: true}, nil, "Task ID", false, ""},
		"completed": {`{"file":"a"}`, Outcome{Task: ended(task.Completed, ""), Text: "all\x1b well"}, nil,
			"w00000001 is completed.\n\nall", false, "/root/a"},
		"failed": {`{"file":"a"}`, Outcome{Task: ended(task.Failed, "step x: failed"), Text: "x: failed"}, nil,
			"did not complete: step x: failed. To go on with it", true, "/root/a"},
		"refused": {`{"file":"a"}`, Outcome{}, &toolkit.Refusal{Text: "step x was not allowed"}, "step x was not allowed",
			true, "/root/a"},
		"neither": {`{}`, Outcome{}, nil, `give "file" or "resume"`, true, ""},
		"both":    {`{"file":"a","resume":"w1"}`, Outcome{}, nil, `give "file" or "resume"`, true, ""},
		"params":  {`{"resume":"w1","params":{"x":"1"}}`, Outcome{}, nil, "leave them out", true, ""},
		"number":  {`{"file":"a","params":{"x":1}}`, Outcome{}, nil, `"params"`, true, ""},
		"unknown": {`{"script":"a"}`, Outcome{}, nil, `unknown field "script"`, true, ""},
	} {
		k := &known{out: c.out, err: c.err}
		out, err := New(k, "/root", 0).Call(t.Context(),
			agent.Call{ID: "c", Name: Name, Input: json.RawMessage(c.input)})
		if err != nil || out.IsError != c.bad || !strings.Contains(out.Text, c.want) || strings.Contains(out.Text, "\x1b") ||
			k.got.File != c.file {
			t.Errorf("%s: %v %+v, asked for %q", name, err, out, k.got.File)
		}
	}
	k := &known{err: errors.New("the disk is full")}
	if _, err := New(k, "/", 0).Call(t.Context(),
		agent.Call{Input: json.RawMessage(`{"file":"a"}`)}); err == nil {
		t.Error("a failure of the runtime passes for an answer")
	}
}
