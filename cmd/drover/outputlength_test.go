package main

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/drover-dev/drover/test/modeltest"
)

// The length of output that a model is shown holds on every way to it: the result of
// a command, a look at a task, and a notification.
func TestOutputLength(t *testing.T) {
	const most = 500
	p := newPlace(t, build(t))
	p.env = append(p.env, "TASK_MAX_OUTPUT_LENGTH=500")
	fifo := p.fifo("f")
	m := p.model(map[string][]step{"main": {
		calls("Bash", bash("seq 1 5000")),
		calls("Bash", later("cat f; seq 1 5000; exit 3")),
		func(r *modeltest.Request) modeltest.Answer {
			go p.free(fifo)
			return modeltest.Call("TaskOutput", map[string]any{"task_id": idOf(r), "block": true})
		},
		says("done"), says("told"),
	}})
	p.good("-p", "go", anything)
	all := of(m, "main")
	look, _, _ := strings.Cut(all[3].LastText(), "<task-notification>") // which may be in the same message
	for what, text := range map[string]string{"the result": all[1].LastText(), "the look": look, "all": strings.Join(texts(t, all[len(all)-1]), "\n")} {
		if !strings.Contains(text, "5000") || strings.Contains(text, "\n2500\n") {
			t.Errorf("%s: %q", what, text)
		}
		if n := utf8.RuneCountInString(text); what != "all" && (n > most+200 || !strings.Contains(text, "[Truncated. Full output: ")) { // the words around it
			t.Errorf("%s has %d characters: %q", what, n, text)
		}
	}
}
