package task_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/drover-dev/drover/task"
)

// What a task is started with has limits, and who passes one is told which, and what to do.
func TestSpecCheck(t *testing.T) {
	long := func(n int) string { return strings.Repeat("x", n) }
	for name, c := range map[string]struct {
		set   func(*task.Spec, string)
		limit int
	}{
		"name":        {func(s *task.Spec, v string) { s.Name = v }, task.MaxName},
		"description": {func(s *task.Spec, v string) { s.Description = v }, task.MaxDescription},
		"command":     {func(s *task.Spec, v string) { s.Command = v }, task.MaxCommand},
		"prompt":      {func(s *task.Spec, v string) { s.Prompt = v }, task.MaxSpecPrompt},
		"folder":      {func(s *task.Spec, v string) { s.Cwd = v }, task.MaxPath},
		"input":       {func(s *task.Spec, v string) { s.Input = []byte(v) }, task.MaxInput},
		"key":         {func(s *task.Spec, v string) { s.Key = v }, task.MaxWord},
	} {
		t.Run(name, func(t *testing.T) {
			var s task.Spec
			c.set(&s, long(c.limit))
			if err := s.Check(); err != nil {
				t.Errorf("at the limit: %v", err)
			}
			c.set(&s, long(c.limit+1))
			err := s.Check()
			var size *task.SizeError
			if !errors.As(err, &size) || size.Limit != c.limit || size.Bytes != c.limit+1 || size.Mend == "" ||
				!strings.Contains(err.Error(), fmt.Sprint(c.limit)) || !strings.Contains(err.Error(), size.Mend) {
				t.Errorf("above the limit: %v", err)
			}
		})
	}
}

// A record stays short whatever a task was started with, and whatever it reports.
func TestRecordStaysShort(t *testing.T) {
	const most = 64 << 10
	huge := strings.Repeat("é", 1<<20)
	r := task.Record{ID: "b00000001", Status: task.Pending, Command: huge, Prompt: huge, Description: huge}.Short()
	if r.CommandBytes != len(huge) || !strings.HasPrefix(huge, r.Command[:100]) || !strings.Contains(r.Command, "bytes more]") {
		t.Errorf("command: %d bytes of %d", len(r.Command), r.CommandBytes)
	}
	if again := r.Short(); again.Command != r.Command || again.CommandBytes != r.CommandBytes {
		t.Error("what is short was shortened again")
	}
	state := &task.MCPState{Message: huge}
	for _, c := range []task.Change{
		{Verb: task.Begin},
		{Verb: task.Report, Progress: &task.Progress{Message: huge, Phase: huge, MCPTask: state}, Summary: huge},
		{Verb: task.Fail, Error: huge, Cause: &task.Cause{Detail: huge}},
	} {
		var err error
		if r, err = task.Apply(r, c); err != nil {
			t.Fatal(err)
		}
		if n := r.Weight(); n > most || len(r.Error) > task.MaxRecordError {
			t.Errorf("after %s the record weighs %d", c.Verb, n)
		}
	}
	if state.Message != huge {
		t.Error("what was reported was changed")
	}
	if m := r.Progress.MCPTask.Message; len(m) > task.MaxRecordText {
		t.Errorf("a message of an MCP server has %d bytes", len(m))
	}
}
