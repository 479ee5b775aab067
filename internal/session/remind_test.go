package session

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/drover-dev/drover/test/modeltest"
)

// The main agent is reminded of what runs beside it: heading, one line a task, how to read the result and to end it.
func TestTaskReminder(t *testing.T) {
	r, server := served(t, func(context.Context, *modeltest.Request) modeltest.Answer { return modeltest.Text("well") })
	rec := r.run("echo on; sleep 600")
	r.ready(string(rec.ID))
	c := converse(r)
	c.say("go")
	c.next()
	now, err := r.Get(r.ctx, string(rec.ID))
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("<system-reminder>\\nBackground tasks:\\n- [%s] local_bash (%s): echo on; sleep 600\\n\\nTaskOutput reads the result of a task, TaskStop ends one.\\n</system-reminder>",
		rec.ID, now.Status)
	body := strings.NewReplacer(`\u003c`, "<", `\u003e`, ">").Replace(string(of(server, "main")[0].Body))
	if !strings.Contains(body, want) {
		t.Errorf("the first request lacks %s:\n%s", want, body)
	}
}
