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
			if !errors.As(err, &size) || size.Limit != c.limit || size.Bytes != c.limit+1 || size.Fix == "" ||
				!strings.Contains(err.Error(), fmt.Sprint(c.limit)) || !strings.Contains(err.Error(), size.Fix) {
				t.Errorf("above the limit: %v", err)
			}
		})
	}
}
