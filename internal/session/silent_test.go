package session

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/tool/tasktools"
	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/test/modeltest"
)

// The owner of an agent whose provider holds its answer is told once; the record says
// since when nothing was heard, the log does not, and what was heard of ended runs is
// forgotten.
func TestSilentProvider(t *testing.T) {
	asked, hold := make(chan struct{}), make(chan struct{})
	r, _ := served(t, func(context.Context, *modeltest.Request) modeltest.Answer {
		close(asked)
		a := modeltest.Text("at last")
		a.Wait = hold
		return a
	}, func(c *Config) { c.Options.Agents.StallAfter = 100 * time.Millisecond })
	out, err := r.asMain().Agent(r.ctx, tasktools.AgentRequest{Description: "looks", Prompt: "look", Type: "explore", Background: true})
	if err != nil {
		t.Fatal(err)
	}
	id := out.Task.ID
	<-asked
	box, err := r.mail.Open(r.ctx, r.cfg.Info.Session)
	if err != nil {
		t.Fatal(err)
	}
	if err := box.Wait(r.ctx); err != nil {
		t.Fatal(err)
	}
	told := r.stalls()
	if len(told) != 1 || told[0].Message.From != string(id) || told[0].Message.Priority != task.Next {
		t.Fatalf("told %+v", told)
	}
	for _, want := range []string{`Agent "looks" is silent`, "for 100ms", "It waits for model", "SendMessage to " + string(id)} {
		if !strings.Contains(told[0].Message.Text, want) {
			t.Errorf("without %q: %q", want, told[0].Message.Text)
		}
	}
	now, err := r.Get(r.ctx, string(id))
	if err != nil || now.LastHeard == nil || now.LastHeard.Before(now.CreateTime) || time.Since(*now.LastHeard) < 100*time.Millisecond {
		t.Errorf("last heard %v, %v", now.LastHeard, err)
	}
	if now.Progress == nil || !strings.HasPrefix(now.Progress.Summary, "Silent for 100ms: it waits for model") {
		t.Errorf("the record: %+v", now.Progress)
	}
	close(hold)
	if end := r.wait(string(id))[0]; end.Status != task.Completed {
		t.Errorf("it ended %s", end.Status)
	}
	if got, err := r.Get(r.ctx, string(id)); err != nil || got.LastHeard != nil || r.activity.Following() != 0 {
		t.Errorf("after its end: %v, %v, %d agents are followed", got.LastHeard, err, r.activity.Following())
	}
	if n := len(r.stalls()); n != 1 {
		t.Errorf("told %d times", n)
	}
	events, err := r.Since(r.ctx, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		if data, err := json.Marshal(e); err != nil || strings.Contains(string(data), "last_heard") {
			t.Errorf("the log holds %s, %v", data, err)
		}
	}
}

// A detached conversation has no owner: its record says that it is silent, and no longer
// when it is heard of again.
func TestSilentMain(t *testing.T) {
	hold, heard, again := make(chan struct{}), make(chan struct{}), make(chan struct{})
	asked := 0
	r, _ := served(t, func(_ context.Context, q *modeltest.Request) modeltest.Answer {
		asked++ // the same call again and again would end the turn
		a := modeltest.Call("report_intent", map[string]string{"intent": fmt.Sprintf("Looking on, %d", asked)})
		a.Wait = hold
		if !strings.Contains(string(q.Body), "Looking on") {
			return a
		}
		select {
		case <-heard:
			a = modeltest.Text("done")
			a.Wait = again
		default: // it is busy until that was seen
			a.Wait = pause(50 * time.Millisecond)
		}
		return a
	}, func(c *Config) { c.Options.Agents.StallAfter = 500 * time.Millisecond })
	m, err := r.OpenMain(r.ctx, MainConfig{})
	if err != nil {
		t.Fatal(err)
	}
	rec := r.start(m, "go", time.Second)
	next, stop := iter.Pull2(r.Events(r.ctx, 0)) // each in turn: what a record says while nobody looks is not missed
	defer stop()
	const silence = "Silent for 500ms: it waits for model"
	says := func(silent bool) {
		t.Helper()
		for {
			e, err, _ := next()
			if err != nil {
				t.Fatalf("the record never says that silence is %v: %v", silent, err)
			}
			if p := e.Task.Progress; e.Task.ID == rec.ID && p != nil && p.Summary != "" && strings.Contains(p.Summary, silence) == silent {
				return
			}
		}
	}
	says(true)
	close(hold)
	says(false) // that it is heard of again, or what it does
	close(heard)
	says(true)
	close(again)
	if end := r.wait(string(rec.ID))[0]; end.Status != task.Completed || len(r.stalls()) != 0 {
		t.Errorf("it ended %s, and told %+v", end.Status, r.stalls())
	}
}

// pause is closed after a while.
func pause(d time.Duration) <-chan struct{} {
	over := make(chan struct{})
	time.AfterFunc(d, func() { close(over) })
	return over
}

// The step of a workflow has no owner: that of the workflow is told, and of the agent
// that a silent one waits for in the foreground nobody is.
func TestSilentStep(t *testing.T) {
	hold := make(chan struct{})
	r, server := served(t, func(_ context.Context, q *modeltest.Request) modeltest.Answer {
		last := q.LastText()
		switch {
		case q.Agent() == "plan":
			a := modeltest.Text("seen")
			a.Wait = hold
			return a
		case q.Agent() == "general-purpose" && !strings.Contains(last, "seen"):
			return modeltest.Call("Agent", map[string]any{"subagent_type": "plan", "prompt": "look closer", "description": "closer"})
		case strings.Contains(last, "is silent"):
			close(hold)
		case strings.HasSuffix(last, "\ngo"):
			return modeltest.Call("Workflow", map[string]any{"file": "w.yaml"})
		}
		return modeltest.Text("well")
	}, func(c *Config) { c.Options.Agents.StallAfter = 300 * time.Millisecond })
	if err := os.WriteFile(filepath.Join(r.folder, "w.yaml"), []byte("name: w\nsteps:\n  - {id: look, agent: {type: general-purpose, prompt: look}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := converse(r)
	c.say("go")
	for range 3 { // the prompt, the silence, the end
		c.next()
	}
	told := ""
	for _, q := range of(server, "main") {
		if text := q.LastText(); strings.Contains(text, "is silent") {
			told += text
		}
	}
	if strings.Count(told, "is silent") != 1 || !strings.Contains(told, `Agent "step look of w" is silent`) || !strings.Contains(told, "It is in a call of Agent that began ") {
		t.Errorf("the owner was told %q", told)
	}
}
