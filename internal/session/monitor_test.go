package session

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/engine/mailbox"
	"github.com/drover-dev/drover/internal/session/agents"
	"github.com/drover-dev/drover/internal/tool/monitortool"
	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/test/modeltest"
)

// watching makes a start request one of a monitor.
func watching(m control.MonitorRequest) func(*control.StartRequest) {
	return func(r *control.StartRequest) { r.Shell, r.Monitor = nil, &m }
}

func TestMonitorStart(t *testing.T) {
	r := open(t, "")
	line := control.MonitorRequest{Shell: &control.ShellRequest{Line: "echo one; echo two; pwd"}, Match: "o"}
	rec := r.wait(string(r.run("", watching(line), named("eye")).ID))[0]
	if rec.Kind != task.MonitorMCP || rec.Status != task.Completed || rec.Name != "eye" || rec.Priority != task.Next || rec.Pool != agents.MonitorPool || !rec.Backgrounded {
		t.Errorf("%+v", rec)
	}
	if m := rec.Progress.Monitor; m == nil || m.Lines != 3 || m.Events < 2 || m.Notified != 0 {
		t.Errorf("counted %+v", m)
	}
	c, err := r.Output(r.ctx, control.OutputRequest{Ref: "eye"})
	if real, _ := filepath.EvalSymlinks(r.folder); err != nil || !strings.HasSuffix(string(c.Data), "two\n"+real+"\n") {
		t.Errorf("output %q, %v", c.Data, err)
	}
	for name, change := range map[string]func(*control.StartRequest){
		"both":     func(q *control.StartRequest) { q.Monitor = &line },
		"nothing":  watching(control.MonitorRequest{}),
		"relative": watching(control.MonitorRequest{File: "x"}),
		"match":    watching(control.MonitorRequest{File: "/x", Match: "("}),
		"keep":     func(q *control.StartRequest) { watching(line)(q); q.Keep = true },
		"time":     func(q *control.StartRequest) { watching(line)(q); q.Timeout = -1 },
	} {
		if got := r.ask("true", change); got.Error == nil || got.Error.Code != control.Invalid {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// Where monitors are turned off there is no tool, and nobody can start one.
func TestMonitorsOff(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"monitors": func(c *Config) { c.Options.Monitors.Enabled = false }, "background": func(c *Config) { c.Options.Tasks.DisableBackground = true }, "on": func(*Config) {},
	} {
		r := open(t, "  main:\n  - text: ok\n", change)
		m, err := r.OpenMain(r.ctx, MainConfig{})
		if err != nil {
			t.Fatal(err)
		}
		if has := slices.Contains(m.Tools(), "Monitor"); has != (name == "on") {
			t.Errorf("%s: the main agent has the tool: %v", name, has)
		}
		got := r.ask("", watching(control.MonitorRequest{Shell: &control.ShellRequest{Line: "true"}}))
		if (got.Error != nil && got.Error.Code == control.Unavailable) != (name == "monitors") {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// One more than may be live waits for its turn.
func TestMonitorLimit(t *testing.T) {
	r := open(t, "", func(c *Config) { c.Options.Limits.Monitors = 1 })
	first := r.run("", watching(control.MonitorRequest{Shell: &control.ShellRequest{Line: "echo ready; exec sleep 640"}}))
	r.ready(string(first.ID))
	second := r.run("", watching(control.MonitorRequest{Shell: &control.ShellRequest{Line: "echo ready"}}))
	if got, _ := r.sup.Get(second.ID); got.Status != task.Pending {
		t.Errorf("the second is %s", got.Status)
	}
	if _, err := r.Stop(r.ctx, control.StopRequest{Refs: []string{string(first.ID)}}); err != nil {
		t.Fatal(err)
	}
	if got := r.wait(string(second.ID))[0]; got.Status != task.Completed {
		t.Errorf("the second is %s", got.Status)
	}
}

// An event goes before a prompt that waits, and is told of once; the conversation
// does not wait for the monitor, which is ended with it.
func TestMonitorEvent(t *testing.T) {
	hold := make(chan struct{})
	r, server := served(t, func(_ context.Context, q *modeltest.Request) modeltest.Answer {
		a := modeltest.Text("answer")
		if q.N == 1 {
			a.Wait = hold
		}
		return a
	})
	c := converse(r)
	c.say("first")
	m := r.main.environment().Monitors()
	rec, err := m.Monitor(r.ctx, monitortool.Request{Description: "watch it", Line: "echo '<b>event</b>'; exec sleep 641", Cwd: r.folder})
	if err != nil {
		t.Fatal(err)
	}
	c.say("second")
	box, err := r.mail.Open(r.ctx, r.cfg.Info.Session)
	if err != nil {
		t.Fatal(err)
	}
	for {
		mailed := box.Mailed()
		mail, err := box.Mail(r.ctx)
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(mail, func(x mailbox.Mail) bool { return x.Message.Kind == task.MonitorEvent }) {
			break
		}
		select {
		case <-mailed:
		case <-r.ctx.Done():
			t.Fatal("the event does not come")
		}
	}
	close(hold)
	c.next()
	c.next()
	if _, err := c.settle(patience); err != nil {
		t.Fatal(err)
	}
	asked := of(server, "main")
	want := "<task-notification>\n<task-id>" + string(rec.ID) + "</task-id>\n<event>&lt;b&gt;event&lt;/b&gt;</event>\n</task-notification>"
	all := asked[1].LastText()
	if len(asked) != 2 || strings.Count(all, want) != 1 || strings.Index(all, want) > strings.Index(all, "second") {
		t.Errorf("%d requests; the second says %q", len(asked), all)
	}
	live, err := r.EndMonitors(r.ctx)
	if err != nil || len(live) != 1 || live[0].ID != rec.ID {
		t.Errorf("ended %+v, %v", live, err)
	}
	if got, _ := r.sup.Get(rec.ID); got.Status != task.Killed || got.Cause.Reason != task.ReasonClosing {
		t.Errorf("it is %s: %+v", got.Status, got.Cause)
	}
	if again, err := r.EndMonitors(r.ctx); err != nil || len(again) > 0 {
		t.Errorf("again: %+v, %v", again, err)
	}
}

// A monitor does not outlive its session, and its end is told as that of a monitor.
func TestMonitorCloses(t *testing.T) {
	r := open(t, "")
	rec := r.run("", watching(control.MonitorRequest{File: filepath.Join(r.folder, "x")}))
	if _, err := r.Wait(r.ctx, control.WaitRequest{Refs: []string{string(rec.ID)}, Timeout: 1}); err != nil {
		t.Fatal(err)
	}
	r.reopen()
	got, err := r.Get(r.ctx, string(rec.ID))
	if err != nil || got.Status != task.Killed || got.Cause.Reason != task.ReasonClosing {
		t.Errorf("%+v, %v", got.Cause, err)
	}
}
