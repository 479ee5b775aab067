package cli

import (
	"slices"
	"strings"
	"testing"

	"github.com/drover-dev/drover/task"
)

func TestSteer(t *testing.T) {
	live := task.Record{ID: "a00000001", Name: "ada", Kind: task.LocalAgent, Status: task.Running}
	ended := task.Record{ID: "a00000002", Name: "bob", Kind: task.LocalAgent, Status: task.Completed}
	for _, tt := range []struct {
		words []string
		out   string
		told  string // to the session
		code  int
		err   string
	}{
		{[]string{"send", "ada", "go left"}, "a00000001\n", "a00000001: go left", 0, ""},
		{[]string{"send", "--json", "ada", "go left"}, `"task_id":"a00000001"`, "a00000001: go left", 0, ""},
		{[]string{"send", "slive0000", "hello"}, "slive0000\n", "prompt: hello", 0, ""},
		{[]string{"send", "sl", "hello"}, "slive0000\n", "prompt: hello", 0, ""},
		{[]string{"send", "sx", "hello"}, "", "", 3, "no task"},
		{[]string{"send", "ada"}, "", "", 2, "usage: "},
		{[]string{"resume", "bob"}, "a00000002\n", "a00000002 goes on: ", 0, ""},
		{[]string{"resume", "bob", "the rest"}, "a00000002\n", "a00000002 goes on: the rest", 0, ""},
		{[]string{"resume", "slive0000"}, "", "", 3, "no task"},
		{[]string{"pause", "ada"}, "a00000001\n", "", 0, ""},
		{[]string{"pause", "--json", "ada"}, `"paused":true`, "", 0, ""},
		{[]string{"pause", "ada", "bob"}, "", "", 1, "pause a00000001, a00000002: it has ended"},
		{[]string{"pause"}, "", "", 2, "usage: "},
	} {
		t.Run(strings.Join(tt.words, " "), func(t *testing.T) {
			s := newSession("slive0000", true, live, ended)
			w := &world{mine: []*session{s}}
			got := w.do(t, tt.words...)
			squeezed := strings.ReplaceAll(got.out, `": `, `":`)
			if got.code != tt.code || !strings.Contains(squeezed, tt.out) || !strings.Contains(got.err, tt.err) || tt.code != 0 && got.out != "" {
				t.Errorf("got %+v", got)
			}
			if tt.told != "" && !slices.Equal(s.told, []string{tt.told}) || tt.told == "" && len(s.told) > 0 {
				t.Errorf("the session was told %q", s.told)
			}
		})
	}
}
